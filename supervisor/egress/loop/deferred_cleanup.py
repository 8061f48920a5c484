"""Clean up ended connections while somebody else has the next word, at most `LATEST_S` later.

To close two sockets and report an end takes as long as a third of what a new connection waits
for, and clients that close one often open another at once. It decides nothing; nobody waits for
what is put off here, and it is done however many others come.
"""

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

LATEST_S = 0.01


class _Left:
    """That of one loop, which it doesn't hold: it goes with that. There is a timer while there
    is any."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []
        self.is_timed = False

    def timed(self) -> None:
        self.is_timed = False
        self.clear()

    def clear(self) -> None:
        work, self.work = self.work, []
        for one in work:
            asyncio.get_running_loop().call_soon(one)  # what one raises is nobody else's


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Left] = WeakKeyDictionary()


def later(work: Callable[[], None]) -> None:
    """Do it when `clear` is called, or time runs out."""
    loop = asyncio.get_running_loop()
    left = _of_loop.setdefault(loop, _Left())
    left.work.append(work)
    if not left.is_timed:
        left.is_timed = True
        loop.call_later(LATEST_S, left.timed)


def clear() -> None:
    """Do what is left: this is a moment in which nobody waits for us."""
    left = _of_loop.get(asyncio.get_running_loop())
    if left is not None:
        left.clear()
