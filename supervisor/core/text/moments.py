"""Parse points in time as people type them: `14:05:30`, an ISO time, `5m`.

Also `14:05`; `5m` means five minutes ago. Pure: `now` is an argument.
"""

import re
from datetime import datetime, timedelta, tzinfo

from supervisor.core.text.duration import parse_duration
from supervisor.errors import UserError

FORMS = "14:05, 14:05:30, 2026-03-01T14:05 or 5m (ago)"
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)


def parse_moment(text: str, now: float, zone: tzinfo | None = None, name: str = "--to") -> float:
    """Seconds since the epoch, in the past. A time of the day is the last one that was; `zone`
    None: this machine's."""
    given = text.strip()
    found = _clock_time(given, now, zone) or _iso_time(given, zone)
    if found is None:
        try:
            found = now - parse_duration(re.sub(r"\s*ago$", "", given), name)
        except UserError:
            raise UserError(f"{name}: `{text}` is no time", f"write {FORMS}") from None
    if not 0 < found <= now:
        raise UserError(f"{name}: `{text}` hasn't come yet, or is no time", f"write {FORMS}")
    return found


def _clock_time(text: str, now: float, zone: tzinfo | None) -> float | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.groups())
    if hour > 23 or minute > 59 or second > 59:
        return None
    today = datetime.fromtimestamp(now, zone).replace(
        hour=hour, minute=minute, second=second, microsecond=0
    )
    moment = today if today.timestamp() <= now else today - timedelta(days=1)
    return moment.timestamp()


def _iso_time(text: str, zone: tzinfo | None) -> float | None:
    if len(text) < len("2026-03-01"):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (
            moment if moment.tzinfo or zone is None else moment.replace(tzinfo=zone)
        ).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
