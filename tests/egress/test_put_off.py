"""What is left of connections that are over is done while nobody waits, or a moment later, and each by itself."""

import asyncio

from supervisor.egress import put_off


async def test_what_is_left_is_done_when_there_is_time_or_a_moment_later() -> None:
    done: list[int] = []
    put_off.later(lambda: done.append(1))
    put_off.clear()
    await asyncio.sleep(0)
    assert done == [1]
    late = asyncio.get_running_loop().create_future()
    put_off.later(lambda: late.set_result(None))
    await asyncio.wait_for(late, 20)
    put_off.clear()  # nothing is left


async def test_what_raises_takes_nothing_else_along() -> None:
    loop = asyncio.get_running_loop()
    seen: list[str] = []
    loop.set_exception_handler(lambda _, context: seen.append(type(context["exception"]).__name__))

    def broken() -> None:
        raise RuntimeError

    put_off.later(broken)
    put_off.later(lambda: seen.append("done"))
    put_off.clear()
    await asyncio.sleep(0)
    assert seen == ["RuntimeError", "done"]
