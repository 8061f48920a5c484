"""Progress of a private copy, and an estimate of the time left.

The terminal, the pages and the API show the same. It must never promise a time before it can know
one.
"""

from supervisor.core.text.duration import format_duration

# Below this the wait is short, and the pace isn't known yet.
SOON_S = 1.0


def progress(done: int, total: int, size: int, elapsed_s: float) -> dict[str, int]:
    """As the API gives it; `left_s` where an estimate makes sense, in whole seconds, at least
    one."""
    facts = {"done": done, "total": total, "bytes": size}
    if elapsed_s < SOON_S or done <= 0 or total <= done:
        return facts
    return {**facts, "left_s": max(1, round(elapsed_s * (total - done) / done))}


def left(facts: dict[str, int]) -> str:
    """`, about 12s left`, to be put behind how far it is; empty where nothing can be said."""
    return f", about {format_duration(facts['left_s'])} left" if "left_s" in facts else ""
