"""What an effect replaced is on the disk before it happens: contents, modes, times, links,
folders."""

import os
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.files.undo_steps import held_of, is_as
from supervisor.workspace.apply.apply import Applier
from supervisor.workspace.apply.restore import Restorer
from supervisor.workspace.disk.scan import look
from supervisor.workspace.trees.history import History, KeptContents
from supervisor.workspace.trees.journal import Journal, decode_name, replay, write_baseline
from supervisor.workspace.trees.trees import Sides
from tests.fakes.clock import FakeClock
from tests.workspace.conftest import Desk

OLD = b"old\n" * 3000


def sides_of(tmp_path: Path) -> Sides:
    folder = tmp_path / "session"
    (folder / "merged").mkdir(parents=True, exist_ok=True)
    (tmp_path / "host").mkdir(exist_ok=True)
    if not (folder / "baseline.msgpack").exists():
        write_baseline(folder, {})
    return Sides(tmp_path / "host", folder, ())


def write(
    sides: Sides, name: str, content: bytes, *, request: str = "r1", mode: int = 0o644
) -> None:
    host = look(sides.host, name)
    after = sides.blobs.keep(content)
    action = FileChange(
        operation="write",
        path=name,
        before=host.token if host else None,
        after=after,
        mode=mode,
        hazards=(),
    )
    applied = Applier(sides.host, sides.blobs, sides.history).apply(
        action, request, lambda rebuilt: None
    )
    sides.agreed(name, applied.known, request)


def test_what_was_there_is_kept_and_comes_back(tmp_path: Path) -> None:
    sides = sides_of(tmp_path)
    path = tmp_path / "host/a.txt"
    path.write_bytes(OLD)
    path.chmod(0o4750)
    os.utime(path, ns=(1, 1_000_000_007))
    write(sides, "a.txt", b"new\n", mode=0o644)
    (line,) = sides.history.done
    assert (line.request, decode_name(line.name), line.operation) == ("r1", "a.txt", "write")
    assert line.before is not None
    assert (line.before.digest, line.before.mode, line.before.mtime_ns) == (
        content_hash(OLD),
        0o4750,
        1_000_000_007,
    )
    assert line.after is not None
    assert line.after.digest == content_hash(b"new\n")
    assert sides.history.kept.read(content_hash(OLD), 1 << 20) == OLD
    assert 0 < sides.history.kept.total_bytes < len(OLD) / 10
    Restorer(sides.host, sides.history).restore("u1", "a.txt", line.before, line.after)
    status = path.stat()
    assert path.read_bytes() == OLD
    assert (status.st_mode & 0o7777, status.st_mtime_ns) == (0o4750, 1_000_000_007)
    sides.close()


def test_the_history_is_there_again_after_a_restart(tmp_path: Path) -> None:
    sides = sides_of(tmp_path)
    (tmp_path / "host/a.txt").write_bytes(OLD)
    write(sides, "a.txt", b"one")
    write(sides, "deep/er/b.txt", b"two", request="r2")
    before = list(sides.history.done)
    sides.close()
    again = sides_of(tmp_path)
    assert again.history.done == before
    assert [decode_name(name) for name in before[1].folders] == ["deep", "deep/er"]
    assert before[1].before is None
    assert again.history.kept.has(content_hash(OLD))
    assert not again.history.open
    again.close()


def test_content_of_an_effect_that_never_happened_is_dropped_at_the_next_start(
    tmp_path: Path,
) -> None:
    sides = sides_of(tmp_path)
    (tmp_path / "x").write_bytes(OLD)
    with (tmp_path / "x").open("rb") as file:
        assert sides.history.keep(file.fileno(), content_hash(OLD))
        file.seek(0)
        assert not sides.history.keep(file.fileno(), content_hash(b"other"))
    sides.close()
    again = sides_of(tmp_path)
    assert not again.history.kept.digests()
    assert list((tmp_path / "session/before").iterdir()) == []
    again.close()


def test_the_oldest_goes_first_where_there_is_too_much(tmp_path: Path) -> None:
    sides = sides_of(tmp_path)
    contents = [os.urandom(300_000) for _ in range(6)]
    sides.history._most_bytes = 1 << 20
    (tmp_path / "host/a").write_bytes(contents[0])
    for number, content in enumerate([*contents[1:], b"end"]):
        write(sides, "a", content, request=f"r{number}")
    assert [line.request for line in sides.history.done] == ["r3", "r4", "r5"]
    assert sides.history.forgotten.number == 3
    assert "more than 1 MB" in sides.history.forgotten.why
    assert sides.history.kept.digests() == {content_hash(content) for content in contents[3:]}
    sides.close()
    again = sides_of(tmp_path)
    assert [line.request for line in again.history.done] == ["r3", "r4", "r5"]
    assert again.history.forgotten == sides.history.forgotten
    again.close()


def test_what_is_too_old_goes_at_the_next_start(tmp_path: Path) -> None:
    sides = sides_of(tmp_path)
    (tmp_path / "host/a").write_bytes(OLD)
    write(sides, "a", b"new")
    sides.close()
    folder = tmp_path / "session"
    clock = FakeClock()
    clock.advance(1e12)
    journal = Journal(folder)
    history = History(folder, journal, replay(folder), clock=clock)
    assert history.done == []
    assert "older than 30 days" in history.forgotten.why
    assert not history.kept.digests()
    history.close()
    journal.close()


def test_damaged_content_is_never_put_back(tmp_path: Path) -> None:
    sides = sides_of(tmp_path)
    for name, content in (("small", b"small"), ("large", OLD)):
        (tmp_path / "host" / name).write_bytes(content)
        write(sides, name, b"new", request=name)
    for kept in (tmp_path / "session/before").iterdir():
        data = bytearray(kept.read_bytes())
        data[-1] ^= 1
        kept.write_bytes(data)
    for line in sides.history.done:
        with pytest.raises(Exception, match="damaged"):
            Restorer(sides.host, sides.history).restore(
                "u", decode_name(line.name), line.before, line.after
            )
    assert (
        (tmp_path / "host/small").read_bytes() == (tmp_path / "host/large").read_bytes() == b"new"
    )
    assert sorted(path.name for path in (tmp_path / "host").iterdir()) == ["large", "small"]
    sides.close()


@pytest.mark.parametrize("target", ["there", "../away", b"\xff\xfe"])
def test_links_come_back_and_are_not_followed(tmp_path: Path, target: str | bytes) -> None:
    sides = sides_of(tmp_path)
    link = tmp_path / "host/link"
    link.symlink_to(os.fsdecode(target))
    before = held_of(look(sides.host, "link"))
    action = FileChange(
        operation="delete", path="link", before=before.token if before else None, after=None
    )
    applied = Applier(sides.host, sides.blobs, sides.history).apply(
        action, "r", lambda rebuilt: None
    )
    assert applied.before == before
    Restorer(sides.host, sides.history).restore("u", "link", applied.before, None)
    assert os.fsencode(link.readlink()) == os.fsencode(target)
    assert is_as(look(sides.host, "link"), before)
    sides.close()


def test_kept_contents_survive_only_under_their_own_names(tmp_path: Path) -> None:
    kept = KeptContents(tmp_path / "before")
    (tmp_path / "before/.half").write_bytes(b"half")
    kept.close()
    kept = KeptContents(tmp_path / "before")
    assert not kept.digests()
    assert kept.read(content_hash(b""), 1) is None
    kept.close()


async def test_times_are_kept_and_never_hide_a_change(desk: Desk) -> None:
    old = (desk.host / "free/a.txt").stat()
    async with desk.running():
        (desk.copy / "free/new.txt").write_text("new\n")
        os.utime(desk.copy / "free/new.txt", ns=(5, 1_111_111_111_000_000_003))
        (desk.copy / "free/a.txt").write_text("b\n")
        os.utime(desk.copy / "free/a.txt", ns=(5, old.st_mtime_ns))
        (desk.copy / "free/ahead.txt").write_text("new\n")
        os.utime(desk.copy / "free/ahead.txt", (9e9, 9e9))
        await desk.until(lambda: (desk.host / "free/ahead.txt").exists())
        await desk.compared()
        assert (desk.host / "free/new.txt").stat().st_mtime_ns == 1_111_111_111_000_000_003
        assert (desk.host / "free/a.txt").read_text() == "b\n"
        assert (desk.host / "free/a.txt").stat().st_mtime_ns > old.st_mtime_ns
        assert (desk.host / "free/ahead.txt").stat().st_mtime < 8e9
        (desk.copy / "free/new.txt").chmod(0o755)
        await desk.asked("free/new.txt")
        await desk.approve_all()
        status = (desk.host / "free/new.txt").stat()
        assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o755, 1_111_111_111_000_000_003)
