"""The operator's decisions, shared by pages, JSON API and CLI.

They are: answer, "always", bulk, rules, stop everything. Every function takes `by`, the
authenticated caller's name, from the door and never from a body. Only modules of the operator's
door import this one. Answering one request is one step of the event loop (`gate.resolve` compares
it with what was shown), so two tabs can't interleave in it. Further requests (answered by a new
rule, or in bulk) are answered in portions, so that nobody else waits for all of them.

INVARIANT: every answer carries what was shown, by its fingerprint; without it, or with another one,
nothing happens.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec
import yaml

from supervisor.core.actions import Category, Effect, category_of, title
from supervisor.core.approvals import Answer, Request, status
from supervisor.core.git.taken_branch import TakenBranch
from supervisor.core.policy.category import Candidate
from supervisor.core.policy.policy_text import merge, parse_policy, parse_rule
from supervisor.core.policy.rules import Policy
from supervisor.core.policy.suggest import suggest
from supervisor.core.text.display import visible
from supervisor.core.text.duration import FORMS, parse_duration
from supervisor.errors import (
    ChangedError,
    GatehouseError,
    NotFoundError,
    RefusedError,
    StorageError,
    UserError,
)
from supervisor.gate import audit_lines
from supervisor.parts import Parts
from supervisor.records.policy_files import ALWAYS, PolicyFiles, Until
from supervisor.server.common.request_views import alone_why, flags_of
from supervisor.server.operator.change_sets import ChangeSets
from supervisor.server.operator.shown_changes import must_be_seen

_EFFECT_OF: dict[Answer, Effect] = {"approved": "allow", "denied": "deny"}
_WHERE = "send the `fingerprint` that `GET /api/requests/ID` gives with the request"
_WHERE_ALL = (
    "send `shown`: the id of each request with its `fingerprint`, as `GET /api/requests` gives them"
)
_DROPPED = "dropped after the session's end"
_WITH_ALL = "with all that was held"
_WHY_CHARS = 200
# `category`, `category()` and patterns of only wildcards and separators: they match everything.
_BARE = re.compile(r"\s*[a-z]+\s*(?:\([\s*?/.:]*\)\s*)?", re.ASCII)


class AnswerResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a decision. `also` are other waiting requests that the saved rule answered;
    `saved_in` is the rule's file."""

    request: Request
    rule_id: str | None = None
    also: tuple[Request, ...] = ()
    saved_in: str | None = None


async def answer(
    parts: Parts,
    request_id: str,
    given: Answer,
    *,
    by: str,
    fingerprint: str,
    reason: str = "",
    always: str | None = None,
    lasts: str = "always",
    with_scripts: bool = False,
    seen: str = "",
) -> AnswerResult:
    """Answer one request. With `always`, a rule, also save that rule and let it answer other
    waiting requests. `lasts`: see `until`. `with_scripts`: an install may run its install scripts.
    `seen`: the word at the end of a changed file; a folded change needs it.

    Raise `ChangedError` where the request isn't pending any more, or isn't the one that was shown
    (`fingerprint`; empty: none was). Raise `UserError` where the rule can't be made of it, or what
    would be approved can't be shown. Then nothing was answered and nothing saved.
    """
    request = parts.queue.get(request_id)
    if shown_by(fingerprint) != request.fingerprint:
        raise ChangedError.other()
    if given == "approved" and status(request) == "pending":
        await must_be_seen(parts, request, seen)
    holds = until(parts, lasts, request.session_id)
    policies = parts.gate.rulings.policies_of(request.session_id)
    if always is not None and status(request) == "pending":
        check_candidate(parts, request, _EFFECT_OF[given], always)
    if with_scripts and given == "approved" and status(request) == "pending":
        parts.installs.allow_scripts(request_id, by)
    # The answer comes first: if two tabs press "always", only one saves a rule.
    answered = parts.gate.resolve(
        request_id, given, by=by, reason=reason, shown_fingerprint=fingerprint
    )
    if always is None:
        return AnswerResult(request=answered)
    why = reason or f"from the inbox: {visible(title(request.action), one_line=True)[:_WHY_CHARS]}"
    rule_id, also = await add_rule(
        parts,
        _EFFECT_OF[given],
        always,
        why=why,
        by=by,
        request_id=request_id,
        holds=holds,
        policies=policies,
    )
    saved_in = str(policies.saved_file)
    return AnswerResult(
        request=parts.queue.get(request_id), rule_id=rule_id, also=tuple(also), saved_in=saved_in
    )


def shown_by(fingerprint: str) -> str:
    """Return the fingerprint that an answer carries. Raise `ChangedError` where it carries none."""
    if not fingerprint:
        raise ChangedError.unsaid(_WHERE)
    return fingerprint


class BulkAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The requests answered in bulk, and by id with the reason those that a bulk approval left
    out."""

    answered: list[Request]
    left_out: dict[str, str]


async def answer_shown(
    parts: Parts,
    sets: ChangeSets,
    given: Answer,
    *,
    by: str,
    shown: Mapping[str, str],
    category: Category | None = None,
    reason: str = "",
) -> BulkAnswer:
    """Answer the `shown` requests, fingerprints by id, of one category if it is given: exactly
    these. An approval leaves out what is only approved alone.

    Raise `ChangedError` where one of them isn't what was shown or no longer waits: then nothing was
    answered. Raise `UserError` where each needs a separate answer.
    """
    if not shown or not all(shown.values()):
        raise ChangedError.unsaid(_WHERE_ALL)
    _must_wait(parts, category, shown)
    left_out: dict[str, str] = {}
    if given == "approved":
        left_out = await _left_out(sets, parts.queue.get_all(shown), category)
        _must_wait(parts, category, shown)
    ids = [one for one in shown if one not in left_out]
    if not ids:
        raise UserError("each of these needs an answer of its own", "look at them one by one")
    answered = await parts.gate.resolve_in_turns(ids, given, by=by, reason=reason)
    return BulkAnswer(answered=answered, left_out=left_out)


async def _left_out(
    sets: ChangeSets, requests: Sequence[Request], category: Category | None
) -> dict[str, str]:
    """Return, by id with the reason, which requests an approval of several leaves out. The page
    shows a line of each, so it covers only what a line shows whole. Who names a category has shown
    each, and leaves out what is flagged, in conflict or protected."""
    if category is None:
        return {one.id: why for one in requests if (why := alone_why(one, flags_of(one)))}
    found = await sets.left_out(requests)
    for one in requests:
        if why := ", ".join(flag.name for flag in flags_of(one)):
            found.setdefault(one.id, why)
    return found


def _must_wait(parts: Parts, category: Category | None, shown: Mapping[str, str]) -> None:
    waiting = {
        one.id: one.fingerprint
        for one in parts.queue.get_all(shown)
        if status(one) == "pending" and category in (None, category_of(one.action))
    }
    if waiting != dict(shown):
        raise ChangedError.several()


async def deny_held(parts: Parts, session_id: str, *, by: str) -> int:
    """Deny all of a session's connections that egress holds for an answer, including those without
    a card yet. Return their number.

    It doesn't name what was shown: like `stop_all` it only denies, and the operator is told that it
    also denies what arrives meanwhile.
    """
    why = f"denied by {by}: {_WITH_ALL}"
    waiting = [one.id for one in parts.queue.pending(session_id) if one.origin == "egress"]
    without = parts.gate.repeats.held_connections(session_id)
    parts.audit.record_all(
        [audit_lines.refused(action, session_id, why, by=by) for action in without]
    )
    parts.gate.repeats.turn_away(session_id, why)
    answered = await parts.gate.resolve_in_turns(waiting, "denied", by=by, reason=_WITH_ALL)
    return len(answered) + len(without)


async def take_branch(parts: Parts, session_id: str, branch: str, *, by: str) -> TakenBranch:
    """Copy an agent's branch into the host's repository. A job's branch then no longer waits for
    anybody. `RefusedError` for any other branch of a job's copy: nobody judged that."""
    session = parts.sessions.get(session_id)
    result = session.job_result
    judged = result.branch if result is not None else ""
    if session.job is not None and (not judged or branch not in ("", judged)):
        raise RefusedError("the job has no such branch", "see its result")
    taken = await parts.branches.take(session.id, branch, by=by)
    if result is not None and taken.source == result.branch:
        parts.sessions.close_branch(session.id, f"taken as {taken.branch}")
    return taken


async def drop_left(parts: Parts, session_id: str, *, by: str) -> int:
    """Deny everything that an ended session left to answer, and give its branch up. Return the
    number. Raise `NotFoundError` where nothing is left."""
    session = parts.sessions.get(session_id)
    has_ended = session.ended_at is not None
    branches = int(has_ended and parts.sessions.close_branch(session.id, "dropped"))
    waiting = [one.id for one in parts.left.requests(session.id) if status(one) == "pending"]
    if not branches and (session.id not in parts.left or not waiting):
        raise NotFoundError("nothing is left of this session to answer", "see the inbox")
    answered = await parts.gate.resolve_in_turns(waiting, "denied", by=by, reason=_DROPPED)
    return len(answered) + branches


def suggestions(parts: Parts, request_id: str, effect: Effect) -> list[Candidate]:
    """Return the rules that may be made of an answer, the default first; none where "always" may
    not be offered (law 9)."""
    request = parts.queue.get(request_id)
    if effect == "ask" or request.sticky or category_of(request.action) == "sandbox":
        return []
    found = []
    for candidate in suggest(parts.queue.action_of(request)):
        try:
            check_candidate(parts, request, effect, candidate.rule)
        except GatehouseError:
            continue  # an offer that would not do what it says is no offer
        found.append(candidate)
    return found


def check_candidate(parts: Parts, request: Request, effect: Effect, rule: str) -> None:
    """Raise `UserError` (with the reason) unless this rule may be made of an answer to this
    request, and then gives this answer."""
    if request.sticky:
        raise UserError(
            "a rule asks for this every time, so no rule can be made of the answer",
            f"answer it once, or change the rule `{request.rule}`",
        )
    category = category_of(request.action)
    if category == "sandbox":
        raise UserError("a change of the policy is always asked", "answer it once")
    named = parse_rule(rule, effect).category
    if is_bare(rule):
        raise UserError(
            f"`{rule}` matches everything", "name what it is about, or add it on the Rules page"
        )
    if named != category:
        raise UserError(
            f"`{rule}` is not about {category}", "choose a rule that matches the request"
        )
    action = parts.queue.action_of(request)
    if parts.redactor.said(rule, action) != rule:
        raise UserError("the rule holds a secret", "write one without it")
    verdict = parts.gate.rulings.under(
        _with_rule(parts, request, effect, rule), action, request.session_id
    )
    if verdict.decision != effect or verdict.rule is None:
        raise UserError(
            f"`{rule}` as a rule would not {effect} this: {verdict.why}",
            "choose a rule that matches the request",
        )


def until(parts: Parts, lasts: str, session_id: str | None) -> Until:
    """Return how long a rule is to hold: `always`, `session` (this one), or for a duration such as
    `15m`. Raise `UserError` for anything else."""
    match lasts.strip():
        case "always":
            return ALWAYS
        case "session" if session_id is not None:
            return Until(session_id=session_id)
        case "session":
            raise UserError(
                "`session` is for a rule made of a session's request", f"say for how long: {FORMS}"
            )
        case text:
            return Until(at=parts.clock.now() + parse_duration(text, "how long the rule holds"))


def lift_denial(parts: Parts, request_id: str, *, by: str) -> list[Request]:
    """Let a denied request be asked again at once. Return the requests whose denials no longer
    hold. Raise `UserError` where none held."""
    request = parts.queue.get(request_id)
    if status(request) != "denied" or request.answer != "denied":
        raise UserError(
            f"this request is {status(request)}, and nobody denied it",
            "see the inbox",
        )
    lifted = parts.gate.repeats.lift(request, f"{by} lets it be asked again")
    if not lifted:
        raise UserError("this denial was lifted before", "the agent may ask again")
    parts.audit.record(
        "denial_lifted", session=request.session_id, requests=[one.id for one in lifted], by=by
    )
    return lifted


def is_bare(rule: str) -> bool:
    """Return whether a rule matches everything of its category, in any spelling."""
    return _BARE.fullmatch(rule) is not None


async def add_rule(
    parts: Parts,
    effect: Effect,
    rule: str,
    *,
    why: str,
    by: str,
    request_id: str | None = None,
    holds: Until = ALWAYS,
    policies: PolicyFiles | None = None,
) -> tuple[str, list[Request]]:
    """Save a rule, record it, and let it answer waiting requests, in portions. Return its id and
    the answered requests.

    `policies` is the set that it is saved in, by default the supervisor's. Raise `PolicyError`
    where the rule doesn't parse or may not be saved, `StorageError` where it can't be stored or
    recorded.
    """
    if parts.redactor.said(rule) != rule:
        raise UserError("the rule holds a secret", "write one without it")
    policies = policies or parts.policies
    try:
        said = parts.redactor.said(why)
        rule_id = policies.add_rule(effect, rule, why=said, by=by, until=holds)
    except OSError as error:
        raise StorageError(
            f"the rule can't be saved: {error.strerror}", "free or repair the data folder"
        ) from error
    try:
        event, fields = audit_lines.rule_added(
            rule_id,
            effect,
            rule,
            by=by,
            saved_in=str(policies.saved_file),
            why=said,
            request=request_id,
            until=holds.at,
            for_session=holds.session_id,
        )
        parts.audit.record(event, **fields)
    except StorageError:
        policies.remove_rule(rule_id)  # a rule that isn't on record must not be in force
        raise
    return rule_id, await parts.gate.answers.rejudge(by=f"rule {rule_id}, saved by {by}")


async def remove_rule(parts: Parts, rule_id: str, *, by: str) -> str:
    """Remove a saved rule. Return its text. Raise `NotFoundError` where there is none; other rules
    are in the policy file."""
    try:
        rule = _holder_of(parts, rule_id).remove_rule(rule_id)
    except OSError as error:
        raise StorageError(
            f"the rule can't be removed: {error.strerror}", "free or repair the data folder"
        ) from error
    parts.audit.record("rule_removed", rule_id=rule_id, rule=rule, by=by)
    await parts.gate.answers.rejudge(by=f"the removal of rule {rule_id} by {by}")
    return rule


def stop_all(parts: Parts, *, by: str, reason: str = "") -> str:
    """Deny everything from now on. Return the reason that is shown. It works even where it can't be
    recorded."""
    shown = f"{reason or 'stopped'} ({by})"
    try:
        parts.kill_switch.stop(shown)
    except OSError as error:
        raise StorageError(
            f"the stop file can't be written: {error.strerror}", "end Gatehouse instead"
        ) from error
    parts.audit.record("all_stopped", by=by, reason=reason)
    return shown


def resume(parts: Parts, *, by: str) -> None:
    """Return to the rules. Requests approved meanwhile are offered to their channels again."""
    parts.audit.record("all_resumed", by=by)
    try:
        parts.kill_switch.resume()
    except OSError as error:
        raise StorageError(
            f"the stop file can't be removed: {error.strerror}", "remove it by hand"
        ) from error
    parts.gate.answers.offer_ready()


def _holder_of(parts: Parts, rule_id: str) -> PolicyFiles:
    """Return the policy set with this saved rule's id; by default the supervisor's, which reports
    that it has none."""
    sets = parts.gate.rulings.policy_sets.all()
    return next((one for one in sets if one.has_saved(rule_id)), parts.policies)


def _with_rule(parts: Parts, request: Request, effect: Effect, rule: str) -> Policy:
    """Return the policy that would hold for the request's session if the rule were saved."""
    session = parts.sessions.get(request.session_id)
    text = yaml.safe_dump({"version": 1, effect: [rule]})
    policies = parts.gate.rulings.policies_of(request.session_id)
    return merge(policies.for_session(session.policy_text), parse_policy(text, "the new rule"))
