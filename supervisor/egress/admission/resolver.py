"""Resolve names once for a session; verdict and dialling use the same addresses.

A second look-up could answer differently (DNS rebinding), so the answer is kept for the session.
The judged addresses are the dialled ones, and a retry after an approval is the same action. It
decides only how many look-ups a session may have running: each occupies a thread for as long as the
name's server likes. INVARIANT: one session's unanswered names keep no other session waiting.
"""

import asyncio
import contextlib
import functools
import ipaddress
import socket
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from weakref import WeakValueDictionary

from supervisor.base.clock import Clock
from supervisor.core.text.hosts import ITS_ADDRESS, THIS_MACHINE

LOOKUP_TIMEOUT_S = 10.0
KEEP_S = 600.0
MOST_KEPT = 4096
MOST_ADDRESSES = 16
# Running look-ups of all sessions, and of one. After a time-out the thread stays occupied until the
# C library gives up, too.
MOST_AT_ONCE = 64
MOST_OF_SESSION = 8


class Resolver:
    """Resolves names. `names` is a table that replaces DNS where it is given."""

    def __init__(self, clock: Clock, names: dict[str, tuple[str, ...]] | None) -> None:
        self._clock = clock
        self._names = names
        self._kept: OrderedDict[tuple[str, str], tuple[float, tuple[str, ...]]] = OrderedDict()
        # Not the loop's default threads, which import the inspector.
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, "names")
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def addresses(self, session_id: str, host: str) -> tuple[str, ...]:
        """Return the addresses of a canonical host as literals, sorted within each family, IPv4
        first. Return () where there are none."""
        known = self.known(session_id, host)
        if known:
            return known
        found = await self._look_up(session_id, host)
        if found:
            self._kept[session_id, host] = (self._clock.monotonic() + KEEP_S, found)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return found

    def known(self, session_id: str, host: str) -> tuple[str, ...]:
        """Return the addresses that need no look-up: a literal's own, or those of a name looked up
        before."""
        literal = ITS_ADDRESS if host == THIS_MACHINE else _literal(host)
        if literal is not None:
            return (literal,)
        kept = self._kept.get((session_id, host))
        return kept[1] if kept is not None and kept[0] > self._clock.monotonic() else ()

    def forget(self, session_id: str, host: str) -> None:
        """Look the name up again next time, since its addresses don't answer."""
        self._kept.pop((session_id, host), None)

    async def _look_up(self, session_id: str, host: str) -> tuple[str, ...]:
        if self._names is not None:
            return self._names.get(host, ())
        places = self._places.setdefault(session_id, asyncio.Semaphore(MOST_OF_SESSION))
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                await places.acquire()
                # The C library looks it up: the loop's own look-up is switched off (`dialler`).
                asked = self._threads.submit(socket.getaddrinfo, host, None, 0, socket.SOCK_STREAM)
                asked.add_done_callback(
                    functools.partial(_leave, asyncio.get_running_loop(), places)
                )
                answers = await asyncio.wrap_future(asked)
        except RuntimeError:  # there is no thread to be had
            places.release()
            return ()
        except (TimeoutError, OSError, UnicodeError):
            return ()
        found = {
            (family != socket.AF_INET, str(address[0])) for family, _, _, _, address in answers
        }
        return tuple(address for _, address in sorted(found))[:MOST_ADDRESSES]


def _leave(
    loop: asyncio.AbstractEventLoop, places: asyncio.Semaphore, asked: Future[object]
) -> None:
    """Release a look-up's place once its thread is free, or if it never had one."""
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(places.release)


@functools.lru_cache(maxsize=1024)
def _literal(host: str) -> str | None:
    """Return an address literal; None for a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None
