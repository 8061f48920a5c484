"""When jobs are due: time zones, daylight saving, and clocks that were set."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from supervisor.reviews.core.schedules import next_due

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("cron", "now", "due"),
    [
        ("0 3 * * *", "2026-11-28T12:00:00+01:00", "2026-11-29T03:00:00+01:00"),
        ("17 3 * * 1-5", "2026-11-27T12:00:00+01:00", "2026-11-30T03:17:00+01:00"),
        # The hour from 2 to 3 is left out: what falls into it runs after it, once.
        ("30 2 * * *", "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00"),
        ("30 2 * * *", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"),
        # The hour from 2 to 3 comes twice: it runs in the first.
        ("30 2 * * *", "2026-10-24T12:00:00+02:00", "2026-10-25T02:30:00+02:00"),
        ("30 2 * * *", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"),
    ],
)
def test_a_job_is_due_in_its_time_zone(cron: str, now: str, due: str) -> None:
    assert next_due(cron, BERLIN, at(now), 0.0) == at(due)


def test_a_clock_that_is_set_back_a_little_has_nothing_run_twice() -> None:
    ran = at("2026-11-28T03:00:00+01:00")
    assert next_due("0 3 * * *", BERLIN, ran - 3600, ran) == at("2026-11-29T03:00:00+01:00")


def test_a_last_run_in_a_far_future_does_not_count() -> None:
    now, ran = at("2026-11-28T12:00:00+01:00"), at("2027-11-28T03:00:00+01:00")
    assert next_due("0 3 * * *", BERLIN, now, ran) == at("2026-11-29T03:00:00+01:00")


def test_what_never_comes_is_never_due() -> None:
    assert next_due("0 3 30 2 *", BERLIN, 0.0, 0.0) is None
    assert next_due("no cron", BERLIN, 0.0, 0.0) is None
