"""An undo that was shown reads nothing twice that can't have changed: and what changed without a
trace stays the person's."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from supervisor.core.actions import FileChange
from supervisor.core.files.undo_steps import Selection
from supervisor.workspace.apply.apply import Applier
from supervisor.workspace.disk import scan, swap
from supervisor.workspace.disk.scan import look
from supervisor.workspace.trees.journal import write_baseline
from supervisor.workspace.trees.trees import Sides
from supervisor.workspace.undo.undo import Undo, UndoRefusedError
from supervisor.workspace.undo.undo_plan import UndoPlan
from tests.workspace.conftest import Desk, make_repository

REPLACED = ("src/a", "src/b", "src/c", "d")
MADE = "src/made"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One gate for all; the host of each test is another."""
    folder = tmp_path_factory.mktemp("gate")
    one = Desk(folder / "data", make_repository(folder / "host", {"x": "x"}))
    yield one
    one.close()


class Place:
    """A session that replaced some files and made one, all shown to the person as what an undo
    would take back."""

    def __init__(self, folder: Path, desk: Desk) -> None:
        self.host, session = folder / "host", folder / "session"
        (session / "merged").mkdir(parents=True)
        (self.host / "src").mkdir(parents=True)
        for name in REPLACED:
            (self.host / name).write_text(f"before of {name}\n")
        write_baseline(session, {})
        self.sides = Sides(self.host, session, ())
        applier = Applier(self.sides.host, self.sides.blobs, self.sides.history)
        for name in (*REPLACED, MADE):
            host = look(self.sides.host, name)
            after = self.sides.blobs.keep(f"after of {name}\n".encode())
            before = host.token if host else None
            action = FileChange(
                operation="write", path=name, before=before, after=after, mode=0o644
            )
            applier.apply(action, name, lambda rebuilt: None)
            self.sides.history.confirm(name, name)
        self.undo = Undo(self.sides, desk.gate, "again", session)
        self.shown: UndoPlan = asyncio.run(self.undo.plan(Selection()))

    def take_back(self, at: Callable[[str], None] = lambda step: None) -> None:
        self.undo._restorer._at = self.undo._restorer._placer.at = at
        asyncio.run(self.undo.carry_out(Selection(), token=self.shown.token, by="tester"))

    def texts(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.host)): path.read_text()
            for path in self.host.rglob("*")
            if path.is_file()
        }

    def hide(self, name: str) -> None:
        """A write that nothing tells of, as one through mmap(2) on tmpfs: it is as if the look
        had seen its signature."""
        path = self.host / name
        status = path.stat()
        path.write_text(
            "mine, of this length\n"[: status.st_size - 1].ljust(status.st_size - 1) + "\n"
        )
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        now = look(self.sides.host, name)
        assert now is not None
        seen = self.undo._planner.seen
        assert now.digest != seen[name].digest
        seen[name] = msgspec.structs.replace(seen[name], signature=now.signature)


@pytest.fixture
def place(tmp_path: Path, desk: Desk) -> Iterator[Place]:
    one = Place(tmp_path, desk)
    yield one
    one.sides.close()


BEFORE = {name: f"before of {name}\n" for name in REPLACED}
AFTER = {name: f"after of {name}\n" for name in (*REPLACED, MADE)}


def test_a_file_is_read_again_only_where_it_is_removed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    real = scan.steady_digest
    monkeypatch.setattr(
        scan, "steady_digest", lambda fd, before: (read.append(before.st_ino), real(fd, before))[1]
    )
    made = (place.host / MADE).stat().st_ino
    place.take_back()
    assert read == [made]
    assert place.texts() == BEFORE


def test_what_was_touched_since_is_read_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.host / "src/b").touch()
    read: list[int] = []
    real = scan.steady_digest
    monkeypatch.setattr(
        scan, "steady_digest", lambda fd, before: (read.append(before.st_ino), real(fd, before))[1]
    )
    touched = (place.host / "src/b").stat().st_ino
    place.take_back()
    assert touched in read
    assert place.texts() == BEFORE


def test_what_was_edited_since_it_was_shown_is_refused(place: Place) -> None:
    (place.host / "src/b").write_text("mine, of another length\n")
    with pytest.raises(UndoRefusedError, match="changed since by you"):
        place.take_back()
    assert place.texts() == AFTER | {"src/b": "mine, of another length\n"}


@pytest.mark.parametrize("can_swap", [True, False])
@pytest.mark.parametrize("name", ["src/b", MADE])
def test_a_write_that_left_no_trace_is_not_lost(
    place: Place, name: str, can_swap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_swap:

        def exchange(folder: int, one: str, other: str) -> None:
            raise OSError(22, "Invalid argument")

        monkeypatch.setattr(swap, "_exchange", exchange)
    place.hide(name)
    mine = (place.host / name).read_text()
    assert mine.startswith("mine")
    with pytest.raises(UndoRefusedError):
        place.take_back()
    assert place.texts() == AFTER | {name: mine}


def once(wanted: str, nth: int, do: Callable[[], object]) -> Callable[[str], None]:
    """Does it at the nth time of a step."""
    left = [nth]

    def at(step: str) -> None:
        if step == wanted:
            left[0] -= 1
            if not left[0]:
                do()

    return at


@pytest.mark.parametrize("nth", [2, 3])
@pytest.mark.parametrize("step", ["kept", "intended", "created", "written"])
def test_a_folder_that_is_moved_away_in_between_takes_nothing_of_ours_along(
    place: Place, step: str, nth: int
) -> None:
    away = place.host.parent / "away"
    moved = []

    def move() -> None:
        (place.host / "src").rename(away)
        moved.append(True)

    with pytest.raises(UndoRefusedError):
        place.take_back(once(step, nth, move))
    assert moved
    found = {f"src/{path.name}": path.read_text() for path in away.iterdir()}
    assert found.keys() >= {"src/a", "src/b", "src/c"}, "nothing of the person's is gone"
    assert all(text in (BEFORE.get(name), AFTER.get(name)) for name, text in found.items()), found
    assert not list(place.host.parent.rglob("*/.gatehouse-*"))
    assert not (place.host / "src").exists()


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("step", ["kept", "written"])
def test_a_folder_that_is_deleted_in_between_is_not_made_anew(
    place: Place, step: str, nth: int
) -> None:
    # In the order of names, `d` is the first that is made ready, and then those in `src`.
    with pytest.raises(UndoRefusedError, match="src"):
        place.take_back(once(step, nth, lambda: shutil.rmtree(place.host / "src")))
    assert not (place.host / "src").exists()
    assert place.texts() == {"d": "after of d\n"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_of_a_file_stays_its_owner(place: Place) -> None:
    path = place.host / "src/a"
    os.chown(path, 12345, 54321)
    applier = Applier(place.sides.host, place.sides.blobs, place.sides.history)
    host = look(place.sides.host, "src/a")
    assert host is not None
    after = place.sides.blobs.keep(b"once more\n")
    action = FileChange(operation="write", path="src/a", before=host.token, after=after, mode=0o644)
    applier.apply(action, "once more", lambda rebuilt: None)
    place.sides.history.confirm("once more", "src/a")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)
    place.shown = asyncio.run(place.undo.plan(Selection()))
    place.take_back()
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)
    assert place.texts() == BEFORE
