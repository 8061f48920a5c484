"""What git takes for a repository's own folder: the pure half, held against git's own rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.policy.git_folders import (
    FOLDER,
    UNKNOWN,
    Pieces,
    RepositoryPiece,
    folders_around,
    has_piece,
    is_head,
    is_repository,
    piece_of,
    repositories,
)
from tests.tables import each_row

REF = RepositoryPiece("file", b"ref: refs/heads/main\n")


@each_row(
    ("piece", "accepted"),
    [
        (REF, True),
        (RepositoryPiece("file", b"ref:refs/x"), True),
        (RepositoryPiece("file", b"ref: \t\n refs/"), True),
        (RepositoryPiece("file", b"ref: heads/main"), False),
        (RepositoryPiece("file", b" ref: refs/heads/main"), False),
        (RepositoryPiece("file", b"a" * 40), True),
        (RepositoryPiece("file", b"A" * 64 + b"\n"), True),
        (RepositoryPiece("file", b"a" * 39), False),
        (RepositoryPiece("file", b"<head>"), False),
        (RepositoryPiece("file", b""), False),
        (UNKNOWN, True),
        (RepositoryPiece("symlink", b"refs/heads/main"), True),
        (RepositoryPiece("symlink", b"../refs/heads/main"), False),
        (RepositoryPiece("symlink", None), True),
        (FOLDER, False),
        (RepositoryPiece("other"), False),
    ],
)
def test_what_git_accepts_as_head(piece: RepositoryPiece, accepted: bool) -> None:
    assert is_head(piece) is accepted


def test_a_repository_has_head_and_objects_and_refs_or_says_where_they_are() -> None:
    assert is_repository({"HEAD": REF, "objects": FOLDER, "refs": FOLDER})
    assert is_repository({"HEAD": REF, "commondir": RepositoryPiece("file")})
    assert not is_repository({"HEAD": REF, "objects": FOLDER})
    assert not is_repository({"HEAD": REF, "refs": FOLDER})
    assert not is_repository(
        {"objects": FOLDER, "refs": FOLDER, "commondir": RepositoryPiece("file")}
    )
    assert not is_repository({"HEAD": FOLDER, "objects": FOLDER, "refs": FOLDER})
    assert not is_repository({})


@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("HEAD", "HEAD"),
        ("head", "HEAD"),
        ("Objects", "objects"),
        ("refs.", "refs"),
        ("COMMONDIR", "commondir"),
        ("heads", None),
    ],
)
def test_pieces_are_known_in_every_spelling(name: str, piece: str | None) -> None:
    assert piece_of(name) == piece
    assert has_piece(f"a/{name}/b") is (piece is not None)


def test_the_folders_around_a_path() -> None:
    assert list(folders_around("a/b/c")) == ["", "a", "a/b", "a/b/c"]
    assert list(folders_around("a")) == ["", "a"]


def found(made: dict[str, RepositoryPiece | None], *accounts: dict[str, Pieces]) -> tuple[str, ...]:
    def held(folder: str, must_look: bool) -> list[Pieces]:
        return [account.get(folder, {}) for account in accounts]

    return repositories(made, made, held)


WHOLE: Pieces = {"HEAD": REF, "objects": FOLDER, "refs": FOLDER}
HALF: Pieces = {"objects": FOLDER, "refs": FOLDER}
JUNK = RepositoryPiece("file", b"junk")


@each_row(
    ("made", "accounts", "repository"),
    [
        ({"a/HEAD": REF}, [{"a": HALF}], ("a",)),
        ({"a/head": REF}, [{"a": HALF}], ("a",)),
        ({"HEAD": REF}, [{"": HALF}], ("",)),
        ({"a/HEAD": JUNK}, [{"a": HALF}], ()),
        ({"a/x": REF}, [{"a": HALF}], ()),
        ({"a/refs/b/c": REF}, [{"a": {"HEAD": REF, "objects": FOLDER}}], ("a",)),
        ({"a/refs/b/c": None}, [{"a": {"HEAD": REF, "objects": FOLDER}}], ()),
        ({"a/refs": RepositoryPiece("symlink", b"b")}, [{"a": {"HEAD": REF, "objects": FOLDER}}],
         ("a",)),
        ({"a/HEAD": REF, "a/objects/x": JUNK, "a/refs": FOLDER}, [{}], ("a",)),
        ({"a/HEAD": REF, "a/head": JUNK, "a/objects/x": JUNK, "a/refs": FOLDER}, [{}], ("a",)),
        ({"a/HEAD": REF, "a/objects": None, "a/refs": FOLDER}, [{}], ()),
        ({"a/HEAD": REF, "a/commondir": JUNK}, [{}], ("a",)),
        ({"a/config": JUNK}, [{"a": WHOLE}], ("a",)),
        ({"a/b/c": None}, [{"a": WHOLE}], ("a",)),
        ({"a/HEAD": None}, [{"a": WHOLE}], ("a",)),
        ({"a/HEAD": JUNK}, [{"a": WHOLE}], ("a",)),
        ({"a/config": JUNK}, [{}, {"a": WHOLE}], ("a",)),
        ({"a/refs": FOLDER}, [{"a": {"HEAD": REF}}, {"a": {"objects": FOLDER}}], ("a",)),
        ({"a/refs": FOLDER}, [{"a": {"HEAD": REF}}, {"a": {"HEAD": JUNK, "objects": FOLDER}}], ("a",
         )),
        ({"a": None}, [{"a": WHOLE}], ("a",)),
        ({"ab/config": JUNK}, [{"a": WHOLE}], ()),
        ({"a/objects/HEAD": REF, "a/objects/refs": FOLDER}, [{"a/objects": {"objects": FOLDER}}],
         ("a/objects",)),
    ],
)  # fmt: skip
def test_a_change_is_in_a_repository_before_it_or_after(
    made: dict[str, RepositoryPiece | None],
    accounts: list[dict[str, Pieces]],
    repository: tuple[str, ...],
) -> None:
    assert found(made, *accounts) == repository


_NAMES = st.sampled_from(
    ["HEAD", "objects/x", "refs", "refs/x/y", "config", "commondir", "head", "x"]
)
_PIECES = st.sampled_from([REF, JUNK, FOLDER, UNKNOWN])


@given(st.lists(st.tuples(_NAMES, _PIECES), max_size=6))
def test_in_whatever_order_pieces_come_the_last_one_is_seen(
    changes: list[tuple[str, RepositoryPiece]],
) -> None:
    """Done one by one, as long as none is refused: what is there never is a repository."""
    there: dict[str, RepositoryPiece] = {}
    for name, piece in changes:
        leaf = name.split("/")[0]
        if found({f"a/{name}": piece}, {"a": dict(there)}):
            continue
        there[leaf] = piece if "/" not in name else there.get(leaf, FOLDER)
        assert not is_repository({leaf: one for leaf, one in there.items() if leaf != "head"})
