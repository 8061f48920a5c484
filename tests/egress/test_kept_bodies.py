"""What of a body may be shown where it breaks off: no part of a secret. The rest is `tests/brokers/test_bodies.py`, over a real egress."""

import pytest

from supervisor.egress.bodies import MARGIN_BYTES, MARK, MOST_BYTES, _Taken, _without

SECRET = b"opens-" + bytes(range(97, 123)) * 3


@pytest.mark.parametrize("cut", range(8, len(SECRET)))
def test_what_a_secret_begins_with_is_hidden_at_the_end(cut: int) -> None:
    assert _without(b"x" + SECRET[:cut], [SECRET]) == b"x" + MARK


def test_an_echo_of_many_secrets_draws_no_part_of_one_into_what_is_shown() -> None:
    taken = _Taken()
    for _ in range(1000):
        taken.take(SECRET)
    assert len(taken.data) == MOST_BYTES + MARGIN_BYTES < taken.whole_bytes
    assert len(taken.data) % len(SECRET) >= 8  # it breaks off inside of one
    shown = _without(bytes(taken.data), [SECRET])
    assert shown.replace(MARK, b"") == b""


def test_what_has_no_secret_stays_as_it_is() -> None:
    assert _without(b"opens", [SECRET]) == b"opens"
    assert _without(b"x" * MOST_BYTES, [SECRET]) == b"x" * MOST_BYTES
    assert _without(b"", [SECRET]) == b""
