"""kill -9 at each step of an undo, in a real process: the next start finishes it or rolls it
back, and loses nothing."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.core.files.undo_steps import Selection
from supervisor.workspace.undo.undo import MARK
from tests.fakes.own_process import KILLED, KilledAt, exit_code
from tests.tables import share
from tests.workspace.conftest import Desk
from tests.workspace.undo.test_undo import events, plan, tree, undo

# Of each file: what the restorer does; then the undo as a whole.
STEPS = ["begun", "kept", "intended", "created", "written", "checked", "placed", "step", "ending"]
OCCURRENCES = (1, 2, 3)


async def change(desk: Desk) -> None:
    """A session's work: files changed, made, deleted, a folder where a file was."""
    copy = desk.copy
    (copy / "src/app.py").write_text("changed\n")
    (copy / "src/util.py").unlink()
    (copy / "fresh/new.py").parent.mkdir()
    (copy / "fresh/new.py").write_text("new\n")
    (copy / "README.md").unlink()
    (copy / "README.md").mkdir()
    (copy / "README.md/inner").write_text("inner\n")
    (copy / "link").symlink_to("src")
    (copy / "free/a.txt").rename(copy / "renamed.txt")
    await desk.approve_all()


async def undo_and_die(tmp_path: Path, host: Path, at: Callable[[str], None]) -> None:
    """In a process of its own: begin to undo everything, and be killed."""
    desk = Desk(tmp_path / "data", host)
    async with desk.running(copy=False, start=False):
        shown = await plan(desk)
        async with desk.channel.undoing() as it:
            it._at = it._restorer._at = it._restorer._placer.at = at
            await it.carry_out(Selection(), token=shown.token, by="tester")


@dataclass
class EditFirst:
    """A person's edit comes after the look and before the first step; then it is as `then` says."""

    path: Path
    then: KilledAt

    def __call__(self, step: str) -> None:
        if step == "begun":
            edit(self.path)
        else:
            self.then(step)


def edit(path: Path) -> None:
    path.write_text("mine\n")


def work(tmp_path: Path, host: Path) -> None:
    async def live() -> None:
        desk = Desk(tmp_path / "data", host)
        async with desk.running():
            await change(desk)
        desk.close()

    asyncio.run(live())


def restart(tmp_path: Path, host: Path, *, again: bool = False) -> list[dict[str, object]]:
    """The next start; with `again` everything is undone then. What the log says of how undos
    ended."""

    async def live() -> list[dict[str, object]]:
        desk = Desk(tmp_path / "data", host)
        async with desk.running(copy=False, start=False):
            async with desk.channel.undoing() as it:
                assert it._sides.history.open_undo is None
            if again:
                await undo(desk)
        found = events(desk, "undo_settled")
        desk.close()
        return found

    return asyncio.run(live())


@pytest.mark.parametrize(
    ("step", "occurrence"),
    [
        (step, number)
        for step in STEPS
        for number in (OCCURRENCES if step not in ("begun", "ending") else (1,))
    ],
)
def test_kill_at_each_step_of_an_undo(
    tmp_path: Path, host: Path, step: str, occurrence: int
) -> None:
    before = tree(host)
    work(tmp_path, host)
    assert exit_code(undo_and_die, tmp_path, host, KilledAt(step, occurrence)) == KILLED
    (settled,) = restart(tmp_path, host)
    assert settled["outcome"] == "done"
    assert settled["resumed"] is True
    assert tree(host) == before
    assert not list(host.rglob(".gatehouse-*"))
    assert not (tmp_path / "data/sessions/session-of-this-test" / MARK).exists()


@pytest.mark.parametrize("occurrence", share([1, 3], 1))
@pytest.mark.parametrize("step", ["placed", "step", "back"])
def test_what_can_not_be_finished_after_a_crash_is_rolled_back(
    tmp_path: Path, host: Path, step: str, occurrence: int
) -> None:
    """The person edits a file that the undo didn't come to before the crash."""
    work(tmp_path, host)
    changed = tree(host)
    edited = host / "src/util.py"  # deleted by the session; the last that an undo brings back
    die = KilledAt(step, occurrence)
    if step == "back":
        # So the undo is rolled back, and dies on the way.
        assert exit_code(undo_and_die, tmp_path, host, EditFirst(edited, die)) == KILLED
    else:
        assert exit_code(undo_and_die, tmp_path, host, die) == KILLED
        edit(edited)
    (settled,) = restart(tmp_path, host)
    assert settled["outcome"] == "failed"
    now = tree(host)
    assert now.pop("src/util.py")[1] == b"mine\n"
    assert {name: one[:2] for name, one in now.items()} == {
        name: one[:2] for name, one in changed.items()
    }
    edited.unlink()
    restart(tmp_path, host, again=True)
    assert (host / "src/util.py").read_text() == "x = 1\n"
    assert (host / "README.md").read_text() == "hello\n"


def test_what_is_there_already_when_the_next_start_comes_is_not_done_twice(
    tmp_path: Path, host: Path
) -> None:
    """Killed after everything but the last line; then the person edits a file that was undone:
    it stays theirs."""
    work(tmp_path, host)
    assert exit_code(undo_and_die, tmp_path, host, KilledAt("ending")) == KILLED
    (host / "src/app.py").write_text("mine, after the undo\n")
    (settled,) = restart(tmp_path, host)
    assert settled["outcome"] == "done"
    assert (host / "src/app.py").read_text() == "mine, after the undo\n"
    assert (host / "src/util.py").read_text() == "x = 1\n"
