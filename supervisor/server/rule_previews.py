"""What a rule would have answered, shown before it is saved: the waiting requests that it would answer, and the recorded ones.

Apart from `decisions` because it decides nothing: a preview that is wrong misinforms a person, and changes no verdict.
"""

import msgspec
import yaml

from supervisor.core.actions import Effect, category_of, title
from supervisor.core.approvals import Request
from supervisor.core.policy_text import merge, parse_policy
from supervisor.core.rules import Policy
from supervisor.errors import GatehouseError
from supervisor.server.parts import Parts

# Bounds of the work that a click may cause. A verdict on a command takes up to a millisecond.
MOST_WAITING = 100
MOST_PAST = 150
MOST_TITLES = 4


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """`titles`: the first of the `waiting` other requests that the rule would answer. Of the `looked_at` last requests of the category it
    matched `past`, and a person had answered `against` of these the other way."""

    waiting: int
    titles: tuple[str, ...]
    past: int
    looked_at: int
    against: int


def preview(parts: Parts, request: Request, effect: Effect, rule: str) -> Preview | None:
    """For one candidate; None where the rule can't be used at all."""
    try:
        alone = parse_policy(yaml.safe_dump({"version": 1, effect: [rule]}), "the new rule")
    except GatehouseError:
        return None
    waiting = _waiting(parts, request, effect, alone)
    earlier = _earlier(parts, request)
    past = [one for one in earlier if _matches(parts, alone, one, effect)]
    other_answer = "denied" if effect == "allow" else "approved"
    return Preview(
        waiting=len(waiting),
        titles=tuple(parts.redactor.text(title(one.action)) for one in waiting[:MOST_TITLES]),
        past=len(past),
        looked_at=len(earlier),
        against=sum(one.answer == other_answer and one.superseded_by is None for one in past),
    )


def _waiting(parts: Parts, request: Request, effect: Effect, alone: Policy) -> list[Request]:
    policies: dict[str, Policy] = {}
    found = []
    for one in parts.queue.pending()[:MOST_WAITING]:
        if one.id == request.id or category_of(one.action) != category_of(request.action):
            continue
        own = parts.sessions.get(one.session_id).policy_text
        if own not in policies:
            policies[own] = merge(parts.policies.for_session(own), alone)
        if parts.gate.rulings.under(policies[own], parts.gate.action_of(one), one.session_id).decision == effect:
            found.append(one)
    return found


def _earlier(parts: Parts, request: Request) -> list[Request]:
    newest = parts.queue.newest(4 * MOST_PAST)
    category = category_of(request.action)
    return [one for one in newest if category_of(one.action) == category and one.id != request.id][:MOST_PAST]


def _matches(parts: Parts, alone: Policy, request: Request, effect: Effect) -> bool:
    verdict = parts.gate.rulings.under(alone, request.action, request.session_id)
    return verdict.decision == effect and verdict.rule is not None
