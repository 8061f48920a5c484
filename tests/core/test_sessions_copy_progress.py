"""How long a copy will take, said when it can be known."""

import pytest

from supervisor.core.sessions import copy_left, copy_progress


@pytest.mark.parametrize(
    ("done", "total", "elapsed_s", "expected"),
    [
        (0, 100, 0.0, ""),
        (50, 100, 0.9, ""),
        (0, 100, 5.0, ""),
        (100, 100, 5.0, ""),
        (50, 100, 2.0, ", about 2s left"),
        (99, 100, 3.0, ", about 1s left"),
        (1000, 91_000, 1.0, ", about 1m 30s left"),
    ],
)
def test_an_estimate_is_given_when_there_is_one(
    done: int, total: int, elapsed_s: float, expected: str
) -> None:
    facts = copy_progress(done, total, 4096, elapsed_s)
    assert facts | {"done": done, "total": total, "bytes": 4096} == facts
    assert copy_left(facts) == expected
