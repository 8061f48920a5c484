"""Work that must not be left half done: in a thread, and to its end even where whoever waits for it
is cancelled.

It is separate because effects in both directions need it. It must never swallow the cancellation.
"""

import asyncio
from collections.abc import Callable


async def to_end[T](work: Callable[[], T]) -> T:
    """Run `work` in a thread, and to its end even if we are cancelled: an effect that nobody
    settles is a lost one."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait({future})
        raise
