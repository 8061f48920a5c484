"""Choosing hunks: the laws of what a file becomes, on any bytes, and names that stay with what
they named."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.files.hunks import choose, lines_of, pieces
from supervisor.core.files.text_diff import MOST_COMPARED_LINES, diff

# Few different lines, so that they repeat; ends of every kind; bytes that are no text.
_LINES = st.sampled_from(
    [b"a\n", b"b\n", b"c\r\n", b"\n", b"\xff\xfe\n", b"\0\n", b"x" * 3000 + b"\n"]
)
_ENDS = st.sampled_from([b"", b"end", b"\xc3", b"end\r"])
_CONTENTS = st.builds(
    lambda lines, end: b"".join(lines) + end, st.lists(_LINES, max_size=40), _ENDS
)
_FAR = [b"line %d\n" % number for number in range(200)]


@st.composite
def edited(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A longer file and one with some lines of it changed: so that there are several hunks."""
    old = [
        b"%d %d\n" % (number % draw(st.integers(1, 9)), number // 3)
        for number in range(draw(st.integers(0, 80)))
    ]
    new = list(old)
    for _ in range(draw(st.integers(0, 8))):
        at = draw(st.integers(0, len(new)))
        new[at : at + draw(st.integers(0, 2))] = draw(st.lists(_LINES, max_size=2))
    return b"".join(old) + draw(_ENDS), b"".join(new) + draw(_ENDS)


_PAIRS = st.one_of(edited(), st.tuples(_CONTENTS, _CONTENTS))


@given(_PAIRS)
def test_all_is_the_new_content_and_none_the_old(pair: tuple[bytes, bytes]) -> None:
    old, new = pair
    ids = [piece.id for piece in pieces(old, new)]
    assert len(set(ids)) == len(ids)
    assert bool(ids) == (old != new)
    assert choose(old, new, ids) == new
    assert choose(old, new, []) == old


@given(_PAIRS, st.data())
def test_any_choice_and_then_the_rest_is_the_new_content(
    pair: tuple[bytes, bytes], data: st.DataObject
) -> None:
    old, new = pair
    found = pieces(old, new)
    chosen = {piece.id for piece in found if data.draw(st.booleans())}
    part = choose(old, new, chosen)
    assert choose(part, new, [piece.id for piece in pieces(part, new)]) == new
    # By hand: outside of the hunks both are the same, inside each is one or the other.
    old_lines, new_lines = lines_of(old), lines_of(new)
    wanted, at = [], 0
    for piece in found:
        wanted += old_lines[at : piece.old_start]
        wanted += (
            new_lines[piece.new_start : piece.new_end]
            if piece.id in chosen
            else old_lines[piece.old_start : piece.old_end]
        )
        at = piece.old_end
    assert part == b"".join(wanted + old_lines[at:])


@given(_PAIRS)
def test_they_are_the_hunks_that_a_card_shows(pair: tuple[bytes, bytes]) -> None:
    old, new = pair
    shown = diff(old, new)
    if shown.binary:
        return
    found = pieces(old, new)
    assert [hunk.id for hunk in shown.hunks] == [piece.id for piece in found]
    assert [(hunk.old_count, hunk.new_count) for hunk in shown.hunks] == [
        (piece.old_end - piece.old_start, piece.new_end - piece.new_start) for piece in found
    ]


@given(st.integers(3, 60), st.integers(80, 199), st.binary(max_size=8))
def test_an_id_stays_when_either_file_changes_elsewhere(near: int, far: int, text: bytes) -> None:
    lines = [*_FAR[:near], b"changed\n", *_FAR[near + 1 :]]
    (first,) = pieces(b"".join(_FAR), b"".join(lines))
    (moved,) = pieces(b"top\n" + b"".join(_FAR), b"top\n" + b"".join(lines))
    lines[far : far + 1] = [text + b"\n", b"more\n"]
    assert first.id in {piece.id for piece in pieces(b"".join(_FAR), b"".join(lines))}
    assert first.id == moved.id


def test_an_id_goes_with_the_context_and_the_content() -> None:
    old = b"".join(_FAR)

    def one(number: int, text: bytes) -> str:
        return pieces(old, b"".join([*_FAR[:number], text, *_FAR[number + 1 :]]))[0].id

    assert one(50, b"x\n") == one(50, b"x\n")
    assert (
        len(
            {
                one(50, b"x\n"),
                one(50, b"y\n"),
                one(51, b"x\n"),
                one(50, b"x\r\n"),
                one(50, b"x"),
                one(50, b""),
            }
        )
        == 6
    )


def test_hunks_that_read_the_same_are_told_apart_and_never_change_places() -> None:
    block = [b"start\n", b"1\n", b"2\n", b"3\n", b"4\n", b"5\n", b"6\n", b"7\n", b"end\n"]
    old = block * 3
    one_changed = [*old[:13], b"X\n", *old[14:]]
    two_changed = [*old[:4], b"X\n", *one_changed[5:]]
    (alone,) = pieces(b"".join(old), b"".join(one_changed))
    first, second = pieces(b"".join(old), b"".join(two_changed))
    assert len({alone.id, first.id, second.id}) == 3  # a tick on the one is on neither of the two
    assert choose(b"".join(old), b"".join(two_changed), [second.id]) == b"".join(one_changed)


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(KeyError, match="nothing"):
        choose(b"a\n", b"b\n", ["nothing"])
    with pytest.raises(KeyError):
        choose(b"a\n", b"a\n", [pieces(b"a\n", b"b\n")[0].id])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"", b"made\n"),
        (b"gone\n", b""),
        (b"", b"\n"),
        (b"a\nb", b"a\nb\n"),
        (b"a\r\nb\r\n", b"a\nb\n"),
        (b"\xff\n", b"\xfe\n"),
        (b"x" * 200_000, b"x" * 200_001),
        (b"\0" * 10, b"\0" * 9),
    ],
)
def test_whole_files_of_one_hunk(old: bytes, new: bytes) -> None:
    (only,) = pieces(old, new)
    assert choose(old, new, [only.id]) == new
    assert choose(old, new, []) == old


def test_too_many_lines_are_no_choice() -> None:
    long = b"\n" * (MOST_COMPARED_LINES + 1)
    assert pieces(long, long + b"x") == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([b"%d\n" % number for number in range(10_000)],
         [b"%d\n" % (number ^ (number % 7 == 0)) for number in range(10_000)]),
        ([b"a\n", b"b\n"] * 5_000, [b"b\n", b"a\n"] * 5_000),
        ([b"\n"] * 10_000, [b"\n", b"x\n"] * 5_000),
        ([b"%d\n" % (number * 7919 % 13) for number in range(10_000)],
         [b"%d\n" % (number * 104729 % 11) for number in range(10_000)]),
        ([b"%d\n" % number for number in range(10_000)],
         [b"%d\n" % number for number in range(10_000, 0, -1)]),
    ],
)  # fmt: skip
def test_it_ends_soon_on_any_input(old: list[bytes], new: list[bytes]) -> None:
    began = time.process_time()
    found = pieces(b"".join(old), b"".join(new))
    part = choose(b"".join(old), b"".join(new), [piece.id for piece in found[::2]])
    assert choose(
        part, b"".join(new), [piece.id for piece in pieces(part, b"".join(new))]
    ) == b"".join(new)
    assert time.process_time() - began < 20  # processor time: a runaway, not a slow machine
