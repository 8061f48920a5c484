"""Requests that wait: keeps their facts in the database, wakes whoever waits, and tells whoever watches.

It decides nothing: `gate` does. Waiting needs no state of its own. A waiter looks at the facts, sleeps until some fact of
its request changes, and looks again; so a wait that is begun anew after a restart finds the same answer.
"""

import asyncio
from collections.abc import Callable

from sqlalchemy import Connection, Engine

from supervisor.core.approvals import Request
from supervisor.store import requests as store

# An agent that floods the inbox is denied, not queued (a full queue is a denial, law 3).
MOST_PENDING_PER_SESSION = 500


class ApprovalQueue:
    """The requests of all sessions. `on_change` callbacks get each request after any of its facts changed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._session_waiters: dict[str, asyncio.Event] = {}
        self._watchers: list[Callable[[Request], None]] = []

    def on_change(self, callback: Callable[[Request], None]) -> None:
        """Call `callback(request)`, in the event loop, after each change. It must not block or raise."""
        self._watchers.append(callback)

    def change(self, operation: Callable[[Connection], Request | None]) -> Request | None:
        """Run one store operation in a transaction of its own and announce the request that it gives."""
        with self._engine.begin() as connection:
            request = operation(connection)
        if request is not None:
            self.announce(request)
        return request

    def change_many(self, operation: Callable[[Connection], list[Request]]) -> list[Request]:
        """The same for an operation that changes several requests at once: all or none."""
        with self._engine.begin() as connection:
            changed = operation(connection)
        for request in changed:
            self.announce(request)
        return changed

    def read[T](self, operation: Callable[[Connection], T]) -> T:
        """Run a query."""
        with self._engine.connect() as connection:
            return operation(connection)

    def get(self, request_id: str) -> Request | None:
        """The request with all its facts, or None."""
        return self.read(lambda connection: store.get(connection, request_id))

    async def next_change(self, request_id: str, timeout_s: float) -> bool:
        """Wait until a fact of the request changes; False when the time ran out first."""
        event = asyncio.Event()
        self._waiters.setdefault(request_id, set()).add(event)
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            waiting = self._waiters[request_id]
            waiting.discard(event)
            if not waiting:
                del self._waiters[request_id]
        return True

    async def next_change_in_session(self, session_id: str) -> None:
        """Wait until a fact of any of a session's requests changes."""
        event = self._session_waiters.setdefault(session_id, asyncio.Event())
        await event.wait()

    def announce(self, request: Request) -> None:
        """Wake the waiters of a request and tell the watchers."""
        for event in self._waiters.get(request.id, ()):
            event.set()
        if event := self._session_waiters.pop(request.session_id, None):
            event.set()
        for watcher in self._watchers:
            watcher(request)
