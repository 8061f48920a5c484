"""One key that clients send in either of two headers: a credential for each, with the same placeholder."""

import base64

import pytest

from supervisor.core.egress_wire import Credential
from supervisor.egress.checks import Head
from supervisor.egress.secrets import Swap, swaps

PLACEHOLDER = "gatehouse-placeholder-0123456789"
BOTH = tuple(
    Credential(placeholder=PLACEHOLDER, secret="the-key", header=header, hosts=("model.test",))
    for header in ("x-api-key", "authorization")
)
PLAIN, BEARER = (b"X-Api-Key", PLACEHOLDER.encode()), (b"Authorization", f"Bearer {PLACEHOLDER}".encode())
BASIC = (b"Authorization", b"Basic " + base64.b64encode(f"a:{PLACEHOLDER}".encode()))


def head(*headers: tuple[bytes, bytes], path: bytes = b"/v1/messages") -> Head:
    return Head("POST", "https", path, "", headers, "HTTP/1.1")


def test_each_header_is_swapped_alone_and_both_together() -> None:
    as_key, as_bearer = Swap("x-api-key", "the-key"), Swap("authorization", "Bearer the-key")
    assert swaps(BOTH, head(PLAIN), "model.test", 443) == ([as_key], None)
    assert swaps(BOTH, head(BEARER), "model.test", 443) == ([as_bearer], None)
    assert swaps(BOTH, head(PLAIN, BEARER), "model.test", 443) == ([as_key, as_bearer], None)


@pytest.mark.parametrize(
    "own",
    [
        (b"X-Api-Key", b"sk-of-the-attacker"),
        (b"authorization", b"Bearer sk-of-the-attacker"),
        (b"Authorization", b"Basic " + base64.b64encode(b"a:b")),
    ],
)
def test_a_key_of_the_agents_own_is_not_sent_to_the_credentials_host(own: tuple[bytes, bytes]) -> None:
    for headers in ((own,), (own, PLAIN), (BEARER, own)):
        assert swaps(BOTH, head(*headers), "model.test", 443)[1] is not None
    assert swaps(BOTH, head(own), "other.test", 443) == ([], None)
    assert swaps(BOTH, head((b"X-Api-Key", b"")), "model.test", 443) == ([], None)


MISPLACED = {
    "in a third header too": head(PLAIN, (b"X-Other", PLACEHOLDER.encode())),
    "in the path too": head(BEARER, path=f"/?k={PLACEHOLDER}".encode()),
    "in Basic credentials": head(BASIC),
    "in Basic credentials beside the key": head(PLAIN, BASIC),
    "twice in one header": head(PLAIN, PLAIN),
    "percent-encoded in its own header": head((b"X-Api-Key", PLACEHOLDER.replace("-", "%2d").encode())),
}


@pytest.mark.parametrize("request_head", MISPLACED.values(), ids=MISPLACED)
def test_elsewhere_it_is_refused(request_head: Head) -> None:
    found, why = swaps(BOTH, request_head, "model.test", 443)
    assert not found
    assert why is not None
    assert "the-key" not in why


def test_another_host_never_gets_it() -> None:
    assert swaps(BOTH, head(PLAIN), "other.test", 443)[1] is not None
    assert swaps(BOTH, head(BEARER), "model.test", 8443)[1] is not None
