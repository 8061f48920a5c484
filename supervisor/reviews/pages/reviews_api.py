"""Routes of the review service: repositories, reviews, deliveries. The operator's alone.

Routes that only read use `review_views`; the others call the service.
"""

from typing import Annotated, Any, Literal

import msgspec
from litestar import get, patch, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from supervisor.core.text.duration import parse_duration
from supervisor.errors import NotFoundError
from supervisor.reviews.configurations import SETTINGS
from supervisor.reviews.holds import HoldScope, pull_named
from supervisor.reviews.pages import review_views
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
from supervisor.server.operator.operator_api import AnyRequest, Body, caller, parts_of

_Most = Annotated[int, QueryParameter(ge=1, le=1000)]
_Line = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]


class OwnerSettings(Body, frozen=True, kw_only=True):
    """Configuration of all repositories of an owner. An omitted field stays unchanged, and an empty
    one unsets it.
    """

    strictness: Literal["", "lenient", "balanced", "strict"] | None = None
    ignore: Annotated[tuple[_Line, ...], msgspec.Meta(max_length=100)] | None = None
    checklist: Annotated[tuple[_Line, ...], msgspec.Meta(max_length=100)] | None = None


class RepositorySettings(OwnerSettings, frozen=True, kw_only=True):
    """The same for one repository. `enabled`: its pull requests are reviewed."""

    enabled: bool | None = None


class PullWanted(Body, frozen=True, kw_only=True):
    """A pull request by its URL, or as `OWNER/REPO#NUMBER`."""

    pull: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class UndoWanted(Body, frozen=True, kw_only=True):
    """A review by its id, or a pull request by its URL or as `OWNER/REPO#NUMBER`."""

    of: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class HoldReleased(Body, frozen=True, kw_only=True):
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


@get("/api/repos", sync_to_thread=False)
def list_repositories(request: AnyRequest) -> list[RepositoryView]:
    """Return the repositories that the App is installed on."""
    return review_views.repositories(service_of(request))


@patch("/api/repos/{repository_id:str}/settings", sync_to_thread=False)
def change_repository(
    request: AnyRequest, repository_id: FromPath[str], data: JSONBody[RepositorySettings]
) -> list[RepositoryView]:
    """Change the settings of a repository."""
    service = service_of(request)
    number = review_views.repository(service, repository_id).id
    service.configurations.change(number, _given(data))
    if data.enabled is not None:
        service.set_enabled(number, is_enabled=data.enabled)
    return review_views.repositories(service)


@patch("/api/owners/{owner:str}/settings", sync_to_thread=False)
def change_owner(
    request: AnyRequest, owner: FromPath[str], data: JSONBody[OwnerSettings]
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
    service.configurations.change_owner("github", owner, _given(data))
    return shown


@get("/api/repos/{repository_id:str}/configuration")
async def get_configuration(request: AnyRequest, repository_id: FromPath[str]) -> ConfigurationView:
    """Return what holds for a repository's reviews on its default branch, and who says it."""
    service = service_of(request)
    return await review_views.configuration(
        service, review_views.repository(service, repository_id)
    )


@get("/api/reviews", sync_to_thread=False)
def list_reviews(request: AnyRequest, limit: FromQuery[_Most] = 100) -> list[ReviewView]:
    """Return the newest reviews."""
    return review_views.reviews(service_of(request), limit)


@post("/api/reviews", status_code=200)
async def review_pull(request: AnyRequest, data: JSONBody[PullWanted]) -> WishOutcome:
    """Have a pull request reviewed, also where it was."""
    name, number = pull_named(data.pull)
    return WishOutcome(outcome=await service_of(request).review_pull(name, number))


@get("/api/reviews/{run_id:str}", sync_to_thread=False)
def get_review(request: AnyRequest, run_id: FromPath[str]) -> ReviewView:
    """Return one review with its findings."""
    return review_views.review(service_of(request), run_id)


@get("/api/reviews/{run_id:str}/receipts", sync_to_thread=False)
def get_receipts(request: AnyRequest, run_id: FromPath[str]) -> list[ReceiptView]:
    """Return the receipts of a review's head."""
    service = service_of(request)
    return review_views.receipts(service, review_views.run_of(service, run_id))


@get("/api/reviews/{run_id:str}/rounds", sync_to_thread=False)
def get_rounds(request: AnyRequest, run_id: FromPath[str]) -> RoundsView:
    """Return the rounds of a review's pull request, and its findings over them."""
    service = service_of(request)
    return review_views.rounds(service, review_views.run_of(service, run_id))


@get("/api/reviews/{run_id:str}/trace", sync_to_thread=True)
def get_trace(request: AnyRequest, run_id: FromPath[str]) -> list[dict[str, Any]]:
    """Return the turns of a review: what the model said and called, tokens and seconds."""
    parts = parts_of(request)
    return review_views.trace(parts, review_views.run_of(service_of(request), run_id))


@post("/api/reviews/{run_id:str}/requeue", status_code=200)
async def requeue(request: AnyRequest, run_id: FromPath[str]) -> WishOutcome:
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
def list_deliveries(request: AnyRequest, limit: FromQuery[_Most] = 100) -> list[DeliveryView]:
    """Return the newest webhooks."""
    return review_views.deliveries(service_of(request), limit)


@post("/api/deliveries/{delivery_id:str}/again", status_code=200, sync_to_thread=False)
def handle_again(request: AnyRequest, delivery_id: FromPath[str]) -> WishOutcome:
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
    return {key: value for key, value in found.items() if key in SETTINGS and value is not None}
