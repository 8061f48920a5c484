"""A clock that tests move by hand."""


class FakeClock:
    """Starts at a fixed time. `now` and `monotonic` move together by `advance`; `set_by` is
    somebody who sets the clock on the wall."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self._monotonic = 1000.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def set_by(self, seconds: float) -> None:
        """Set the clock forth or back: no time goes by."""
        self._now += seconds

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        assert seconds >= 0
        self._now += seconds
        self._monotonic += seconds
