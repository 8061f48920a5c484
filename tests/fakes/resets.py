"""Sockets that end their connection by a reset instead of an orderly end."""

import socket
import struct


def reset_on_close(sock: socket.socket) -> None:
    """Once it is closed. RFC 9293 3.5.2: what a socket does that lingers for no time
    (socket(7))."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
