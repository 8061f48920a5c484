"""The rules in force as pages, API and CLI list them."""

import msgspec

from supervisor.core.actions import Effect
from supervisor.server.parts import Parts
from supervisor.store import rule_hits


class RuleView(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is set for saved rules, which can be removed. `last_at` is in seconds since the epoch."""

    id: str | None
    effect: Effect
    rule: str
    why: str
    source: str
    hits: int
    last_at: float | None
    note: str = ""


def rules(parts: Parts) -> list[RuleView]:
    """Every rule in force, strictest list first."""
    hits = parts.queue.read(rule_hits.read)
    raise NotImplementedError(hits)
