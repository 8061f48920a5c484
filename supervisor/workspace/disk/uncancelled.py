"""Run blocking work in a thread to its end, even when the caller is cancelled.

Effects in both directions need it. It must never swallow the cancellation.
"""

import asyncio
from collections.abc import Callable


async def to_end[T](work: Callable[[], T]) -> T:
    """Run `work` in a thread, to its end even if we are cancelled: an effect that nobody settles is
    lost."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait({future})
        raise
