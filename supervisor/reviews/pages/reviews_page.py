"""The review service as pages and JSON: repositories, reviews, one review, an act on its card."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, get, patch, post
from litestar.params import FromQuery, JSONBody
from markupsafe import Markup

from supervisor.core.actions import Action
from supervisor.core.approvals import Request, status
from supervisor.core.forge_acts import Act
from supervisor.core.safe_markdown import safe
from supervisor.core.text.duration import parse_duration
from supervisor.errors import GatehouseError, NotFoundError, UserError
from supervisor.parts import Parts
from supervisor.reviews.bitbucket_acts import ask_by_tool
from supervisor.reviews.configurations import RUNTIME, WHOLE, owner_of
from supervisor.reviews.core import posts
from supervisor.reviews.holds import HoldScope
from supervisor.reviews.pages import job_views, post_views, review_views
from supervisor.reviews.pages.review_views import (
    ConfigurationView,
    DeliveryView,
    HoldView,
    ReceiptView,
    RepositoryView,
    ReviewView,
    RoundsView,
    UsageView,
    service_of,
    usage,
)
from supervisor.reviews.service import ReviewService
from supervisor.reviews.store.holds import Hold
from supervisor.reviews.targets import pull_named
from supervisor.server.common.request_views import RequestView, request_view
from supervisor.server.operator.decisions import shown_by
from supervisor.server.operator.operator_api import (
    AnyRequest,
    CallBody,
    Id,
    Limit,
    caller,
    parts_of,
)
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.pages.page_frame import Form
from supervisor.server.operator.pages.request_cards import card_after

# The period whose cost the page of all reviews shows.
USAGE_S = 30 * 86_400.0
_Line = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]


class OwnerSettings(CallBody, frozen=True, kw_only=True):
    """Configuration of all repositories of an owner. An omitted field stays unchanged, and an empty
    one unsets it.
    """

    strictness: Literal["", "lenient", "balanced", "strict"] | None = None
    ignore: Annotated[tuple[_Line, ...], msgspec.Meta(max_length=100)] | None = None
    checklist: Annotated[tuple[_Line, ...], msgspec.Meta(max_length=100)] | None = None
    reviewerc: Annotated[str, msgspec.Meta(max_length=65_536)] | None = None
    runtime: Literal["", "loop", "sdk", "cli"] | None = None


class RepositorySettings(OwnerSettings, frozen=True, kw_only=True):
    """The same for one repository. `enabled`: its pull requests are reviewed."""

    enabled: bool | None = None


class PullWanted(CallBody, frozen=True, kw_only=True):
    """A pull request by its URL, or as `OWNER/REPO#NUMBER`."""

    pull: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class AgentComment(CallBody, frozen=True, kw_only=True):
    """The arguments of a tool that writes, with its `repository`."""

    arguments: dict[str, Any]


class UndoWanted(CallBody, frozen=True, kw_only=True):
    """A review by its id, or a pull request by its URL or as `OWNER/REPO#NUMBER`."""

    of: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class HoldReleased(CallBody, frozen=True, kw_only=True):
    """The scope of a hold: `key` is a forge, `OWNER/REPO`, or a pull request as `PullWanted` has
    it; "" for all."""

    scope: HoldScope
    key: Annotated[str, msgspec.Meta(max_length=500)] = ""


class HoldWanted(HoldReleased, frozen=True, kw_only=True):
    """The same with its reason."""

    why: Annotated[str, msgspec.Meta(max_length=500)] = ""


class WishOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a wish, in a word."""

    outcome: str


# -- JSON -----------------------------------------------------------------------------------------


@get("/api/repos", sync_to_thread=False)
def list_repositories(request: AnyRequest) -> list[RepositoryView]:
    """Return the repositories that the App is installed on."""
    return review_views.repositories(service_of(request))


@patch("/api/repos/{repository_id:str}/settings", sync_to_thread=False)
def change_repository(
    request: AnyRequest, repository_id: Id, data: JSONBody[RepositorySettings]
) -> list[RepositoryView]:
    """Change the settings of a repository."""
    service = service_of(request)
    known = review_views.repository(service, repository_id)
    service.configurations.change(known.id, _given(data))
    if data.enabled is not None:
        service.set_enabled(known.id, is_enabled=data.enabled)
    _read_jobs(request, known.full_name)
    return review_views.repositories(service)


@patch("/api/owners/{owner:str}/settings", sync_to_thread=False)
def change_owner(
    request: AnyRequest, owner: Id, data: JSONBody[OwnerSettings]
) -> list[RepositoryView]:
    """Change the settings of all repositories of an owner. Return its repositories."""
    service = service_of(request)
    shown = [
        one
        for one in review_views.repositories(service)
        if one.name.lower().startswith(f"{owner.lower()}/")
    ]
    if not shown:
        raise NotFoundError("no repository has this owner", "`gatehouse repos list` lists them")
    forge, _, name = owner.rpartition(":")
    service.configurations.change_owner(forge or "github", name, _given(data))
    _read_jobs(request, f"{name}/")
    return shown


@get("/api/repos/{repository_id:str}/configuration")
async def get_configuration(request: AnyRequest, repository_id: Id) -> ConfigurationView:
    """Return what holds for a repository's reviews on its default branch, and who says it."""
    service = service_of(request)
    return await review_views.configuration(
        service, review_views.repository(service, repository_id)
    )


@get("/api/reviews", sync_to_thread=False)
def list_reviews(request: AnyRequest, limit: Limit = 100) -> list[ReviewView]:
    """Return the newest reviews."""
    return review_views.reviews(service_of(request), limit)


@post("/api/reviews", status_code=200)
async def review_pull(request: AnyRequest, data: JSONBody[PullWanted]) -> WishOutcome:
    """Have a pull request reviewed, also where it was."""
    name, number = pull_named(data.pull)
    return WishOutcome(outcome=await service_of(request).review_pull(name, number))


@post("/api/bitbucket/{tool:str}", status_code=200)
async def comment_for_agent(
    request: AnyRequest, tool: Id, data: JSONBody[AgentComment]
) -> RequestView:
    """Ask for a comment that an agent outside of Gatehouse wants to make; return the request."""
    parts = parts_of(request)
    why = "an agent outside of Gatehouse asks, by its tools for Bitbucket"
    asked = await ask_by_tool(service_of(request), parts.gate, tool, data.arguments, why)
    return request_view(asked, parts)


@get("/api/reviews/{run_id:str}", sync_to_thread=False)
def get_review(request: AnyRequest, run_id: Id) -> ReviewView:
    """Return one review with its findings."""
    return review_views.review(service_of(request), run_id)


@get("/api/reviews/{run_id:str}/receipts", sync_to_thread=False)
def get_receipts(request: AnyRequest, run_id: Id) -> list[ReceiptView]:
    """Return the receipts of a review's head."""
    service = service_of(request)
    return review_views.receipts(service, review_views.run_of(service, run_id))


@get("/api/reviews/{run_id:str}/rounds", sync_to_thread=False)
def get_rounds(request: AnyRequest, run_id: Id) -> RoundsView:
    """Return the rounds of a review's pull request, and its findings over them."""
    service = service_of(request)
    return review_views.rounds(service, review_views.run_of(service, run_id))


@get("/api/reviews/{run_id:str}/trace", sync_to_thread=True)
def get_trace(request: AnyRequest, run_id: Id) -> list[dict[str, Any]]:
    """Return the turns of a review: what the model said and called, tokens and seconds."""
    parts = parts_of(request)
    run = review_views.run_of(service_of(request), run_id)
    return review_views.trace(parts, run.session_id)


@post("/api/reviews/{run_id:str}/requeue", status_code=200)
async def requeue(request: AnyRequest, run_id: Id) -> WishOutcome:
    """Have the pull request of a review reviewed anew."""
    service = service_of(request)
    view = review_views.review(service, run_id)
    return WishOutcome(outcome=await service.review_pull(view.repository, view.number))


@post("/api/reviews/undo", status_code=200)
async def undo_reviews(request: AnyRequest, data: JSONBody[UndoWanted]) -> list[str]:
    """Take back what a review posted, or all that stands on a pull request; the reviews' ids."""
    service = service_of(request)
    return await service.take_back.undo(data.of, by=caller(request).name)


@get("/api/usage", sync_to_thread=True)
def get_usage(request: AnyRequest, period: FromQuery[str] = "30d") -> UsageView:
    """Return what reviews cost in the last days, and what of each cap is used."""
    parts = parts_of(request)
    return usage(service_of(request), parse_duration(period, "period"), parts.clock.now())


@get("/api/deliveries", sync_to_thread=False)
def list_deliveries(request: AnyRequest, limit: Limit = 100) -> list[DeliveryView]:
    """Return the newest webhooks."""
    return review_views.deliveries(service_of(request), limit)


@post("/api/deliveries/{delivery_id:str}/again", status_code=200, sync_to_thread=False)
def handle_again(request: AnyRequest, delivery_id: Id) -> WishOutcome:
    """Have a webhook handled again."""
    service_of(request).handle_again(delivery_id)
    return WishOutcome(outcome="waits")


@get("/api/holds", sync_to_thread=False)
def list_holds(request: AnyRequest) -> list[HoldView]:
    """Return the holds that stand, oldest first."""
    return review_views.holds(service_of(request).holds.standing())


@post("/api/holds", status_code=200)
async def hold_reviews(request: AnyRequest, data: JSONBody[HoldWanted]) -> list[HoldView]:
    """Hold reviews: none starts and nothing is posted; return the holds that stand then."""
    service, by = service_of(request), caller(request).name
    return review_views.holds(service.hold(data.scope, data.key, by=by, why=data.why))


@post("/api/holds/release", status_code=200)
async def release_reviews(request: AnyRequest, data: JSONBody[HoldReleased]) -> list[HoldView]:
    """Release a hold; return those that stand still."""
    service, by = service_of(request), caller(request).name
    return review_views.holds(service.release(data.scope, data.key, by=by))


def _given(settings: OwnerSettings) -> dict[str, object]:
    """Return the configuration that isn't left out."""
    found = msgspec.to_builtins(settings)
    found.pop("enabled", None)
    return {key: value for key, value in found.items() if value is not None}


def _read_jobs(request: AnyRequest, name: str) -> None:
    """Have the jobs known that the settings of a repository, or of `OWNER/`, name now."""
    refreshing = service_of(request).schedule.refresh(name)
    parts_of(request).gate.handlers.run(refreshing, "jobs-known")


# -- pages ----------------------------------------------------------------------------------------


@get("/reviews", include_in_schema=False, sync_to_thread=False)
def reviews(request: AnyRequest) -> Response[str]:
    """Show the newest reviews, and the repositories."""
    parts = parts_of(request)
    service = service_of(request)
    return page_frame.page(
        request,
        "reviews.html",
        "reviews",
        repositories=review_views.repositories(service),
        reviews=review_views.reviews(service),
        usage=usage(service, USAGE_S, parts.clock.now()),
        notices=service.notices(),
        backlog=review_views.backlog_words(service, parts.clock.now()),
        **_holds(service.holds.standing()),
    )


@get("/reviews/{run_id:str}", include_in_schema=False)
async def review(request: AnyRequest, run_id: Id) -> Response[str]:
    """Show one review: findings, acts, receipts."""
    parts = parts_of(request)
    view = review_views.review(service_of(request), run_id)
    summary = await post_views.rendered(parts, safe(view.summary))
    bodies = {
        one["id"]: await post_views.rendered(parts, safe(one["finding"]["body"]))
        for one in view.findings
    }
    return await asyncio.to_thread(_review, request, view, summary, bodies)


def _review(
    request: AnyRequest, view: ReviewView, summary: Markup, bodies: dict[str, Markup]
) -> Response[str]:
    parts, service = parts_of(request), service_of(request)
    run = review_views.run_of(service, view.id)
    repository = service.repository_named(view.repository)
    acts = [
        (request_view(one, parts), service.own_page(one.action.forge, _url(one)))
        for one in parts.queue.of_session(repository.session_id)
        if isinstance(one.action, Act) and one.action.head == view.head
    ]
    history = review_views.rounds(service, run)
    return page_frame.page(
        request,
        "review_run.html",
        "reviews",
        forge=service.forge_title(repository.forge),
        review=view,
        summary=summary,
        bodies=bodies,
        rounds=history.rounds,
        tracked=history.findings,
        acts=acts,
        receipts=review_views.receipts(service, run),
        turns=review_views.trace(parts, run.session_id),
    )


@post("/repos/{repository_id:str}/enabled", include_in_schema=False, status_code=200)
async def switch(request: AnyRequest, repository_id: Id, data: Form) -> Response[str]:
    """Switch a repository's reviews on or off; show the updated list."""
    service = service_of(request)
    service.set_enabled(review_views.number(repository_id), is_enabled=data.get("enabled") == "yes")
    return page_frame.html(
        "parts/repositories.html", repositories=review_views.repositories(service)
    )


@get("/repos/{repository_id:str}", include_in_schema=False)
async def repository(request: AnyRequest, repository_id: Id) -> Response[str]:
    """Show one repository: its effective review configuration, and the settings made here."""
    service = service_of(request)
    known = review_views.repository(service, repository_id)
    view = await review_views.configuration(service, known)
    found = await asyncio.to_thread(job_views.all_jobs, service, known.id)
    return page_frame.page(
        request, "repository.html", "reviews", repository=known, view=view, jobs=found, error=""
    )


@post("/repos/{repository_id:str}/settings", include_in_schema=False, status_code=200)
async def set_settings(request: AnyRequest, repository_id: Id, data: Form) -> Response[str]:
    """Store the settings of a repository, or `of` all of its owner; show the configuration then in
    force."""
    service = service_of(request)
    known = review_views.repository(service, repository_id)
    changes: dict[str, object] = {one: data.get(one, "") for one in ("strictness", RUNTIME)}
    for name in ("ignore", "checklist"):
        lines = data.get(name, "").replace("\r\n", "\n").split("\n")
        changes[name] = [line.strip() for line in lines if line.strip()]
    changes[WHOLE] = data.get(WHOLE, "").replace("\r\n", "\n")[:65_536].strip("\n")
    error = ""
    try:
        if data.get("of") == "owner":
            service.configurations.change_owner(known.forge, owner_of(known), changes)
            _read_jobs(request, f"{owner_of(known)}/")
        else:
            service.configurations.change(known.id, changes)
            _read_jobs(request, known.full_name)
    except GatehouseError as found:
        error = str(found)
    known = review_views.repository(service, repository_id)
    view = await review_views.configuration(service, known)
    return page_frame.html("parts/configuration.html", repository=known, view=view, error=error)


@post("/holds", include_in_schema=False, status_code=200)
async def hold(request: AnyRequest, data: Form) -> Response[str]:
    """Hold reviews, or release a hold; show the updated holds."""
    service, by = service_of(request), caller(request).name
    key, is_release = data.get("key", "").strip(), "release" in data
    try:
        scope = msgspec.convert(data.get("scope", ""), HoldScope)
        if is_release:
            found = service.release(scope, key, by=by)
        else:
            found = service.hold(scope, key, by=by, why=data.get("why", ""))
    except msgspec.ValidationError:
        error: GatehouseError = UserError("no such scope", "choose what is held")
    except GatehouseError as failure:
        error = failure
    else:
        return page_frame.html("parts/holds.html", **_holds(found))
    shown = _holds(service.holds.standing()) | {"error": str(error)}
    return page_frame.html("parts/holds.html", error, **shown)


@get("/parts/act/{request_id:str}", include_in_schema=False)
async def act_part(request: AnyRequest, request_id: Id) -> Response[str]:
    """Show what an act would say, each finding at its line."""
    parts = parts_of(request)
    shown = await post_views.post_view(parts, parts.queue.get(request_id))
    return await asyncio.to_thread(page_frame.html, "parts/act.html", post=shown)


@post("/parts/act/{request_id:str}/words", include_in_schema=False, status_code=200)
async def words_part(request: AnyRequest, request_id: Id, data: Form) -> Response[str]:
    """Show one text as the forge would show what is ticked and worded now: `of` is its finding, or
    `body`."""
    parts = parts_of(request)
    act = post_views.act_of(parts.queue.get(request_id))
    kept, texts = _form(act, data)
    comment = next((one for one in act.comments if one.finding == data.get("of")), None)
    if comment is None:
        text = post_views.shown_text(posts.without_mark(posts.taken(act, kept, texts).body))
        shown = await post_views.rendered(parts, text)
        return page_frame.html("parts/act_words.html", html=shown, finding=None, id=request_id)
    code = service_of(request).code_of(act)
    text = texts.get(comment.finding, comment.body)[: posts.MOST_BODY_CHARS]
    finding = await post_views.finding_view(parts, comment, text, code)
    return page_frame.html("parts/act_words.html", finding=finding, html="", id=request_id)


@post("/requests/{request_id:str}/act", include_in_schema=False, status_code=200)
async def answer_act(request: AnyRequest, request_id: Id, data: Form) -> Response[str]:
    """Approve the ticked findings, in the words now in the form."""
    parts = parts_of(request)
    kept, texts = _form(post_views.act_of(parts.queue.get(request_id)), data)

    async def answered() -> Request:
        return service_of(request).answer_part(
            request_id,
            kept if "text-body" in data else None,
            texts,
            by=caller(request).name,
            fingerprint=shown_by(data.get("fingerprint", "")),
        )

    return await card_after(parts, request_id, answered())


@post("/requests/{request_id:str}/open-pull", include_in_schema=False, status_code=200)
async def open_pull(request: AnyRequest, request_id: Id) -> Response[str]:
    """Open a pull request for a push that was carried out; show the card of that act."""
    parts = parts_of(request)
    asked = parts.queue.get(request_id)

    async def opened() -> Request:
        return service_of(request).open_pull(asked, by=caller(request).name)

    return await card_after(parts, request_id, opened())


def card_extras(parts: Parts, request: Request) -> dict[str, Any]:
    """Return a card's additions: whether words are to be read in `act_part`, whether `open_pull`
    may follow, and where on the forge what was posted stands."""
    act, service = request.action, parts.reviews
    has_words = isinstance(act, Act) and (
        act.is_of_job or act.operation in ("post", "comment", "reply")
    )
    return {
        "has_act": has_words and status(request) == "pending",
        "can_open_pull": service is not None and service.pull_of_push(request) is not None,
        **_there(service, act, _url(request)),
    }


def _there(service: ReviewService | None, act: Action, url: str) -> dict[str, str]:
    """Return what an act made on its forge: the address, and the forge's name."""
    if service is None or not isinstance(act, Act):
        return {"forge_url": "", "forge": ""}
    return {"forge_url": service.own_page(act.forge, url), "forge": service.forge_title(act.forge)}


def _url(request: Request) -> str:
    """Return the address that the forge gave of what an act made; "" for none."""
    url = (request.outcome or {}).get("url", "") if isinstance(request.action, Act) else ""
    return url if isinstance(url, str) else ""


def _holds(found: Sequence[Hold]) -> dict[str, Any]:
    """Return the values for `parts/holds.html`."""
    return {"holds": review_views.holds(found), "error": ""}


def _form(act: Act, data: dict[str, str]) -> tuple[set[str], dict[str, str]]:
    """Return the findings that are ticked, and the texts that a person changed."""
    kept = {name.removeprefix("keep-") for name in data if name.startswith("keep-")}
    sent = {
        name.removeprefix("text-"): text.replace("\r\n", "\n")
        for name, text in data.items()
        if name.startswith("text-")
    }
    return kept, post_views.changed_texts(act, sent)
