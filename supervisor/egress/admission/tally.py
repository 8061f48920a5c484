"""Report what egress refuses by itself: the first of a kind at once, then counts.

It decides only which refusals are reported as one: an agent may be refused thousands of times a
second, and each line of the audit log stays on disk for good. It is separate from `questions`
because nobody waits for an answer. INVARIANT: the reported numbers add up to what was refused. What
can't be sent now (a full channel) is sent later, and the reports of one session are bounded,
whatever it sends. Only an egress that is killed loses its last numbers; its end is on record.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable

import msgspec

from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import EgressRefused

EVERY_S = 30.0
# Hosts of one session that are told apart within that time; of those beyond only the kind of
# refusal is, and of too many kinds not even that.
MOST_APART = 32
MOST_KINDS = 96
# What a client says stands in backticks in a why, and so do the numbers of ports: the rest is the
# kind.
_SAID = re.compile(r"`[^`]*`|[0-9]+")

type _Key = tuple[str, str, str]


class Tally:
    """One per process. `tell` gives whether the supervisor was told."""

    def __init__(self, tell: Callable[[EgressRefused], bool]) -> None:
        self._tell = tell
        self._untold: dict[_Key, EgressRefused] = {}
        self._per_session: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, session_id: str, action: Network, why: str) -> None:
        """One more."""
        key = self._key(session_id, action.host, why)
        before = self._untold.get(key)
        refused = EgressRefused(session_id=session_id, action=action, why=why)
        if before is None:
            self._per_session[session_id] += 1
            self._untold[key] = msgspec.structs.replace(
                refused, count=0 if self._tell(refused) else 1
            )
        else:
            self._untold[key] = msgspec.structs.replace(refused, count=before.count + 1)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._tell_all)

    def close(self, session_id: str) -> None:
        """Report and forget a session's numbers."""
        for key in [key for key in self._untold if key[0] == session_id]:
            self._tell_one(key)

    def _tell_all(self) -> None:
        for key in list(self._untold):
            self._tell_one(key)
        again = bool(self._untold)
        self._timer = (
            asyncio.get_running_loop().call_later(EVERY_S, self._tell_all) if again else None
        )

    def _tell_one(self, key: _Key) -> None:
        """Of a kind that goes on the number, of one that ended nothing any more."""
        refused = self._untold[key]
        if not refused.count:
            del self._untold[key]
            self._per_session[key[0]] -= 1
            if not self._per_session[key[0]]:
                del self._per_session[key[0]]
        elif self._tell(refused):
            self._untold[key] = msgspec.structs.replace(refused, count=0)

    def _key(self, session_id: str, host: str, why: str) -> _Key:
        kind = _SAID.sub("", why)
        for key in ((session_id, kind, host), (session_id, kind, "")):
            if key in self._untold:
                return key
        told = self._per_session[session_id]
        if told < MOST_APART:
            return session_id, kind, host
        return (session_id, kind, "") if told < MOST_KINDS else (session_id, "", "")
