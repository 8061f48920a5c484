"""Placeholders by raw sockets: the secret goes to its own host, in its own header, alone."""

import base64

import pytest

from supervisor.core.network.egress_wire import Credential, EgressRefused
from tests.egress.egress_harness import Origin, Proxy, body_of, status_of
from tests.egress.test_front_hostile import at

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACEHOLDER = "gatehouse-placeholder-0123456789"
SECRET = "the-real-secret-of-this-test"


def credential(origin: Origin, header: str = "x-api-key", scheme: str = "http") -> Credential:
    return Credential(
        placeholder=PLACEHOLDER,
        secret=SECRET,
        header=header,
        hosts=(at(origin),),
        scheme="https" if scheme == "https" else "http",
    )


async def test_a_placeholder_becomes_the_secret_at_its_own_host(proxy: Proxy, http: Origin) -> None:
    proxy.credentials(credential(http), credential(http, "authorization"))
    for header in (f"X-Api-Key: {PLACEHOLDER}", f"Authorization: Bearer {PLACEHOLDER}"):
        http.reset()
        proxy.credentials(credential(http, header.split(":")[0].lower()))
        answer = await proxy.send(
            f"GET http://{at(http)}/ HTTP/1.1\r\nHost: {at(http)}\r\n{header}\r\n\r\n".encode()
        )
        assert status_of(answer) == 200
        assert SECRET.encode() in http.received
        assert PLACEHOLDER.encode() not in http.received
    assert SECRET not in repr(proxy.supervisor.messages)


MISPLACED = {
    "another host": ("other.test", "/", f"X-Api-Key: {PLACEHOLDER}"),
    "the path": ("origin.test", f"/{PLACEHOLDER}", "X-A: 1"),
    "the query": ("origin.test", f"/?key={PLACEHOLDER}", "X-A: 1"),
    "the query, encoded": ("origin.test", "/?key=" + PLACEHOLDER.replace("-", "%2d"), "X-A: 1"),
    "another header": ("origin.test", "/", f"X-Other: {PLACEHOLDER}"),
    "a cookie elsewhere": ("other.test", "/", f"Cookie: a={PLACEHOLDER}"),
    "Basic": (
        "origin.test",
        "/",
        "Authorization: Basic " + base64.b64encode(f"a:{PLACEHOLDER}".encode()).decode(),
    ),
    "with more around it": ("origin.test", "/", f"X-Api-Key: a{PLACEHOLDER}"),
    "twice": ("origin.test", "/", f"X-Api-Key: {PLACEHOLDER}\r\nX-Api-Key: {PLACEHOLDER}"),
    "in the header and elsewhere": (
        "origin.test",
        "/",
        f"X-Api-Key: {PLACEHOLDER}\r\nX-Other: {PLACEHOLDER}",
    ),
}


@pytest.mark.parametrize("case", MISPLACED.values(), ids=MISPLACED)
async def test_a_placeholder_anywhere_else_is_refused(
    proxy: Proxy, http: Origin, case: tuple[str, str, str]
) -> None:
    proxy.credentials(credential(http))
    host, path, header = case
    answer = await proxy.send(
        f"GET http://{at(http, host)}{path} HTTP/1.1\r\nHost: {at(http, host)}\r\n{
            header
        }\r\n\r\n".encode()
    )
    assert status_of(answer) == 403
    assert SECRET not in answer.decode()
    assert "in its own header to its own host" in body_of(answer)["remedy"]
    assert http.untouched


OTHER_KEYS = (
    "Authorization: Bearer of-another",
    "JOB-TOKEN: of-another",
    "job_token: of-another",
    "?private_token=of-another",
    "?[private_token]=of-another",
    "?a=1&%5Bprivate_token%5d=of-another",
    "?private_token]=of-another",
)


@pytest.mark.parametrize("other", OTHER_KEYS)
async def test_no_other_key_goes_to_the_host_of_a_credential(
    proxy: Proxy, http: Origin, other: str
) -> None:
    """The agent would hand what it read to somebody else's account."""
    bound = Credential(
        placeholder=PLACEHOLDER,
        secret="s3cret",
        header="authorization",
        hosts=(at(http),),
        scheme="http",
        other_headers=("job-token",),
        query_names=("private_token",),
    )
    proxy.credentials(bound)
    path, header = ("/" + other, "X-A: b") if other.startswith("?") else ("/", other)
    answer = await proxy.send(
        f"POST http://{at(http)}{path} HTTP/1.1\r\nHost: {at(http)}\r\n{header}\r\n\r\n".encode()
    )
    assert status_of(answer) == 403
    assert "no other key is sent there" in body_of(answer)["why"]
    assert http.untouched
    await proxy.supervisor.until(EgressRefused)


async def test_a_credential_for_https_never_goes_in_the_clear(proxy: Proxy, http: Origin) -> None:
    proxy.credentials(credential(http, scheme="https"))
    answer = await proxy.send(
        f"GET http://{at(http)}/ HTTP/1.1\r\nHost: {at(http)}\r\nX-Api-Key: {PLACEHOLDER}\r\n\r\n".encode()  # noqa: E501
    )
    assert status_of(answer) == 403
    assert http.untouched
