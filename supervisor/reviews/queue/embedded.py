"""Queue for one machine: in memory, since the database knows what is wanted.

After a crash the drainer queues unclaimed runs again.
"""

import asyncio

from supervisor.base import log
from supervisor.reviews.queue.base import Handle


class EmbeddedQueue:
    """Implements `base.Queue`."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._known: set[str] = set()

    def put(self, run_id: str) -> None:
        if run_id not in self._known:
            self._known.add(run_id)
            self._waiting.put_nowait(run_id)

    async def serve(self, handle: Handle, concurrency: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(concurrency):
                tasks.create_task(self._take(handle), name=f"run-taker-{number}")

    async def _take(self, handle: Handle) -> None:
        while True:
            run_id = await self._waiting.get()
            self._known.discard(run_id)
            try:
                await handle(run_id)
            except Exception:
                log.exception("a run failed", run=run_id)
