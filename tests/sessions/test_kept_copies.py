"""The bound on copies of ended sessions: the oldest go, but none that is needed."""

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
    kept = KeptCopies(tmp_path, 130 * KB, lambda one: False)
    assert await kept.tidy() == ["old"]
    assert 128 * KB <= kept.total_bytes <= 130 * KB
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


async def test_nothing_there_is_nothing_to_do(tmp_path: Path) -> None:
    kept = KeptCopies(tmp_path, 0, lambda one: False)
    assert await kept.tidy() == []
    assert kept.total_bytes == 0
