"""Waits end when what is waited for comes, or late; never before their time, and nothing of them
is left."""

import asyncio
import functools

import pytest

from supervisor.egress.loop import coarse_timeouts
from supervisor.egress.loop.coarse_timeouts import wait
from tests.fakes.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coarse_timeouts, "LOOK_S", 0.0)


def left() -> int:
    found = coarse_timeouts._of_loop.get(asyncio.get_running_loop())
    return len(found.until) if found is not None else 0


async def test_what_comes_in_time_is_given() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, "found")
    assert await wait(future, asyncio.get_running_loop().time() + 3600, pytest.fail) == "found"
    assert not left()


async def test_what_comes_late_is_ended_and_not_before_its_time() -> None:
    loop = asyncio.get_running_loop()
    for by in (loop.time() - 1, loop.time() + 0.01):
        future: asyncio.Future[str] = loop.create_future()
        assert await wait(future, by, functools.partial(future.set_result, "late")) == "late"
        assert loop.time() >= by
    assert not left()


async def test_each_has_its_own_time_and_the_looking_ends_with_the_last() -> None:
    loop = asyncio.get_running_loop()
    slow: asyncio.Future[str] = loop.create_future()
    slow_wait = asyncio.create_task(wait(slow, loop.time() + 3600, pytest.fail))
    for _ in range(3):
        future: asyncio.Future[None] = loop.create_future()
        with pytest.raises(TimeoutError):
            await wait(future, loop.time(), functools.partial(future.set_exception, TimeoutError()))
    assert left() == 1
    slow_wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow_wait
    assert not left()
    async with asyncio.timeout(PATIENCE_S):
        while coarse_timeouts._of_loop[loop].is_looking:
            await asyncio.sleep(0)


async def test_one_that_was_answered_at_the_last_moment_is_not_ended() -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()
    waiting = asyncio.create_task(
        wait(future, loop.time() - 1, functools.partial(future.set_result, "late"))
    )
    await asyncio.sleep(0)
    future.set_result("answer")
    assert await waiting == "answer"
