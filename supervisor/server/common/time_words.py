"""Times as pages show them to those without scripts; with scripts the browser writes them in the
person's own way."""

import time

from supervisor.core.text.duration import format_duration


def clock_text(at: float) -> str:
    """A time, seconds since the epoch, local to this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def duration_text(seconds: float) -> str:
    """Return how long something took: in milliseconds below a second."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 59.95 else format_duration(round(seconds))
