"""When to retry after an error of a model's provider.

Pure. Sources: RFC 9110 (retry-after), docs.anthropic.com/en/api/errors and /rate-limits (429, 529,
402, the headers), learn.microsoft.com and docs.aws.amazon.com/bedrock (429, 503 as well).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from supervisor.core.text.numbers import whole_number

# If a provider gives no time: its rate limits last minutes, its refusals of an account longer.
LIMIT_S, REFUSAL_S = 60.0, 3600.0
# Nothing is held longer than this because of one answer.
LONGEST_S = 86_400.0
_RESETS = ("anthropic-ratelimit-unified-reset", "anthropic-ratelimit-requests-reset")


class ProviderTrouble(NamedTuple):
    """A provider's error that a retry may solve. `until`: the review is held till then (seconds
    since the epoch); None if it is retried like any other failure. `why` is for a person."""

    until: float | None
    why: str


def provider_trouble(status: int, headers: Mapping[str, str], now: float) -> ProviderTrouble | None:
    """Return what a response means for a retry; None for a success, or an error that no retry can
    solve. `headers` have lower-case names."""
    if status in (402, 403):
        until = _reset(headers, now) or now + REFUSAL_S
        return ProviderTrouble(
            until, f"the model's provider refuses the account ({status}){_at(until)}"
        )
    if status == 429:
        until = _reset(headers, now) or now + LIMIT_S
        return ProviderTrouble(until, f"the model's provider limits the rate (429){_at(until)}")
    if status in (408, 529) or 500 <= status < 600:
        return ProviderTrouble(None, f"the model's provider has trouble ({status})")
    return None


def _at(until: float) -> str:
    return f"; tried again at {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC"


def _reset(headers: Mapping[str, str], now: float) -> float:
    """Return when the provider allows a retry; 0.0 if it gives no time."""
    found = _seconds(headers.get("retry-after", ""), now) or max(
        _time(headers.get(name, "")) for name in _RESETS
    )
    return min(found, now + LONGEST_S) if found > now else 0.0


def _seconds(text: str, now: float) -> float:
    """Return the time in a `retry-after`, in either of its two forms."""
    if (number := whole_number(text, 9)) is not None:
        return now + number
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return 0.0


def _time(text: str) -> float:
    """Return a time given as in RFC 3339, or as seconds since the epoch."""
    if (number := whole_number(text, 11)) is not None:
        return float(number)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
