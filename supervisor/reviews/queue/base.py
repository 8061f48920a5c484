"""The port of a queue. Facts, leases and attempts are in the database; this only says who is next.

INVARIANT: a consumer claims the run of a message first, so that a message delivered twice runs
once.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

type Handle = Callable[[str], Awaitable[None]]


class Queue(Protocol):
    """Waiting runs, by id."""

    def put(self, run_id: str) -> None:
        """Add a run to the queue, unless it waits already."""

    async def serve(self, handle: Handle, concurrency: int) -> None:
        """Call `handle` for each run, up to a number at the same time, until cancelled. Its
        exceptions are logged."""
