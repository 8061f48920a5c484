"""Replacing and swapping where the file system has no swap in one step: the real kernel says so,
and nothing is lost by it."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from supervisor.core.approvals import Request
from supervisor.core.files.undo_steps import Selection
from supervisor.workspace.disk import swap
from tests.fakes.no_exchange import in_such_a_process
from tests.fakes.own_process import KILLED
from tests.workspace.compare.test_folder_swaps import flat, grown, linked, tree
from tests.workspace.conftest import Desk

ONLY_COPIED = "an overlay is never over such a file system"
# What the fallback calls; a crash may come before or after each. After one is before the next.
CALLS = ("rename", "rmdir", "link", "unlink")


def written(copy: Path) -> str:
    (copy / "README.md").write_text("changed\n")
    return "README.md"


def unlinked(copy: Path) -> str:
    (copy / "src/app.py").unlink()
    (copy / "src/app.py").mkdir()
    (copy / "src/app.py/in").write_text("in\n")
    return "src/app.py"


def at_each_call(at: Callable[[str], None]) -> None:
    """Have it told before and after each call of the fallback's. Only for a process that ends
    soon."""
    real = swap._replace_in_steps

    def told(name: str) -> None:
        call = getattr(os, name)

        def tell(*words: object, **more: object) -> object:
            at(f"before {name}")
            try:
                return call(*words, **more)
            finally:
                at(f"after {name}")

        setattr(os, name, tell)

    def replace(*words: object) -> bool:
        kept = {name: getattr(os, name) for name in CALLS}
        for name in CALLS:
            told(name)
        try:
            return real(*words)  # type: ignore[arg-type]
        finally:
            for name, call in kept.items():
                setattr(os, name, call)

    swap._replace_in_steps = replace  # type: ignore[assignment]


async def answered(desk: Desk) -> Request:
    await desk.compared()
    for request in desk.pending().values():
        desk.approve(request)
    (request,) = desk.requests()
    return await desk.settled(request)


async def takes_all_back(desk: Desk) -> None:
    async with desk.channel.undoing() as undo:
        plan = await undo.plan(Selection())
        await undo.carry_out(Selection(), token=plan.token, by="tester")


async def live(
    tmp_path: Path, host: Path, act: Callable[[Path], str], at: Callable[[str], None] | None
) -> None:
    """Ask, approve, carry out, and take back, where the process lives until then."""
    before = tree(host)
    desk = Desk(tmp_path / "data", host)
    async with desk.running(start=False):
        act(desk.copy)
        if at is not None:
            at_each_call(at)
        done = await answered(desk)
        assert done.outcome["ok"], done.outcome  # type: ignore[index]
        assert tree(host) == tree(desk.copy)
        await takes_all_back(desk)
        assert tree(host) == before
    desk.close()


async def next_start(tmp_path: Path, host: Path) -> None:
    desk = Desk(tmp_path / "data", host)
    async with desk.running(copy=False, start=False):
        await desk.compared()
        (request, *_) = desk.requests()
        done = await desk.settled(request)
        if done.outcome["ok"]:  # type: ignore[index]
            assert tree(host) == tree(desk.copy)
            await takes_all_back(desk)
    desk.close()


@dataclass
class OnceAt:
    """At the so-many-eth of all calls, once."""

    left: int
    do: Callable[[], object]

    def __call__(self, step: str) -> None:
        self.left -= 1
        if not self.left:
            self.do()


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def save(host: Path) -> None:
    (host / "saved").write_text("precious\n")
    (host / "saved").replace(host / "README.md")


@pytest.mark.parametrize("act", [written, linked, unlinked])
def test_done_and_undone(tmp_path: Path, host: Path, act: Callable[[Path], str]) -> None:
    assert in_such_a_process(live, tmp_path, host, act, None) == 0
    assert not list(host.rglob("*.gatehouse-*"))


@pytest.mark.parametrize(
    ("act", "point"),
    [
        (written, 2),
        *((flat, number) for number in (4, 6, 8)),
        *((grown, number) for number in (4, 6, 8)),
    ],
)
def test_kill_at_each_call(
    tmp_path: Path, host: Path, act: Callable[[Path], str], point: int
) -> None:
    before = tree(host)
    assert in_such_a_process(live, tmp_path, host, act, OnceAt(point, be_killed)) == KILLED
    assert in_such_a_process(next_start, tmp_path, host) == 0
    assert tree(host) == before  # all of it, or nothing, and all that was there is there


@pytest.mark.parametrize("number", [2, 4])
def test_a_save_between_two_steps_is_not_lost(tmp_path: Path, host: Path, number: int) -> None:
    """Where a folder takes the place of a file that somebody saves meanwhile."""
    assert (
        in_such_a_process(live, tmp_path, host, grown, OnceAt(number, partial(save, host))) == 1
    )  # it isn't done then
    assert (host / "README.md").read_text() == "precious\n"
    assert not list(host.rglob("*.gatehouse-*"))
