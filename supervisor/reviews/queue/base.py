"""The port of a queue. Facts, leases and attempts are in the database; this only says who is next.

INVARIANT: whoever takes a message claims its run first, so that one delivered twice is done once.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

type Handle = Callable[[str], Awaitable[None]]


class Queue(Protocol):
    """Runs that wait, by id."""

    def put(self, run_id: str) -> None:
        """Have a run taken; one that waits already is left as it is."""

    async def serve(self, handle: Handle, concurrency: int) -> None:
        """Call `handle` for each, so many at once, until cancelled. What it raises is logged."""
