"""Put on record what was refused on the way to an answer: wrong credentials, another site's page, a
request that isn't the one shown.

INVARIANT: a flood fills no disk. The first of a kind is a line at once; what follows within
`WINDOW_S` is counted, and is one line then. The kinds are few and ours, so it is a few lines a
minute at most.
"""

import contextlib
from dataclasses import dataclass, field
from typing import Any

from supervisor.base.clock import Clock
from supervisor.errors import StorageError
from supervisor.records.audit import Audit

WINDOW_S = 60.0
MOST_CHARS = 200


@dataclass
class _Window:
    """The counts since the line that opened it, and the newest of that."""

    ends_at: float
    count: int = 0
    newest: dict[str, Any] = field(default_factory=dict)


class RefusedAttempts:
    """One per supervisor. `tell` is for the housekeeping, and for the end."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    def note(self, refused: str, **facts: str | None) -> None:
        """One more; `refused` is one of our own few words for what was wrong. Facts are cut: a
        caller says them."""
        cut = {name: value[:MOST_CHARS] for name, value in facts.items() if value}
        now = self._clock.monotonic()
        window = self._windows.get(refused)
        if window is None or now >= window.ends_at:
            self._tell(refused)
            self._windows[refused] = _Window(now + WINDOW_S)
            self._record(refused, 1, cut)
        else:
            window.count += 1
            window.newest = cut

    def tell(self, *, is_end: bool = False) -> None:
        """Record what was counted in windows that are over, or in all of them."""
        now = self._clock.monotonic()
        for refused, window in list(self._windows.items()):
            if is_end or now >= window.ends_at:
                self._tell(refused)
                del self._windows[refused]

    def _tell(self, refused: str) -> None:
        window = self._windows.get(refused)
        if window is not None and window.count:
            self._record(refused, window.count, window.newest)

    def _record(self, refused: str, count: int, facts: dict[str, str]) -> None:
        with contextlib.suppress(StorageError):  # it was refused all the same
            self._audit.record("operator_refused", refused=refused, count=count, **facts)
