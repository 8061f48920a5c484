"""What couldn't be carried out is asked again while the session lives, with its reason, and ever
more rarely."""

import os
from pathlib import Path

import pytest

from supervisor.core.approvals import status
from supervisor.workspace.compare import compare
from tests.fakes.clock import FakeClock
from tests.workspace.conftest import Desk

HOUR_S = 3600.0


def fail_at_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be put beside its place, as on a disk that says no."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("supervisor.workspace.apply.placing.os.link", refuse)
    monkeypatch.setattr("supervisor.workspace.apply.placing.replace", refuse)


async def clock_of(desk: Desk) -> FakeClock:
    """The comparison's, and the one that requests are on record with."""
    async with desk.channel._turn:
        comparison = (await desk.channel._open()).comparison
    clock = FakeClock()
    comparison._clock = desk.gate.pending_writes._clock = clock
    return clock


async def looked_into(desk: Desk, folder: str) -> None:
    async with desk.channel._turn:
        await (await desk.channel._open()).comparison.run({folder})


@pytest.mark.parametrize("name", ["src/app.py", "src/new.py"])
async def test_an_approved_change_that_failed_becomes_a_card_again_with_the_reason(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with desk.running(start=False):
        clock = await clock_of(desk)
        (desk.copy / name).write_text("changed\n")
        await desk.compared()
        with monkeypatch.context() as patch:
            fail_at_writing(patch)
            first = desk.pending()[name]
            desk.approve(first)
            done = await desk.settled(first)
            assert done.outcome is not None
            assert "o space left" in done.outcome["error"], done.outcome
            await desk.compared()
            assert desk.pending() == {}  # not at once
        clock.advance(compare.FIRST_S + 10)
        await looked_into(desk, "src")
        assert desk.pending() == {}  # only a full comparison
        await desk.compared()
        again = desk.pending()[name]
        assert "o space left" in again.reason
        for _ in range(3):
            clock.advance(HOUR_S)
            await desk.compared()
            assert [one.id for one in desk.pending().values()] == [
                again.id
            ]  # one card, however long it waits
        desk.approve(again)
        await desk.settled(again)
        assert (desk.host / name).read_text() == "changed\n"
        await desk.compared()
        clock.advance(HOUR_S)
        await desk.compared()
        assert len(desk.requests(name)) == 2


async def test_what_rules_allow_is_tried_ever_more_rarely(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk.running(start=False):
        clock = await clock_of(desk)
        (desk.copy / "free/a.txt").write_text("changed\n")
        with monkeypatch.context() as patch:
            fail_at_writing(patch)
            for _ in range(120):  # an hour of full comparisons
                await desk.compared()
                clock.advance(30)
        tried = desk.requests("free/a.txt")
        assert 3 <= len(tried) <= 9
        assert all(status(one) == "used" and one.outcome and not one.outcome["ok"] for one in tried)
        clock.advance(HOUR_S * 2)
        await desk.compared()
        assert (desk.host / "free/a.txt").read_text() == "changed\n"


async def test_what_was_denied_is_not_asked_again(desk: Desk) -> None:
    async with desk.running(start=False):
        clock = await clock_of(desk)
        (desk.copy / "src/app.py").write_text("changed\n")
        await desk.compared()
        desk.deny(desk.pending()["src/app.py"])
        clock.advance(HOUR_S * 2)
        await desk.compared()
        assert desk.pending() == {}


async def test_a_rename_that_failed_is_asked_again(desk: Desk) -> None:
    async with desk.running(start=False):
        clock = await clock_of(desk)
        (desk.copy / "src/app.py").rename(desk.copy / "src/main.py")
        await desk.compared()
        (request,) = desk.pending().values()
        os.mkfifo(desk.host / "src/main.py")
        desk.approve(request)
        done = await desk.settled(request)
        assert done.outcome is not None
        assert not done.outcome["ok"]
        Path(desk.host / "src/main.py").unlink()
        clock.advance(60)
        await desk.approve_all()
        assert not (desk.host / "src/app.py").exists()
        assert (desk.host / "src/main.py").exists()
