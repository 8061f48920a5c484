"""The rules in force as pages, API and CLI list them."""

import msgspec

from supervisor.core.actions import Category, Effect
from supervisor.core.policy.rules import Rule
from supervisor.records.policy_files import PolicyFiles
from supervisor.server.common.parts import Parts
from supervisor.server.common.views import shown

_ORDER: tuple[Effect, ...] = ("deny", "ask", "allow")


class RuleView(msgspec.Struct, frozen=True, kw_only=True):
    """`can_remove`: whether it was saved from the inbox, the page or the CLI; others stand in the
    policy file. `policy_file` is the policy that it holds with: the supervisor's, or that of
    sessions which have their own.

    Times are in seconds since the epoch. `session_id`: it holds in that session only. `hits`
    counts matches since the database was made.
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
    policy_file: str
    line: int
    can_remove: bool
    hits: int
    last_at: float | None


def rules(parts: Parts) -> list[RuleView]:
    """Every rule in force, the supervisor's first: denials, then asks, then allowances, each in
    the order of their files."""
    hits = parts.queue.rule_hits()
    found: dict[tuple[str, int, str], RuleView] = {}
    for policies in parts.gate.rulings.policy_sets.all():
        for rule in sorted(policies.current().rules, key=lambda rule: _ORDER.index(rule.effect)):
            # Two policies may have one file of saved rules: each stands here once.
            found.setdefault(
                (rule.source, rule.line, rule.id),
                _view(rule, parts, policies, hits.get(rule.id, (0, None))),
            )
    return list(found.values())


def warnings(parts: Parts) -> tuple[str, ...]:
    """Return what the policy's writer should know, such as rules that never match."""
    sets = parts.gate.rulings.policy_sets.all()
    found = dict.fromkeys(warning for policies in sets for warning in policies.current().warnings)
    return tuple(shown(warning, parts.redactor) for warning in found)


def _view(
    rule: Rule, parts: Parts, policies: PolicyFiles, hit: tuple[int, float | None]
) -> RuleView:
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
        policy_file=str(policies.file),
        line=rule.line,
        can_remove=rule.source == str(policies.saved_file),
        hits=hit[0],
        last_at=hit[1],
    )
