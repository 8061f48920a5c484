"""A session's listening sockets: our copies, and refusals while egress is down."""

import asyncio
import contextlib
import os
import socket
from typing import NamedTuple

from supervisor.core.network.egress_wire import Listener

_DOWN = (
    b"HTTP/1.1 503 egress is being started; nothing is let through meanwhile\r\n"
    b"Content-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"error":"refused","why":"egress is being started; nothing is let through meanwhile",'
    b'"remedy":"try again in a moment","rule":null,"request_id":null}'
)


class Lent(NamedTuple):
    """Our own copy of a session's socket, and its kind."""

    socket: socket.socket
    kind: Listener


def refuse_on(lent: Lent) -> None:
    """Refuse clients at once while egress is down, so that no connection hangs. Name queries wait
    for the next egress."""
    if lent.kind != "names":
        asyncio.get_running_loop().add_reader(lent.socket, _accept_and_refuse, lent.socket)


def _accept_and_refuse(listener: socket.socket) -> None:
    try:
        client, _ = listener.accept()
    except OSError:
        return
    with client, contextlib.suppress(OSError):
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.recv(65536)  # unread bytes would turn the answer into a reset
        client.send(_DOWN)
        client.shutdown(socket.SHUT_WR)


def give_up(lent: Lent) -> None:
    """Close our copy."""
    asyncio.get_running_loop().remove_reader(lent.socket)
    lent.socket.close()


def is_same(one: socket.socket, other: socket.socket) -> bool:
    """Return whether two descriptors are the same socket."""
    if other.fileno() < 0:
        return False
    return os.path.sameopenfile(one.fileno(), other.fileno())
