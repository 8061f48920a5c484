"""Times as pages show them to those without scripts; with scripts the browser writes them in the person's own way."""

import time


def clock_text(at: float) -> str:
    """A time, seconds since the epoch, local to this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
