"""The record, read back: what agents asked, what the rules said, and what a person answered.

Decides only what a line of the audit log means for somebody who wants to ask another policy the same things. Pure: whoever calls
reads the file. It must never drop a line that it doesn't understand without saying so: a history with holes would call a
policy tighter or wider than it is.
"""

from collections.abc import Iterable, Mapping

import msgspec

from supervisor.core.actions import Action, Effect
from supervisor.core.approvals import Answer
from supervisor.errors import UserError


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """One action that was judged. `at` is in seconds since the epoch.

    `verdict`, `rule` and `why` are what the rules of that moment said; `answer` is a person's, None where nobody gave one (the
    rules had decided, or it was superseded or closed). `action` is as recorded, secrets redacted. `remotes` are the git
    remotes that the session's repository knew; `workspace` is the host's folder.
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

    @property
    def outcome(self) -> Effect:
        """What became of it in the end: a person's answer where there is one, else the rules' verdict."""
        if self.answer is None:
            return self.verdict
        return "allow" if self.answer == "approved" else "deny"


class _Line(msgspec.Struct, kw_only=True):
    """The fields that a history reads; docs/audit.md tells them all."""

    at: float
    event: str
    session: str = ""
    request: str | None = None
    action: Action | None = None
    verdict: Effect | None = None
    rule: str | None = None
    why: str = ""
    answer: Answer | None = None
    by: str | None = None
    workspace: str = ""
    remotes: tuple[str, ...] = ()


def read_history(lines: Iterable[bytes], source: str) -> tuple[Past, ...]:
    """The judged actions of an audit log, in order. `UserError` (`source:line: what`) for a line that isn't one of its records.

    A last line without its line break is still being written, and is left out.
    """
    known: list[Past] = []
    asked: dict[str, int] = {}
    sessions: dict[str, _Line] = {}
    for number, raw in enumerate(lines, start=1):
        if not raw.endswith(b"\n"):
            break
        line = _read(raw, f"{source}:{number}")
        if line.event == "session_started":
            sessions[line.session] = line
        elif line.event in ("verdict_given", "request_asked"):
            if line.request is not None:
                asked[line.request] = len(known)
            known.append(_past(line, sessions.get(line.session), f"{source}:{number}"))
        elif line.event == "request_answered" and line.request in asked:
            place = asked[line.request]
            known[place] = msgspec.structs.replace(known[place], answer=line.answer, answered_by=line.by)
    return tuple(known)


def _read(raw: bytes, where: str) -> _Line:
    try:
        return msgspec.json.decode(raw, type=_Line)
    except msgspec.DecodeError as error:
        raise UserError(f"{where}: not a record of the audit log: {error}", "give an audit.log of Gatehouse") from None


def _past(line: _Line, session: _Line | None, where: str) -> Past:
    if line.action is None or line.verdict is None:
        raise UserError(
            f"{where}: `{line.event}` without its action or verdict",
            "give an audit.log of Gatehouse, as it was written",
        )
    return Past(
        at=line.at,
        session=line.session,
        action=line.action,
        verdict=line.verdict,
        why=line.why,
        rule=line.rule,
        request=line.request,
        workspace=session.workspace if session else "",
        remotes=session.remotes if session else (),
    )


def of_session(history: Iterable[Past], session: str) -> tuple[Past, ...]:
    """What one session asked; `session` may be the beginning of its id."""
    return tuple(past for past in history if past.session.startswith(session))


def by_session(history: Iterable[Past]) -> Mapping[str, tuple[Past, ...]]:
    """The history, apart by session, in the order in which the sessions began to ask."""
    found: dict[str, list[Past]] = {}
    for past in history:
        found.setdefault(past.session, []).append(past)
    return {session: tuple(asked) for session, asked in found.items()}
