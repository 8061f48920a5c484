"""Ways out: sockets of the host's, its network and the world's, and interfaces of its own."""

import socket
import struct

from kit import WORLD, attempt


def _connect(family, kind, address):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)
        if kind == socket.SOCK_STREAM:
            return client.recv(64).decode() or None
        client.send(b"hello")
        return client.recv(64).decode()


@attempt
def unix_socket_in_workspace():
    return _connect(socket.AF_UNIX, socket.SOCK_STREAM, WORLD["unix_in_workspace"])


@attempt
def unix_socket_in_tmp():
    return _connect(socket.AF_UNIX, socket.SOCK_STREAM, WORLD["unix_in_tmp"])


@attempt
def unix_socket_abstract():
    return _connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + WORLD["unix_abstract"])


@attempt
def unix_datagram_in_workspace():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(b"hello", WORLD["unix_datagram"])
    return "sent"


@attempt
def unix_datagram_from_a_pair():
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"hello", WORLD["unix_datagram"])
    return "sent"


@attempt
def unix_datagram_from_a_raw_pair():
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW | socket.SOCK_CLOEXEC)
    one.sendto(b"hello", WORLD["unix_datagram"])
    return "sent"


@attempt
def unix_path_from_a_stream_pair():
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        one, two = socket.socketpair(socket.AF_UNIX, kind)
        two.close()
        for action in (
            lambda one=one: one.connect(WORLD["unix_in_workspace"]),
            lambda one=one: one.sendto(b"x", WORLD["unix_datagram"]),
        ):
            try:
                action()
                return str(kind)
            except OSError:
                continue
    return None


@attempt
def tcp_to_host_loopback():
    return _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", WORLD["tcp_port"]))


@attempt
def tcp_to_host_loopback_v6():
    return _connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", WORLD["tcp6_port"]))


@attempt
def tcp_to_host_address():
    return _connect(socket.AF_INET, socket.SOCK_STREAM, (WORLD["address"], WORLD["tcp_any_port"]))


@attempt
def operators_port():
    return _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 3700))


@attempt
def udp_to_host_loopback():
    return _connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", WORLD["udp_port"]))


@attempt
def dns_direct():
    query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06canary\x07example\x03org\x00\x00\x01\x00\x01"  # noqa: E501
    for server in ("192.0.2.53", WORLD["address"]):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            try:
                client.sendto(query, (server, 53))
                return f"sent to {server}"
            except OSError:
                continue
    return None


@attempt
def dns_by_resolver():
    return socket.getaddrinfo("canary.example.org", 80)[0][4][0]


@attempt
def connect_outside():
    with socket.socket() as client:
        client.settimeout(1)
        client.connect(("192.0.2.1", 443))
    return "connected"


@attempt
def raw_sockets():
    made = []
    for family, kind, protocol in (
        (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        (socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
        (socket.AF_PACKET, socket.SOCK_RAW, 3),
        (40, socket.SOCK_STREAM, 0),
        (38, socket.SOCK_SEQPACKET, 0),
        (socket.AF_NETLINK, socket.SOCK_RAW, 9),
        (socket.AF_NETLINK, socket.SOCK_RAW, 12),
        (socket.AF_INET, socket.SOCK_STREAM, 132),
        (44, socket.SOCK_RAW, 0),
        (16 << 3, 1, 0),
        (1 << 20, 1, 0),
    ):
        try:
            socket.socket(family, kind, protocol).close()
            made.append((int(family), int(kind), protocol))
        except OSError:
            continue
    return str(made) if made else None


@attempt
def add_a_network_interface():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        body = (
            struct.pack("=BxHiII", 0, 0, 0, 1, 1)
            + struct.pack("=HH8s", 12, 3, b"dummy0\0\0")
            + struct.pack("=HHHH6s2x", 20, 18, 9, 1, b"dummy\0")
        )
        link.send(struct.pack("=IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
        code = struct.unpack("=i", link.recv(4096)[16:20])[0]
    return None if code < 0 else "added"


@attempt
def another_interface_is_there():
    names = [
        name
        for _, name in socket.if_nameindex()
        if name != "lo"
        and not name.startswith(
            ("sit", "tunl", "ip6tnl", "gre", "erspan", "ip_vti", "ip6_vti", "ip6gre")
        )
    ]
    return str(names) if names else None
