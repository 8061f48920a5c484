"""What is left of connections that are over is done while nobody waits, or a moment later, and
each by itself."""

import asyncio

from supervisor.egress.loop import deferred_cleanup


async def test_what_is_left_is_done_when_there_is_time_or_a_moment_later() -> None:
    done: list[int] = []
    deferred_cleanup.later(lambda: done.append(1))
    deferred_cleanup.clear()
    await asyncio.sleep(0)
    assert done == [1]
    late = asyncio.get_running_loop().create_future()
    deferred_cleanup.later(lambda: late.set_result(None))
    await asyncio.wait_for(late, 20)
    deferred_cleanup.clear()  # nothing is left


async def test_what_raises_takes_nothing_else_along() -> None:
    loop = asyncio.get_running_loop()
    seen: list[str] = []
    loop.set_exception_handler(lambda _, context: seen.append(type(context["exception"]).__name__))

    def broken() -> None:
        raise RuntimeError

    deferred_cleanup.later(broken)
    deferred_cleanup.later(lambda: seen.append("done"))
    deferred_cleanup.clear()
    await asyncio.sleep(0)
    assert seen == ["RuntimeError", "done"]
