"""What a rule would have answered, shown before it is saved: the waiting requests that it would answer, and the recorded ones.

Apart from `decisions` because it decides nothing: a preview that is wrong misinforms a person, and changes no verdict. What is counted
is `core.preview`'s affair; here the database's requests become its history, a bounded number of them.
"""

from itertools import islice

import msgspec

from supervisor.core.actions import Effect, category_of, title
from supervisor.core.approvals import Request, status
from supervisor.core.history import Past, is_redacted
from supervisor.core.policy_text import merge, parse_rule, policy_from_data
from supervisor.core.preview import Group, Preview, preview, relevant, sentence
from supervisor.core.refusals import is_by_policy
from supervisor.core.rules import Policy, Rule
from supervisor.server.parts import Parts
from supervisor.server.views import shown

# Bounds of the work that a click may cause. A verdict on a command takes up to a millisecond.
MOST_WAITING = 100
MOST_PAST = 150
MOST_TITLES = 4


class RulePreview(msgspec.Struct, frozen=True, kw_only=True):
    """`waiting`: the other requests that it would answer now. `summary`: the `past` in words.

    `against`: what a person had answered the other way, so that saving the rule takes back what they said.
    """

    effect: Effect
    rule: str
    summary: str
    waiting: Group
    past: Preview
    against: Group


def of_rule(parts: Parts, effect: Effect, text: str, *, leaving_out: str = "") -> RulePreview:
    """For a rule that isn't saved; `leaving_out` is the request that it is made of. `PolicyError` where it can't be used at all."""
    rule = parse_rule(text, effect)
    past = _redacted(parts, preview(rule, _earlier(parts, rule), parts.policies.current()))
    waiting = [title(one.action) for one in _waiting(parts, rule) if one.id != leaving_out]
    return RulePreview(
        effect=effect,
        rule=shown(rule.text, parts.redactor),
        summary=sentence(past),
        waiting=_shown(parts, Group(len(waiting), tuple(dict.fromkeys(waiting))[:MOST_TITLES])),
        past=past,
        against=past.against,
    )


def _waiting(parts: Parts, rule: Rule) -> list[Request]:
    if rule.effect == "ask":
        return []  # they are asked already
    alone = policy_from_data({rule.effect: [rule.text]})
    policies: dict[str, Policy] = {}
    found = []
    waiting = (one for one in parts.queue.pending() if category_of(one.action) == rule.category)
    for one in islice(waiting, MOST_WAITING):
        own = parts.sessions.get(one.session_id).policy_text
        if own not in policies:
            policies[own] = merge(parts.policies.for_session(own), alone)
        if parts.gate.rulings.under(policies[own], parts.gate.action_of(one), one.session_id).decision == rule.effect:
            found.append(one)
    return found


def _earlier(parts: Parts, rule: Rule) -> list[Past]:
    """The last requests that the rule could say anything of; those that wait are told apart from them."""
    remotes: dict[str, tuple[str, ...]] = {}
    newest = parts.queue.newest(4 * MOST_PAST, rule.category)
    found = (_past(parts, one, remotes) for one in newest if status(one) != "pending")
    return list(islice((past for past in found if relevant(past, rule.effect)), MOST_PAST))


def _past(parts: Parts, request: Request, remotes: dict[str, tuple[str, ...]]) -> Past:
    """A request of the database as the record has it. That it was superseded is nobody's answer."""
    if request.session_id not in remotes:
        remotes[request.session_id] = parts.sessions.get(request.session_id).remotes
    return Past(
        at=request.asked_at,
        session=request.session_id,
        action=request.action,
        verdict=request.decision,
        why=request.why,
        answer=None if request.superseded_by is not None else request.answer,
        answered_by=request.answered_by,
        request=request.id,
        remotes=remotes[request.session_id],
        by_policy=is_by_policy(request.rule, request.why),
        is_redacted=is_redacted(request.action, request.fingerprint),
    )


def _redacted(parts: Parts, past: Preview) -> Preview:
    return msgspec.structs.replace(
        past,
        approved=_shown(parts, past.approved),
        denied=_shown(parts, past.denied),
        unanswered=_shown(parts, past.unanswered),
        by_rules=_shown(parts, past.by_rules),
    )


def _shown(parts: Parts, group: Group) -> Group:
    return Group(group.count, tuple(shown(one, parts.redactor) for one in group.titles))
