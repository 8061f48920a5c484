"""Connections of programs that know no proxy: their destination and protocol.

The sandbox's network hands every TCP connection to the door (`sandbox.redirect`); the kernel tells
its destination. That is a client's claim like a CONNECT, and is judged as one. It decides only that
a given address means its name, and that anything but TLS or HTTP is refused before anybody is
asked.
"""

import asyncio
import ipaddress
import re
import socket
import struct
from typing import Literal, NamedTuple

from supervisor.core.text import hosts
from supervisor.egress.admission.names import Names, is_given
from supervisor.egress.loop.relay import GoneError, HeldEnd, in_s

type Speech = Literal["TLS", "HTTP"]

# linux/netfilter_ipv4.h; linux/netfilter_ipv6/ip6_tables.h has the same number.
_SO_ORIGINAL_DST = 80
# Port in network order, then the address: netinet/in.h.
_SOCKADDR_IN, _SOCKADDR_IN6 = struct.Struct("!2xH4s8x"), struct.Struct("!2xH4x16s4x")
# How long a client may wait for the other side to speak first.
FIRST_WORD_S = 15.0
_TLS_HANDSHAKE = b"\x16"
_HTTP_START = re.compile(rb"[A-Z][A-Z-]{0,31} ")
_HTTP_PERHAPS = re.compile(rb"[A-Z][A-Z-]{0,31}|")


class Destination(NamedTuple):
    """Where a connection was for: a name where its address stands for one, else the address.
    `is_stale`: it stood for one, once."""

    host: str
    port: int
    is_stale: bool


class SpeechError(Exception):
    """A protocol that is never passed on. The text is a whole why."""


def destination(transport: asyncio.Transport, names: Names) -> Destination:
    """Return where an accepted connection was for. `OSError` where the kernel doesn't know,
    `GoneError` where it was reset before."""
    from_where = transport.get_extra_info("peername")
    if from_where is None:
        raise GoneError
    peer = ipaddress.ip_address(from_where[0])
    with socket.socket(fileno=socket.dup(transport.get_extra_info("socket").fileno())) as sock:
        # A door for both families shows what came by IPv4 as an address mapped into IPv6.
        if isinstance(peer, ipaddress.IPv4Address) or peer.ipv4_mapped is not None:
            raw = sock.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, _SOCKADDR_IN.size)
            port, packed = _SOCKADDR_IN.unpack(raw)
        else:
            raw = sock.getsockopt(socket.IPPROTO_IPV6, _SO_ORIGINAL_DST, _SOCKADDR_IN6.size)
            port, packed = _SOCKADDR_IN6.unpack(raw)
    return _meant(ipaddress.ip_address(packed), port, names)


def _meant(address: hosts.Address, port: int, names: Names) -> Destination:
    if not is_given(address):
        return Destination(hosts.canonical_host(str(address)), port, is_stale=False)
    name = names.name_of(address)
    return Destination(name or str(address), port, is_stale=name is None)


async def speech(client: HeldEnd) -> Speech:
    """Return the protocol of the client's first bytes, which stay where they are. `SpeechError`
    where that is neither TLS nor HTTP."""
    by = in_s(FIRST_WORD_S)
    try:
        while not client.data or _HTTP_PERHAPS.fullmatch(client.data):
            await client.more(by)
    except TimeoutError:
        raise SpeechError(
            "the client waits for the other side to speak first; only TLS and HTTP are let through"
        ) from None
    except GoneError:
        if not client.data:
            raise
        raise SpeechError("the client ended before it said what it wants") from None
    if client.data.startswith(_TLS_HANDSHAKE):
        return "TLS"
    if _HTTP_START.match(client.data):
        return "HTTP"
    raise SpeechError("this is neither TLS nor HTTP, and nothing else is let through")
