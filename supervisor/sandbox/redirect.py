"""Netlink messages that redirect a sandbox's TCP connections to one door.

Pure. They are sent in the sandbox's own namespace. Two things are needed. Every address has to be
routable, or connect(2) fails before anything can be redirected. A route of type `local` for
everything (AnyIP) makes each address the sandbox's own, so that nothing ever leaves, and UDP fails
at once. And one nftables rule per family redirects TCP, so that one socket takes every port and the
kernel tells each connection's destination.

One address really belongs to the sandbox. Programs find their own address by looking at what a
socket to somewhere is bound to, and get this one. A server there is their own, so like loopback it
isn't redirected.

    table inet gatehouse {
        chain first {
            type filter hook output priority raw
            meta l4proto != tcp notrack
            meta nfproto ipv4 meta l4proto tcp ip daddr 127.0.0.0/8
                tcp dport != 53 tcp dport != 3129 tcp sport != 3129 notrack
            meta nfproto ipv6 meta l4proto tcp ip6 daddr ::1
                tcp dport != 53 tcp dport != 3129 tcp sport != 3129 notrack
        }
        chain out {
            type nat hook output priority dstnat
            meta l4proto tcp tcp dport 53 redirect to :3129
            meta nfproto ipv4 meta l4proto tcp ip daddr != 127.0.0.0/8
                ip daddr != 198.18.0.1 redirect to :3129
            meta nfproto ipv6 meta l4proto tcp ip6 daddr != ::1
                ip6 daddr != fd67:6174:6568:6f75::1 redirect to :3129
        }
    }

The kernel tracks each connection, and each address that a datagram went to, for minutes. The first
chain exempts traffic that is never redirected: otherwise a program could fill the kernel's memory.
The door's connections stay tracked, which answers need.

The alternative, the route alone with IP_TRANSPARENT, needs no nftables, but a socket for each of
65,535 ports. The rules are written in netlink's own form because `nft` isn't on every machine, and
a program run in the namespace would have to keep capabilities across exec. The rules never change,
and `bubblewrap` proves them by a connection before anything runs. The sandboxed program can undo
none of it: it has no capability in the namespace, can make no other namespace, and its filter
allows netlink only for reading the routing table.

Numbers: linux/netlink.h, rtnetlink.h, if_addr.h, netfilter/nfnetlink.h, netfilter/nf_tables.h.
"""

import socket
import struct
from typing import NamedTuple

_REQUEST, _ACK, _CREATE, _APPEND = 0x1, 0x4, 0x400, 0x800
_NESTED = 0x8000
_NETLINK_ROUTE, _NETLINK_NETFILTER = 0, 12
_LOOPBACK = 1  # the first interface of every network namespace

_NEW_ADDRESS, _NEW_ROUTE = 20, 24
_ADDRESS, _LOCAL_ADDRESS, _OUTPUT_INTERFACE, _PREFERRED_SOURCE = 1, 2, 4, 7
_NO_DUPLICATE_DETECTION = 0x2
_TABLE_LOCAL, _BY_ADMINISTRATOR, _SCOPE_HOST, _SCOPE_ALL, _TYPE_LOCAL = 255, 4, 254, 0, 2
# Not a loopback address: without another, getaddrinfo's AI_ADDRCONFIG finds that the machine speaks
# neither family. It stands for no name (`egress.names`).
_OWN_ADDRESSES = {
    socket.AF_INET: ("198.18.0.1", 32),
    socket.AF_INET6: ("fd67:6174:6568:6f75::1", 128),
}

_BATCH_BEGIN, _BATCH_END, _NFTABLES = 0x10, 0x11, 10
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE = 0, 3, 6
_INET, _IPV4, _IPV6 = 1, 2, 10
_HOOK_OUTPUT, _RAW, _DSTNAT = 3, -300, -100
_NFPROTO, _L4PROTO = 15, 16
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_EQUAL, _NOT_EQUAL = 0, 1
_REGISTER = 1
_NAMES_PORT = 53
_RULESET_ACKS = 9  # of a table, two chains and six rules


class Packet(NamedTuple):
    """Messages to the netlink `protocol`, in hexadecimal. `acks` of them, the last ones, are
    acknowledged."""

    protocol: int
    data: str
    acks: int


class SetupStep(NamedTuple):
    """Messages that are sent together. Afterwards, `probe` is an address that leads to the door. If
    it isn't `needed`, the kernel may refuse it: then there is no route, and nothing can be reached.
    """

    packets: tuple[Packet, ...]
    probe: str | None = None
    needed: bool = True


def steps(port: int) -> tuple[SetupStep, ...]:
    """Return all steps in order. They redirect to `port` every TCP connection that isn't to the
    sandbox itself, or that is to port 53."""
    rules = Packet(_NETLINK_NETFILTER, _ruleset(port).hex(), _RULESET_ACKS)
    return (
        SetupStep((rules,)),
        SetupStep(_routed(socket.AF_INET), probe="192.0.2.1"),
        SetupStep(
            _routed(socket.AF_INET6), probe="2001:db8::1", needed=False
        ),  # there are machines without IPv6
    )


def _routed(family: int) -> tuple[Packet, ...]:
    return tuple(
        Packet(_NETLINK_ROUTE, data.hex(), 1) for data in (_address(family), _route(family))
    )


def _attribute(kind: int, *content: bytes) -> bytes:
    data = b"".join(content)
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def _nested(kind: int, *content: bytes) -> bytes:
    return _attribute(kind | _NESTED, *content)


def _message(kind: int, flags: int, *content: bytes) -> bytes:
    data = b"".join(content)
    return struct.pack("=IHHII", 16 + len(data), kind, _REQUEST | flags, 1, 0) + data


def _own(family: int) -> tuple[bytes, int]:
    """Return the sandbox's address, and its length in bits."""
    text, bits = _OWN_ADDRESSES[socket.AddressFamily(family)]
    return socket.inet_pton(family, text), bits


def _address(family: int) -> bytes:
    packed, bits = _own(family)
    # Otherwise the address is tentative for a moment, and no route may prefer it.
    flags = _NO_DUPLICATE_DETECTION if family == socket.AF_INET6 else 0
    head = struct.pack("=BBBBI", family, bits, flags, _SCOPE_ALL, _LOOPBACK)
    return _message(
        _NEW_ADDRESS,
        _ACK | _CREATE,
        head,
        _attribute(_LOCAL_ADDRESS, packed),
        _attribute(_ADDRESS, packed),
    )


def _route(family: int) -> bytes:
    scope = _SCOPE_HOST if family == socket.AF_INET else _SCOPE_ALL
    head = struct.pack(
        "=BBBBBBBBI", family, 0, 0, 0, _TABLE_LOCAL, _BY_ADMINISTRATOR, scope, _TYPE_LOCAL, 0
    )
    by = _attribute(_OUTPUT_INTERFACE, struct.pack("=I", _LOOPBACK))
    source, _ = _own(family)
    return _message(_NEW_ROUTE, _ACK | _CREATE, head, by, _attribute(_PREFERRED_SOURCE, source))


def _ruleset(port: int) -> bytes:
    """Return one batch, which the kernel accepts completely or not at all."""
    ipv4, ipv6 = ((_meta(_NFPROTO), _compare(bytes([family]))) for family in (_IPV4, _IPV6))
    tcp = (_meta(_L4PROTO), _compare(bytes([socket.IPPROTO_TCP])))
    not_tcp = (_meta(_L4PROTO), _compare(bytes([socket.IPPROTO_TCP]), _NOT_EQUAL))
    from_port, to_port = _payload(_TRANSPORT_HEADER, 0, 2), _payload(_TRANSPORT_HEADER, 2, 2)
    names, door = struct.pack("!H", _NAMES_PORT), struct.pack("!H", port)
    not_redirected = (
        *(to_port, _compare(names, _NOT_EQUAL), to_port, _compare(door, _NOT_EQUAL)),
        *(from_port, _compare(door, _NOT_EQUAL)),
    )
    # The first byte of the destination, or all of it.
    first_byte, to_v4, to_v6 = (
        _payload(_NETWORK_HEADER, *part) for part in ((16, 1), (16, 4), (24, 16))
    )
    loopback_v4, loopback_v6 = b"\x7f", socket.inet_pton(socket.AF_INET6, "::1")
    (own_v4, _), (own_v6, _) = _own(socket.AF_INET), _own(socket.AF_INET6)
    others_v4 = (first_byte, _compare(loopback_v4, _NOT_EQUAL), to_v4, _compare(own_v4, _NOT_EQUAL))
    others_v6 = (to_v6, _compare(loopback_v6, _NOT_EQUAL), to_v6, _compare(own_v6, _NOT_EQUAL))
    to_door = _redirect(port)
    return b"".join(
        (
            _message(_BATCH_BEGIN, 0, struct.pack("!BBH", 0, 0, _NFTABLES)),
            _nft(_NEW_TABLE, _attribute(1, b"gatehouse\0")),
            _chain(b"first", b"filter", _RAW),
            _rule(b"first", *not_tcp, _UNTRACKED),
            _rule(
                b"first",
                *ipv4,
                *tcp,
                first_byte,
                _compare(loopback_v4),
                *not_redirected,
                _UNTRACKED,
            ),
            _rule(b"first", *ipv6, *tcp, to_v6, _compare(loopback_v6), *not_redirected, _UNTRACKED),
            _chain(b"out", b"nat", _DSTNAT),
            _rule(b"out", *tcp, to_port, _compare(names), *to_door),
            _rule(b"out", *ipv4, *tcp, *others_v4, *to_door),
            _rule(b"out", *ipv6, *tcp, *others_v6, *to_door),
            _message(_BATCH_END, 0, struct.pack("!BBH", 0, 0, _NFTABLES)),
        )
    )


def _be32(number: int) -> bytes:
    return struct.pack("!I", number)


def _nft(kind: int, *attributes: bytes, flags: int = 0) -> bytes:
    return _message(
        _NFTABLES << 8 | kind, _ACK | _CREATE | flags, struct.pack("!BBH", _INET, 0, 0), *attributes
    )


def _chain(name: bytes, kind: bytes, priority: int) -> bytes:
    hook = _nested(
        4, _attribute(1, _be32(_HOOK_OUTPUT)), _attribute(2, struct.pack("!i", priority))
    )
    return _nft(
        _NEW_CHAIN,
        _attribute(1, b"gatehouse\0"),
        _attribute(3, name + b"\0"),
        hook,
        _attribute(7, kind + b"\0"),
    )


def _rule(chain: bytes, *expressions: bytes) -> bytes:
    where = (_attribute(1, b"gatehouse\0"), _attribute(2, chain + b"\0"))
    return _nft(_NEW_RULE, *where, _nested(4, *expressions), flags=_APPEND)


def _expression(name: bytes, *attributes: bytes) -> bytes:
    return _nested(1, _attribute(1, name + b"\0"), _nested(2, *attributes))


_UNTRACKED = _nested(1, _attribute(1, b"notrack\0"))


def _meta(key: int) -> bytes:
    return _expression(b"meta", _attribute(1, _be32(_REGISTER)), _attribute(2, _be32(key)))


def _payload(base: int, offset: int, length: int) -> bytes:
    numbers = (_REGISTER, base, offset, length)
    return _expression(
        b"payload", *(_attribute(kind, _be32(number)) for kind, number in enumerate(numbers, 1))
    )


def _compare(value: bytes, operation: int = _EQUAL) -> bytes:
    parts = (
        _attribute(1, _be32(_REGISTER)),
        _attribute(2, _be32(operation)),
        _nested(3, _attribute(1, value)),
    )
    return _expression(b"cmp", *parts)


def _redirect(port: int) -> tuple[bytes, bytes]:
    value = _nested(2, _attribute(1, struct.pack("!H", port)))
    return (
        _expression(b"immediate", _attribute(1, _be32(_REGISTER)), value),
        _expression(b"redir", _attribute(1, _be32(_REGISTER))),
    )
