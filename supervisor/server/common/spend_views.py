"""A session's spending for the page and the CLI: plain data, no markup, no decision."""

import msgspec

from supervisor.core.budget import KINDS, SCOPE_WORDS, Kind, Scope, amount
from supervisor.core.models.model_calls import Tokens
from supervisor.core.money import dollars, microusd
from supervisor.core.secrets.redact import Redactor
from supervisor.core.sessions import Session
from supervisor.core.text.display import visible
from supervisor.ledger.spending import BudgetStanding, Summary
from supervisor.parts import Parts

# What a person should know of figures that aren't simply the provider's.
FLAG_WORDS = {
    "unknown_model": "of a model that the price table doesn't have, at its highest prices",
    "estimated": "without the provider's count, at the most that can have been used",
    "cut_off": "cut off before the end of the answer",
    "failed": "failed",
    "lost": "whose end was lost, at what was reserved",
    "unknown_tier": ("of an unknown service tier, at the highest factor of the price table"),
    "bills_more": "with a tool of the provider's that costs more than tokens, which isn't counted",
}
# The same of one call, where it is said in another way.
CALL_WORDS = FLAG_WORDS | {
    "lost": "an estimate that stands: the call's end was lost, so it costs what was reserved for it"
}


class ModelSpend(msgspec.Struct, frozen=True, kw_only=True):
    """One model's share of the spending: all its `tokens`, and each in one kind only."""

    model: str
    calls: int
    cost: str
    cost_microusd: int
    tokens: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int


class SpendView(msgspec.Struct, frozen=True, kw_only=True):
    """A session's spending. `cost_microusd` is rounded up; `limit` is its own budget in words,
    empty where it has none. `used_percent`: the share of that which is used, of several limits the
    highest share; None where it has none.

    `notices` name limits that are nearly used up; `remarks` say what the figures are based on.
    """

    cost: str
    cost_microusd: int
    tokens: int
    calls: int
    limit: str
    used_percent: int | None
    models: list[ModelSpend]
    notices: list[str]
    remarks: list[str]


def spend_view(parts: Parts, session: Session) -> SpendView:
    """Return a session's spending; running calls count with their reservation."""
    found = parts.spending.summary(session)
    used = found.used["session"]
    own = found.limits["session"]
    limits = [(kind, most) for kind in KINDS if (most := getattr(own, kind)) is not None]
    shares = [100 * getattr(used, kind) // most if most else 100 for kind, most in limits]
    return SpendView(
        cost=dollars(used.cost),
        cost_microusd=microusd(used.cost),
        tokens=used.tokens,
        calls=sum(one.calls for one in found.by_model),
        limit=", ".join(amount(kind, most) for kind, most in limits),
        used_percent=max(shares, default=None),
        models=[
            model_spend(one.model, one.calls, one.cost, one.tokens, parts.redactor)
            for one in found.by_model
        ],
        notices=[notice(found, scope, kind) for scope, kind in found.near],
        remarks=[
            f"{count} {'calls' if count != 1 else 'call'} {FLAG_WORDS.get(flag, flag)}"
            for flag, count in found.flags.items()
        ],
    )


def model_spend(
    model: str, calls: int, cost: int, tokens: Tokens, redactor: Redactor
) -> ModelSpend:
    """Return what the calls of one model cost."""
    return ModelSpend(
        model=visible(redactor.text(model), one_line=True) or "no model named",
        calls=calls,
        cost=dollars(cost),
        cost_microusd=microusd(cost),
        tokens=tokens.total,
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.written,
    )


def notice(found: BudgetStanding | Summary, scope: Scope, kind: Kind) -> str:
    """Return a notice of how much of a limit is used."""
    most, have = getattr(found.limits[scope], kind), getattr(found.used[scope], kind)
    return f"{amount(kind, have)} of {amount(kind, most)} of the budget of {
        SCOPE_WORDS[scope]
    } are used or reserved"
