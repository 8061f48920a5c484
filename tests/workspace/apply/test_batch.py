"""What a person answers at once happens as a whole or not at all: at every step that fails, over
kill -9, on a full disk."""

import asyncio
import errno
import os
import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.approvals import Request, status
from tests.fakes.gated import answer_all
from tests.fakes.own_process import KILLED, KilledAt, exit_code
from tests.fakes.waiting import settled
from tests.workspace.conftest import Desk

type Tree = dict[str, tuple[object, ...]]

# What the agent does: each kind of change, and each kind of thing that is replaced or removed.
STEPS_OF_ONE = (
    "batch begun", "batch checked", "kept", "intended", "created", "written", "batch staged",
    "both intended", "checked",
    "placed",
    "batch done", "batch ended",
)  # fmt: skip


def tree_of(folder: Path) -> Tree:
    """Every path below with all that counts: kind, bytes, permissions, times, link targets."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.startswith(".git/") or name == ".git":
            continue
        status_ = path.lstat()
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()), status_.st_mtime_ns)
        elif path.is_dir():
            found[name] = ("dir", stat.S_IMODE(status_.st_mode))
        else:
            found[name] = (
                "file",
                path.read_bytes(),
                stat.S_IMODE(status_.st_mode),
                status_.st_mtime_ns,
            )
    return found


def prepare(host: Path) -> None:
    """More kinds of things on the host."""
    (host / "old/deep").mkdir(parents=True)
    (host / "old/deep/gone.txt").write_text("gone\n")
    (host / "old/gone.txt").write_text("gone too\n")
    (host / "link").symlink_to("README.md")
    (host / "run.sh").write_text("#!/bin/sh\n")
    (host / "run.sh").chmod(0o755)
    (host / "thing").write_text("a file that becomes a folder\n")
    (host / "lone/name.txt").parent.mkdir()
    (host / "lone/name.txt").write_text("a file that gets another name\n")
    names = ("src/app.py", "src/util.py", "old/deep/gone.txt", "run.sh", "thing", "lone/name.txt")
    for number, name in enumerate(names):
        os.utime(host / name, ns=(10**18 + number, 10**18 + number))


def work(copy: Path) -> None:
    """What the agent does: everything that can be done to a path."""
    (copy / "src/app.py").write_text("new app\n")
    (copy / "src/util.py").chmod(0o755)
    (copy / "old/deep/gone.txt").unlink()
    (copy / "old/gone.txt").unlink()
    (copy / "old/deep").rmdir()
    (copy / "old").rmdir()
    (copy / "link").unlink()
    (copy / "link").symlink_to("src")
    (copy / "run.sh").write_text("#!/bin/sh\necho\n")
    (copy / "made/deep").mkdir(parents=True)
    (copy / "made/deep/one.txt").write_text("one\n")
    (copy / "made/two.txt").write_text("two\n")
    (copy / "empty").mkdir()
    shutil.move(copy / "lone", copy / "found")  # an overlay has no rename of a host's folder


def approve_together(desk: Desk) -> list[Request]:
    """All that waits, as one answer."""
    return answer_all(
        desk.gate, [one.id for one in desk.pending().values()], "approved", by="tester"
    )


async def all_asked(desk: Desk, number: int) -> None:
    await desk.until(lambda: len(desk.pending()) >= number, f"{number} requests")


# src/app.py, src/util.py, two deletions, link, run.sh, two new files, the empty folder, the rename
ASKED = 10


class FaultError(OSError):
    """What a disk says."""


def failing_at(wanted: str, nth: int) -> Callable[[str], None]:
    """Fails at the nth time of a step, once, as a disk does."""
    seen: Counter[str] = Counter()

    def at(step: str) -> None:
        seen[step] += 1
        if step == wanted and seen[step] == nth:
            raise FaultError(errno.EIO, "Input/output error")

    return at


async def test_together_all_of_it_happens(desk: Desk) -> None:
    prepare(desk.host)
    told = []

    def at(step: str) -> None:
        if step in ("batch checked", "batch staged") and desk.channel.history is not None:
            told.append(desk.channel.history.progress)

    desk.new_channel(at)
    async with desk.running():
        work(desk.copy)
        await all_asked(desk, ASKED)
        answered = approve_together(desk)
        for request in answered:
            done = await desk.settled(request)
            assert done.outcome is not None
            assert done.outcome["ok"], done.outcome
        expected = {name: facts[:2] for name, facts in tree_of(desk.copy).items()}
        assert {name: facts[:2] for name, facts in tree_of(desk.host).items()} == expected
        await desk.compared()
        assert desk.pending() == {}
        assert not list(desk.host.rglob(".gatehouse-*"))
        # Meanwhile it says how far it is, afterwards nothing.
        assert told == [(0, ASKED), (ASKED, ASKED)]
        assert desk.channel.history is not None
        assert desk.channel.history.progress is None


@pytest.mark.parametrize("nth", [1, 2, 3, 6])
@pytest.mark.parametrize("step", STEPS_OF_ONE[:-1])
async def test_where_one_step_fails_everything_is_put_back(desk: Desk, step: str, nth: int) -> None:
    prepare(desk.host)
    before = tree_of(desk.host)
    desk.new_channel(failing_at(step, nth))
    async with desk.running():
        work(desk.copy)
        await all_asked(desk, ASKED)
        answered = approve_together(desk)
        outcomes = [(await desk.settled(request)).outcome for request in answered]
        if all(outcome and outcome["ok"] for outcome in outcomes):
            assert nth > 1, step  # there is no nth time of this step
            return
        assert not any(outcome and outcome["ok"] for outcome in outcomes)
        assert tree_of(desk.host) == before
        assert not list(desk.host.rglob(".gatehouse-*"))
        assert len({outcome and outcome["error"] for outcome in outcomes}) == 1
        # All of it waits again, and is done as soon as the disk is well.
        await all_asked(desk, ASKED)
        for request in approve_together(desk):
            done = await desk.settled(request)
            assert done.outcome is not None
            assert done.outcome["ok"], done.outcome


async def test_a_stale_file_keeps_all_of_it_back_and_is_named(desk: Desk) -> None:
    async with desk.running():
        for name in ("src/app.py", "src/util.py", "README.md"):
            (desk.copy / name).write_text("agent\n")
        await all_asked(desk, 3)
        async with desk.channel._turn:
            (desk.host / "src/util.py").write_text("the person's\n")
            answered = approve_together(desk)
        for request in answered:
            done = await desk.settled(request)
            assert done.outcome is not None
            assert not done.outcome["ok"]
            assert done.outcome["stale"]
            assert "`src/util.py` changed on the host" in done.outcome["error"]
        assert (desk.host / "src/util.py").read_text() == "the person's\n"
        assert (desk.host / "README.md").read_text() == "hello\n"
        # The others are asked again at once, and the stale one as a conflict.
        await all_asked(desk, 3)
        await desk.until(lambda: "conflict" in desk.pending()["src/util.py"].action.hazards)  # type: ignore[union-attr]


async def test_an_edit_during_the_batch_is_not_overwritten_by_putting_back(desk: Desk) -> None:
    """The person saves a file that the batch has just changed; then another path fails."""
    placed = []

    def at(step: str) -> None:
        if step == "placed":
            placed.append(step)
            if len(placed) == 2:
                (desk.host / "README.md").write_text("the person's\n")
                raise FaultError(errno.EIO, "Input/output error")

    desk.new_channel(at)
    async with desk.running():
        for name in ("README.md", "src/app.py"):
            (desk.copy / name).write_text("agent\n")
        await all_asked(desk, 2)
        (first, second) = [await desk.settled(one) for one in approve_together(desk)]
        assert first.outcome == second.outcome
        assert first.outcome is not None
        assert "not put back: `README.md` changed on the host" in first.outcome["error"]
        assert (desk.host / "README.md").read_text() == "the person's\n"
        assert (desk.host / "src/app.py").read_text() != "agent\n"


async def test_what_rules_allow_happens_each_for_itself(desk: Desk) -> None:
    (desk.host / "free/locked").mkdir()
    (desk.host / "free/locked/x.txt").write_text("x\n")
    async with desk.running():
        (desk.host / "free/locked").chmod(0o555)
        try:
            (desk.copy / "free/locked/x.txt").write_text("new\n")
            for number in range(20):
                (desk.copy / f"free/{number}.txt").write_text("new\n")
            await desk.until(lambda: len([r for r in desk.requests() if r.settled_at]) >= 21)
        finally:
            (desk.host / "free/locked").chmod(0o755)
        assert all((desk.host / f"free/{number}.txt").exists() for number in range(20))


@pytest.mark.many
@pytest.mark.timeout(600)
async def test_a_real_formatter_over_2_000_files(tmp_path: Path) -> None:
    host = tmp_path / "host"
    for number in range(2_000):
        path = host / f"many/{number % 40}/{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"x=[{number},\n 1]\n")
    desk = Desk(tmp_path / "data", host)
    async with desk.running():
        ruff = Path(sys.executable).with_name("ruff")
        await asyncio.to_thread(
            subprocess.run,
            [ruff, "format", "-q", "--isolated", "--no-cache", desk.copy / "many"],
            check=True,
        )
        await desk.compared()
        assert desk.queue.count_waiting() == 2_000
        answered = approve_together(desk)
        last = await settled(desk.queue, answered[-1].id, 550)
        assert last.outcome is not None
        assert last.outcome["ok"], last.outcome
        assert {path.read_text() for path in host.glob("many/*/*.py")} == {
            f"x = [{n}, 1]\n" for n in range(2_000)
        }
    desk.close()


# -- kill -9 --------------------------------------------------------------------------------------


async def run_and_die(tmp_path: Path, host: Path, die: KilledAt, *fault: Any) -> None:
    """In a process of its own: ask, approve together, and be killed, after what `failing_at`
    makes of the fault."""
    fails = failing_at(*fault) if fault else None

    def at(now: str) -> None:
        die(now)
        if fails:
            fails(now)

    desk = Desk(tmp_path / "data", host)
    desk.new_channel(at)
    async with desk.running():
        work(desk.copy)
        await all_asked(desk, ASKED)
        answered = approve_together(desk)
        for request in answered:
            await desk.settled(request)


def start_again(tmp_path: Path, host: Path) -> list[Request]:
    """The next start of the supervisor; what became of the requests that were answered."""

    async def live() -> list[Request]:
        desk = Desk(tmp_path / "data", host)
        async with desk.running(copy=False):
            answered = [one for one in desk.requests() if one.answer == "approved"]
            found = [await desk.settled(one) for one in answered]
        desk.close()
        return found

    return asyncio.run(live())


def contents(tree: Tree) -> dict[str, object]:
    return {name: facts[:2] if facts[0] != "file" else facts[:3] for name, facts in tree.items()}


ONCE = ("batch", "both")  # what begins so comes once in a batch
KILLS = [
    (step, nth) for step in STEPS_OF_ONE for nth in ((1,) if step.startswith(ONCE) else (1, 4))
]


@pytest.mark.parametrize(("step", "nth"), KILLS)
def test_killed_in_the_middle_it_is_finished_at_the_next_start(
    tmp_path: Path, host: Path, step: str, nth: int
) -> None:
    prepare(host)
    assert exit_code(run_and_die, tmp_path, host, KilledAt(step, nth)) == KILLED
    answered = start_again(tmp_path, host)
    assert len(answered) == ASKED
    assert all(status(one) == "used" and one.outcome and one.outcome["ok"] for one in answered)
    assert contents(tree_of(host)) == contents(
        tree_of(tmp_path / "data/sessions/session-of-this-test/merged")
    )
    assert not list(host.rglob(".gatehouse-*"))


BACK = [("rolling back", 1), ("back kept", 1), ("back intended", 2), ("back created", 1),
("back written", 1),
        ("back checked", 1), ("back placed", 1), ("back placed", 3), ("rolled back",
         1)]  # fmt: skip


@pytest.mark.parametrize(("step", "nth"), BACK)
def test_killed_while_it_is_put_back_it_ends_whole(
    tmp_path: Path, host: Path, step: str, nth: int
) -> None:
    """It is all there or none of it; which of the two, a crash may decide."""
    prepare(host)
    before = contents(tree_of(host))
    assert exit_code(run_and_die, tmp_path, host, KilledAt(step, nth), "placed", 8) == KILLED
    answered = start_again(tmp_path, host)
    succeeded = {bool(one.outcome and one.outcome["ok"]) for one in answered}
    assert len(succeeded) == 1
    after = contents(tree_of(tmp_path / "data/sessions/session-of-this-test/merged"))
    assert contents(tree_of(host)) == (after if succeeded == {True} else before)
    assert not list(host.rglob(".gatehouse-*"))


def test_killed_and_stale_at_the_next_start_it_is_put_back(tmp_path: Path, host: Path) -> None:
    prepare(host)
    before = tree_of(host)
    assert exit_code(run_and_die, tmp_path, host, KilledAt("placed", 7)) == KILLED
    changed = {name for name, facts in tree_of(host).items() if before.get(name) != facts}
    assert changed
    untouched = next(
        n for n in ("src/app.py", "run.sh", "src/util.py") if tree_of(host)[n] == before[n]
    )
    (host / untouched).write_text("the person's\n")
    answered = start_again(tmp_path, host)
    assert all(
        one.outcome and not one.outcome["ok"] and untouched in one.outcome["error"]
        for one in answered
    )
    now = tree_of(host)
    assert now.pop(untouched)[1] == b"the person's\n"
    del before[untouched]
    assert contents(now) == contents(before)


# -- a full disk ----------------------------------------------------------------------------------


def can_mount() -> bool:
    return (
        os.geteuid() == 0
        and subprocess.run(["mount", "--version"], capture_output=True, check=False).returncode == 0
    )


@pytest.fixture
def small_disk(tmp_path: Path):  # type: ignore[no-untyped-def]
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk_in_the_middle_puts_everything_back(
    small_disk: Path, tmp_path: Path
) -> None:
    host = small_disk / "host"
    host.mkdir()
    for number in range(20):
        (host / f"{number}.bin").write_bytes(bytes([number]) * 50_000)
    before = tree_of(host)
    desk = Desk(tmp_path / "data", host)
    async with desk.running():
        for number in range(20):
            (desk.copy / f"{number}.bin").write_bytes(bytes([number + 100]) * 300_000)
        (desk.copy / "1.bin").unlink()
        await all_asked(desk, 20)
        for request in approve_together(desk):
            done = await desk.settled(request)
            assert done.outcome is not None
            assert not done.outcome["ok"]
            assert "No space left" in done.outcome["error"]
        assert tree_of(host) == before
        assert not list(host.rglob(".gatehouse-*"))
    desk.close()
