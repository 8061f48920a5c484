"""Coarse time limits: one periodic look at all waiting futures of a loop.

One timer per future takes a tenth of the processor time of many simultaneous new connections, and
hardly any timer ever fires. This module decides nothing. A wait never ends before its time, and at
most `LOOK_S` after it.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

LOOK_S = 0.5


class _Waits:
    """The waits of one loop. It holds no reference to the loop, so they go with it. A timer runs
    while there are any."""

    def __init__(self) -> None:
        self.until: dict[asyncio.Future[Any], tuple[float, Callable[[], None]]] = {}
        self.is_looking = False

    def look_later(self) -> None:
        """Check them later, and again for as long as there are any."""
        self.is_looking = True
        asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for future, (by, late) in list(self.until.items()):
            if by <= now and self.until.pop(future, None) is not None and not future.done():
                late()
        if self.until:
            self.look_later()
        else:
            self.is_looking = False


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waits] = WeakKeyDictionary()


async def wait[Found](future: asyncio.Future[Found], by: float, late: Callable[[], None]) -> Found:
    """Return the future's result. If there is none by this loop time, call `late`, which ends the
    wait by ending the future."""
    loop = future.get_loop()
    waits = _of_loop.get(loop)
    if waits is None:
        waits = _of_loop[loop] = _Waits()
    waits.until[future] = (by, late)
    if not waits.is_looking:
        waits.look_later()
    try:
        return await future
    finally:
        waits.until.pop(future, None)
