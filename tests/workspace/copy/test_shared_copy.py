"""The private copy on a volume: one session's at a time, and nothing of it lost afterwards."""

from pathlib import Path

import pytest

from supervisor.errors import UserError
from supervisor.workspace.copy import shared_copy


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
    shared_copy.lend(one, volume)
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
    shared_copy.lend(one, volume)
    assert (volume / "a").read_text() == "a"
    assert (one / "merged").is_symlink()


def test_a_second_session_never_takes_the_place_of_one_that_waits(
    tmp_path: Path, volume: Path
) -> None:
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    shared_copy.lend(one, volume)
    (volume / "a").write_text("a")
    with pytest.raises(UserError, match="one session at a time, and one hasn't ended"):
        shared_copy.lend(two, volume)
    assert (volume / "a").read_text() == "a"
    shared_copy.take_back(one)
    shared_copy.lend(two, volume)
