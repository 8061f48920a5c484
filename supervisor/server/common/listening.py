"""The operator's listening socket. Doctor uses it to try a port without importing a server."""

import errno
import re
import socket
from pathlib import Path

from supervisor.errors import UserError

LOOPBACK, ANYWHERE = "127.0.0.1", "0.0.0.0"
_LOCAL = re.compile(r"^\s+\|-- (\S+)\n\s+/32 host LOCAL$", re.MULTILINE)


def own_addresses(table: Path = Path("/proc/net/fib_trie")) -> tuple[str, ...]:
    """Return the IPv4 addresses of this machine's interfaces; none where that can't be read."""
    try:
        return tuple(sorted(set(_LOCAL.findall(table.read_text()))))
    except OSError:
        return ()


def listen(port: int, host: str = LOOPBACK) -> socket.socket:
    """Return a listening socket on a loopback port, 0 for any. `UserError` where the
    port is taken.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(256)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"port {port} is taken",
                "another Gatehouse may be running; give another with --port or GATEHOUSE_PORT",
            ) from error
        raise UserError(
            f"port {port} can't be used: {error.strerror}",
            "give another with --port or GATEHOUSE_PORT",
        ) from error
    return sock
