"""What a power cut may take: nothing that a later step of an effect relies on, and nothing of one
that is done.

No disk is cut off here. Each fsync is noted with what the file or folder held then; what was
changed since could be lost. kill -9, which loses no write, is `test_crash`'s.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from supervisor.core.files.undo_steps import Selection
from supervisor.workspace.apply.placing import TEMPORARY_PREFIX
from supervisor.workspace.disk import syncing
from supervisor.workspace.trees.history import BEFORE
from tests.fakes.gated import answer_all
from tests.workspace.conftest import Desk

MANY = 20


class File(NamedTuple):
    """What an fsync of a file makes durable."""

    mode: int
    size_bytes: int
    mtime_ns: int


type Entries = frozenset[tuple[str, int]]
type State = File | Entries


def state(path: Path) -> State:
    """What an fsync makes durable now; of a folder, which name is which file. A temporary name
    is removed at the next start."""
    if path.is_dir():
        with os.scandir(path) as found:
            return frozenset(
                (one.name, one.inode())
                for one in found
                if not one.name.startswith(TEMPORARY_PREFIX)
            )
    status = path.lstat()
    return File(status.st_mode, status.st_size, status.st_mtime_ns)


class Disk:
    """What is on it for certain: what was there at the beginning, and what was synced since."""

    def __init__(self) -> None:
        self.synced: dict[int, State] = {}

    def sync(self, fd: int) -> None:
        self.synced[os.fstat(fd).st_ino] = state(Path(f"/proc/self/fd/{fd}").resolve())

    def write_back(self, root: Path) -> None:
        """As if all was written some time ago."""
        self.synced |= {path.lstat().st_ino: state(path) for path in (root, *root.rglob("*"))}

    def unsafe(self, *roots: Path) -> list[str]:
        """What a power cut could take now. Of a link the folder that holds it counts."""
        found = (
            path for root in roots for path in (root, *root.rglob("*")) if not path.is_symlink()
        )
        return [str(path) for path in found if self.synced.get(path.lstat().st_ino) != state(path)]


@pytest.fixture(params=["memory", "disk"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Both ways of syncing: one by one where that takes no time, else many at once."""
    made, real = Disk(), os.fsync

    def fsync(fd: int) -> None:
        real(fd)
        made.sync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(syncing, "QUICK_S", 3600.0 if request.param == "memory" else -1.0)
    return made


def act(kind: str, desk: Desk) -> set[str]:
    """What the agent does; the paths that are asked about."""
    match kind:
        case "write":
            (desk.copy / "src/app.py").write_text("new\n")
            return {"src/app.py"}
        case "create":
            (desk.copy / "fresh/inner").mkdir(parents=True)
            (desk.copy / "fresh/inner/new.py").write_text("new\n")
            return {"fresh/inner/new.py"}
        case "delete":
            (desk.copy / "src/app.py").unlink()
            return {"src/app.py"}
        case "folder":
            shutil.rmtree(desk.copy / "src")
            return {"src/app.py", "src/util.py"}
        case "rename":
            (desk.copy / "fresh/inner").mkdir(parents=True)
            (desk.copy / "src/app.py").rename(desk.copy / "fresh/inner/new.py")
            return {"src/app.py"}
        case "chmod":
            (desk.copy / "src/app.py").chmod(0o755)
            return {"src/app.py"}
        case "mkdir":
            (desk.copy / "folder").mkdir()
            return {"folder"}
        case "swap":
            (desk.copy / "README.md").unlink()
            (desk.copy / "README.md").mkdir()
            (desk.copy / "README.md/inner.txt").write_text("inner\n")
            return {"README.md"}
        case _:
            (desk.copy / "many").mkdir()
            for number in range(MANY):
                (desk.copy / f"many/{number}.txt").write_text(f"{number}\n")
            (desk.copy / "src/app.py").write_text("new\n")
            (desk.copy / "src/util.py").unlink()
            return {*(f"many/{number}.txt" for number in range(MANY)), "src/app.py", "src/util.py"}


@pytest.mark.parametrize(
    "kind", ["write", "create", "delete", "folder", "rename", "chmod", "mkdir", "swap", "many"]
)
async def test_nothing_is_done_on_what_could_be_lost(
    tmp_path: Path, host: Path, disk: Disk, kind: str
) -> None:
    desk = Desk(tmp_path / "data", host)
    lost: list[str] = []

    def at(step: str) -> None:
        if step == "checked":  # next it gets its name, and what was there before is replaced
            temporary = [path for path in host.rglob(f"{TEMPORARY_PREFIX}*") if path.is_file()]
            lost.extend(f"{step}: {name}" for path in temporary for name in disk.unsafe(path))
            lost.extend(f"{step}: {name}" for name in disk.unsafe(desk.folder / BEFORE))

    desk.new_channel(at)
    async with desk.running():
        paths = act(kind, desk)
        await desk.compared()
        assert desk.pending().keys() == paths
        disk.write_back(host)
        disk.write_back(desk.folder / BEFORE)
        asked = list(desk.pending().values())
        answer_all(desk.gate, [one.id for one in asked], "approved", by="tester")
        for request in asked:
            assert (await desk.settled(request)).outcome["ok"]
        assert lost == []
        assert disk.unsafe(host, desk.folder / BEFORE) == []

        async with desk.channel.undoing() as undo:
            plan = await undo.plan(Selection())
            await undo.carry_out(Selection(), token=plan.token, by="tester")
        assert lost == []
        assert disk.unsafe(host) == []
    desk.close()
