"""The rules in force as pages, API and CLI list them."""

import msgspec

from supervisor.core.actions import Category, Effect
from supervisor.core.rules import Rule
from supervisor.server.parts import Parts
from supervisor.server.views import shown

_ORDER: tuple[Effect, ...] = ("deny", "ask", "allow")


class RuleView(msgspec.Struct, frozen=True, kw_only=True):
    """`can_remove`: whether it was saved from the inbox, the page or the CLI; others stand in the policy file.

    Times are in seconds since the epoch. `session_id`: it holds in that session only. `hits` counts matches since the database was made.
    """

    id: str
    effect: Effect
    category: Category
    rule: str
    why: str
    added_by: str
    added_at: float | None
    expires_at: float | None
    session_id: str | None
    source: str
    line: int
    can_remove: bool
    hits: int
    last_at: float | None


def rules(parts: Parts) -> list[RuleView]:
    """Every rule in force for all sessions: denials first, then asks, then allowances, each in the order of their files."""
    hits = parts.queue.rule_hits()
    saved = str(parts.settings.saved_rules_file)
    found = sorted(parts.policies.current().rules, key=lambda rule: _ORDER.index(rule.effect))
    return [_view(rule, parts, hits.get(rule.id, (0, None)), can_remove=rule.source == saved) for rule in found]


def warnings(parts: Parts) -> tuple[str, ...]:
    """What the policy's writer should know, such as rules that never match."""
    return tuple(shown(warning, parts.redactor) for warning in parts.policies.current().warnings)


def _view(rule: Rule, parts: Parts, hit: tuple[int, float | None], *, can_remove: bool) -> RuleView:
    return RuleView(
        id=rule.id,
        effect=rule.effect,
        category=rule.category,
        rule=shown(rule.text, parts.redactor),
        why=shown(rule.why, parts.redactor),
        added_by=shown(rule.added_by, parts.redactor),
        added_at=rule.added_at,
        expires_at=rule.expires_at,
        session_id=rule.session,
        source=rule.source,
        line=rule.line,
        can_remove=can_remove,
        hits=hit[0],
        last_at=hit[1],
    )
