"""A clock that tests move by hand."""


class FakeClock:
    """Starts at a fixed time. `now` and `monotonic` move together, and only by `advance`."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self._monotonic = 1000.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        assert seconds >= 0
        self._now += seconds
        self._monotonic += seconds
