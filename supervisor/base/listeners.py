"""Closes a listening socket of asyncio's."""

import asyncio
import contextlib


def close_listener(server: asyncio.Server) -> None:
    """Take no more clients, and close once those are set up that were accepted already: within
    this turn of the event loop. Closing twice changes nothing.

    A server that is closed between the two leaves such a client's socket open, and prints a
    traceback when it is collected (CPython issue 109564)."""
    loop = asyncio.get_running_loop()
    for sock in server.sockets:
        if sock.fileno() >= 0:
            loop.remove_reader(sock)
    loop.call_soon(_close, server)


def _close(server: asyncio.Server) -> None:
    # Whoever made a socket may have closed it, as of a sandbox whose start failed.
    with contextlib.suppress(ValueError):
        server.close()
