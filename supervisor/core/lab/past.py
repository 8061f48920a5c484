"""Read the audit log back: what agents asked, its verdicts, and people's answers.

Decides only how a line of the log becomes a question to another policy. Pure: the caller reads the
file. It must never drop a line that it doesn't understand without saying so: a history with holes
would call a policy tighter or wider than it is. `gatehouse audit --verify` checks the chain of
hashes.

    session_started    what its git repository knew, and rules that it alone had
    verdict_given      answered at once: by a rule or a mode, or refused by Gatehouse itself
    request_asked      the same for a request with a card: a person answers where the verdict is
                       `ask`
    request_answered   by a person, or by rules that changed while it waited

No other event matters here. Superseded and closed requests have no answer.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from supervisor.core.actions import Action, Effect, Network, fingerprint
from supervisor.core.approvals import Answer
from supervisor.core.secrets.token_shapes import MARK
from supervisor.core.secrets.url_secrets import MARK as HIDDEN
from supervisor.errors import UserError

_SESSIONS, _VERDICTS, _ANSWERS = (
    ("session_started",),
    ("verdict_given", "request_asked"),
    ("request_answered",),
)
# Prefixes of an answer's `by` if changed rules or a newer request gave it: no operator has such a
# name.
_NO_PERSON = ("rule ", "the removal of rule ", "a change of the policy", "gatehouse")
_MARKS = (MARK.encode(), HIDDEN[:-1].encode())
# Reasons in lines that were written before verdicts had `by_policy`; they never change.
_OWN = re.compile(
    r"everything is stopped: .*"
    r"|the rules could not be evaluated: \w+"
    r"|`[^`]*` port [0-9]+ is Gatehouse itself, which is never reached"
    r"|the session has ended"
    r"|too many requests of this session wait already"
    r"|Gatehouse itself reads this file \(its policy, code or pages\):"
    r" a change of it is always asked"
    r"|no policy could be read, so everything is denied",
    re.DOTALL,
)
_REMEDY = "give an audit.log as Gatehouse wrote it, of no newer version than this"


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """One judgement of an action. `at` is in seconds since the epoch.

    `verdict`, `rule` and `why` are what was said at that moment. `answer` is the final answer to an
    ask; None if nobody gave one (the rules had decided, or it was superseded or closed). `request`
    is the id of its card; None if it had none. `remotes` are the git remotes that the session's
    repository knew, `own_rules` the policy text that only this session had, `workspace` the host's
    folder.

    `by_policy` is False if no policy made the verdict: everything was stopped, the session had
    ended, the inbox was full, or egress or the workspace refused by itself. It is also False for
    the `ask` about a change of Gatehouse's own files, which no rule but a denial alters.
    `is_redacted`: a secret was cut out of the recorded action, so no other policy can judge it.
    """

    at: float
    session: str
    action: Action
    verdict: Effect
    why: str = ""
    rule: str | None = None
    answer: Answer | None = None
    answered_by: str | None = None
    request: str | None = None
    workspace: str = ""
    remotes: tuple[str, ...] = ()
    own_rules: str = ""
    by_policy: bool = True
    is_redacted: bool = False

    @property
    def outcome(self) -> Effect:
        """Return the final outcome: the answer if there is one, else the verdict."""
        if self.answer is None:
            return self.verdict
        return "allow" if self.answer == "approved" else "deny"

    @property
    def was_asked(self) -> bool:
        """Return whether it was a card in the inbox.

        An `ask` without a request had no card: it was a request in a connection that a person had
        approved, or its card came next.
        """
        return self.verdict == "ask" and self.request is not None

    @property
    def persons_answer(self) -> Answer | None:
        """Return the answer if a person gave it, not a rule."""
        return self.answer if self.answer is not None and is_by_person(self.answered_by) else None


class Answered(NamedTuple):
    """A request's answer, and who gave it."""

    answer: Answer
    by: str | None


def is_by_person(by: str | None) -> bool:
    """Return whether the `by` of an answer names a person, rather than Gatehouse or rules that
    changed while the request waited."""
    return not (by or "gatehouse").startswith(_NO_PERSON)


def is_redacted(action: Action, mark: str) -> bool:
    """Return whether a secret was cut out of a stored action. `mark` is the fingerprint of the
    action as it was judged.

    Both the mark and the text are checked: an agent can write the redaction mark itself, and a
    later version may compute other fingerprints. An address's query values are hidden too, but no
    rule compares these.
    """
    text = str(msgspec.structs.astuple(action))
    has_mark = MARK in text or (HIDDEN[:-1] in text and not isinstance(action, Network))
    return has_mark and fingerprint(action) != mark


def read_history(lines: Iterable[bytes], source: str) -> tuple[Past, ...]:
    """Read the judgements of an audit log, in order. Raise `UserError` (`source:line: what`) for a
    line that isn't one of its records.

    A last line without its line break is still being written, and is left out.
    """
    reader = _Reader(source)
    known = [past for past in map(reader.read, _whole(lines)) if past is not None]
    return tuple(_answered(past, reader.answers) for past in known)


def read_answers(lines: Iterable[bytes], source: str) -> Mapping[str, Answered]:
    """Return the answers by request, for `iterate`."""
    reader = _Reader(source)
    for raw in _whole(lines):
        reader.read(raw, only=_ANSWERS)
    return reader.answers


def iterate(lines: Iterable[bytes], source: str, answers: Mapping[str, Answered]) -> Iterator[Past]:
    """Yield the judgements of `read_history` one by one: a log of any length costs no more memory
    than its requests' ids.

    `answers` are the answers of the same log, read before: an answer may come long after its
    question.
    """
    reader = _Reader(source)
    for raw in _whole(lines):
        past = reader.read(raw)
        if past is not None:
            yield _answered(past, answers)


def of_session(history: Iterable[Past], session: str) -> tuple[Past, ...]:
    """Return one session's judgements; `session` may be the beginning of its id."""
    return tuple(past for past in history if past.session.startswith(session))


# -- lines ----------------------------------------------------------------------------------------


class _Event(msgspec.Struct):
    """The fields that tell whether a line matters. No other field of an event from a newer version
    is read."""

    at: float
    event: str


class _Started(msgspec.Struct, kw_only=True):
    session: str
    workspace: str = ""
    remotes: tuple[str, ...] = ()
    own_rules: str = ""


class _Judged(msgspec.Struct, kw_only=True):
    """A verdict's fields. `by` is set if a channel refused by itself; older lines have no
    `by_policy`."""

    at: float
    session: str
    action: Action
    verdict: Effect
    fingerprint: str = ""
    why: str = ""
    rule: str | None = None
    request: str | None = None
    by: str | None = None
    by_policy: bool | None = None


class _Answer(msgspec.Struct, kw_only=True):
    request: str
    answer: Answer
    by: str | None = None


class _Reader:
    """Reads one log once. `answers` fills as it goes."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.line = 0
        self.answers: dict[str, Answered] = {}
        self._sessions: dict[str, _Started] = {}
        self._requests: set[str] = set()

    def read(self, raw: bytes, only: tuple[str, ...] | None = None) -> Past | None:
        """Return the judgement that a line holds; None if it holds none. With `only`, other events
        are skipped."""
        self.line += 1
        event = self._decode(raw, _Event).event
        if only is not None and event not in only:
            return None
        if event in _VERDICTS:
            return self._past(
                self._decode(raw, _Judged), may_be_redacted=any(mark in raw for mark in _MARKS)
            )
        if event in _ANSWERS:
            answer = self._decode(raw, _Answer)
            self.answers.setdefault(answer.request, Answered(answer.answer, answer.by))
        elif event in _SESSIONS:
            started = self._decode(raw, _Started)
            self._sessions[started.session] = started
        return None

    def _past(self, line: _Judged, *, may_be_redacted: bool) -> Past | None:
        if line.request is not None:
            if line.request in self._requests:
                # the ids of requests are random: this line stands twice, such as in two logs put
                # together
                return None
            self._requests.add(line.request)
        by_policy = line.by_policy
        if by_policy is None:
            by_policy = _was_by_policy(line.rule, line.why)
        session = self._sessions.setdefault(line.session, _Started(session=line.session))
        return Past(
            at=line.at,
            session=session.session,  # one text for all of them
            action=line.action,
            verdict=line.verdict,
            why=line.why,
            rule=line.rule,
            request=line.request,
            workspace=session.workspace,
            remotes=session.remotes,
            own_rules=session.own_rules,
            by_policy=line.by is None and by_policy,
            is_redacted=may_be_redacted and is_redacted(line.action, line.fingerprint),
        )

    def _decode[T](self, raw: bytes, kind: type[T]) -> T:
        try:
            try:
                return msgspec.json.decode(raw, type=kind)
            except msgspec.DecodeError:
                # Only Python accepts half a surrogate pair in JSON, for example in an error about a
                # file whose name isn't UTF-8.
                return msgspec.convert(json.loads(raw), kind)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"{self.source}:{self.line}: not a record of the audit log: {error}", _REMEDY
            ) from None


def _whole(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Return the lines up to the first without a line break, which is still being written."""
    for raw in lines:
        if not raw.endswith(b"\n"):
            return
        yield raw


def _answered(past: Past, answers: Mapping[str, Answered]) -> Past:
    found = answers.get(past.request) if past.request is not None else None
    return (
        past
        if found is None
        else msgspec.structs.replace(past, answer=found.answer, answered_by=found.by)
    )


def _was_by_policy(rule: str | None, why: str) -> bool:
    """Return whether an explanation shows that rules or modes made the verdict."""
    return rule is not None or _OWN.fullmatch(why) is None
