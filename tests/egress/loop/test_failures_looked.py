"""What raises while a request, or an answer, is looked at as a whole, or at its end: neither
goes on. The requests of `test_failures` are looked at by nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from tests.egress.egress_harness import Origin, Proxy, body_of, running_egress, serving, status_of
from tests.egress.h2_client import h2_client
from tests.egress.mitm.test_leaks import PLACEHOLDER, all_of, credential
from tests.fakes.h2_origin import H2Origin, h2_origin

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUEST = [
    "Guard._look_at_request",
    "Guard._may_go_out",
    "Guard._goes_out",
    "Leaks.looks_at_request",
    "Leaks.look_at_request",
    "Leaks.requested",
    "Meter.reserve",
]
ANSWER = [
    "Guard._answered",
    "Guard._answered",
    "Leaks.looks_at_answer",
    "Leaks.look_at_answer",
    "Leaks.ended",
]
END = ["Guard.request", "Leaks.looks_at_request", "Leaks.requested", "Guard._goes_out"]


@pytest_asyncio.fixture(loop_scope="module")
async def h2(authority: trustme.CA) -> AsyncIterator[H2Origin]:
    async with h2_origin(authority, "origin.test") as found:
        yield found


async def asked(proxy: Proxy, http: Origin) -> bytes:
    """The answer to a request whose body is looked at, since a credential is none of its host's."""
    proxy.credentials(credential(1))
    return await _sent(proxy, http, "")


async def asked_with_credential(proxy: Proxy, http: Origin) -> bytes:
    """The answer, which is looked at, to a request with its host's credential."""
    proxy.credentials(credential(http.port))
    return await _sent(proxy, http, f"Authorization: {PLACEHOLDER}\r\n")


async def _sent(proxy: Proxy, http: Origin, header: str) -> bytes:
    target = f"origin.test:{http.port}"
    http.respond = lambda head: b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsaid"
    head = f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\n{header}Content-Length: 4\r\n\r\n"
    return await proxy.send(f"{head}mine".encode())


async def test_the_harness_lets_through_what_is_not_broken(
    tmp_path: Path, upstream_ca: Path, http: Origin
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, broken="nothing") as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        assert (await asked(proxy, http)).endswith(b"said")
        assert (await asked_with_credential(proxy, http)).endswith(b"said")
    assert http.received.count(b"mine") == 2


@pytest.mark.parametrize("part", REQUEST)
async def test_a_request_goes_nowhere(
    tmp_path: Path, upstream_ca: Path, http: Origin, part: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, broken=part) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        answer = await asked(proxy, http)
    assert (status_of(answer), body_of(answer)["why"]) == (
        403,
        "egress failed while it looked at this",
    )
    assert http.untouched
    assert "text of a client" not in capfd.readouterr().err


@pytest.mark.parametrize("part", ANSWER)
async def test_an_answer_is_not_passed_on(
    tmp_path: Path, upstream_ca: Path, http: Origin, part: str
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, broken=part) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        answer = await asked_with_credential(proxy, http)
    assert b"mine" in http.received
    assert status_of(answer) != 200
    assert b"said" not in answer


@pytest.mark.parametrize("part", END)
async def test_a_request_that_streams_is_not_ended_for_its_origin(
    tmp_path: Path, upstream_ca: Path, http: Origin, part: str
) -> None:
    target = f"origin.test:{http.port}"
    async with (
        running_egress(tmp_path, upstream_ca, broken=part) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        proxy.credentials(credential(1))
        reader, writer = await proxy.open()
        head = (
            f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\nTransfer-Encoding:"
            " chunked\r\n\r\n"
        )
        writer.write(f"{head}4\r\nmine\r\n0\r\n\r\n".encode())
        answer = await all_of(reader)
        settled = await supervisor.settled()
        writer.close()
    assert b" 200 " not in answer
    assert settled.outcome == "failed"
    assert b"0\r\n\r\n" not in http.received


@pytest.mark.parametrize("part", END)
async def test_what_follows_a_request_that_streams_goes_nowhere(
    tmp_path: Path, upstream_ca: Path, h2: H2Origin, part: str
) -> None:
    async with (
        running_egress(tmp_path, upstream_ca, broken=part) as supervisor,
        serving(supervisor, "s") as proxy,
    ):
        proxy.credentials(credential(1))
        ca_file = tmp_path / "ca" / "mitmproxy-ca-cert.pem"
        async with h2_client(proxy, f"origin.test:{h2.port}", ca_file) as client:
            number, stream = client.ask("/trailers", method="POST", end=False)
            client.send(number, b"body")
            client.send_trailers(number, [("x-checksum", PLACEHOLDER)])
            await client.until(lambda: stream.over or client.lost)
            assert stream.status != 200
    assert not h2.trailers
