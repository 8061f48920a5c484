"""What raises while a request, or an answer, is looked at as a whole: neither goes on. The requests of `test_failures` are looked at by nothing."""

from pathlib import Path

import pytest

from tests.egress.egress_harness import Origin, Proxy, body_of, running_egress, serving, status_of
from tests.egress.test_leaks import PLACEHOLDER, credential

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
    "Guard._look_at_answer",
    "Guard._answered",
    "Leaks.looks_at_answer",
    "Leaks.look_at_answer",
    "Leaks.ended",
]


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


async def test_the_harness_lets_through_what_is_not_broken(tmp_path: Path, upstream_ca: Path, http: Origin) -> None:
    async with running_egress(tmp_path, upstream_ca, broken="nothing") as supervisor, serving(supervisor, "s") as proxy:
        assert (await asked(proxy, http)).endswith(b"said")
        assert (await asked_with_credential(proxy, http)).endswith(b"said")
    assert http.received.count(b"mine") == 2


@pytest.mark.parametrize("part", REQUEST)
async def test_a_request_goes_nowhere(
    tmp_path: Path, upstream_ca: Path, http: Origin, part: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with running_egress(tmp_path, upstream_ca, broken=part) as supervisor, serving(supervisor, "s") as proxy:
        answer = await asked(proxy, http)
    assert (status_of(answer), body_of(answer)["why"]) == (403, "egress failed while it looked at this")
    assert http.untouched
    assert "text of a client" not in capfd.readouterr().err


@pytest.mark.parametrize("part", ANSWER)
async def test_an_answer_is_not_passed_on(tmp_path: Path, upstream_ca: Path, http: Origin, part: str) -> None:
    async with running_egress(tmp_path, upstream_ca, broken=part) as supervisor, serving(supervisor, "s") as proxy:
        answer = await asked_with_credential(proxy, http)
    assert b"mine" in http.received
    assert status_of(answer) != 200
    assert b"said" not in answer
