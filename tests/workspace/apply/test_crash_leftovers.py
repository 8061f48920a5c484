"""What a crash left in the host's workspace: ours goes wherever it is by now, what is somebody's
gets a name that anybody sees."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.workspace.apply.crash_leftovers import clean_leftovers
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.trees.journal import Intent, encode_name

ONE, OTHER = f".gatehouse-{'1' * 24}", f".gatehouse-{'2' * 24}"
INTENTS = [
    Intent("r", encode_name("a/src"), ONE, "swap"),
    Intent("r", encode_name("a/b/file"), OTHER, "write"),
]


@pytest.fixture
def root(host: Path) -> Iterator[Root]:
    made = Root(host)
    yield made
    made.close()


@pytest.fixture(params=["a", "moved/away"])
def aside(host: Path, request: pytest.FixtureRequest) -> Path:
    """The folder that was swapped out: beside its place, or where the person moved that since."""
    made = host / request.param / ONE
    made.mkdir(parents=True)
    return made


def test_a_folder_with_nothing_but_ours_in_it_goes(root: Root, aside: Path) -> None:
    (aside / OTHER).write_text("ours\n")
    assert clean_leftovers(root, INTENTS, anywhere=True) == {}
    assert not list(root.path.rglob(".gatehouse-*"))


def test_what_somebody_put_into_it_is_seen_and_said(root: Root, aside: Path) -> None:
    (aside / "sub").mkdir()
    (aside / "sub/mine.txt").write_text("mine\n")
    (aside / "sub" / OTHER).write_text("ours\n")
    (path, why), = clean_leftovers(root, INTENTS, anywhere=True).items()  # fmt: skip
    assert path == str(aside.with_name(f"src{ONE}").relative_to(root.path))
    assert "`src`" in why
    assert (root.path / path / "sub/mine.txt").read_text() == "mine\n"
    assert not list(root.path.rglob(".gatehouse-*"))


def test_what_stays_hidden_is_said_and_the_rest_goes_on(root: Root, host: Path) -> None:
    """That name is taken. Whatever else is there is looked at all the same."""
    (host / "moved" / ONE).mkdir(parents=True)
    (host / "moved" / ONE / "mine.txt").write_text("mine\n")
    (host / "moved" / f"src{ONE}").mkdir()
    (host / "moved/deeper").mkdir()
    (host / "moved/deeper" / OTHER).write_text("ours\n")
    assert clean_leftovers(root, INTENTS, anywhere=True) == {
        f"moved/{ONE}": "it can't be removed: File exists"
    }
    assert (host / "moved" / ONE / "mine.txt").read_text() == "mine\n"
    assert not (host / "moved/deeper" / OTHER).exists()


def test_nothing_by_another_name_and_nothing_beyond_a_link_is_touched(
    root: Root, host: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / ONE).mkdir(parents=True)
    (host / "link").symlink_to(outside)
    (host / f".gatehouse-{'3' * 24}").write_text("somebody's\n")
    (host / "a" / ONE).mkdir(parents=True)
    (host / "a" / ONE / "out").symlink_to(outside)
    assert list(clean_leftovers(root, INTENTS, anywhere=True)) == [f"a/src{ONE}"]
    assert (outside / ONE).is_dir()
    assert (host / f".gatehouse-{'3' * 24}").exists()
    assert (host / "a" / f"src{ONE}" / "out").is_symlink()
