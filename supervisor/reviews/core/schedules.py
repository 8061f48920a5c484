"""When jobs of a `.reviewerc` are due: a cron line in a time zone.

Pure. Daylight saving as cron does it: what falls into the hour that is left out runs after it, what
falls into the hour that comes twice runs once. Source: crontab(5) of Debian.
"""

from datetime import datetime, tzinfo

from cronsim import CronSim, CronSimError

# A last run that lies further in the future is one by a clock that was wrong.
MOST_AHEAD_S = 86_400.0


def next_due(cron: str, zone: tzinfo, now: float, last: float) -> float | None:
    """Return when a job is due next, in seconds since the epoch; None if that is never. `last`: for
    when it last ran, 0 if never: a clock that was set back a little doesn't have it run twice."""
    after = last if now < last <= now + MOST_AHEAD_S else now
    try:
        found = next(CronSim(cron, datetime.fromtimestamp(after, zone)))
    except (CronSimError, StopIteration):
        return None
    return found.timestamp()
