"""The Rules page: rules in force, protected names, and forms for rules.

The forms add, try and remove rules.
"""

from collections import Counter
from typing import Annotated, Any

import msgspec
from litestar import Response, delete, get, post
from litestar.params import FromQuery, JSONBody, QueryParameter

from supervisor.core.actions import RULE_CATEGORIES, Category, Effect
from supervisor.core.policy.protected_names import ProtectionLevel, built_in, sources
from supervisor.errors import GatehouseError, UserError
from supervisor.parts import Parts
from supervisor.records.policy_files import PolicyFiles
from supervisor.server.common.request_views import RequestView
from supervisor.server.operator import decisions, rules_view
from supervisor.server.operator.operator_api import (
    AnyRequest,
    CallBody,
    Id,
    Ok,
    Text,
    caller,
    parts_of,
)
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.pages.page_frame import Form
from supervisor.server.operator.pages.request_cards import MOST_ALSO, Lasts, RuleText, views_of

# A category of the policy file with more rules than this is folded.
SHORT_GROUP = 12


class RuleBody(CallBody, frozen=True, kw_only=True):
    """`lasts`: `always`, or a duration such as `15m`."""

    effect: Effect
    rule: RuleText
    why: Text = ""
    lasts: Lasts = "always"


class RuleSaved(msgspec.Struct, frozen=True, kw_only=True):
    """`also` are the first of the waiting requests that it answered."""

    id: str
    also: list[RequestView]
    also_count: int


# -- JSON -----------------------------------------------------------------------------------------


@get("/api/rules", sync_to_thread=False)
def list_rules(request: AnyRequest) -> list[rules_view.RuleView]:
    """Return every rule in force, with who added it, why, and when it last matched."""
    return rules_view.rules(parts_of(request))


@post("/api/rules", status_code=200)
async def add_rule(request: AnyRequest, data: JSONBody[RuleBody]) -> RuleSaved:
    """Save a rule; it answers waiting requests that match."""
    parts = parts_of(request)
    holds = decisions.until(parts, data.lasts, None)
    rule_id, also = await decisions.add_rule(
        parts, data.effect, data.rule, why=data.why, by=caller(request).name, holds=holds
    )
    return RuleSaved(id=rule_id, also=await views_of(parts, also[:MOST_ALSO]), also_count=len(also))


@get("/api/rules/preview", sync_to_thread=False)
def preview_rule(
    request: AnyRequest,
    effect: FromQuery[Effect],
    rule: Annotated[str, QueryParameter(min_length=1, max_length=4000)],
) -> rules_view.RulePreview:
    """Return which waiting requests a rule would answer, and which of the last ones it would have
    answered. Nothing is saved."""
    return rules_view.preview_of_rule(parts_of(request), effect, rule)


@delete("/api/rules/{rule_id:str}", status_code=200)
async def remove_rule(request: AnyRequest, rule_id: Id) -> Ok:
    """Remove a saved rule."""
    await decisions.remove_rule(parts_of(request), rule_id, by=caller(request).name)
    return Ok()


# -- pages ----------------------------------------------------------------------------------------


@get("/rules", include_in_schema=False, sync_to_thread=False)
def rules(request: AnyRequest) -> Response[str]:
    """Return every rule in force, and what is always protected."""
    return page_frame.page(request, "rules.html", "rules", **_values(parts_of(request)))


@get("/parts/rules", include_in_schema=False, sync_to_thread=False)
def rules_part(request: AnyRequest) -> Response[str]:
    return page_frame.html("parts/rules.html", **_values(parts_of(request)))


@post("/rules", include_in_schema=False, status_code=200)
async def add_rule_from_page(request: AnyRequest, data: Form) -> Response[str]:
    """Save a rule; it answers waiting requests that match. An error is shown above the list."""
    parts = parts_of(request)
    rule = data.get("rule", "").strip()
    try:
        effect = _effect(data.get("effect", ""))
        why = data.get("why", "").strip()
        _, also = await decisions.add_rule(parts, effect, rule, why=why, by=caller(request).name)
    except GatehouseError as error:
        return page_frame.html("parts/rules.html", **_values(parts, error=str(error)))
    answered = f" It answered {len(also)} that waited." if also else ""
    return page_frame.html(
        "parts/rules.html", **_values(parts, done=f"Saved {effect}: {rule}.{answered}")
    )


@get("/rules/preview", include_in_schema=False, sync_to_thread=False)
def preview_part(
    request: AnyRequest,
    effect: FromQuery[str] = "",
    rule: FromQuery[str] = "",
    own: FromQuery[str] = "",
    request_id: FromQuery[str] = "",
) -> Response[str]:
    """Return what a typed rule would have answered; nothing is saved. `own` is its name in the form
    of the card `request_id`."""
    parts, text = parts_of(request), (own or rule).strip()
    try:
        if request_id:
            decisions.check_candidate(parts, parts.queue.get(request_id), _effect(effect), text)
        seen = rules_view.preview_of_rule(parts, _effect(effect), text, leaving_out=request_id)
    except GatehouseError as error:
        return page_frame.html("parts/error.html", error=str(error))
    return page_frame.html("parts/seen.html", seen=seen, typed=True)


@delete("/rules/{rule_id:str}", include_in_schema=False, status_code=200)
async def remove_rule_from_page(request: AnyRequest, rule_id: Id) -> Response[str]:
    """Remove a saved rule."""
    parts = parts_of(request)
    try:
        text = await decisions.remove_rule(parts, rule_id, by=caller(request).name)
    except GatehouseError as error:
        return page_frame.html("parts/rules.html", **_values(parts, error=str(error)))
    return page_frame.html("parts/rules.html", **_values(parts, done=f"Removed {text}."))


def _effect(text: str) -> Effect:
    effects: dict[str, Effect] = {"allow": "allow", "ask": "ask", "deny": "deny"}
    if text not in effects:
        raise UserError("the effect is missing", "choose allow, ask or deny")
    return effects[text]


def _values(parts: Parts, *, error: str = "", done: str = "") -> dict[str, Any]:
    """Return the values of `parts/rules.html`. `error` and `done` are the outcome of a person's
    action."""
    protection = parts.policies.current().protection
    found = rules_view.rules(parts)
    main, *others = parts.gate.rulings.policy_sets.all()
    return {
        "error": error,
        "done": done,
        "warnings": rules_view.warnings(parts),
        "saved": [rule for rule in found if rule.can_remove],
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
    """Return a policy file: its rules by category, and what its categories do by default."""
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
    """Return the names of one part of the table, each with its reason and source; then those that
    the policy adds."""
    found = [
        (name, why, sources()[name]) for name, why in built_in()[part].items() if name not in lifted
    ]
    return [*found, *((name, "added by the policy", "") for name in sorted(added))]


def _rules_of(category: Category, found: list[rules_view.RuleView]) -> dict[str, Any] | None:
    """Return a category's rules of the policy file, folded where they are many; None where it has
    none."""
    rules = [rule for rule in found if rule.category == category and not rule.can_remove]
    counts = Counter(rule.effect for rule in rules)
    if not rules:
        return None
    return {
        "category": category,
        "counts": list(counts.items()),
        "is_short": len(rules) <= SHORT_GROUP,
        "rules": rules,
    }
