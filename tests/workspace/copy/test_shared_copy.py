"""The private copy on a volume: one session's at a time, and nothing of it lost afterwards."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.errors import UserError
from supervisor.workspace.copy import shared_copy

NOBODY: Callable[[str], bool] = set[str]().__contains__


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    made = tmp_path / "volume"
    made.mkdir()
    (made / "left").mkdir()
    (made / "left/behind").write_text("by a session that ended badly")
    return made


def folder(tmp_path: Path, name: str) -> Path:
    made = tmp_path / "sessions" / name
    made.mkdir(parents=True)
    return made


def test_a_copy_is_lent_and_taken_back_whole(tmp_path: Path, volume: Path) -> None:
    one = folder(tmp_path, "one")
    shared_copy.lend(one, volume, NOBODY)
    assert list(volume.iterdir()) == []
    (one / "merged/src").mkdir()
    (one / "merged/src/a").write_text("a")
    (one / "merged/link").symlink_to("src/a")
    assert (volume / "src/a").read_text() == "a"
    shared_copy.take_back(one)
    assert list(volume.iterdir()) == []
    assert not (one / "merged").is_symlink()
    assert (one / "merged/src/a").read_text() == "a"
    assert (one / "merged/link").is_symlink()
    shared_copy.take_back(one)
    assert (one / "merged/src/a").read_text() == "a"


def test_a_resumed_copy_goes_onto_the_volume(tmp_path: Path, volume: Path) -> None:
    one = folder(tmp_path, "one")
    (one / "merged").mkdir()
    (one / "merged/a").write_text("a")
    shared_copy.lend(one, volume, NOBODY)
    assert (volume / "a").read_text() == "a"
    assert (one / "merged").is_symlink()


def test_a_second_session_never_takes_the_place_of_one_that_waits(
    tmp_path: Path, volume: Path
) -> None:
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    shared_copy.lend(one, volume, NOBODY)
    (volume / "a").write_text("a")
    with pytest.raises(UserError, match="one session at a time, and one hasn't ended"):
        shared_copy.lend(two, volume, {"one"}.__contains__)
    assert (volume / "a").read_text() == "a"
    shared_copy.take_back(one)
    shared_copy.lend(two, volume, NOBODY)


def test_what_an_ended_session_left_on_the_volume_is_taken_back_first(
    tmp_path: Path, volume: Path
) -> None:
    """Where the supervisor was killed, or the disk was full, when that ended."""
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    shared_copy.lend(one, volume, NOBODY)
    (volume / "a").write_text("a")
    (one / "merged.new").mkdir()
    (one / "merged.new/b").write_text("moved before")
    shared_copy.lend(two, volume, NOBODY)
    assert (one / "merged/a").read_text() == "a"
    assert (one / "merged/b").read_text() == "moved before"
    assert list(volume.iterdir()) == []


def hostile(place: Path) -> None:
    """What an agent may leave in its copy."""
    os.mkfifo(place / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(place / "socket"))
    (place / "secret").write_text("unreadable")
    (place / "secret").chmod(0)
    (place / "closed/in").mkdir(parents=True)
    (place / "closed/in/a").write_text("a")
    os.mkfifo(place / "closed/in/fifo", 0)
    (place / "closed/in").chmod(0)
    (place / "closed").chmod(0)
    (place / "out").symlink_to("/etc")
    (place / "unlistable").mkdir(mode=0o300)
    with (place / "huge").open("wb") as file:
        file.truncate(1 << 42)
    (place / "big").write_bytes(b"x" * 100_000)
    (place / "same").hardlink_to(place / "big")
    at = os.open(place, os.O_RDONLY)
    for _ in range(3000):  # longer than any path may be
        os.mkdir("deep", dir_fd=at)
        at, above = os.open("deep", os.O_RDONLY, dir_fd=at), at
        os.close(above)
    os.close(at)


def test_nothing_that_lies_in_a_copy_stops_the_service(tmp_path: Path, volume: Path) -> None:
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    shared_copy.lend(one, volume, NOBODY)
    hostile(volume)
    shared_copy.take_back(one)
    assert list(volume.iterdir()) == []
    back = one / "merged"
    assert not (back / "fifo").exists()
    assert not (back / "socket").exists()
    assert [stat.S_IMODE((back / name).lstat().st_mode) for name in ("secret", "closed")] == [0, 0]
    for name in ("secret", "closed", "closed/in"):
        (back / name).chmod(0o700)
    assert (back / "secret").read_text() == "unreadable"
    assert (back / "closed/in/a").read_text() == "a"
    assert (back / "out").readlink() == Path("/etc")
    assert (back / "huge").stat().st_blocks == 0
    assert (back / "big").stat().st_ino == (back / "same").stat().st_ino
    # And so it is where a session ended badly, and the next one starts.
    hostile(volume)
    shared_copy.lend(two, volume, NOBODY)
    assert list(volume.iterdir()) == []


def test_a_copy_that_cannot_be_taken_back_is_said_and_not_lost(
    tmp_path: Path, volume: Path
) -> None:
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    shared_copy.lend(one, volume, NOBODY)
    (volume / "a").write_text("a")
    away = volume.rename(tmp_path / "away")
    with pytest.raises(UserError, match="session one can't be taken off its volume"):
        shared_copy.take_back(one)
    with pytest.raises(UserError, match="session one can't be taken off its volume"):
        shared_copy.lend(two, volume, NOBODY)
    away.rename(volume)
    shared_copy.take_back(one)
    assert (one / "merged/a").read_text() == "a"
