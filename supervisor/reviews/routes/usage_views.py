"""What reviews cost, and what of each cap is used. Read from the review service; decided nowhere
here."""

from collections.abc import Callable, Sequence

import msgspec

from supervisor.core.money import dollars, microusd
from supervisor.errors import UserError
from supervisor.reviews.core.allowances import LayerUse, day_of, refills_at
from supervisor.reviews.service import ReviewService
from supervisor.reviews.store.allowances import AttemptCost

LONGEST_S = 400 * 86_400.0
_PERIODS = {"pull": "over its life", "repository": "this day", "owner": "this month"}


class CapView(msgspec.Struct, frozen=True, kw_only=True):
    """A cap against what is used of it. `scope` is `pull`, `repository`, `owner` or `all`;
    `reserved_microusd` is held by runs that aren't over; `limit_microusd` None: no cap.
    `proposed_microusd`: a higher one, where this one held reviews on three days of a week."""

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
    """What a day, a repository or a model came to. `runs` counts attempts."""

    name: str
    runs: int
    cost_microusd: int
    cost: str


class UsageView(msgspec.Struct, frozen=True, kw_only=True):
    """What reviews cost since `since`; those that aren't over at what is reserved for them."""

    since: float
    cost_microusd: int
    cost: str
    days: list[UsagePart]
    repositories: list[UsagePart]
    models: list[UsagePart]
    caps: list[CapView]
    notices: list[str]


def usage(service: ReviewService, period_s: float, now: float) -> UsageView:
    """Return the usage of a period that ends now. `UserError` where it is too long."""
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
