"""Times in words."""

import pytest

from supervisor.server.common.views import duration_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0004, "0 ms"),
        (0.25, "250 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (5.007, "5.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1m 00s"),
        (3700, "1h 01m"),
    ],
)
def test_from_a_second_on_in_seconds(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
