"""Durations: every form that MAX_UPTIME takes, and nothing else."""

import pytest

from supervisor.core.text.duration import FORMS, format_duration, parse_duration
from supervisor.errors import UserError
from tests.tables import each_row


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4h", 14400),
        ("7d", 604800),
        ("30m", 1800),
        ("1h30m", 5400),
        ("2h15m30s", 8130),
        ("500ms", 0.5),
        (" 30m ", 1800),
        ("1m500ms", 60.5),
        ("90s", 90),
    ],
)
def test_the_documented_forms(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@each_row(
    "text",
    [
        "",
        " ",
        "abc",
        "h",
        "-1h",
        "1.5h",
        "1h 30m",
        "30m1h",
        "4H",
        "0",
        "5",
        "1500",
        "0s",
        "1e3",
        "٣h",
        "999999h",
        "NaN",
        "1h1h",
        "ms",
    ],
)
def test_anything_else_shows_the_forms(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_duration(text, "MAX_UPTIME")
    assert caught.value.message.startswith("MAX_UPTIME: ")
    assert FORMS in caught.value.remedy


def test_a_bare_number_is_milliseconds_only_where_that_is_said() -> None:
    assert parse_duration("1500", may_be_bare=True) == 1.5
    assert parse_duration("1000", may_be_bare=True) == 1
    for text in ("0", "5", "999"):
        with pytest.raises(UserError, match="has no unit"):
            parse_duration(text, may_be_bare=True)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (61, "1m 01s"),
        (3600, "1h 00m"),
        (-5, "0s"),
        (604800, "7d"),
        (180000, "2d 2h"),
        (170000, "47h 13m"),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
