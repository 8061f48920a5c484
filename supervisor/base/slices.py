"""Iterate over long lists in slices, yielding to the event loop after each."""

import asyncio
from collections.abc import AsyncIterator, Sequence


async def slices[T](items: Sequence[T], most: int) -> AsyncIterator[Sequence[T]]:
    """The items in order, at most so many at a time; between two parts everybody else has a
    turn."""
    for at in range(0, len(items), most):
        if at:
            await asyncio.sleep(0)
        yield items[at : at + most]
