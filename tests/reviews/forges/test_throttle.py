"""Calls of a forge wait for their turn, and none is dropped."""

import asyncio

from supervisor.reviews.forges.throttle import AT_ONCE, Throttle


class Time:
    """A clock that sleeping moves on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


async def test_posts_keep_below_what_a_minute_and_an_hour_allow() -> None:
    time = Time()
    throttle = Throttle(time.now, time.sleep)
    at: list[float] = []
    for _ in range(1200):
        async with throttle.turn(posts=True):
            at.append(time.now_s)
    assert len(at) == 1200
    for most, within_s in ((80, 60.0), (500, 3600.0)):
        assert all(later - first >= within_s for first, later in zip(at, at[most:], strict=False))
    assert at[79] == 0.0
    assert at[80] == 60.0


async def test_reading_waits_for_no_minute_and_so_many_go_at_once() -> None:
    time = Time()
    throttle = Throttle(time.now, time.sleep)
    under_way, most = 0, 0
    go = asyncio.Event()

    async def read() -> None:
        nonlocal under_way, most
        async with throttle.turn(posts=False):
            under_way += 1
            most = max(most, under_way)
            await go.wait()
            under_way -= 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(100):
            tasks.create_task(read())
        await asyncio.sleep(0)
        go.set()
    assert most == AT_ONCE
    assert time.now_s == 0.0
