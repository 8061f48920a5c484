"""What the person does in the very instant of an effect: folders moved away, a file put where a
folder was, a save that hides.

Nothing of the person's is lost, nothing of ours stays, and what comes later isn't held up.
"""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.core.approvals import Request
from supervisor.core.files.undo_steps import Selection
from supervisor.workspace.apply import placing
from tests.fakes.own_process import KILLED, KilledAt, exit_code
from tests.workspace.apply.test_batch import approve_together
from tests.workspace.conftest import Desk

ONLY_COPIED = "these are steps on the host's side, which is the same under an overlay"


def once(wanted: str, do: Callable[[], object], nth: int = 1) -> Callable[[str], None]:
    """Does it at the nth time of a step of an effect, once."""
    left = [nth]

    def at(step: str) -> None:
        if step == wanted and left[0]:
            left[0] -= 1
            if not left[0]:
                do()

    return at


def ours(folder: Path) -> list[Path]:
    return list(folder.rglob(".gatehouse-*"))


async def approved(desk: Desk) -> list[Request]:
    """All that waits is approved with one answer, and carried out."""
    return [await desk.settled(request) for request in approve_together(desk)]


MOVES = ("created", "written", "checked")


@pytest.mark.parametrize("step", MOVES)
@pytest.mark.parametrize("to", ["moved", "../out of the workspace"])
@pytest.mark.parametrize("name", ["src/app.py", "src/new.py"])
async def test_a_folder_that_is_moved_away_takes_nothing_of_ours_along(
    desk: Desk, step: str, to: str, name: str
) -> None:
    before = {path.name: path.read_bytes() for path in (desk.host / "src").iterdir()}
    desk.new_channel(once(step, lambda: (desk.host / "src").rename(desk.host / to)))
    async with desk.running(start=False):
        (desk.copy / name).write_text("agent\n")
        await desk.compared()
        (done,) = await approved(desk)
        now = {path.name: path.read_bytes() for path in (desk.host / to).iterdir()}
        assert done.outcome is not None
        if done.outcome["ok"]:  # in the last instant, it was still where it was approved
            assert now == before | {name.rpartition("/")[2]: b"agent\n"}
        else:
            assert now == before
        assert not ours(desk.host.parent)
        assert not (desk.host / "src").exists()


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_nor_in_the_middle_of_a_batch(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, nth: int, is_held: bool
) -> None:
    """Beyond what is held at once something of ours may go along, under a name that says so;
    never anything of the person's."""
    monkeypatch.setattr(placing, "MOST_HELD", 200 if is_held else 0)
    away = desk.host.parent / "away"
    before = {path.name: path.read_bytes() for path in (desk.host / "src").iterdir()}
    desk.new_channel(once("checked", lambda: (desk.host / "src").rename(away), nth))
    async with desk.running(start=False):
        for name in ("src/app.py", "src/util.py", "src/new.py", "README.md"):
            (desk.copy / name).write_text("agent\n")
        await desk.compared()
        for done in await approved(desk):
            assert done.outcome is not None
        assert not (desk.host / "src").exists()
        now = {path.name: path.read_bytes() for path in away.iterdir() if path not in ours(away)}
        agents = dict.fromkeys((*before, "new.py"), b"agent\n")
        assert before.keys() <= now.keys() <= agents.keys()
        assert all(data in (before.get(name), agents[name]) for name, data in now.items())
        assert not ours(desk.host if not is_held else desk.host.parent)


async def test_more_folders_than_are_held_at_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "MOST_HELD", 2)
    async with desk.running(start=False):
        for number in range(8):
            (desk.copy / f"many/{number}").mkdir(parents=True)
            (desk.copy / f"many/{number}/new.txt").write_text("agent\n")
        await desk.compared()
        assert all(done.outcome and done.outcome["ok"] for done in await approved(desk))
        assert len(list(desk.host.glob("many/*/new.txt"))) == 8
        assert not ours(desk.host)
        assert not [
            fd
            for fd in Path("/proc/self/fd").iterdir()
            if desk.host / "many" in fd.resolve().parents
        ]


@pytest.mark.parametrize("step", ["created", "written", "checked"])
@pytest.mark.parametrize("how", ["renamed", "into another"])
def test_a_folder_that_is_moved_away_after_a_kill(
    tmp_path: Path, host: Path, step: str, how: str
) -> None:
    assert exit_code(_killed, tmp_path, host, step) == KILLED
    assert ours(host / "src")
    match how:
        case "renamed":
            (host / "src").rename(host / "moved")
        case "into another":
            (host / "src").rename(host / "free/deep")
    before = {
        path: path.read_bytes()
        for path in host.rglob("*")
        if path.is_file() and path not in ours(host)
    }
    asyncio.run(_started_again(tmp_path, host))
    assert not ours(host)
    for path, data in before.items():
        assert path.read_bytes() == data, path


async def _killed(tmp_path: Path, host: Path, step: str, *more: str) -> None:
    desk = Desk(tmp_path / "data", host)
    desk.new_channel(KilledAt(step))
    async with desk.running(start=False):
        for name in ("src/app.py", *more):
            (desk.copy / name).write_text("agent\n")
        await desk.compared()
        await approved(desk)


async def _started_again(tmp_path: Path, host: Path) -> None:
    desk = Desk(tmp_path / "data", host)
    async with desk.running(copy=False):
        history = (await desk.channel._open()).sides.history
        assert history.open_batch is None
        assert all(history.has_before(one) for one in history.done)
    desk.close()


# -- a file where a folder was --------------------------------------------------------------------


async def test_what_cant_be_put_back_is_kept_and_holds_up_nothing(desk: Desk) -> None:
    """A batch deletes a file; the person puts a file where its folder was; then another path
    fails."""
    util, app = desk.host / "src/util.py", desk.host / "src/app.py"
    old = util.read_bytes()

    def meanwhile() -> None:
        app.unlink()
        app.parent.rmdir()
        app.parent.write_text("the person's\n")
        raise OSError(errno.EIO, "Input/output error")

    desk.new_channel(once("checked", meanwhile))
    async with desk.running(start=False):
        (desk.copy / "src/util.py").unlink()
        (desk.copy / "README.md").write_text("agent\n")
        await desk.compared()
        failed = await approved(desk)
        outcome = failed[0].outcome
        assert outcome is not None
        assert not outcome["ok"]
        assert "not put back: `src/util.py`" in outcome["error"]
        assert (desk.host / "src").read_text() == "the person's\n"
        history = (await desk.channel._open()).sides.history
        assert history.open_batch is None
        assert not history.open
        # It is an effect like any other: undone as soon as there is room.
        (desk.host / "src").unlink()
        async with desk.channel.undoing() as undo:
            plan = await undo.plan(Selection())
            await undo.carry_out(Selection(), token=plan.token, by="tester")
        assert util.read_bytes() == old
        # And the next answer is carried out.
        (desk.copy / "README.md").write_text("agent again\n")
        (desk.copy / "closed/c.txt").write_text("agent\n")
        await desk.compared()
        done = {one.action.path: one.outcome for one in await approved(desk)}  # type: ignore[union-attr]
        assert done["README.md"] is not None


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_what_the_person_deletes_in_the_middle_of_a_batch_stays_deleted(
    desk: Desk, nth: int
) -> None:
    """Put back is what the batch deleted, not what it was about to."""
    desk.new_channel(
        once(
            "intended",
            lambda: [(desk.host / "src" / one).unlink(missing_ok=True) for one in NAMES],
            nth,
        )
    )
    async with desk.running(start=False):
        for name in NAMES:
            (desk.copy / "src" / name).unlink()
        (desk.copy / "README.md").write_text("agent\n")
        await desk.compared()
        await approved(desk)
        # Those that the batch had deleted by then are the person's again; the others the person
        # deleted.
        assert len(list((desk.host / "src").glob("*.py"))) == (1 if nth == 3 else 0)


NAMES = ("app.py", "util.py")


async def test_a_full_disk_holds_up_the_next_answer_only_once(desk: Desk) -> None:
    """What can't be put back for want of room is tried again before the next batch, and then
    kept for an undo."""
    old = (desk.host / "README.md").read_bytes()
    is_full = [False]

    def at(step: str) -> None:
        if is_full[0] and step in ("back created", "checked"):
            raise OSError(errno.ENOSPC, "No space left on device")
        if step == "placed":
            is_full[0] = True

    desk.new_channel(at)
    async with desk.running(start=False):
        (desk.copy / "README.md").write_text("agent\n")
        (desk.copy / "src/app.py").write_text("agent\n")
        await desk.compared()
        (first, _) = await approved(desk)
        assert first.outcome is not None
        assert "not put back" in first.outcome["error"]
        history = (await desk.channel._open()).sides.history
        assert history.open_batch is not None
        await desk.compared()
        (desk.copy / "closed/c.txt").write_text("agent\n")
        (desk.copy / "src/util.py").write_text("agent\n")
        await desk.compared()
        await approved(desk)
        assert history.open_batch is None or len(history.open_batch.requests) != 2
        is_full[0] = False
        assert any(
            history.kept.read(one.before.digest or "", 1 << 20) == old
            for one in history.done
            if one.before
        )


# -- a save that hides ----------------------------------------------------------------------------


def save_hidden(path: Path) -> None:
    """In place, of the same size, with the time set back: only the change time tells."""
    status = path.stat()
    path.write_bytes(b"P" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("step", ["kept", "intended", "created", "written", "checked", "placed"])
@pytest.mark.parametrize("name", ["src/app.py", "free/a.txt"])
async def test_a_save_that_hides_is_never_replaced(desk: Desk, step: str, name: str) -> None:
    path = desk.host / name
    desk.new_channel(once(step, lambda: save_hidden(path)))
    async with desk.running(start=False):
        (desk.copy / name).write_text("agent\n")
        await desk.compared()
        await approved(desk)
        saved = path.read_bytes()
        assert set(saved) == {ord("P")}
        # Nor by the next change, that a rule allows.
        (desk.copy / name).write_text("agent again\n")
        await desk.compared()
        assert path.read_bytes() == saved
        assert "conflict" in desk.pending()[name].action.hazards  # type: ignore[union-attr]


@pytest.mark.parametrize("step", ["kept", "both intended", "checked"])
async def test_a_save_that_hides_is_never_moved(desk: Desk, step: str) -> None:
    path = desk.host / "README.md"
    desk.new_channel(once(step, lambda: save_hidden(path)))
    async with desk.running(start=False):
        (desk.copy / "README.md").rename(desk.copy / "read me")
        await desk.compared()
        await approved(desk)
        assert set(path.read_bytes()) == {ord("P")}
        assert not (desk.host / "read me").exists()


@pytest.mark.parametrize("step", ["kept", "intended", "written", "batch staged", "placed"])
def test_killed_in_a_batch_only_what_may_be_in_effect_counts_as_done(
    tmp_path: Path, host: Path, step: str
) -> None:
    """The person changes a file of the batch before the next start: what isn't kept was not
    replaced."""
    assert exit_code(_killed, tmp_path, host, step, "README.md") == KILLED
    for name in ("src/app.py", "README.md"):
        (host / name).write_text("the person's\n")
    asyncio.run(_started_again(tmp_path, host))
    assert {(host / name).read_text() for name in ("src/app.py", "README.md")} == {"the person's\n"}
