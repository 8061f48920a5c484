"""The bound on copies of ended sessions: the oldest go, but none that is needed."""

import asyncio
import contextlib
import os
from pathlib import Path

from supervisor.sessions.kept_copies import KeptCopies

KB = 1024


def session(folder: Path, name: str, age: int, kilobytes: int = 64) -> Path:
    made = folder / name
    (made / "merged" / "src").mkdir(parents=True)
    (made / "merged" / "src" / "a.bin").write_bytes(os.urandom(kilobytes * KB))
    (made / "output.log").write_text("said\n")
    os.utime(made, (1_000_000 - age, 1_000_000 - age))
    return made


async def test_the_oldest_above_the_bound_go(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "middle", "old")):
        session(tmp_path, name, age)
    kept = KeptCopies(tmp_path, 150 * KB, lambda one: False)
    assert await kept.tidy() == ["old"]
    assert 128 * KB <= kept.total_bytes <= 150 * KB
    assert not (tmp_path / "old" / "merged").exists()
    assert (tmp_path / "old" / "output.log").read_text() == "said\n"
    assert (tmp_path / "new" / "merged" / "src" / "a.bin").exists()
    assert await kept.tidy() == []


async def test_one_that_is_needed_stays_whatever_it_takes(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "needed")):
        session(tmp_path, name, age)
    kept = KeptCopies(tmp_path, 10 * KB, lambda one: one == "needed")
    assert await kept.tidy() == ["new"]
    assert (tmp_path / "needed" / "merged" / "src" / "a.bin").exists()
    (tmp_path / "needed" / "merged" / "more.bin").write_bytes(os.urandom(32 * KB))
    await kept.tidy()
    assert kept.total_bytes >= 96 * KB, "measured anew while it may change"


async def test_a_folder_without_permissions_goes_too(tmp_path: Path) -> None:
    made = session(tmp_path, "locked", 0)
    (made / "work" / "work").mkdir(parents=True)
    (made / "work" / "work").chmod(0)
    (made / "merged" / "src").chmod(0o500)
    await KeptCopies(tmp_path, 0, lambda one: False).tidy()
    assert [one.name for one in made.iterdir()] == ["output.log"]


async def test_a_copy_is_whole_or_gone_while_it_is_removed(tmp_path: Path) -> None:
    """A person may go on with it right then: what is missing would count as deleted."""
    copy = session(tmp_path, "one", 0) / "merged"
    for number in range(2000):
        (copy / f"{number:04}").touch()
    (copy / "last").mkdir()
    (copy / "last").chmod(0o500)
    number, seen = len(list(copy.iterdir())), set[tuple[int, int]]()
    removing = asyncio.create_task(KeptCopies(tmp_path, 0, lambda one: False).tidy())
    while not removing.done():
        with contextlib.suppress(FileNotFoundError):
            seen.add((len(list(copy.iterdir())), (copy / "last").stat().st_mode & 0o777))
        await asyncio.sleep(0)
    assert await removing == ["one"]
    assert seen <= {(number, 0o500)}
    assert not copy.exists()


async def test_what_an_earlier_removal_left_is_measured_and_goes(tmp_path: Path) -> None:
    made = session(tmp_path, "one", 0)
    (made / "merged").rename(made / "merged.going")
    kept = KeptCopies(tmp_path, 10 * KB, lambda one: False)
    assert await kept.tidy() == ["one"]
    assert [one.name for one in made.iterdir()] == ["output.log"]


async def test_nothing_there_is_nothing_to_do(tmp_path: Path) -> None:
    kept = KeptCopies(tmp_path, 0, lambda one: False)
    assert await kept.tidy() == []
    assert kept.total_bytes == 0


def nested(folder: Path, depth: int) -> None:
    """Folders in folders, and a file in the last: a path that no call takes."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("folder-in-a-folder", dir_fd=at)
        inner = os.open("folder-in-a-folder", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    file = os.open("hidden.bin", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=at)
    os.write(file, os.urandom(512 * KB))
    os.close(file)
    os.close(at)


async def test_a_path_longer_than_any_call_takes_hides_nothing_and_stops_nothing(
    tmp_path: Path,
) -> None:
    for age, name in enumerate(("new", "younger", "deep")):
        session(tmp_path, name, age)
    nested(tmp_path / "deep" / "merged", 2500)
    kept = KeptCopies(tmp_path, 10**9, lambda one: False)
    await kept.tidy()
    assert kept.total_bytes > 512 * KB
    kept.limit_bytes = 100 * KB
    assert await kept.tidy() == ["deep", "younger"]
    assert [one.name for one in (tmp_path / "deep").iterdir()] == ["output.log"]
    assert not (tmp_path / "younger" / "merged").exists()


async def test_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (tmp_path / "sessions").mkdir()
    made = session(tmp_path / "sessions", "linked", 0)
    (made / "merged" / "link").symlink_to(outside)
    (made / "blobs").symlink_to(outside)
    await KeptCopies(tmp_path / "sessions", 0, lambda one: False).tidy()
    assert outside.stat().st_mode & 0o777 == 0o500
    assert not (made / "merged").exists()
