"""Connection limits: how many connections agents may hold, which idle one is closed for a new one,
and how often the terminal reports invalid requests.

INVARIANT: what agents hold open never takes the descriptors that the operator's page and the
supervisor itself need.
"""

import asyncio
import logging
import resource
from collections.abc import Callable, Iterable
from typing import Protocol
from weakref import WeakSet

# For the operator's connections, files, databases, pipes of sandboxes and what a burst of
# connections takes until it is refused.
RESERVED_DESCRIPTORS = 512
MOST_FILES = 65536
MOST_AGENT_CONNECTIONS = 1 << 20
# So often at most the terminal hears how many more there were.
TELL_EVERY_S = 60.0
_WORDS = {
    "Invalid HTTP request received.": "malformed requests",
    "Unsupported upgrade request.": "requests for a protocol that isn't there",
    "Exceeded concurrency limit.": "requests over a door's limit",
}


class OpenConnection(Protocol):
    """One client's connection: since when it is idle (event loop's time, None while it
    is served).
    """

    idle_since: float | None
    has_asked: bool

    def give_way(self) -> None:
        """Close to make room for another client."""


def agent_room() -> int:
    """Return how many connections all agents together may hold."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_AGENT_CONNECTIONS
    return min(MOST_AGENT_CONNECTIONS, max(soft - RESERVED_DESCRIPTORS, soft // 2))


def raise_descriptor_limit() -> None:
    """Raise this process's descriptor limit to the maximum; sandboxes have their own limits."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if most == resource.RLIM_INFINITY else min(MOST_FILES, most)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


_agents: WeakSet[OpenConnection] = WeakSet()


def admit_agent(connection: OpenConnection) -> bool:
    """Return whether there is room for one more agent connection. It counts until
    `forget_agent`.
    """
    if len(_agents) >= agent_room():
        return False
    _agents.add(connection)
    return True


def forget_agent(connection: OpenConnection) -> None:
    """Stop counting a connection that ended."""
    _agents.discard(connection)


def make_room(connections: Iterable[OpenConnection]) -> bool:
    """Close the longest idle connection, first among those that never sent a request. Return
    whether there was one.
    """
    idle = [
        (one.has_asked, one.idle_since, one) for one in connections if one.idle_since is not None
    ]
    if not idle:
        return False
    min(idle, key=lambda one: one[:2])[2].give_way()
    return True


def call_later(after_s: float, told: Callable[[], None]) -> None:
    """Tell it then."""
    asyncio.get_running_loop().call_later(after_s, told)


class CountedLines(logging.Filter):
    """Lets one log line of each kind through, then only the number of further ones."""

    def __init__(self) -> None:
        super().__init__()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._more: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        words = _WORDS.get(str(record.msg))
        if words is None:
            # Uvicorn's advice on what to install follows a line that is counted.
            return not str(record.msg).startswith("No supported WebSocket library")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the timers of another one will not come any more
            self._loop, self._more = loop, {}
        if words in self._more:
            self._more[words] += 1
            return False
        self._begin(words)
        return True

    def _begin(self, words: str) -> None:
        self._more[words] = 0
        call_later(TELL_EVERY_S, lambda: self._tell(words))

    def _tell(self, words: str) -> None:
        count = self._more.pop(words, 0)
        if count:
            self._begin(words)
            logging.getLogger("uvicorn.error").warning(
                "%d more %s in the last minute", count, words
            )


_lines = CountedLines()


def count_lines() -> None:
    """Count uvicorn's log lines; calling it twice changes nothing."""
    logging.getLogger("uvicorn.error").addFilter(_lines)
