"""The lines for the record of verdicts. Those on connections, which programs make again and again,
are put together and looked through once.

It decides only when what was made of a verdict before may be written again: for the same action,
verdict and session, and while no secret became known since. It is apart from `gate` because it
grants nothing, and from `audit` because that knows no actions. It must never keep a line back:
each verdict is written, by itself, before this returns.
"""

import contextlib
from typing import NamedTuple

from supervisor.core.actions import Action, Network
from supervisor.core.secrets.redact import Redactor
from supervisor.core.verdicts import Verdict
from supervisor.errors import StorageError
from supervisor.gate import audit_lines
from supervisor.records.audit import Audit, Encoded

MOST_KEPT = 256
# What is longer is made anew each time: what agents send must not fill the memory.
MOST_BYTES = 4096


def record_refusal(audit: Audit, action: Action, session_id: str, why: str) -> None:
    """Record that a channel refused by itself, before any rule. Never raises."""
    with contextlib.suppress(StorageError):
        audit.record_all([audit_lines.refused(action, session_id, why, by="gatehouse")])


class _Judged(NamedTuple):
    action: Network
    verdict: Verdict
    session_id: str


class VerdictLines:
    """One per gate."""

    def __init__(self, audit: Audit, redactor: Redactor) -> None:
        self._audit = audit
        self._redactor = redactor
        self._known_secrets = redactor.changes
        self._kept: dict[_Judged, Encoded] = {}

    def write(self, action: Action, verdict: Verdict, session_id: str) -> None:
        """Put a verdict on record. `StorageError` where it can't be written."""
        if isinstance(action, Network) and action.operation == "connect":
            fields: audit_lines.LineFields = self._fields(_Judged(action, verdict, session_id))
        else:
            fields = audit_lines.judged(action, verdict, session_id)
        self._audit.record_all([audit_lines.verdict_given(fields)])

    def _fields(self, judged: _Judged) -> Encoded | dict[str, object]:
        if self._known_secrets != self._redactor.changes:
            # INVARIANT: what was clean is looked through anew once there is another secret to look
            # for.
            self._kept.clear()
            self._known_secrets = self._redactor.changes
        try:
            kept = self._kept.get(judged)
        except TypeError:  # an action with something in it that can still change
            return audit_lines.judged(*judged)
        return self._made(judged) if kept is None else kept

    def _made(self, judged: _Judged) -> Encoded | dict[str, object]:
        fields = audit_lines.judged(*judged)
        encoded = self._audit.encoded(fields)
        if encoded is None or len(encoded.text) > MOST_BYTES:
            return fields
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[judged] = encoded
        return encoded
