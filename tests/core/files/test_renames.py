"""Deletions and creations that are one file under another name."""

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import content_hash
from supervisor.core.files.renames import MOST_PARTS, File, pair
from tests.tables import each_row

ONE, TWO, EMPTY = content_hash(b"one"), content_hash(b"two"), content_hash(b"")


def files(*names: str, digest: str = ONE, mode: int = 0o644) -> list[File]:
    return [File(name, digest, mode) for name in names]


@each_row(
    ("gone", "made", "pairs"),
    [
        (files("a"), files("b"), [("a", "b")]),
        (files("a"), files("b", digest=TWO), []),
        (files("a"), files("b", mode=0o755), []),
        ([], files("b"), []),
        (files("a"), [], []),
        # The name decides where the content doesn't, and else the alphabet.
        (files("src/a", "src/b"), files("lib/b", "lib/a"), [("src/a", "lib/a"), ("src/b",
         "lib/b")]),
        (files("a"), files("c", "b"), [("a", "b")]),
        (files("b", "a"), files("c"), [("a", "c")]),
        (files("a", "x/y"), files("y", "b"), [("a", "b"), ("x/y", "y")]),
        (
            files("src/x/util.py", "src/y/util.py"),
            files("lib/y/util.py", "lib/x/util.py"),
            [("src/x/util.py", "lib/x/util.py"), ("src/y/util.py", "lib/y/util.py")],
        ),
        # A whole name is no end of another.
        (files("b/a"), files("c", "a"), [("b/a", "a")]),
        # Nothing in it says nothing: only the same name does.
        (files("a", digest=EMPTY), files("b", digest=EMPTY), []),
        (files("src/__init__.py", digest=EMPTY), files("lib/__init__.py", digest=EMPTY),
         [("src/__init__.py", "lib/__init__.py")]),
    ],
)  # fmt: skip
def test_pairs(gone: list[File], made: list[File], pairs: list[tuple[str, str]]) -> None:
    assert pair(gone, made) == pairs


def test_names_deeper_than_are_compared_are_paired_still() -> None:
    deep = "d/" * (MOST_PARTS * 2)
    assert pair(files(f"a/{deep}x"), files(f"b/{deep}x")) == [(f"a/{deep}x", f"b/{deep}x")]


NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)
FILES = st.lists(
    st.builds(File, NAMES, st.sampled_from([ONE, TWO, EMPTY]), st.sampled_from([0o644, 0o755])),
    unique_by=lambda file: file.name,
    max_size=12,
)


@given(FILES, FILES, st.randoms())
def test_every_name_once_the_same_content_and_no_matter_in_which_order(
    gone: list[File], made: list[File], any_order
) -> None:  # type: ignore[no-untyped-def]
    pairs = pair(gone, made)
    olds, news = [old for old, _ in pairs], [new for _, new in pairs]
    assert len(set(olds)) == len(olds)
    assert len(set(news)) == len(news)
    by_old, by_new = ({file.name: file for file in one} for one in (gone, made))
    assert all(by_old[old].content == by_new[new].content for old, new in pairs)
    assert all(
        by_old[old].digest != EMPTY or old.split("/")[-1] == new.split("/")[-1]
        for old, new in pairs
    )
    # Nothing that has something in it is left on both sides.
    left = {file.content for file in gone if file.name not in olds and file.digest != EMPTY}
    assert left.isdisjoint({file.content for file in made if file.name not in news})
    shuffled = [list(gone), list(made)]
    for one in shuffled:
        any_order.shuffle(one)
    assert pair(*shuffled) == pairs
