"""A denial names what is open instead, the same whichever way the request came."""

import asyncio
import json

import pytest

from tests.egress.egress_harness import Origin, body_of, status_of
from tests.network.conftest import Setting
from tests.network.test_network import curl, get, send


def policy(place: Setting, origin: Origin, scheme: str) -> None:
    place.office.policy(
        f"modes: {{network: deny}}\nallow:\n  - network(127.0.0.1:{origin.port})\n"
        f"  - network(GET {scheme}://origin.test:{origin.port}/repos/**)\n"
    )


async def test_of_a_plain_request(place: Setting, http: Origin) -> None:
    policy(place, http, "http")
    answer = await send(place, get(http, "/repos/a").replace("GET", "PUT", 1))
    assert status_of(answer) == 403
    body = body_of(answer)
    assert body["why"] == "no rule matches; network denies"
    assert (
        body["remedy"] == "allowed on this path: GET; ask the operator for a rule, or do without it"
    )
    assert (
        f"allowed at this host: network(GET http://origin.test:{http.port}/repos/**)"
        in body_of(await send(place, get(http, "/users")))["remedy"]
    )
    assert http.untouched


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
async def test_of_a_decrypted_request(place: Setting, https: Origin, version: str) -> None:
    policy(place, https, "https")
    _, out = await curl(place, version, "-X", "PUT", f"https://origin.test:{https.port}/repos/a")
    body, _, status = out.rpartition("\n")
    assert status.split()[0] == "403"
    assert json.loads(body)["remedy"].startswith("allowed on this path: GET; ")
    assert not https.received


async def test_of_a_connection(place: Setting, http: Origin) -> None:
    policy(place, http, "https")
    target = f"origin.test:{http.port + 1 if http.port < 65535 else 1024}"
    answer = await send(place, f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
    assert status_of(answer) == 403
    assert f"network(GET https://origin.test:{http.port}/repos/**)" in body_of(answer)["remedy"]


async def test_what_a_person_denied_says_so_too(place: Setting, http: Origin) -> None:
    place.office.policy(
        f"allow:\n  - network(127.0.0.1:{http.port})\n  - network(GET http://origin.test:{http.port}/**)\n"
    )

    async def deny() -> None:
        place.office.gate.resolve(
            (await place.office.asked()).id, "denied", by="operator", reason="read only"
        )

    denying = asyncio.create_task(deny())
    body = body_of(await send(place, get(http, "/a").replace("GET", "PUT", 1)))
    await denying
    assert body["why"] == "denied by operator: read only"
    assert body["remedy"].startswith("allowed on this path: GET; ask again after ")
    again = body_of(await send(place, get(http, "/a?again").replace("GET", "PUT", 1)))
    assert again["why"] == body["why"]
    assert "was denied" in again["remedy"]
    assert http.untouched


async def test_while_all_is_stopped_nothing_is_open(place: Setting, http: Origin) -> None:
    policy(place, http, "http")
    place.office.kill_switch.stop("look")
    body = body_of(await send(place, get(http, "/repos/a").replace("GET", "PUT", 1)))
    assert "stopped" in body["why"]
    assert "allowed" not in body["remedy"]
