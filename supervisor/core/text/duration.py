"""Parse durations as users write them: `7d`, `4h`, `30m`, `1h30m`, `2h15m30s`, `500ms`.

Nothing else is accepted, except a bare number of milliseconds if the caller allows it.
"""

import re

from supervisor.errors import UserError

FORMS = "7d, 4h, 30m, 1h30m, 2h15m30s or 500ms"
_PARTS = re.compile(
    r"(?:(?P<d>\d{1,4})d)?(?:(?P<h>\d{1,6})h)?(?:(?P<m>\d{1,6})m(?!s))?"
    r"(?:(?P<s>\d{1,9})s)?(?:(?P<ms>\d{1,12})ms)?",
    re.ASCII,
)
_SECONDS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DAYS_FROM = 2
LONGEST_S = 366 * 24 * 3600.0


def parse_duration(text: str, name: str = "duration", *, may_be_bare: bool = False) -> float:
    """Return the duration in seconds, more than zero and at most a year. Raise `UserError`, which
    shows the accepted forms, for anything else. `may_be_bare`: a bare number is milliseconds, at
    least 1000, since a smaller number probably means another unit."""
    stripped = text.strip()
    if re.fullmatch(r"\d{1,15}", stripped, re.ASCII):
        seconds = int(stripped) / 1000
        if not may_be_bare or seconds < 1:
            raise UserError(f"{name}: `{text}` has no unit", f"write {FORMS}")
    else:
        match = _PARTS.fullmatch(stripped)
        parts = {unit: value for unit, value in match.groupdict().items() if value} if match else {}
        if not parts:
            raise UserError(f"{name}: `{text}` is not a duration", f"write {FORMS}")
        seconds = sum(int(value) * _SECONDS[unit] for unit, value in parts.items())
    if not 0 < seconds <= LONGEST_S:
        raise UserError(f"{name}: `{text}` is not between 1 ms and a year", f"write {FORMS}")
    return seconds


def format_duration(seconds: float) -> str:
    """Return the duration for people, in its two largest units: `2d 3h`, `1h 05m`, `3m 20s`, `12s`;
    from two days on in days."""
    whole = max(0, int(seconds))
    days, rest_h = whole // 86_400, whole % 86_400 // 3600
    if days >= _DAYS_FROM:
        return f"{days}d {rest_h}h" if rest_h else f"{days}d"
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {rest:02}s" if minutes else f"{rest}s"
