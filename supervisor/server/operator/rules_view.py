"""Rules in force for pages, API and CLI, and what an unsaved rule would answer.

It decides nothing: a wrong preview misinforms a person, but changes no verdict. `core.lab.preview`
does the counting, over a bounded number of requests that this module reads from the database.
"""

from itertools import islice

import msgspec

from supervisor.core.actions import Category, Effect, Proposal, title
from supervisor.core.approvals import Request, status
from supervisor.core.lab.past import Past, is_redacted
from supervisor.core.lab.preview import PastGroup, Preview, preview, relevant, sentence
from supervisor.core.policy.policy_text import merge, parse_rule, policy_from_data
from supervisor.core.policy.rules import Policy, Rule
from supervisor.core.sessions import Session
from supervisor.errors import PolicyError
from supervisor.parts import Parts
from supervisor.records.policy_files import PolicyFiles
from supervisor.server.common.views import shown, shown_view, view_of

_ORDER: tuple[Effect, ...] = ("deny", "ask", "allow")
# Bounds of a click's work. A verdict on a command takes up to a millisecond.
MOST_WAITING = 100
MOST_READ = 500
MOST_PAST = 150
MOST_TITLES = 4


class RuleView(msgspec.Struct, frozen=True, kw_only=True):
    """`can_remove`: whether it was saved from the inbox, the page or the CLI; others are in the
    policy file. `policy_file` is the policy that it belongs to: the supervisor's, or that of
    sessions with their own.

    Times are in seconds since the epoch. `session_id`: it holds only in that session. `hits` counts
    matches since the database was made.
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
    """Return every rule in force, the supervisor's first: denials, then asks, then allowances, each
    in the order of their files."""
    hits = parts.queue.read_rule_hits()
    found: dict[tuple[str, int, str], RuleView] = {}
    for policies in parts.gate.rulings.policy_sets.all():
        for rule in sorted(policies.current().rules, key=lambda rule: _ORDER.index(rule.effect)):
            # Two policies may share a file of saved rules; each rule is listed once.
            found.setdefault(
                (rule.source, rule.line, rule.id),
                _view(rule, parts, policies, hits.get(rule.id, (0, None))),
            )
    return list(found.values())


def warnings(parts: Parts) -> tuple[str, ...]:
    """Return warnings for the policy's author, such as rules that never match."""
    sets = parts.gate.rulings.policy_sets.all()
    found = dict.fromkeys(warning for policies in sets for warning in policies.current().warnings)
    return tuple(shown(warning, parts.redactor) for warning in found)


def _view(
    rule: Rule, parts: Parts, policies: PolicyFiles, hit: tuple[int, float | None]
) -> RuleView:
    return view_of(
        RuleView,
        rule,
        parts.redactor,
        rule=rule.text,
        session_id=rule.session,
        policy_file=str(policies.file),
        can_remove=rule.source == str(policies.saved_file),
        hits=hit[0],
        last_at=hit[1],
    )


class RulePreview(msgspec.Struct, frozen=True, kw_only=True):
    """`waiting`: the other requests that it would answer now. `summary`: the `past` in words.
    `saved_in`: the rule's file.

    `against`: requests that a person had answered the other way, whose answers the rule would
    contradict.
    """

    effect: Effect
    rule: str
    summary: str
    saved_in: str
    waiting: PastGroup
    past: Preview
    against: PastGroup


def preview_of_rule(
    parts: Parts, effect: Effect, text: str, *, leaving_out: str = ""
) -> RulePreview:
    """Return the preview of an unsaved rule; `leaving_out` is the request that it is made of. Raise
    `PolicyError` where it can't be used at all."""
    rule = parse_rule(text, effect)
    rulings = parts.gate.rulings
    policies = (
        rulings.policies_of(parts.queue.get(leaving_out).session_id)
        if leaving_out
        else parts.policies
    )
    past = preview(rule, _earlier(parts, rule, policies), policies.current())
    waiting = [
        title(one.action) for one in _waiting(parts, rule, policies) if one.id != leaving_out
    ]
    found = RulePreview(
        effect=effect,
        rule=rule.text,
        summary=sentence(past),
        saved_in=str(policies.saved_file),
        waiting=PastGroup(len(waiting), tuple(dict.fromkeys(waiting))[:MOST_TITLES]),
        past=past,
        against=past.against,
    )
    return shown_view(found, parts.redactor)


def preview_of_proposal(parts: Parts, request: Request) -> RulePreview | None:
    """Return the preview of the rule that a waiting request proposes, or None where it proposes
    none, or one that can't be used any more."""
    action = request.action
    if status(request) != "pending" or not isinstance(action, Proposal):
        return None
    try:
        return preview_of_rule(parts, action.effect, action.rule, leaving_out=request.id)
    except PolicyError:
        return None


def _waiting(parts: Parts, rule: Rule, saved_with: PolicyFiles) -> list[Request]:
    if rule.effect == "ask":
        return []  # they are asked already
    alone = policy_from_data({rule.effect: [rule.text]})
    rulings = parts.gate.rulings
    in_force: dict[str, Policy] = {}
    found = []
    waiting = (
        one
        for one in parts.queue.pending_in(rule.category, MOST_READ)
        if rulings.policies_of(one.session_id).saved_file == saved_with.saved_file
    )
    for one in islice(waiting, MOST_WAITING):
        if one.session_id not in in_force:
            own = parts.sessions.get(one.session_id).policy_text
            in_force[one.session_id] = merge(
                rulings.policies_of(one.session_id).for_session(own), alone
            )
        if (
            rulings.under(
                in_force[one.session_id], parts.queue.action_of(one), one.session_id
            ).decision
            == rule.effect
        ):
            found.append(one)
    return found


def _earlier(parts: Parts, rule: Rule, saved_with: PolicyFiles) -> list[Past]:
    """Return the last requests that the rule could apply to, of sessions that it would hold in;
    waiting ones are left out."""
    sessions: dict[str, Session] = {}
    newest = parts.queue.newest(4 * MOST_PAST, rule.category)
    for one in newest:
        if one.session_id not in sessions:
            sessions[one.session_id] = parts.sessions.get(one.session_id)
    found = (
        _past(one, sessions[one.session_id])
        for one in newest
        if status(one) != "pending"
        and (sessions[one.session_id].saved_rules_file or str(parts.policies.saved_file))
        == str(saved_with.saved_file)
    )
    return list(islice((past for past in found if relevant(past, rule.effect)), MOST_PAST))


def _past(request: Request, session: Session) -> Past:
    """Return a database request in the form of the record. A superseded request counts as nobody's
    answer."""
    return Past(
        at=request.asked_at,
        session=request.session_id,
        action=request.action,
        verdict=request.decision,
        why=request.why,
        answer=None if request.superseded_by is not None else request.answer,
        answered_by=request.answered_by,
        request=request.id,
        remotes=session.remotes,
        by_policy=request.by_policy,
        is_redacted=is_redacted(request.action, request.fingerprint),
    )
