"""Runs something hostile in a real sandbox whose connections are redirected to a door, and prints
what became of it as JSON.

A program of its own so that the same can be run as root and as an ordinary user (`users.py`).
The driver answers at the door: the line that a client reads is where its connection was for.
"""

import asyncio
import json
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from supervisor.egress import front
from supervisor.egress.admission.names import Names
from supervisor.egress.loop.fair_turns import Share
from supervisor.egress.name_server import NameServer
from supervisor.sandbox.base import DOOR_PORT, NAMES_PORT, Spec
from supervisor.sandbox.bubblewrap import Bubblewrap

ATTEMPTS = r"""
import ctypes, errno, json, os, socket, struct, subprocess, time
came = {}
libc = ctypes.CDLL(None, use_errno=True)

def attempt(name, work):
    try:
        came[name] = work()
    except OSError as error:
        came[name] = errno.errorcode.get(error.errno, str(error))

def said(family, where):
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(10)
        sock.connect(where)
        return sock.makefile().readline().strip()

V4, V6 = socket.AF_INET, socket.AF_INET6
OWN, OWN_6 = "198.18.0.1", "fd67:6174:6568:6f75::1"
for name, family, where in (
    ("public", V4, ("192.0.2.7", 443)), ("public 6", V6, ("2001:db8::7", 8443)), ("any port", V4, ("192.0.2.7", 1)),
    ("mapped", V6, ("::ffff:192.0.2.8", 80)), ("metadata", V4, ("169.254.169.254", 80)), ("private", V4, ("10.1.2.3", 22)),
    ("metadata mapped", V6, ("::ffff:169.254.169.254", 80)), ("nat64", V6, ("64:ff9b::a9fe:a9fe", 80)),
    ("link local 6", V6, ("fe80::1", 80, 0, 1)), ("own address", V4, (OWN, 3701)), ("own address mapped", V6, ("::ffff:" + OWN, 3701)), ("own address 6", V6, (OWN_6, 3701)),
    ("next to it", V4, ("198.18.0.2", 3701)), ("next to it 6", V6, ("fd67:6174:6568:6f75::2", 3701)),
    ("proxy by own address", V4, (OWN, 3128)), ("operator by own address", V4, (OWN, OPERATOR_PORT)),
    ("operator by own address 6", V6, (OWN_6, OPERATOR_PORT)), ("names by own address", V4, (OWN, 53)),
    ("door by own address", V4, (OWN, 3129)), ("door by own address 6", V6, (OWN_6, 3129)),
    ("loopback", V4, ("127.0.0.1", 3700)), ("loopback 2", V4, ("127.9.9.9", 3700)), ("loopback 6", V6, ("::1", 3700)),
    ("loopback mapped", V6, ("::ffff:127.0.0.1", 3700)), ("unspecified", V4, ("0.0.0.0", 3700)), ("unspecified 6", V6, ("::", 3700)),
    ("host", V4, (HOST_ADDRESS, OPERATOR_PORT)), ("host by loopback", V4, ("127.0.0.1", OPERATOR_PORT)),
    ("names by tcp", V4, ("127.0.0.1", 53)), ("names elsewhere by tcp", V4, ("192.0.2.53", 53)),
    ("door itself", V4, ("127.0.0.1", 3129)), ("door itself 6", V6, ("::1", 3129)),
    ("broadcast", V4, ("255.255.255.255", 80)), ("multicast", V4, ("224.0.0.1", 80)), ("multicast 6", V6, ("ff02::1", 80, 0, 1)),
):
    attempt(name, lambda: said(family, where))

def datagram(family, where):
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(10)
        sock.connect(where)
        sock.send(b"x")
        return sock.recv(10).decode()

for name, family, where in (
    ("udp", V4, ("192.0.2.7", 443)), ("udp 6", V6, ("2001:db8::7", 443)), ("udp dns elsewhere", V4, ("192.0.2.53", 53)),
    ("udp host", V4, (HOST_ADDRESS, 9)),
):
    attempt(name, lambda: datagram(family, where))

def netlink(protocol, message=b""):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as sock:
        if message:
            sock.settimeout(10)
            sock.sendto(message, (0, 0))
            error = struct.unpack_from("=i", sock.recv(4096), 16)[0]
            if error:
                raise OSError(-error, "netlink")
        return "done"

def tracked(work):
    # How many connections more the kernel remembers after that.
    count = lambda: int(open("/proc/sys/net/netfilter/nf_conntrack_count").read())
    before = count()
    work()
    return count() - before

def many_datagrams():
    for family, where in ((V4, "192.0.2.{}"), (V6, "2001:db8::{}"), (V4, "127.0.1.{}")):
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            for number in range(1, 201):
                try:
                    sock.sendto(b"x", (where.format(number), 9))
                except ConnectionRefusedError:
                    pass  # of the one before

def many_to_myself():
    with socket.create_server(("", 8079), family=V6, dualstack_ipv6=True) as server:
        for where in ("127.0.0.1", "::1"):
            for _ in range(200):
                with socket.create_connection((where, 8079), 10):
                    server.accept()[0].close()

def some_to_others():
    for _ in range(20):
        said(V4, ("192.0.2.7", 443))

for work in (many_datagrams, many_to_myself, some_to_others):
    attempt("tracked of " + work.__name__, lambda: tracked(work))

for name, (protocol, data) in PACKETS.items():
    attempt(name, lambda: netlink(protocol, bytes.fromhex(data)))

def call(name, *arguments):
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), name)
    return "done"

attempt("unshare user and net", lambda: call("unshare", 0x10000000 | 0x40000000))
attempt("setns", lambda: call("setns", os.open("/proc/self/ns/net", os.O_RDONLY), 0x40000000))
attempt("raw socket", lambda: socket.socket(V4, socket.SOCK_RAW, socket.IPPROTO_TCP).close() or "done")
attempt("packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close() or "done")
attempt("transparent", lambda: socket.socket(V4, socket.SOCK_STREAM).setsockopt(socket.SOL_IP, 19, 1) or "done")
attempt("mark", lambda: socket.socket(V4, socket.SOCK_STREAM).setsockopt(socket.SOL_SOCKET, 36, 1) or "done")
attempt("iptables", lambda: socket.socket(V4, socket.SOCK_STREAM).getsockopt(socket.SOL_IP, 64, 84) and "done")

def listener(family, where, reuse=True, kind=socket.SOCK_STREAM):
    sock = socket.socket(family, kind)
    sock.settimeout(10)
    if reuse:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(where)
    if kind == socket.SOCK_STREAM:
        sock.listen()
    kept.append(sock)
    return "bound"

kept = []
for name, family, where, kind in (
    ("take door", V4, ("127.0.0.1", 3129), socket.SOCK_STREAM), ("take door 0", V4, ("0.0.0.0", 3129), socket.SOCK_STREAM),
    ("take door 6", V6, ("::1", 3129), socket.SOCK_STREAM), ("take door elsewhere", V4, ("192.0.2.7", 3129), socket.SOCK_STREAM),
    ("take names", V4, ("127.0.0.1", 53), socket.SOCK_DGRAM), ("take names 0", V4, ("0.0.0.0", 53), socket.SOCK_DGRAM),
    ("be anybody", V4, ("192.0.2.7", 8443), socket.SOCK_STREAM), ("be everybody", V6, ("::", 9443), socket.SOCK_STREAM),
):
    attempt(name, lambda: listener(family, where, kind=kind))
attempt("still the door", lambda: said(V4, ("192.0.2.7", 8443)))
attempt("still the door 6", lambda: said(V6, ("2001:db8::7", 9443)))

def said_to_own():
    listener(V4, ("127.0.0.1", 8080))
    with socket.create_connection(("127.0.0.1", 8080), 10) as sock:
        peer, _ = kept[-1].accept()
        peer.sendall(b"own\n")
        return sock.makefile().readline().strip()

attempt("own server", said_to_own)

def said_to_what_i_am_told_is_mine(family, everywhere, somewhere):
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((somewhere, 9))
        mine = probe.getsockname()[0]
    listener(family, (everywhere, 8081))
    with socket.create_connection((mine, 8081), 10) as sock:
        peer, _ = kept[-1].accept()
        peer.sendall(b"own\n")
        return mine + " " + sock.makefile().readline().strip()

attempt("server at my address", lambda: said_to_what_i_am_told_is_mine(V4, "0.0.0.0", "8.8.8.8"))
attempt("server at my address 6", lambda: said_to_what_i_am_told_is_mine(V6, "::", "2001:4860:4860::8888"))

def said_from_own(family, source, where):
    with socket.create_connection(where, 10, (source, 0)) as sock:
        return sock.makefile().readline().strip()

for name, family, source, where in (
    ("from own address", V4, OWN, ("192.0.2.7", 8081)), ("from own address 6", V6, OWN_6, ("2001:db8::7", 8081)),
    ("from loopback", V4, "127.0.0.1", ("192.0.2.7", 8081)), ("from anywhere", V4, "192.0.2.9", ("192.0.2.7", 8081)),
    ("host from own address", V4, OWN, (HOST_ADDRESS, OPERATOR_PORT)),
):
    attempt(name, lambda: said_from_own(family, source, where))

def looked_up(family, flags=0):
    found = socket.getaddrinfo("name.test", 443, family, socket.SOCK_STREAM, 0, flags)
    return said(found[0][0], found[0][4])

for name, family, flags in (("name", 0, 0), ("name 4", V4, 0), ("name 6", V6, 0), ("configured 4", V4, socket.AI_ADDRCONFIG),
                            ("configured 6", V6, socket.AI_ADDRCONFIG), ("configured", 0, socket.AI_ADDRCONFIG)):
    try:
        attempt(name, lambda: looked_up(family, flags))
    except OSError as error:
        came[name] = str(error)
print(json.dumps(came))
"""  # noqa: E501


def packets() -> dict[str, tuple[int, str]]:
    """What an agent would send to undo it."""
    from supervisor.sandbox.redirect import steps

    (rules,), (_, route), _ = (step.packets for step in steps(4000))
    delete_table = bytes.fromhex(rules.data)
    delete_route = bytearray(bytes.fromhex(route.data))
    delete_route[4:6] = (25).to_bytes(2, sys.byteorder)  # RTM_DELROUTE
    link_down = bytes.fromhex("20000000100005000100000000000000000000000100000000000000ffffffff")
    return {
        "nftables": (12, delete_table.hex()),
        "route": (0, route.data),
        "delete route": (0, bytes(delete_route).hex()),
        "link": (0, link_down.hex()),
    }


def host_address() -> str:
    """An address of this machine that isn't loopback's, where it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "192.0.2.99"
        return str(probe.getsockname()[0])


class Door(asyncio.Protocol):
    """Tells each client where it wanted to go."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        host, port, _ = front.destination(transport, self._names)
        transport.write(f"door {host} {port}\n".encode())
        transport.close()


async def attempts() -> object:
    loop = asyncio.get_running_loop()
    sandbox = Bubblewrap()
    names = Names()
    reached: list[bytes] = []
    tasks: list[asyncio.Task[None]] = []
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("0.0.0.0", 0)) as operator:
        operator.setblocking(False)
        loop.add_reader(operator, lambda: reached.append(operator.accept()[0].recv(1)))
        lower, merged = Path(folder, "lower"), Path(folder, "merged")
        lower.mkdir()
        merged.mkdir()

        async def serve(listeners: Mapping[int, socket.socket]) -> None:
            await loop.create_server(lambda: Door(names), sock=listeners[DOOR_PORT].dup())
            server = NameServer(listeners[NAMES_PORT].dup(), names, Share(), lambda host, why: None)
            tasks.append(loop.create_task(server.serve()))

        facts: dict[str, Any] = {
            "PACKETS": packets(),
            "HOST_ADDRESS": host_address(),
            "OPERATOR_PORT": operator.getsockname()[1],
        }
        text = "".join(f"{name} = {value!r}\n" for name, value in facts.items()) + ATTEMPTS
        spec = Spec(
            command=("/usr/bin/python3", "-c", text),
            workspace_lower=lower,
            workspace_merged=merged,
            redirected=True,
        )
        began = time.monotonic()
        result = await sandbox.run_tool(spec, timeout_s=60, on_listeners=serve)
        loop.remove_reader(operator)
        await sandbox.close()
    lines = result.stdout.decode().splitlines()
    return {
        "inside": (
            json.loads(lines[-1])
            if result.exit_code == 0
            else {"error": result.stderr.decode()[-2000:]}
        ),
        "host": facts["HOST_ADDRESS"],
        "operator": facts["OPERATOR_PORT"],
        "reached": len(reached),
        "duration_s": time.monotonic() - began,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(attempts())))
