"""Dialling: by checked literals only, waited for where the kernel can't say at once how it went,
and nothing left behind."""

import asyncio
import contextlib
import fcntl
import gc
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import connection as mitm_connection
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from supervisor.egress.admission.egress_sessions import ClientConnection, Sessions
from supervisor.egress.loop import addresses, dialler
from supervisor.egress.loop.dialler import PIN, Pin, PinnedLoop
from supervisor.egress.mitm.guard import Guard
from supervisor.egress.tunnels import _send_at_once
from tests.egress.admission.test_resolver import in_pinned_loop
from tests.egress.egress_harness import nobody_at
from tests.fakes.waiting import PATIENCE_S


def test_no_name_is_looked_up_where_an_address_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the check of addresses let one through."""
    monkeypatch.setattr(addresses, "refusal", lambda *args, **options: None)

    async def attempts() -> None:
        for name in ("localhost", "127.1", "fe80::1%lo"):
            PIN.set(Pin("a.test", 443, (name,), private_ok=True, judged_at=0))
            with pytest.raises(OSError, match="illegal IP address"):
                await pinned_loop().dial("a.test", 443)

    in_pinned_loop(attempts)


class Nothing:
    """A supervisor's part that nobody needs here, and a connection's transport."""


def guarding(sessions: Sessions) -> Guard:
    return Guard(sessions, Nothing(), Nothing(), Nothing(), Nothing(), Nothing())  # type: ignore[arg-type]


CLIENT = mitm_connection.Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2))


@pytest.mark.parametrize(
    ("more", "is_dialled"),
    [
        ({}, True),
        ({"via": ("http", ("127.0.0.1", 3128))}, False),
        ({"transport_protocol": "udp"}, False),
    ],
)
async def test_what_is_pinned_is_dialled_by_tcp_and_by_way_of_nobody(
    more: dict[str, Any], is_dialled: bool
) -> None:
    sessions = Sessions()
    connection = ClientConnection("c", sessions.get("s"), asyncio.Transport(), 0.0)
    pin = connection.pins["a.test", 443] = Pin(
        "a.test", 443, ("127.0.0.1",), private_ok=True, judged_at=0
    )
    sessions.name_client(CLIENT.id, connection)
    server = mitm_connection.Server(address=("a.test", 443), **more)
    guarding(sessions).server_connect(ServerConnectionHookData(server, CLIENT))
    assert (server.error is None, PIN.get() is pin) == (is_dialled, is_dialled)


def test_a_client_of_no_session_is_refused_before_it_says_anything() -> None:
    client = CLIENT.copy()
    guarding(Sessions()).client_connected(client)
    assert client.error


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_connection_that_is_collected_as_garbage_closes_nobody_elses() -> None:
    """Its descriptor is closed once: by then the number may be that of the next client."""

    async def attempts() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, Path(os.devnull).open() as other:
            port = server.getsockname()[1]
            PIN.set(Pin("a.test", port, ("127.0.0.1",), private_ok=True, judged_at=0))
            _, writer = await asyncio.open_connection("a.test", port)
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # the loop holds what is read
            number = writer.get_extra_info("socket").fileno()
            accepted, _ = server.accept()
            writer.itself = writer  # type: ignore[attr-defined]
            del writer, _
            gc.collect()  # it closes itself once more then, and is alive until that is done
            taken = fcntl.fcntl(other, fcntl.F_DUPFD_CLOEXEC, number)
            accepted.setblocking(False)
            await asyncio.wait_for(
                pinned_loop().sock_recv(accepted, 1), PATIENCE_S
            )  # it was closed
            os.close(taken)  # once
            accepted.close()

    in_pinned_loop(attempts)


@pytest.mark.parametrize("family", ["127.0.0.1", "::1"])
def test_a_connection_that_takes_its_time_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """As one over a network does: the kernel can't say at once how it went."""

    def begun(sock: socket.socket, address: str, port: int) -> bool:
        with contextlib.suppress(BlockingIOError):
            sock.connect((address, port))
        return False

    monkeypatch.setattr(dialler, "_is_connected", begun)

    async def attempts() -> None:
        kind = socket.AF_INET6 if ":" in family else socket.AF_INET
        with socket.create_server((family, 0), family=kind) as server:
            port = server.getsockname()[1]
            PIN.set(Pin("a.test", port, (family,), private_ok=True, judged_at=0))
            with await pinned_loop().dial("a.test", port) as sock:
                assert sock.getpeername()[:2] == (family, port)
            _, writer = await asyncio.open_connection("a.test", port)
            assert writer.get_extra_info("peername")[:2] == (family, port)
            writer.close()
        with nobody_at(address=family) as port:
            PIN.set(Pin("a.test", port, (family,), private_ok=True, judged_at=0))
            with pytest.raises(ConnectionRefusedError):
                await pinned_loop().dial("a.test", port)

    in_pinned_loop(attempts)


def test_an_address_that_answered_is_tried_first_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is dead costs each connection as long as it takes to give it up."""
    tried: list[str] = []
    connected = PinnedLoop._connected

    async def noted(
        loop: PinnedLoop, address: str, port: int, waits: dialler.Waits
    ) -> socket.socket:
        tried.append(address)
        return await connected(loop, address, port, waits)

    monkeypatch.setattr(PinnedLoop, "_connected", noted)
    monkeypatch.setattr(dialler, "MOST_ANSWERED", 2)
    all_of_it = ("127.0.0.1", "127.0.0.2", "127.0.0.3")

    async def dialled(*expected: str, port: int, addresses: tuple[str, ...] = all_of_it) -> None:
        tried.clear()
        PIN.set(Pin("a.test", port, addresses, private_ok=True, judged_at=0))
        (await pinned_loop().dial("a.test", port)).close()
        assert tuple(tried) == expected

    async def attempts() -> None:
        with nobody_at() as port, nobody_at(port, "127.0.0.3"):
            with socket.create_server(("127.0.0.2", port)):
                await dialled("127.0.0.1", "127.0.0.2", port=port)
                await dialled("127.0.0.2", port=port)
                # Of other addresses, which weren't checked with it, it says nothing.
                for other in (all_of_it[:2], ("127.0.0.3", *all_of_it[:2])):
                    await dialled(*other[:-1], other[-1], port=port, addresses=other)
                await dialled(
                    "127.0.0.1", "127.0.0.2", port=port
                )  # it is remembered of so many only
            with socket.create_server(("127.0.0.3", port)):
                await dialled("127.0.0.2", "127.0.0.1", "127.0.0.3", port=port)
                await dialled("127.0.0.3", port=port)

    in_pinned_loop(attempts)


def test_what_answered_is_checked_again_before_it_is_dialled() -> None:
    async def attempts() -> None:
        with nobody_at() as port, socket.create_server(("127.0.0.2", port)):
            for expected in (
                contextlib.nullcontext(),
                pytest.raises(OSError, match="Gatehouse itself"),
            ):
                PIN.set(
                    Pin("a.test", port, ("127.0.0.1", "127.0.0.2"), private_ok=True, judged_at=0)
                )
                with expected:
                    (await pinned_loop().dial("a.test", port)).close()
                pinned_loop().forbidden = frozenset({("127.0.0.2", port)})

    in_pinned_loop(attempts)


def test_a_dial_that_is_given_up_leaves_no_socket_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[socket.socket] = []

    def never(sock: socket.socket, address: str, port: int) -> bool:
        tried.append(sock)
        return False

    monkeypatch.setattr(dialler, "_is_connected", never)
    monkeypatch.setattr(dialler, "CONNECT_TIMEOUT_S", 0.01)
    monkeypatch.setattr(PinnedLoop, "add_writer", lambda *args: None)  # no end of it comes
    monkeypatch.setattr(PinnedLoop, "remove_writer", lambda *args: None)

    async def attempts() -> None:
        PIN.set(Pin("a.test", 443, ("127.0.0.1",), private_ok=True, judged_at=0))
        with pytest.raises(OSError, match="no answer in time"):
            await pinned_loop().dial("a.test", 443)

    in_pinned_loop(attempts)
    assert tried
    assert all(sock.fileno() == -1 for sock in tried)


def pinned_loop() -> PinnedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PinnedLoop)
    return loop


def test_what_does_not_go_out_at_once_is_left_and_so_is_all_of_it_where_nobody_listens() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        assert _send_at_once(ours, b"hello") == b""
        data = bytes(range(256)) * 65536
        left = _send_at_once(ours, data)
        assert data.endswith(left)
        assert 0 < len(left) < len(data)
        assert _send_at_once(ours, b"more") == b"more"  # nothing goes past what waits
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        assert _send_at_once(ours, b"hello") == b"hello"
