"""Where a redirected connection was for, and what it speaks. The rest is
`tests/scenarios/test_transparent.py`, in real sandboxes."""

import asyncio
import contextlib
import ipaddress
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from supervisor.egress import front
from supervisor.egress.admission.admission import NAMES_PORT
from supervisor.egress.admission.names import Names
from supervisor.egress.front import Destination, SpeechError, protocol_of
from supervisor.egress.loop.relay import GoneError, HeldEnd
from supervisor.sandbox import base, redirect


def test_names_are_asked_at_the_port_that_the_sandbox_sends_them_to() -> None:
    assert NAMES_PORT == base.NAMES_PORT == redirect._NAMES_PORT == 53


def held(data: bytes, *, is_gone: bool = False) -> HeldEnd:
    client = HeldEnd()
    client.data += data
    client.is_gone = is_gone
    return client


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x16", "TLS"),
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"M-SEARCH * HTTP/1.1\r\n", "HTTP"),
        (b"CONNECT a:443 HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n", "HTTP"),
    ],
)
async def test_what_it_speaks(data: bytes, expected: str) -> None:
    assert await protocol_of(held(data)) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b" GET /",
        b"get / HTTP/1.1",
        b"SSH-2.0-x",
        b"EHLO\r\n",
        b"GET\r\n",
        b"\x80\x2e\x01",
        b"A" * 33,
        b"\r\nGET / HTTP/1.1",
    ],
)
async def test_all_else_is_refused(data: bytes) -> None:
    with pytest.raises(SpeechError, match="neither TLS nor HTTP"):
        await protocol_of(held(data))


async def test_who_says_nothing_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "FIRST_WORD_S", 0.01)
    for data in (b"", b"GET"):
        with pytest.raises(SpeechError, match="waits for the other side"):
            await protocol_of(held(data))


async def test_who_leaves_is_gone() -> None:
    with pytest.raises(GoneError):
        await protocol_of(held(b"", is_gone=True))
    with pytest.raises(SpeechError, match="before it said"):
        await protocol_of(held(b"GET", is_gone=True))


def test_where_it_was_for() -> None:
    names = Names()
    v4, v6 = names.give("a.test")
    meant = front._meant
    assert (
        meant(v4, 443, names) == meant(v6, 443, names) == Destination("a.test", 443, is_stale=False)
    )
    assert meant(v4 + 1, 443, names) == Destination(str(v4 + 1), 443, is_stale=True)
    for text, host in (("192.0.2.1", "192.0.2.1"), ("2001:DB8::1", "2001:db8::1")):
        assert meant(ipaddress.ip_address(text), 1, names).host == host


class Reset(asyncio.Transport):
    """Of a client that was gone before anybody looked."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


async def test_of_who_was_reset_at_once_nothing_is_known() -> None:
    with pytest.raises(GoneError):
        front.destination(Reset(), Names())


@contextlib.asynccontextmanager
async def accepted(listens: str, dialled: str) -> AsyncIterator[tuple[asyncio.Transport, int]]:
    """A client's connection, and the port it came to."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[asyncio.BaseTransport] = loop.create_future()

    class Door(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            found.set_result(transport)

    with socket.create_server(
        (listens, 0),
        family=socket.AF_INET6 if ":" in listens else socket.AF_INET,
        dualstack_ipv6=listens == "::",
    ) as sock:
        async with await loop.create_server(Door, sock=sock):
            port = sock.getsockname()[1]
            _, writer = await asyncio.open_connection(dialled, port)
            transport = await found
            assert isinstance(transport, asyncio.Transport)
            try:
                yield transport, port
            finally:
                transport.close()
                writer.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_of_a_connection_that_was_not_redirected_nothing_else_is_believed(
    address: str,
) -> None:
    """Where the kernel tracks connections it says where this one went; where it doesn't, that it
    knows nothing."""
    async with accepted(address, address) as (transport, port):
        with contextlib.suppress(OSError):
            assert front.destination(transport, Names())[:2] == (address, port)


@pytest.mark.parametrize(("dialled", "meant"), [("127.0.0.1", "192.0.2.1"), ("::1", "2001:db8::1")])
async def test_at_a_door_for_both_families_the_kernel_is_asked_for_that_of_the_client(
    monkeypatch: pytest.MonkeyPatch, dialled: str, meant: str
) -> None:
    """It knows a connection by its own family only: linux/netfilter_ipv4.h,
    linux/netfilter_ipv6/ip6_tables.h."""
    level = socket.SOL_IP if "." in dialled else socket.IPPROTO_IPV6
    packed = ipaddress.ip_address(meant).packed
    raw = (
        struct.pack("!2xH4s8x", 443, packed)
        if "." in dialled
        else struct.pack("!2xH4x16s4x", 443, packed)
    )
    async with accepted("::", dialled) as (transport, _):
        with monkeypatch.context() as patch:
            patch.setattr(
                socket.socket,
                "getsockopt",
                lambda sock, *asked: {(level, 80, len(raw)): raw}[asked],
            )
            assert front.destination(transport, Names()) == Destination(meant, 443, is_stale=False)
