"""The operator's listening socket. Apart from `serve`, so that doctor can try a port without
importing a server."""

import errno
import socket

from supervisor.errors import UserError


def listen(port: int, host: str = "127.0.0.1") -> socket.socket:
    """A listening socket on a loopback port, 0 for any. `UserError` in one line where the port
    is taken."""
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
