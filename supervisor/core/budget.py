"""Budgets of a session, a day and the total, and whether one more call fits.

    session "5usd"  day "20usd,5M-tokens"  total ""
    each of: dollars and tokens of models; requests and bytes that go out, of all traffic

It decides by the sums that it is given (`store.spending` keeps them): spent and reserved amounts
both count, so parallel calls can't exceed a limit together. Amounts of money are pico-dollars. It
must never round in favour of the spender.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal, NamedTuple

import msgspec

from supervisor.core.money import PICOUSD, dollars
from supervisor.errors import UserError

Scope = Literal["session", "day", "total"]
SCOPES: tuple[Scope, ...] = ("session", "day", "total")
Kind = Literal["cost", "tokens", "requests", "bytes_out"]
KINDS: tuple[Kind, ...] = ("cost", "tokens", "requests", "bytes_out")
_OF_MODELS: tuple[Kind, ...] = ("cost", "tokens")
FORMS = "5usd, $0.50, 2M-tokens, 1000-requests or 50MB, several with commas between"
_PART = re.compile(
    r"(\$?)(\d{1,12}(?:\.\d{1,6})?)\s*(?:-(?=[a-z]))?(usd|\$|[km]?-?tokens|requests|b|kb|mb|gb|)",
    re.ASCII | re.IGNORECASE,
)
_UNITS: dict[str, tuple[Kind, int]] = {
    "usd": ("cost", PICOUSD),
    "$": ("cost", PICOUSD),
    "tokens": ("tokens", 1),
    "ktokens": ("tokens", 1000),
    "mtokens": ("tokens", 10**6),
    "requests": ("requests", 1),
    "b": ("bytes_out", 1),
    "kb": ("bytes_out", 1000),
    "mb": ("bytes_out", 10**6),
    "gb": ("bytes_out", 10**9),
}
# A notice is given at this percentage of a limit.
NOTICE_PERCENT = 80
# From this percentage of its money or tokens on, an agent that asks is told to conclude.
CONCLUDE_PERCENT = 85
# A person is offered this raise, or more if the call needs more.
STEPS: dict[Kind, int] = {"cost": PICOUSD, "tokens": 10**6, "requests": 100, "bytes_out": 10**7}
# Largest portion of traffic handed out at once, so that not every request asks the ledger: at most
# this, and no more than this part of what is left. After a crash its unused rest counts as used.
PORTIONS: dict[Kind, int] = {"requests": 64, "bytes_out": 4 * 10**6}
PORTION_PARTS = 16
# Portion of a kind without any limit.
UNLIMITED = 2**40
# Largest whole number of the database.
MOST = 2**62


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """Amount of each kind."""

    cost: int = 0
    tokens: int = 0
    requests: int = 0
    bytes_out: int = 0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum of each kind; None: no limit."""

    cost: int | None = None
    tokens: int | None = None
    requests: int | None = None
    bytes_out: int | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, kind) is not None for kind in KINDS)

    def raised(self, by: Amounts) -> "Limits":
        """Return these limits, each raised by its grants. No limit stays no limit."""
        made = {kind: getattr(self, kind) for kind in KINDS}
        return Limits(
            **{
                kind: None if most is None else most + getattr(by, kind)
                for kind, most in made.items()
            }
        )


class Over(NamedTuple):
    """A limit that a call would exceed: `used` (spent and reserved) and `wanted` together are more
    than `limit`."""

    scope: Scope
    kind: Kind
    limit: int
    used: int
    wanted: int

    @property
    def step(self) -> int:
        """Return by how much the limit would have to be raised, in round figures, for the call to
        fit."""
        missing = self.used + self.wanted - self.limit
        step = STEPS[self.kind]
        return -(-missing // step) * step


def parse_budget(text: str, name: str) -> Limits:
    """Parse limits as people write them. Raise `UserError`, which shows the accepted forms, for any
    other text. An empty text has no limits."""
    found: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _PART.fullmatch(part)
        unit = (match[3] or match[1]).lower().replace("-", "") if match else ""
        if match is None or not unit or (match[1] and match[3]):
            raise UserError(f"{name}: `{part}` is no budget", f"write {FORMS}")
        kind, factor = _UNITS[unit]
        amount = Decimal(match[2]) * factor
        if kind in found or amount != int(amount) or amount > MOST:
            raise UserError(
                f"{name}: `{part}` is too much, too fine or said twice", f"write {FORMS}"
            )
        found[kind] = int(amount)
    return Limits(**found)


def format_budget(limits: Limits) -> str:
    """Return limits in the form that `parse_budget` reads."""
    parts = []
    for kind in KINDS:
        most = getattr(limits, kind)
        if most is None:
            continue
        if kind == "cost":
            number = f"{Decimal(most).scaleb(-12):f}"
            parts.append((number.rstrip("0").rstrip(".") if "." in number else number) + "usd")
        else:
            parts.append(f"{most}{'b' if kind == 'bytes_out' else kind}")
    return ",".join(parts)


def first_over(
    limits: Mapping[Scope, Limits], used: Mapping[Scope, Amounts], wanted: Amounts
) -> Over | None:
    """Return the first limit that `wanted` would exceed; None if it fits everywhere."""
    for scope in SCOPES:
        for kind in KINDS:
            most = getattr(limits[scope], kind)
            have, more = getattr(used[scope], kind), getattr(wanted, kind)
            if most is not None and have + more > most:
                return Over(scope, kind, most, have, more)
    return None


def portion(
    limits: Mapping[Scope, Limits], used: Mapping[Scope, Amounts], kind: Kind, wanted: int
) -> int:
    """Return how much of `kind` to hand out to a caller who wants so much now, if it fits: that
    amount, or some more for later."""
    rooms: list[int] = [
        most - getattr(used[scope], kind)
        for scope in SCOPES
        if (most := getattr(limits[scope], kind)) is not None
    ]
    if not rooms:
        return UNLIMITED
    left = min(rooms)
    return max(wanted, min(PORTIONS[kind], left // PORTION_PARTS))


def nearly_used(
    limits: Mapping[Scope, Limits], used: Mapping[Scope, Amounts]
) -> list[tuple[Scope, Kind]]:
    """Return the limits that are so nearly used up that a person should know."""
    return [
        (scope, kind)
        for scope in SCOPES
        for kind in KINDS
        if (most := getattr(limits[scope], kind)) is not None
        and getattr(used[scope], kind) * 100 >= most * NOTICE_PERCENT
    ]


def used_percent(limits: Limits, used: Amounts) -> int:
    """Return how many percent of money or tokens are used, whichever is nearer to its limit; 0
    without a limit."""
    shares = [
        getattr(used, kind) * 100 // most if most else 100
        for kind in _OF_MODELS
        if (most := getattr(limits, kind)) is not None
    ]
    return max(shares, default=0)


def must_conclude(limits: Limits, used: Amounts, *, reserved: Amounts, cost: Amounts) -> bool:
    """Return whether a conversation should end with its next call: 85 % are used, or the call after
    the next would be refused. A call reserves its maximum cost, and each call sends the whole
    conversation: so the next calls are expected to cost as much as the last one (`cost`), plus one
    and a half times its reservation."""
    if used_percent(limits, used) >= CONCLUDE_PERCENT:
        return True
    for kind in _OF_MODELS:
        most = getattr(limits, kind)
        next_two = getattr(cost, kind) + getattr(reserved, kind) * 3 // 2
        if most is not None and getattr(used, kind) + next_two > most:
            return True
    return False


def amount(kind: Kind, value: int) -> str:
    """Return an amount for people."""
    if kind == "cost":
        return dollars(value)
    if kind == "bytes_out":
        for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 1000)):
            if value >= scale:
                return f"{value / scale:,.1f} {unit}"
        return f"{value} B"
    return f"{value:,} {kind if value != 1 else kind.removesuffix('s')}"


SCOPE_WORDS: dict[Scope, str] = {
    "session": "this session",
    "day": "this day",
    "total": "all sessions together",
}


def explain(over: Over) -> str:
    """Return one line about an exhausted limit."""
    return f"the budget of {SCOPE_WORDS[over.scope]} is {amount(over.kind, over.limit)}: {
        amount(over.kind, over.used)
    } of it are used or reserved, and this may need {amount(over.kind, over.wanted)}"
