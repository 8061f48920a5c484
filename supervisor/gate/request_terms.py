"""The `Request` that is recorded of an action, as far as it hangs on nothing else.

Apart from `gate`, which judges and records: nothing here decides. It must never put into a
request what holds a secret.
"""

import secrets
from typing import NamedTuple

from supervisor.core.actions import Action, fingerprint, subject
from supervisor.core.approvals import Origin, Request, RequestId
from supervisor.core.secrets.redact import Redactor, redacted
from supervisor.core.verdicts import Verdict

MOST_REASON_CHARS = 2000


class RequestTerms(NamedTuple):
    """The common terms of requests that are asked for together. With `claims` those that rules
    allow begin at once. `held_up`: as in `Request`."""

    session_id: str
    reason: str
    origin: Origin
    hold_until: float | None = None
    claims: bool = False
    held_up: bool = False

    def request(self, action: Action, verdict: Verdict, redactor: Redactor, now: float) -> Request:
        """The request for one action, with the verdict on it."""
        return Request(
            id=RequestId(secrets.token_hex(16)),
            session_id=self.session_id,
            origin=self.origin,
            action=redacted(action, redactor),
            fingerprint=fingerprint(action),
            subject=subject(action),
            asked_at=now,
            decision=verdict.decision,
            why=redactor.said(verdict.why, action),
            reason=redactor.said(self.reason, action)[:MOST_REASON_CHARS],
            rule=verdict.rule,
            remedy=verdict.remedy,
            sticky=verdict.sticky,
            by_policy=verdict.by_policy,
            held_up=self.held_up,
            hold_until=self.hold_until,
            used_at=now if self.claims and verdict.decision == "allow" else None,
        )
