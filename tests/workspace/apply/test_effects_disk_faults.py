"""What a disk says no to: read-only, full, forbidden. Nothing half done is left, and the person
hears why and what to do."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.core.approvals import status
from supervisor.core.files.undo_steps import Selection
from supervisor.errors import GatehouseError
from tests.fakes.gated import answer_all
from tests.fakes.own_process import exit_code
from tests.workspace.apply.test_batch import tree_of
from tests.workspace.conftest import Desk, make_repository
from tests.workspace.undo.test_undo import plan

FILES = {"src/app.py": "app\n", "src/util.py": "util\n", "free/a.txt": "a\n"}
NOBODY = 65534


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of our own, in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no tmpfs can be mounted here")
    host = place / "host"
    for name, text in FILES.items():
        (host / name).parent.mkdir(parents=True, exist_ok=True)
        (host / name).write_text(text)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True)


ACTS: dict[str, Callable[[Path], object]] = {
    "write": lambda copy: (copy / "src/app.py").write_text("changed\n"),
    "create": lambda copy: (copy / "src/new.py").write_text("new\n"),
    "delete": lambda copy: (copy / "src/app.py").unlink(),
    "rename": lambda copy: (copy / "src/app.py").rename(copy / "src/main.py"),
    "mkdir": lambda copy: (copy / "folder").mkdir(),
    "chmod": lambda copy: (copy / "src/app.py").chmod(0o755),
    "link": lambda copy: (copy / "link").symlink_to("src"),
}


@pytest.mark.parametrize("kind", ACTS)
@pytest.mark.parametrize("together", [False, True])
async def test_a_read_only_host_is_said_and_left(
    disk: Path, tmp_path: Path, kind: str, together: bool
) -> None:
    host = disk / "host"
    before = tree_of(host)
    desk = Desk(tmp_path / "data", host)
    async with desk.running():
        ACTS[kind](desk.copy)
        if together:
            (desk.copy / "src/util.py").write_text("changed, too\n")
        await desk.compared()
        assert len(desk.pending()) == 1 + together
        remount(disk, "ro")
        answered = answer_all(
            desk.gate, [one.id for one in desk.pending().values()], "approved", by="tester"
        )
        for request in answered:
            done = await desk.settled(request)
            assert done.outcome is not None
            assert "ead-only" in done.outcome["error"], done.outcome
        assert tree_of(host) == before
        # Once it can be written again the same is asked and done: what was answered together at
        # once, else in the end.
        remount(disk, "rw")
        if not together:
            await desk.compared()
            assert desk.pending() == {}
            await desk.channel.final_pass("the test ends")
        await desk.approve_all()
        assert tree_of(host) != before
        assert not list(host.rglob(".gatehouse-*"))
    desk.close()


async def test_what_a_rule_allows_is_done_as_far_as_the_disk_reaches(
    disk: Path, tmp_path: Path
) -> None:
    host = disk / "host"
    desk = Desk(tmp_path / "data", host)
    async with desk.running():
        for number in range(40):
            (desk.copy / f"free/{number}.bin").write_bytes(os.urandom(200_000))
        await desk.compared()
        await desk.until(lambda: len([one for one in desk.requests() if one.settled_at]) >= 40)
        outcomes = {one.action.path: one.outcome for one in desk.requests()}  # type: ignore[union-attr]
        done = {path for path, outcome in outcomes.items() if outcome and outcome["ok"]}
        assert done
        assert len(done) < 40
        for path, outcome in outcomes.items():
            assert outcome is not None
            if path in done:
                assert (host / path).read_bytes() == (desk.copy / path).read_bytes()
            else:
                assert "o space left" in outcome["error"]
                assert "make room" in outcome["error"] or not (host / path).exists()
                assert not (host / path).exists()
        assert not list(host.rglob(".gatehouse-*"))
    desk.close()


async def test_an_undo_on_a_read_only_host_changes_nothing_and_can_be_done_later(
    disk: Path, tmp_path: Path
) -> None:
    host = disk / "host"
    before = {name: facts[:2] for name, facts in tree_of(host).items()}
    desk = Desk(tmp_path / "data", host)
    async with desk.running():
        for act in ("write", "mkdir", "link"):
            ACTS[act](desk.copy)
        (desk.copy / "src/util.py").rename(desk.copy / "src/other.py")
        await desk.approve_all()
        changed = tree_of(host)
        remount(disk, "ro")
        shown = await plan(desk)
        with pytest.raises(GatehouseError, match="nothing was undone"):
            async with desk.channel.undoing() as undo:
                await undo.carry_out(Selection(), token=shown.token, by="tester")
        remount(disk, "rw")
        assert tree_of(host) == changed
        shown = await plan(desk)
        async with desk.channel.undoing() as undo:
            await undo.carry_out(Selection(), token=shown.token, by="tester")
        assert {name: facts[:2] for name, facts in tree_of(host).items()} == before
        assert not list(host.rglob(".gatehouse-*"))
    desk.close()


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that another user can reach, too: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        yield place


@pytest.mark.parametrize("kind", ["write", "create", "delete", "rename"])
def test_a_folder_that_may_not_be_written(open_place: Path, kind: str) -> None:
    """As a user without rights there, which root is not: in a process of its own."""
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    data, host = open_place / "data", make_repository(open_place / "host", FILES)
    assert exit_code(_done_as_nobody, data, host, kind) == 0
    assert (host / "src/app.py").read_text() == "app\n"


async def _done_as_nobody(data: Path, host: Path, kind: str) -> None:
    desk = Desk(data, host)
    async with desk.running():
        ACTS[kind](desk.copy)
        await desk.compared()
        (request,) = desk.pending().values()
        subprocess.run(["chown", "-R", str(NOBODY), str(data)], check=True)
        os.seteuid(NOBODY)
        desk.approve(request)
        done = await desk.settled(request)
        os.seteuid(0)
        assert status(done) == "used"
        assert done.outcome is not None
        assert "ermission denied" in done.outcome["error"], done.outcome
        assert not list(host.rglob(".gatehouse-*"))


async def test_a_folder_that_goes_in_the_instant_is_not_made_anew(tmp_path: Path) -> None:
    """It would be on the host again with nobody's word for it, and no undo would take it away."""
    host = tmp_path / "host"
    (host / "d/e").mkdir(parents=True)
    desk = Desk(tmp_path / "data", host)

    def moved(step: str) -> None:
        if step == "intended" and (host / "d").exists():
            (host / "d").rename(host / "elsewhere")

    desk.new_channel(moved)
    async with desk.running(start=False):
        (desk.copy / "d/e/new.txt").write_text("agent\n")
        await desk.compared()
        request = desk.pending()["d/e/new.txt"]
        desk.approve(request)
        done = await desk.settled(request)
        assert done.outcome is not None
        assert not done.outcome["ok"]
        assert not (host / "d").exists()
        assert list((host / "elsewhere/e").iterdir()) == []
    desk.close()
