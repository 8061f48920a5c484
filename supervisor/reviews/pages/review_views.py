"""The review service's data for people: repositories, reviews with findings and receipts, costs.

Reads the service's database and decides nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from supervisor.core.forge_acts import spelled
from supervisor.core.money import dollars, microusd
from supervisor.core.text.duration import format_duration
from supervisor.core.text.numbers import whole_number
from supervisor.errors import GatehouseError, NotFoundError, UserError
from supervisor.parts import Parts
from supervisor.reviews.configurations import chosen, owner_of
from supervisor.reviews.core.allowances import LayerUse, day_of, refills_at
from supervisor.reviews.core.config.effective import ConfigRow, config_rows
from supervisor.reviews.core.forge_people import person_name
from supervisor.reviews.core.receipts import reason_words
from supervisor.reviews.core.slots import state
from supervisor.reviews.service import ReviewService
from supervisor.reviews.store import findings, queries
from supervisor.reviews.store.allowances import AttemptCost
from supervisor.reviews.store.figures import OLDEST_S, backlog
from supervisor.reviews.store.holds import Hold
from supervisor.server.common.views import with_fields_of
from supervisor.server.operator.operator_api import AnyRequest, parts_of

_OF_FINDING = (
    *("state", "severity", "title", "path", "line"),
    *("said", "said_why", "said_scope", "said_until"),
)


# Defaults for stored JSON to which an earlier version wrote fewer fields.
_FINDING = {"severity": "low", "title": "", "body": "", "path": "", "line": None}
_STORED = {"id": "", "start_line": 0, "line": 0, "finding": {}, "code": []}
_PROMPT = {
    **dict.fromkeys(("id", "title", "end", "reason", "mode", "session_id"), ""),
    "findings": [],
    "known": 0,
}
_TURN = {"said": "", "input_tokens": 0, "output_tokens": 0, "seconds": 0.0, "calls": []}
_CALL = {"tool": "", "input": "", "result": ""}
LONGEST_S = 400 * 86_400.0
_PERIODS = {"pull": "over its life", "repository": "this day", "owner": "this month"}


class RepositoryView(msgspec.Struct, frozen=True, kw_only=True):
    """A repository on which the App is installed. `waiting` and `running` count its pull
    requests."""

    id: int
    forge: str
    name: str
    enabled: bool
    is_removed: bool
    session_id: str
    waiting: int
    running: int


class ConfigurationView(msgspec.Struct, frozen=True, kw_only=True):
    """A repository's effective configuration: every value, and its source. `notes`: what was
    narrowed or isn't used; `settings`: what the operator set here, and for all repositories of its
    `owner`; `problem`: why it can't be read.
    """

    repository: str
    rows: list[ConfigRow] = []
    notes: list[str] = []
    settings: dict[str, Any] = {}
    owner: str = ""
    owner_settings: dict[str, Any] = {}
    problem: str = ""


class ReviewView(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `why` gives the reason of its outcome in words; `url` is the pull request's page on
    the forge, "" if that isn't known."""

    id: str
    repository: str
    number: int
    url: str
    title: str
    author: str
    head: str
    base: str
    attempt: int
    outcome: str
    why: str
    wanted_at: float
    ended_at: float | None
    session_id: str
    model: str
    files: list[str]
    skipped: list[str]
    cost: int
    partial: str
    setup_ms: float | None
    duration_ms: float | None
    verdict: str = ""
    summary: str = ""
    findings: list[dict[str, Any]] = []
    prompts: list[dict[str, Any]] = []
    config_notes: list[str] = []


class RoundView(msgspec.Struct, frozen=True, kw_only=True):
    """One review of a pull request among the others. `number` counts from 1, 0 if it had no result;
    `since` is the head that was reviewed before, "" if the whole change was reviewed. `posted`,
    `open`, `gone`: how many findings it posted on the forge, left open and found gone."""

    id: str
    number: int
    head: str
    since: str
    outcome: str
    why: str
    wanted_at: float
    cost: int
    posted: int
    open: int
    gone: int


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """A finding over the rounds of its pull request. `first`, `last` and `gone` are numbers of
    rounds, 0 for none; `said_until` is None for as long as the pull request is open."""

    id: str
    state: str
    severity: str
    title: str
    path: str
    line: int
    is_posted: bool
    first: int
    last: int
    gone: int
    said: str
    said_by: str
    said_why: str
    said_scope: str
    said_until: float | None


class RoundsView(msgspec.Struct, frozen=True, kw_only=True):
    """The rounds of a pull request, first to last, and its findings over them."""

    rounds: list[RoundView]
    findings: list[FindingView]


class ReceiptView(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt: `body` is the signed text; `is_signed`: the signature still matches."""

    head: str
    outcome: str
    why: str
    at: float
    body: str
    signature: str
    is_signed: bool


class HoldView(msgspec.Struct, frozen=True, kw_only=True):
    """A hold in force; `key` is "" if `scope` is `all`."""

    scope: str
    key: str
    by: str
    why: str
    at: float


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook as it was received, without its body."""

    id: str
    event: str
    action: str
    repository: str
    number: int | None
    received_at: float
    handled_at: float | None
    outcome: str
    attempts: int
    error: str


def service_of(request: AnyRequest) -> ReviewService:
    """Return the review service, for a handler. Raise `UserError` if it is off."""
    service: ReviewService | None = parts_of(request).reviews
    if service is None:
        raise UserError("reviews are off", "start with `gatehouse up --reviews`")
    return service


def repositories(service: ReviewService) -> list[RepositoryView]:
    """Return every repository, by name."""
    with service.engine.connect() as connection:
        found = []
        for one in queries.all_repositories(connection):
            states = [state(slot) for slot in queries.slots_of(connection, one.id)]
            found.append(
                with_fields_of(
                    one,
                    RepositoryView,
                    name=spelled(one.forge, one.full_name),
                    is_removed=one.removed_at is not None,
                    waiting=states.count("debouncing"),
                    running=states.count("running") + states.count("pending-rerun"),
                )
            )
    return found


def repository(service: ReviewService, repository_id: str) -> queries.Repository:
    """Return a repository by its id in a path. Raise `NotFoundError` if there is none."""
    wanted = number(repository_id)
    with service.engine.connect() as connection:
        for one in queries.all_repositories(connection):
            if one.id == wanted:
                return one
    raise NotFoundError("no such repository", "`gatehouse repos list` lists them")


async def configuration(
    service: ReviewService, repository: queries.Repository
) -> ConfigurationView:
    """Return the configuration in force on a repository's default branch."""
    view = ConfigurationView(
        repository=spelled(repository.forge, repository.full_name),
        settings=chosen(repository.settings),
        owner=owner_of(repository),
        owner_settings=service.configurations.owner_settings(repository),
    )
    try:
        found = await service.configurations.of_default_branch(repository)
    except GatehouseError as error:
        return msgspec.structs.replace(view, problem=str(error))
    runtime, source = service.configurations.runtime(repository)
    conducts = ConfigRow(
        key="runtime", value=runtime or "not set", source=source or "the service's setting"
    )
    rows = [*config_rows(found), conducts]
    return msgspec.structs.replace(view, rows=rows, notes=list(found.notes))


def backlog_words(service: ReviewService, now: float) -> str:
    """Return what is wrong with the waiting webhooks; "" if nothing is."""
    with service.engine.connect() as connection:
        found = backlog(connection)
    if found.oldest_at is None or now - found.oldest_at <= OLDEST_S:
        return ""
    return (
        f"{found.unhandled} webhooks wait, the oldest for"
        f" {format_duration(now - found.oldest_at)}: see F8 in docs/operations.md"
    )


def reviews(service: ReviewService, limit: int = 100) -> list[ReviewView]:
    """Return the newest runs."""
    with service.engine.connect() as connection:
        runs = queries.newest_runs(connection, limit)
        pulls = queries.pulls_with(connection, [one.pull_id for one in runs])
        known = {one.id: one for one in queries.all_repositories(connection)}
    return [
        _shown(service, one, pulls[one.pull_id], known[pulls[one.pull_id].repository_id])
        for one in runs
    ]


def review(service: ReviewService, run_id: str) -> ReviewView:
    """Return one run. Raise `NotFoundError` if there is none."""
    with service.engine.connect() as connection:
        run = run_of(service, run_id)
        pull = queries.pull(connection, run.pull_id)
        found = queries.repository_of(connection, pull.repository_id)
    return _shown(service, run, pull, found)


def rounds(service: ReviewService, run: queries.ReviewRun) -> RoundsView:
    """Return the rounds of a run's pull request."""
    with service.engine.connect() as connection:
        runs = queries.runs_of(connection, run.pull_id)
        known = findings.history(connection, run.pull_id)
    posted = {one["identity"] for one in known if one["posted_at"] is not None}
    unwanted = {one["identity"] for one in known if one["said"]}
    numbers = {one.id: int((one.review or {}).get("round", 0)) for one in runs}

    def view(one: queries.ReviewRun) -> RoundView:
        said = one.review or {}
        post = set(said.get("post", ()))
        # A finding that a person left out is no longer open.
        left_out = (post & unwanted) - posted
        return with_fields_of(
            one,
            RoundView,
            number=numbers[one.id],
            head=one.head_sha,
            since=one.since_sha,
            outcome=_outcome(one),
            why=reason_words(one.reason),
            posted=len(post & posted),
            open=max(0, int(said.get("open", 0)) - len(left_out)),
            gone=int(said.get("gone", 0)),
        )

    return RoundsView(
        rounds=[view(one) for one in runs],
        findings=[
            FindingView(
                id=one["identity"][:8],
                is_posted=one["posted_at"] is not None,
                first=numbers.get(one["first_run"], 0),
                last=numbers.get(one["last_run"], 0),
                gone=numbers.get(one["gone_run"], 0),
                said_by=person_name(one["said_by"]),
                **{name: one[name] for name in _OF_FINDING},
            )
            for one in known
        ],
    )


def run_of(service: ReviewService, run_id: str) -> queries.ReviewRun:
    """Return a run's facts."""
    with service.engine.connect() as connection:
        found = queries.run(connection, run_id)
    if found is None:
        raise NotFoundError(
            f"no review has the id `{run_id[:64]}`", "`gatehouse reviews list` lists them"
        )
    return found


def receipts(service: ReviewService, run: queries.ReviewRun) -> list[ReceiptView]:
    """Return the receipts of a run's head, oldest first."""
    with service.engine.connect() as connection:
        found = queries.receipts_of(connection, [run.pull_id])
    return [
        with_fields_of(
            one,
            ReceiptView,
            head=one.head_sha,
            why=reason_words(one.reason),
            is_signed=service.receipts.is_signed(one),
        )
        for one in found
        if one.head_sha == run.head_sha
    ]


def trace(parts: Parts, session_id: str) -> list[dict[str, Any]]:
    """Return the turns of a run's session, as its agent reported them; empty if it reported
    none."""
    path = parts.settings.sessions_dir / session_id / "review.json"
    try:
        report = msgspec.json.decode(path.read_bytes()) if session_id else {}
    except (OSError, msgspec.DecodeError):
        return []
    return [
        {**_TURN, **turn, "calls": [{**_CALL, **call} for call in turn.get("calls", ())]}
        for turn in report.get("turns", ())
    ]


def holds(found: Sequence[Hold]) -> list[HoldView]:
    """Return holds as they are shown."""
    return [with_fields_of(one, HoldView) for one in found]


def deliveries(service: ReviewService, limit: int = 100) -> list[DeliveryView]:
    """Return the newest deliveries."""
    with service.engine.connect() as connection:
        return [
            with_fields_of(one, DeliveryView, id=one.delivery_id)
            for one in queries.newest_deliveries(connection, limit)
        ]


def number(text: str) -> int:
    """Return the id of a repository in a path. Raise `NotFoundError` if it isn't one."""
    found = whole_number(text, 9)
    if found is None:
        raise NotFoundError("no such repository", "`gatehouse repos list` lists them")
    return found


def _outcome(run: queries.ReviewRun) -> str:
    return run.outcome or ("running" if run.claimed_at else "waiting")


def _shown(
    service: ReviewService,
    run: queries.ReviewRun,
    pull: queries.PullRequest,
    repository: queries.Repository,
) -> ReviewView:
    said = run.review or {}
    return with_fields_of(
        run,
        ReviewView,
        repository=spelled(repository.forge, repository.full_name),
        number=pull.number,
        url=service.pull_page(repository.forge, repository.full_name, pull.number),
        title=pull.title,
        author=person_name(pull.author),
        head=run.head_sha,
        base=run.base_sha,
        outcome=_outcome(run),
        why=reason_words(run.reason),
        verdict=str(said.get("verdict", "")),
        summary=str(said.get("summary", "")),
        findings=[
            {**_STORED, **one, "finding": {**_FINDING, **one.get("finding", {})}}
            for one in said.get("findings", ())
        ],
        prompts=[{**_PROMPT, **one} for one in run.prompts],
    )


class CapView(msgspec.Struct, frozen=True, kw_only=True):
    """A cap and how much of it is used. `scope` is `pull`, `repository`, `owner` or `all`;
    `reserved_microusd` is held by unfinished runs; `limit_microusd` None: no cap.
    `proposed_microusd`: a higher cap, if this one held reviews on three days of a week."""

    scope: str
    name: str
    period: str
    limit_microusd: int | None
    used_microusd: int
    reserved_microusd: int
    percent: int | None
    refills_at: float | None
    proposed_microusd: int | None
    words: str


class UsagePart(msgspec.Struct, frozen=True, kw_only=True):
    """The total of a day, a repository or a model. `runs` counts attempts."""

    name: str
    runs: int
    cost_microusd: int
    cost: str


class UsageView(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of reviews since `since`; an unfinished review counts with its reservation."""

    since: float
    cost_microusd: int
    cost: str
    days: list[UsagePart]
    repositories: list[UsagePart]
    models: list[UsagePart]
    caps: list[CapView]
    notices: list[str]


def usage(service: ReviewService, period_s: float, now: float) -> UsageView:
    """Return the usage of a period that ends now. Raise `UserError` if it is too long."""
    if not 0 < period_s <= LONGEST_S:
        raise UserError("period: that is too long, or nothing", "write 24h, 7d or 30d, up to 400d")
    since = now - period_s
    spent = service.budgets.spent_since(since)
    total = sum(one.cost for one in spent)
    proposals = service.budgets.proposals()
    return UsageView(
        since=since,
        cost_microusd=microusd(total),
        cost=dollars(total),
        days=_parts(spent, lambda one: day_of(one.at)),
        repositories=_parts(spent, lambda one: one.repository),
        models=_parts(spent, lambda one: one.model or "none yet"),
        caps=[_cap(one, proposals.get(one.layer.key)) for one in service.budgets.in_use()],
        notices=[_notice(*one) for one in service.budgets.notices()],
    )


def _parts(spent: Sequence[AttemptCost], of: Callable[[AttemptCost], str]) -> list[UsagePart]:
    names = sorted({of(one) for one in spent})
    costs = {name: [one.cost for one in spent if of(one) == name] for name in names}
    return [
        UsagePart(
            name=name,
            runs=len(found),
            cost_microusd=microusd(sum(found)),
            cost=dollars(sum(found)),
        )
        for name, found in costs.items()
    ]


def _cap(use: LayerUse, proposed: int | None) -> CapView:
    layer = use.layer
    is_repository = layer.scope == "repository"
    taken = use.used + use.reserved
    words = dollars(use.used)
    words += "" if layer.cap is None else f" of {dollars(layer.cap)}"
    words += f", {dollars(use.reserved)} reserved" if use.reserved else ""
    return CapView(
        scope=layer.scope,
        name=_name(layer.key),
        period=layer.period,
        limit_microusd=None if layer.cap is None else microusd(layer.cap),
        used_microusd=microusd(use.used),
        reserved_microusd=microusd(use.reserved),
        percent=None if layer.cap is None else taken * 100 // layer.cap if layer.cap else 100,
        refills_at=refills_at(layer.period),
        proposed_microusd=microusd(proposed) if is_repository and proposed else None,
        words=f"{words} {_PERIODS.get(layer.scope, 'this day')}",
    )


def _notice(scope: str, key: str, period: str, percent: int) -> str:
    if scope == "p95":
        return "reviews cost clearly more today than in the week before (95th percentile)"
    whose = _name(key)
    if percent >= 100:
        return f"nothing is left of the limit of {whose}{period and f' for {period}'}"
    return f"{percent} % of the limit of {whose}{period and f' for {period}'} are used"


def _name(key: str) -> str:
    return key.partition(":")[2] or "all reviews"
