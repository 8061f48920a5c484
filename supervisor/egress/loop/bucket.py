"""A token bucket: so many times at once, and so many in a second. Pure.

What happens to a client that exceeds it is the caller's business.
"""


class Bucket:
    """Filled by the time that goes by, up to `most`."""

    def __init__(self, most: int, per_second: float) -> None:
        self._most, self._per_second = float(most), per_second
        self._left, self._at = self._most, 0.0

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next time, 0 for now. `now` is the time of the loop."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = now
        return max(0.0, 1 - self._left) / self._per_second

    def take(self) -> None:
        """Count one. A caller that didn't wait goes into debt."""
        self._left -= 1
