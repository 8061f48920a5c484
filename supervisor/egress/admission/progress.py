"""Report now and then how much has moved, so that a person sees an upload early.

It decides nothing. The totals of an exchange are in its outcome (`admission`), which is always
delivered; these reports may be dropped.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import batched

from supervisor.core.network.egress_wire import Moving
from supervisor.egress.admission.sessions import Sessions

EVERY_S = 1.0
# In one packet: each takes at most 30 bytes.
MOST_AT_ONCE = 1000


class Progress:
    """One per process, from `start` until its loop ends. `tell` takes a message."""

    def __init__(self, sessions: Sessions, tell: Callable[[Moving], object]) -> None:
        self._sessions = sessions
        self._tell = tell
        self._told: dict[int, tuple[int, int]] = {}

    def start(self) -> None:
        """Report what moved, now and periodically."""
        now = dict(self._moving())
        news = [
            (question_id, *moved)
            for question_id, moved in now.items()
            if moved != self._told.get(question_id)
        ]
        self._told = now
        for some in batched(news, MOST_AT_ONCE, strict=False):
            self._tell(Moving(moved=some))
        asyncio.get_running_loop().call_later(EVERY_S, self.start)

    def _moving(self) -> Iterator[tuple[int, tuple[int, int]]]:
        for session in self._sessions.all():
            for connection in session.connections:
                for question_id, unsettled in connection.unsettled.items():
                    moved = connection.moved_for(unsettled)
                    if any(moved):
                        yield question_id, moved
