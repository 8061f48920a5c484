"""What of a body may be shown where it breaks off: no part of a secret. The rest is
`tests/network/test_network_log_bodies.py`, over a real egress."""

from supervisor.core.secrets.secret_forms import SecretForms
from supervisor.core.secrets.token_shapes import MARK
from supervisor.egress.mitm.bodies import MARGIN_BYTES, MOST_BYTES, _Taken

SECRET = "opens-" + "".join(map(chr, range(97, 123))) * 3


def test_an_echo_of_many_secrets_draws_no_part_of_one_into_what_is_shown() -> None:
    taken = _Taken()
    for _ in range(1000):
        taken.take(SECRET.encode())
    assert len(taken.data) == MOST_BYTES + MARGIN_BYTES < taken.whole_bytes
    assert len(taken.data) % len(SECRET) >= 8  # it breaks off inside of one
    shown = SecretForms([SECRET]).without(bytes(taken.data), MARK.encode())
    assert shown.replace(MARK.encode(), b"") == b""
