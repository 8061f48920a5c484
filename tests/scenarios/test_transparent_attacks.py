"""Hostile programs in a sandbox whose network is transparent: nothing goes out that wasn't
judged, and of what is refused no byte arrives."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from supervisor.core.sessions import Session
from tests.egress.egress_harness import Origin, running_origin
from tests.fakes.site import Site
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised
from tests.fakes.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = dict.fromkeys(
    ("site.test", "looked.test", "other.test", "supervisor.test"), ("127.0.0.1",)
) | {
    "inner.test": ("10.1.2.3",),
    "metadata.test": ("169.254.169.254",),
}
ATTACKS = Path(__file__).with_name("transparent_attacks.py")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    whole_site: Site, upstream_ca: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Supervised]:
    folder = tmp_path_factory.mktemp("attacks")
    settings = settings_in(folder, upstream_ca=upstream_ca, network_mode="transparent")
    async with supervised(settings, names=NAMES) as running, running_origin() as origin:
        running.operator_port = urlsplit(running.supervisor.login_url()).port  # type: ignore[attr-defined]
        running.origin = origin  # type: ignore[attr-defined]
        policy = f"""
version: 1
modes: {{filesystem: deny, network: deny}}
allow:
  - network(127.0.0.1:{whole_site.https_port})
  - network(127.0.0.1:{whole_site.http_port})
  - network(site.test:{whole_site.https_port})
  - network(site.test:{whole_site.http_port})
  - network(127.0.0.1:{origin.port})
  - network(site.test:{origin.port})
  - network(other.test:{origin.port})
  - network(looked.test:{origin.port})
  - network(site.test:22)
  - network(other.test:{whole_site.https_port})
  - network(other.test:{whole_site.http_port})
  - network(GET,HEAD {whole_site.https("looked.test", "/**")})
  - network(inner.test)
  - network(metadata.test)
  - network(supervisor.test:{running.operator_port})
  - network(127.0.0.1:{running.operator_port})
"""
        settings.policy_file.write_text(policy)
        running.parts.policies.current()
        yield running


async def attack(
    running: Supervised, folder: Path, name: str, *ports: int
) -> tuple[Session, dict[str, Any]]:
    """Run one attack as the agent, with no proxy to be seen."""
    workspace = make_repository(folder / "project", {ATTACKS.name: ATTACKS.read_text()})
    words = " ".join(map(str, ports))
    script = (
        f"unset HTTP_PROXY HTTPS_PROXY http_proxy https_proxy; /usr/bin/python3 {ATTACKS.name}"
        f" {name} {words}"
    )
    session, output = await running.run(workspace, "bash", "-c", script)
    assert session.exit_code == 0, output
    return session, json.loads(output.splitlines()[-1])


async def denied(running: Supervised, session: Session, count: int) -> Counter[str]:
    """Why, and how often, once so many denials are on record: of those that are alike the first
    is a line, the others a number at the session's end."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found: Counter[str] = Counter()
            for one in running.audit("verdict_given", session=session.id, verdict="deny"):
                found[one["why"]] += one.get("count", 1)
            if found.total() >= count:
                return found
            await asyncio.sleep(0.05)


async def test_without_a_lie_they_get_there(
    running: Supervised, tmp_path: Path, site: Site
) -> None:
    _, came = await attack(running, tmp_path, "truth", site.https_port, site.http_port)
    assert all(answer.startswith("HTTP/1.1 200") for answer in came.values()), came


async def test_tls_that_names_another_host_than_the_address_stands_for(
    running: Supervised, tmp_path: Path, site: Site
) -> None:
    origin: Origin = running.origin  # type: ignore[attr-defined]
    session, came = await attack(running, tmp_path, "lies", origin.port, site.http_port)
    assert not any("HTTP/1.1" in answer for answer in came.values()), came
    assert origin.received == b"", "no byte arrived"
    assert await denied(running, session, len(came)) == {
        # by either family of addresses
        "TLS names `other.test`, but the connection goes to `site.test`": 2,
        "TLS names `site.test`, but the connection goes to `other.test`": 1,
        "TLS names `site.test`, but the connection goes to `looked.test`": 1,
        "TLS names no host, but the connection goes to `site.test`": 1,
    }


async def test_http_that_names_another_host_than_the_address_stands_for(
    running: Supervised, tmp_path: Path, site: Site
) -> None:
    session, came = await attack(running, tmp_path, "hosts", site.https_port, site.http_port)
    second = came.pop("second")
    assert second.startswith("HTTP/1.1 200")
    assert second.count("HTTP/1.1 200") == 1
    assert "the request names `other.test`" in second
    assert all(answer.startswith(("HTTP/1.1 403", "HTTP/1.1 400")) for answer in came.values()), (
        came
    )
    assert "the request names `other.test`" in came["lying"]
    assert "names port" in came["port"]
    assert "absolute" in came["absolute"]
    assert "upgrade to HTTP/2 is refused" in came["upgrade"]
    assert site.requests == ["GET /"]
    port = site.http_port
    assert await denied(running, session, len(came) + 1) == {
        # the first, and the one behind another
        "the request names `other.test`, but the connection goes to `site.test`": 2,
        f"the request names port {port + 1}, but the connection goes to port {port}": 1,
        "the Host header is said twice": 1,
        "an absolute target inside of CONNECT is refused": 1,
        # a CONNECT where none belongs
        "what can't be read, or names no host, can't be judged, so it is refused": 1,
        "an upgrade to HTTP/2 is refused": 1,
    }


async def test_addresses_that_nobody_may_reach(
    running: Supervised, tmp_path: Path, site: Site
) -> None:
    session, came = await attack(running, tmp_path, "addresses", site.https_port, site.http_port)
    for name, answer in came.items():
        if name.startswith(("tls", "lying")):
            assert "HTTP/1.1" not in answer, name
        else:
            assert answer.startswith("HTTP/1.1 403"), (name, answer)
    for name in ("169.254.169.254", "64:ff9b::a9fe:a9fe", "metadata.test"):
        assert "metadata" in came[name], came[name]
    assert "stands for no name" in came["198.18.0.2"]
    assert site.untouched
    whys = await denied(running, session, len(came))
    assert whys.total() == len(came), "each is on record, once"
    assert sum(count for why, count in whys.items() if "is a cloud metadata service" in why) == 11
    assert (
        whys["`inner.test` resolves to `10.1.2.3`, which is a private address that no rule names"]
        == 2
    )
    assert whys["this address stands for no name, or for none any more"] == 1


async def test_the_hosts_own_listeners(running: Supervised, tmp_path: Path, site: Site) -> None:
    operator: int = running.operator_port  # type: ignore[attr-defined]
    _, came = await attack(running, tmp_path, "loopback", site.https_port, site.http_port, operator)
    own = {
        name: answer for name, answer in came.items() if " " in name and name[0] in "0123456789:"
    }
    assert len(own) == 15
    assert set(own.values()) == {"ConnectionRefusedError"}, "that is the sandbox's own loopback"
    assert "is Gatehouse itself" in came["supervisor"]
    assert "HTTP/1.1" not in came["supervisor tls"]
    assert all(came[f"own {port}"].startswith("HTTP/1.1 403") for port in (3128, 3129, 3701))
    assert site.untouched


async def test_what_is_neither_tls_nor_http_is_refused_and_on_record(
    running: Supervised, tmp_path: Path, site: Site
) -> None:
    session, came = await attack(running, tmp_path, "raw", site.https_port, site.http_port)
    assert (
        came["ssh"]
        == came["binary"]
        == came["lower"]
        == came["blank"]
        == came["names by tcp"]
        == ""
    )
    assert came["tls rubbish"].startswith("15"), "an alert"
    assert "200" not in came["h2c"]
    assert await denied(running, session, len(came) - 1) == {
        "this is neither TLS nor HTTP, and nothing else is let through": 4,
        "the first TLS message is not a ClientHello": 1,
        "what can't be read, or names no host, can't be judged, so it is refused": 1,
    }, "all but rubbish for the name server, which asks for no name"
    assert site.requests == []


async def test_names_and_datagrams_are_no_way_out(
    running: Supervised, tmp_path: Path, site: Site
) -> None:
    session, came = await attack(running, tmp_path, "datagrams", site.https_port, site.http_port)
    kinds = {name: tuple(answer) for name, answer in came.items() if name.startswith("kind")}
    assert kinds.pop("kind 1") == (0, 1)
    assert set(kinds.values()) == {(0, 0)}, (
        "nothing but an address, which stands for the name in this sandbox alone"
    )
    assert came["by tcp"] is True
    assert {answer for name, answer in came.items() if name.startswith("udp")} == {
        "ConnectionRefusedError"
    }
    verdicts = running.audit("verdict_given", session=session.id, category="network")
    assert verdicts == [], (
        "to know an address is no connection: nobody was asked, and nothing was looked up"
    )
    assert site.untouched
