"""What clones may take of the disk, and how what is too much goes."""

import os
from pathlib import Path

import pytest

from supervisor.reviews import clone_room
from supervisor.reviews.clone_room import CloneRoom, admin_of, make_tree, note_size


def filled(clone: Path, used_at: float, packs: int = 1) -> Path:
    (clone / "objects" / "pack").mkdir(parents=True)
    for number in range(packs):
        (clone / "objects" / "pack" / f"pack-{number}.pack").write_bytes(bytes(1000))
    (clone / "HEAD").write_text("ref: refs/heads/main\n")
    (clone / "used").touch()
    os.utime(clone / "used", (used_at, used_at))
    return clone


async def test_what_was_used_longest_ago_goes_first_and_nothing_that_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clone_room, "MOST_BYTES", 2500)
    room = CloneRoom(tmp_path)
    a, b, c, d = (filled(tmp_path / name, at) for at, name in enumerate("abcd", 1))
    async with room.used(a):
        async with room.used(d):
            pass
        assert [one.exists() for one in (a, b, c, d)] == [True, False, False, True]
    # A checkout counts with its files.
    (d / "trees").mkdir()
    make_tree(d / "trees" / "0")
    note_size(d / "trees" / "0", 5000)
    async with room.used(a):
        pass
    assert [one.exists() for one in (a, d)] == [True, False]


async def test_a_clone_of_many_fetches_is_begun_anew_but_while_a_checkout_of_it_is_used(
    tmp_path: Path,
) -> None:
    room = CloneRoom(tmp_path)
    clone = filled(tmp_path / "a", 1, clone_room.MOST_PACKS + 1)
    (clone / "objects" / "pack" / "tmp_pack_x").write_bytes(b"of a fetch that was killed")
    async with room.used(clone):
        assert await room.is_kept(clone, may_go=False)
        assert not (clone / "objects" / "pack" / "tmp_pack_x").exists()
        assert not await room.is_kept(clone, may_go=True)
    assert list(clone.iterdir()) == [clone / "used"]


async def test_what_a_kill_left_is_swept_however_deep_it_is(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for name in ["gone", "x", *["n" * 200] * 40]:
        os.mkdir(name, dir_fd=at)
        at, before = os.open(name, os.O_RDONLY, dir_fd=at), at
        os.close(before)
    os.close(at)
    room = CloneRoom(tmp_path)
    async with room.used(tmp_path / "a"):
        assert not await room.is_kept(tmp_path / "a", may_go=True)
    assert list((tmp_path / "gone").iterdir()) == []


async def test_a_checkout_goes_whole(tmp_path: Path) -> None:
    room = CloneRoom(tmp_path)
    clone = filled(tmp_path / "a", 1)
    (clone / "trees" / "stranger").mkdir(parents=True)
    (clone / "trees" / "stranger" / "HEAD").write_text("ref: refs/heads/main\n")
    make_tree(clone / "trees" / "0")
    assert await room.trees(clone) == [clone / "trees" / "0"]
    assert not (clone / "trees" / "stranger").exists()
    await room.remove_tree(clone / "trees" / "0")
    assert not (clone / "trees" / "0").exists()
    assert not admin_of(clone / "trees" / "0").exists()
    assert await room.trees(clone) == []
