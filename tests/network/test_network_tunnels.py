"""What is passed on unread, and for how long: the rules of a real gate, and TLS from end to end."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from supervisor.core.network.egress_wire import Credential
from supervisor.core.network.exchanges import HostTraffic, by_host
from tests.egress.egress_harness import Origin, Proxy, RefusedTunnelError, answer_of, status_of
from tests.fakes.processes import bytes_if_shown
from tests.fakes.waiting import PATIENCE_S
from tests.network.conftest import Setting, really_started


def rules(origin: Origin, *more: str) -> str:
    """Host rules for the origin and its address; `more` are other lines."""
    allow = (
        f"allow:\n  - network(origin.test:{origin.port})\n  - network(127.0.0.1:{origin.port})\n"
    )
    return allow + "".join(f"{line}\n" for line in more)


def looking_inside(origin: Origin) -> tuple[str, str]:
    return "deny:", f"  - network(* https://origin.test:{origin.port}/never/**)"


@contextlib.asynccontextmanager
async def tunnel(
    place: Setting, origin: Origin, host: str = "origin.test"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    through = Proxy(None, place.session_id, place.port)  # type: ignore[arg-type]
    reader, writer = await through.tunnel(f"{host}:{origin.port}", trust=place.ca_file)
    try:
        yield reader, writer
    finally:
        writer.close()


def issuer(writer: asyncio.StreamWriter) -> str:
    """Who signed the certificate that the client was shown."""
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate = tls.getpeercert()
    assert certificate is not None
    return str(certificate["issuer"])


async def get(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], origin: Origin, path: str = "/x"
) -> bytes:
    reader, writer = streams
    writer.write(f"GET {path} HTTP/1.1\r\nHost: origin.test:{origin.port}\r\n\r\n".encode())
    return await answer_of(reader)


async def until(found: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not found():
            await asyncio.sleep(0.01)


async def test_a_host_that_only_host_rules_speak_of_is_passed_on_unread(
    place: Setting, https: Origin
) -> None:
    place.office.policy(rules(https))
    async with tunnel(place, https) as streams:
        assert "Gatehouse" not in issuer(streams[1])
        assert status_of(await get(streams, https)) == 200
    await until(lambda: place.office.audited("effect_settled"))
    (line,) = place.office.audited("effect_settled")
    assert '"way":"tunnel"' in line
    assert '"path":"/x"' not in (place.office.folder / "audit.log").read_text()


@pytest.mark.parametrize("is_inside", [False, True])
async def test_what_goes_over_an_open_connection_is_seen_before_it_ends(
    is_inside: bool, place: Setting, https: Origin
) -> None:
    place.office.policy(rules(https, *(looking_inside(https) if is_inside else ())))
    async with tunnel(place, https) as (_, writer):
        head = (
            f"POST / HTTP/1.1\r\nHost: origin.test:{https.port}\r\nContent-Length: 900000\r\n\r\n"
        )
        writer.write(head.encode() + bytes(500_000))

        def host() -> HostTraffic:
            (found,) = by_host(place.office.network_log.of_session(place.session_id))
            return found

        await until(lambda: host().up_bytes > 500_000)
        assert host().open
        # What is told at the end isn't added to what was told before.
        writer.write(bytes(400_000))
    await until(lambda: not host().open)
    assert 900_000 < host().up_bytes < 1_000_000


async def test_a_host_with_a_rule_for_a_path_is_looked_into(place: Setting, https: Origin) -> None:
    place.office.policy(rules(https, *looking_inside(https)))
    async with tunnel(place, https) as streams:
        assert "Gatehouse" in issuer(streams[1])
        assert status_of(await get(streams, https)) == 200
        assert status_of(await get(streams, https, "/never/x")) == 403


async def test_a_host_with_a_credential_is_looked_into(place: Setting, https: Origin) -> None:
    place.office.policy(rules(https))
    target = f"origin.test:{https.port}"
    credential = Credential(
        placeholder="placeholder-12", secret="s3cret", header="x-api-key", hosts=(target,)
    )
    await place.broker.open_session(place.session_id, place.listener, [credential])
    async with tunnel(place, https) as streams:
        assert "Gatehouse" in issuer(streams[1])


async def test_what_a_person_approved_is_passed_on_unread(place: Setting, https: Origin) -> None:
    place.office.policy(f"allow:\n  - network(127.0.0.1:{https.port})\n")

    async def approve() -> None:
        place.office.gate.resolve((await place.office.asked()).id, "approved", by="tester")

    approving = asyncio.create_task(approve())
    async with tunnel(place, https) as streams:
        assert status_of(await get(streams, https)) == 200
        # An approval isn't taken back by a rule that would only have asked.
        place.broker.reconsider()
        assert status_of(await get(streams, https)) == 200
        place.office.policy(rules(https, "deny:", f"  - network(origin.test:{https.port})"))
        place.broker.reconsider()
        await is_cut(streams)
    await approving


async def is_cut(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            assert await streams[0].read() == b""


CHANGES = {
    "the rule is gone": lambda origin: f"allow:\n  - network(127.0.0.1:{origin.port})\n",
    "the rule for the address is gone": lambda origin: (
        f"allow:\n  - network(origin.test:{origin.port})\n"
    ),
    "a deny rule came": lambda origin: rules(
        origin, "deny:", f"  - network(origin.test:{origin.port})"
    ),
    "an ask rule came": lambda origin: rules(
        origin, "ask:", f"  - network(origin.test:{origin.port})"
    ),
    "it is looked into now": lambda origin: rules(origin, *looking_inside(origin)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_an_open_tunnel_ends_when_the_rules_allow_it_no_longer(
    place: Setting, https: Origin, change: Callable[[Origin], str]
) -> None:
    place.office.policy(rules(https))
    async with tunnel(place, https) as streams:
        assert status_of(await get(streams, https)) == 200
        place.broker.reconsider()
        assert status_of(await get(streams, https)) == 200
        place.office.policy(change(https))
        place.broker.reconsider()
        await is_cut(streams)
    await until(lambda: place.office.audited("effect_settled"))
    assert (
        "no longer" in place.office.audited("effect_settled")[0]
        or "looks into" in place.office.audited("effect_settled")[0]
    )


async def test_a_rule_for_one_use_holds_as_long_as_the_connection_that_used_it(
    place: Setting, https: Origin
) -> None:
    target = f"origin.test:{https.port}"
    place.office.policy(
        f"allow:\n  - rule: network({target})\n    uses: 1\n  -"
        f" network(127.0.0.1:{https.port})\nmodes: {{network: deny}}\n"
    )
    async with tunnel(place, https) as streams:
        place.broker.reconsider()
        assert status_of(await get(streams, https)) == 200
        with pytest.raises(RefusedTunnelError):
            async with tunnel(place, https):
                pass


async def test_a_tunnel_that_a_saved_rule_let_through_while_it_was_asked_about_ends_with_the_rule(
    place: Setting, https: Origin
) -> None:
    """As a request does: a person said yes to the rule, not to this connection."""
    place.office.policy(f"allow:\n  - network(127.0.0.1:{https.port})\n")

    async def save() -> str:
        await place.office.asked()
        saved = place.office.policies.add_rule(
            "allow", f"network(origin.test:{https.port})", why="", by="tester"
        )
        await place.office.gate.answers.rejudge(by="the new rule")
        return saved

    saving = asyncio.create_task(save())
    async with tunnel(place, https) as streams:
        place.broker.reconsider()
        assert status_of(await get(streams, https)) == 200
        place.office.policies.remove_rule(await saving)
        place.broker.reconsider()
        await is_cut(streams)


async def test_a_session_that_ends_cuts_its_tunnels(place: Setting, https: Origin) -> None:
    place.office.policy(rules(https))
    async with tunnel(place, https) as streams:
        assert status_of(await get(streams, https)) == 200
        await place.broker.close_session(place.session_id)
        await is_cut(streams)


async def test_the_kill_switch_cuts_tunnels(place: Setting, https: Origin) -> None:
    place.office.policy(rules(https))
    place.office.kill_switch.on_stop = place.broker.end_connections  # as `app` wires it
    async with tunnel(place, https) as streams:
        assert status_of(await get(streams, https)) == 200
        place.office.kill_switch.stop("enough")
        await is_cut(streams)
    place.office.kill_switch.resume()


@really_started
async def test_nothing_is_imported_of_mitmproxy_for_a_tunnel(place: Setting, https: Origin) -> None:
    place.office.policy(rules(https))
    assert memory_bytes(place) < 60_000_000
    async with tunnel(place, https) as streams:
        assert status_of(await get(streams, https)) == 200
    assert b"mitmproxy_rs" not in bytes_if_shown(place.broker.pid or 0, "maps")
    assert memory_bytes(place) < 60_000_000


def memory_bytes(place: Setting) -> int:
    status = Path(f"/proc/{place.broker.pid}/status").read_text()
    return next(
        int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS")
    )
