"""Values for the templates of whole pages and of their parts: read from the supervisor's parts,
decided nowhere here."""

from collections import Counter
from typing import Any

from litestar import Response
from litestar.enums import MediaType

from supervisor.core.actions import RULE_CATEGORIES, Category, title
from supervisor.core.approvals import status
from supervisor.core.files.change_tree import FEW_CHANGES
from supervisor.core.policy.protected_names import ProtectionLevel, built_in, sources
from supervisor.errors import ChangedError, GatehouseError
from supervisor.records import audit_chain
from supervisor.records.policy_files import PolicyFiles
from supervisor.server.common.parts import Parts
from supervisor.server.common.render import render
from supervisor.server.common.views import clock_text, listed
from supervisor.server.operator import rules_view
from supervisor.server.operator.routes.history_views import record_data
from supervisor.server.operator.routes.operator_api import AnyRequest, caller, parts_of
from supervisor.server.operator.routes.page_views import MOST_CARDS, card_with, sections
from supervisor.server.operator.routes.session_views import session_data
from supervisor.store import requests as store

HISTORY_ROWS = 100
REQUEST_ROWS = 100
# A category of the policy file with more rules than this is folded.
SHORT_GROUP = 12


def page(request: AnyRequest, template: str, name: str, **values: Any) -> Response[str]:
    """A whole page: what the template makes of these values, in the frame that all pages have.
    `name` is its entry in the frame."""
    return html(template, **frame(request, name), **values)


def frame(request: AnyRequest, name: str) -> dict[str, Any]:
    """Return what the frame of each page is given."""
    parts = parts_of(request)
    return {
        "page": name,
        "csrf": caller(request).csrf,
        "now": parts.clock.now(),
        "pending_count": parts.queue.waiting(),
        "has_reviews": parts.has_reviews,
        **banner(parts),
    }


def html(template: str, refused: GatehouseError | None = None, /, **values: Any) -> Response[str]:
    """An answer of HTML: what a template makes of these values. `refused`: what it tells of,
    since an answer to what wasn't shown is 409 on a page, too; htmx is told to show that
    (base.html), and only that."""
    status = 409 if isinstance(refused, ChangedError) else 200
    return Response(render(template, **values), media_type=MediaType.HTML, status_code=status)


async def cards(parts: Parts, session_id: str | None = None) -> dict[str, Any]:
    """For `parts/cards.html`: what waits, of one session where it is given."""
    large = {
        one: number for one, number in parts.queue.waiting_changes().items() if number > FEW_CHANGES
    }
    now = parts.clock.now()
    waiting = parts.queue.pending_but(list(large), session_id, limit=MOST_CARDS + 1, now=now)
    first = listed(waiting[:MOST_CARDS])
    more = 0
    if len(first) < len(waiting):
        known = parts.queue.pending_ids_but(list(large), session_id, now=now)
        more = max(0, len(known) - len(first))
    here = {one: number for one, number in large.items() if session_id in (None, one)}
    return {"sections": await sections(parts, first), "more": more, "change_sets": here}


def banner(parts: Parts) -> dict[str, Any]:
    """For `parts/banner.html`: what a person must see above all else."""
    return {
        "stopped": parts.kill_switch.reason(),
        "audit_failure": parts.audit.failure,
        "audit_broken": parts.audit.broken,
        "files_banner": parts.files_banner and parts.redactor.text(parts.files_banner),
        "policy_banner": parts.gate.rulings.policy_sets.banner,
    }


def answered(parts: Parts, session_id: str) -> list[dict[str, Any]]:
    """A session's requests that wait for nobody any more, newest first."""
    asked = parts.queue.of_session(session_id, REQUEST_ROWS)
    found = listed(one for one in asked if status(one) != "pending")
    return [card_with(parts, one) for one in found]


def live_sessions(parts: Parts) -> list[dict[str, Any]]:
    """The sessions that haven't ended."""
    return [session_data(parts, one) for one in parts.sessions.recent(20) if one.ended_at is None]


def rules(parts: Parts, *, error: str = "", done: str = "") -> dict[str, Any]:
    """For `parts/rules.html`. `error` and `done` say what came of what a person did."""
    protection = parts.policies.current().protection
    found = rules_view.rules(parts)
    main, *others = parts.gate.rulings.policy_sets.all()
    return {
        "error": error,
        "done": done,
        "warnings": rules_view.warnings(parts),
        "saved": [_rule(rule) for rule in found if rule.can_remove],
        **_of_policy(main, found),
        "others": [_of_policy(one, found) for one in others],
        "protected": [
            ("deny", "denied", _protected("deny", protection.deny)),
            ("ask", "asked", _protected("ask", protection.ask, protection.lifted)),
            ("mark", "marked", _protected("mark")),
        ],
        "lifted": sorted(protection.lifted),
    }


def _of_policy(policies: PolicyFiles, found: list[rules_view.RuleView]) -> dict[str, Any]:
    """A policy file: its rules by category, and what its categories do by themselves."""
    own = [rule for rule in found if rule.policy_file == str(policies.file)]
    return {
        "policy_file": str(policies.file),
        "saved_file": str(policies.saved_file),
        "groups": [group for one in RULE_CATEGORIES if (group := _rules_of(one, own))],
        "modes": [(category, policies.current().mode_of(category)) for category in RULE_CATEGORIES],
    }


def _protected(
    part: ProtectionLevel, added: frozenset[str] = frozenset(), lifted: frozenset[str] = frozenset()
) -> list[tuple[str, str, str]]:
    """The names of one part of the table, each with its why and who says so; then those that the
    policy adds."""
    found = [
        (name, why, sources()[name]) for name, why in built_in()[part].items() if name not in lifted
    ]
    return [*found, *((name, "added by the policy", "") for name in sorted(added))]


def _rules_of(category: Category, found: list[rules_view.RuleView]) -> dict[str, Any] | None:
    """A category's rules of the policy file, folded where they are many; None where it has none."""
    rules = [rule for rule in found if rule.category == category and not rule.can_remove]
    counts = Counter(rule.effect for rule in rules)
    if not rules:
        return None
    return {
        "category": category,
        "counts": list(counts.items()),
        "is_short": len(rules) <= SHORT_GROUP,
        "rules": [_rule(rule) for rule in rules],
    }


def _rule(rule: rules_view.RuleView) -> dict[str, Any]:
    return {
        "view": rule,
        "source_name": rule.source.rpartition("/")[2],
        "policy_name": rule.policy_file.rpartition("/")[2],
        "added_text": clock_text(rule.added_at or 0),
        "last_text": clock_text(rule.last_at or 0),
    }


def history(parts: Parts, before: int | None) -> dict[str, Any]:
    """For `parts/history.html`: a page of records before that number, or the newest."""
    path = parts.settings.data_dir / "audit.log"
    found = audit_chain.newest_first(path, HISTORY_ROWS, before)
    ids = {
        str(record["request"])
        for record in found
        if record.get("request") and not record.get("action")
    }
    known = parts.queue.read(lambda connection: [store.get(connection, one) for one in ids])
    titles: dict[str, str] = {one.id: title(one.action) for one in known if one is not None}
    return {
        "records": [record_data(record, parts.redactor, titles) for record in found],
        "next_before": found[-1].get("seq") if len(found) == HISTORY_ROWS else None,
        "is_older": before is not None,
    }
