"""Share the event loop: lists in slices, threads that run to their end, listeners that close."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence


async def slices[T](items: Sequence[T], most: int) -> AsyncIterator[Sequence[T]]:
    """The items in order, at most so many at a time; between two parts everybody else has a
    turn."""
    for at in range(0, len(items), most):
        if at:
            await asyncio.sleep(0)
        yield items[at : at + most]


async def to_end[T](work: Callable[[], T]) -> T:
    """Run `work` in a thread, to its end even if we are cancelled: an effect that nobody settles is
    lost."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait({future})
        raise


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
