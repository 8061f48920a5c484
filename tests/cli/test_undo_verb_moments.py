"""Points in time as people type them."""

from datetime import UTC, datetime

import pytest

from supervisor.cli.undo_verb import parse_moment
from supervisor.errors import UserError
from tests.tables import each_row

NOW = datetime(2026, 3, 4, 12, 0, 0, tzinfo=UTC).timestamp()


@each_row(
    ("text", "wanted"),
    [
        ("11:59", "2026-03-04T11:59:00"),
        ("11:59:30", "2026-03-04T11:59:30"),
        ("12:00", "2026-03-04T12:00:00"),
        ("14:05", "2026-03-03T14:05:00"),  # hasn't come today: yesterday's
        ("9:05", "2026-03-04T09:05:00"),
        ("2026-03-04T08:00", "2026-03-04T08:00:00"),
        ("2026-03-04 08:00:01", "2026-03-04T08:00:01"),
        ("2026-03-01", "2026-03-01T00:00:00"),
        ("2026-03-04T10:00:00+02:00", "2026-03-04T08:00:00"),
        ("5m", "2026-03-04T11:55:00"),
        ("1h30m ago", "2026-03-04T10:30:00"),
        (" 5m ago ", "2026-03-04T11:55:00"),
    ],
)
def test_what_people_type(text: str, wanted: str) -> None:
    assert (
        parse_moment(text, NOW, UTC)
        == datetime.fromisoformat(wanted).replace(tzinfo=UTC).timestamp()
    )


@each_row(
    "text", ["", "teatime", "25:00", "12:60", "12:00:60", "1:2", "2026-13-01", "2027-01-01", "-5m",
    "5m later", "0001-01-01"]
)  # fmt: skip
def test_what_is_no_time_is_said(text: str) -> None:
    with pytest.raises(UserError, match="--to"):
        parse_moment(text, NOW, UTC)


def test_without_a_zone_it_is_this_machines() -> None:
    local = datetime.fromtimestamp(NOW)
    assert parse_moment(local.isoformat(), NOW) == NOW
    assert parse_moment(local.strftime("%H:%M"), NOW) == NOW
