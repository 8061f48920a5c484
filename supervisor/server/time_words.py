"""Times as pages show them to those without scripts; with scripts the browser writes them in the person's own way."""

import time

from supervisor.core.duration import format_duration


def clock_text(at: float) -> str:
    """A time, seconds since the epoch, local to this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def duration_text(seconds: float) -> str:
    """How long something took: in milliseconds below ten seconds."""
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else format_duration(seconds)
