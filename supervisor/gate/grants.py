"""The gate's answers: the two proofs, `Grant` and `Lease`, and `Refused`, with the why.

    Grant   the right to do exactly one action once
    Lease   the right to go on with what belongs to something granted and still open: a request
            inside an allowed tunnel, a portion of the traffic of a session

INVARIANT: only `gate` makes a proof; `tests/test_architecture.py` holds it. Channels import all
three from `gate`.
"""

import functools
import os

import msgspec

from supervisor.core.actions import Action, Effect, fingerprint, title
from supervisor.core.approvals import Request
from supervisor.core.verdicts import Verdict
from supervisor.errors import RefusedError


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's refusal. `decision` is `ask` where nobody answered in time: the request stays in
    the inbox. `is_taken`: it was approved, but another waiter for the same answer took its one
    grant.
    """

    why: str
    decision: Effect = "deny"
    rule: str | None = None
    remedy: str = ""
    request_id: str | None = None
    is_taken: bool = False


def refused_by(verdict: Verdict, request_id: str | None = None) -> Refused:
    """Return the refusal that the rules gave."""
    return Refused(why=verdict.why, rule=verdict.rule, remedy=verdict.remedy, request_id=request_id)


def unanswered(request: Request, held_s: float) -> Refused:
    """Return the refusal of a request that nobody answered in time."""
    return Refused(
        why=f"nobody answered within {held_s:g} s: {request.why}",
        decision="ask",
        rule=request.rule,
        remedy="the request stays in the inbox; try again after it is answered",
        request_id=request.id,
    )


def taken(request: Request) -> Refused:
    """Return the refusal of a second claim on a request's one grant."""
    return Refused(
        why="it was approved once, and another exactly like it went out by that",
        rule=request.rule,
        remedy="ask again",
        request_id=request.id,
        is_taken=True,
    )


class Grant:
    """The right to do exactly one action once. Only `Gate` makes one."""

    def __init__(
        self,
        *,
        session_id: str,
        bound_to: Action | str,
        request_id: str | None,
        rule: str | None,
        why: str,
    ) -> None:
        """`bound_to` is the action that was judged, or its fingerprint."""
        self.session_id = session_id
        self.request_id = request_id
        self.rule = rule
        self.why = why
        self._bound_to = bound_to
        self._spent = False

    @functools.cached_property
    def id(self) -> str:
        """Return its id in the audit record, once it is recorded."""
        return os.urandom(8).hex()

    def use(self, action: Action) -> None:
        """Spend the grant on `action`; `RefusedError` if it was already spent or is for another
        action.

        INVARIANT: a grant is used at most once, and only for the action that was judged (law 2).
        """
        if self._spent:
            raise RefusedError(
                "this grant was used before", "ask again", request_id=self.request_id
            )
        self._spent = True
        bound_to = self._bound_to
        # That very object: an action is frozen.
        if action is bound_to:
            return
        if fingerprint(action) != (
            bound_to if isinstance(bound_to, str) else fingerprint(bound_to)
        ):
            raise RefusedError(
                f"`{title(action)}` is not the action that was judged",
                "ask again",
                request_id=self.request_id,
            )


class Lease:
    """The right to continue within something granted. Only `Gate` makes one.

    It ends when its rules change: the holder then asks for another lease, or ends what the lease
    covers.
    """

    def __init__(self, *, session_id: str, bound_to: Action | None, verdict: Verdict) -> None:
        """`bound_to` is the action that was judged; None for a portion of traffic, which belongs
        to whatever the session has open."""
        self.session_id = session_id
        self.verdict = verdict
        self._bound_to = bound_to

    @property
    def by_rules(self) -> bool:
        """Return whether rules alone allow it, without the earlier grant."""
        return self.verdict.decision == "allow"

    def use(self, session_id: str, action: Action | None = None) -> None:
        """Continue with `action`; `RefusedError` if the lease is for something else.

        INVARIANT: a lease covers only the session and the action that were judged (law 2).
        """
        if session_id != self.session_id or action != self._bound_to:
            what = "another session's traffic" if action is None else f"`{title(action)}`"
            raise RefusedError(f"{what} is not what was judged", "ask again")
