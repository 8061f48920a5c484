"""Meter of everything that sessions send, within budgets of requests and bytes.

    draw   before anything goes out: egress gets a portion, which counts from then on, or is told
           the limit that it would pass
    use    what was sent of a portion, and what is given back of it, reported now and then and at
           the end
    lose   unknown (a crash, egress gone): the whole portion counts as sent

A request is no model call: egress counts it itself, out of a portion, and it isn't recorded singly.
INVARIANT: sums are taken and the portion is recorded in one transaction, with nothing awaited
between.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, Engine

from supervisor.core.budget import Amounts, Limits, Over, Scope, first_over, portion
from supervisor.store import traffic as store
from supervisor.store.traffic import TrafficKind

type BudgetsOf = Callable[[Connection, str], tuple[dict[Scope, Limits], dict[Scope, Amounts]]]
NOTHING: Mapping[TrafficKind, int] = {"requests": 0, "bytes_out": 0}


class BudgetRefusal(NamedTuple):
    """Why a call or a portion of traffic doesn't go out, where no raise would help."""

    why: str
    remedy: str


ENDED = BudgetRefusal("the session has ended", "start a new session")


class Traffic:
    """One per supervisor. `standing` returns limits and their use; `is_open` returns whether a
    session still has a budget; `day` is today's key; `changed` is called with the session."""

    def __init__(
        self,
        engine: Engine,
        standing: BudgetsOf,
        is_open: Callable[[str], bool],
        day: Callable[[], str],
        changed: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._standing = standing
        self._is_open = is_open
        self._day = day
        self._changed = changed

    def draw(self, session_id: str, kind: TrafficKind, wanted: int) -> int | Over | BudgetRefusal:
        """Return the session's new portion, at least as large as wanted, or the limit that it would
        pass."""
        if not self._is_open(session_id):
            return ENDED
        with self._engine.begin() as connection:
            limits, used = self._standing(connection, session_id)
            over = first_over(limits, used, Amounts(**{kind: wanted}))
            if over is not None:
                return over
            found = portion(limits, used, kind, wanted)
            if all(getattr(one, kind) is None for one in limits.values()):
                return found
            store.hold(connection, session_id, self._day(), kind, found)
        self._changed(session_id)
        return found

    def use(
        self,
        session_id: str,
        used: Mapping[TrafficKind, int] = NOTHING,
        back: Mapping[TrafficKind, int] = NOTHING,
    ) -> None:
        """Record sent traffic, and give back the part of the portions that won't be sent."""
        with self._engine.begin() as connection:
            store.use(connection, session_id, self._day(), used)
            store.release(connection, session_id, back)
        self._changed(session_id)

    def lose(self) -> None:
        """Count egress's portions as sent: it is gone, or was at start-up."""
        with self._engine.begin() as connection:
            store.lose_held(connection)
