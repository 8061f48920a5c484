"""Diffs: they say exactly what would change, they end, and hostile text stays text."""

import difflib
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.files import text_diff
from supervisor.core.files.change_card import Side, make_card
from supervisor.core.files.text_diff import (
    TextDiff,
    count_lines,
    diff,
    highlight,
    space_only,
    split_lines,
    unified,
)


def rebuilt(result: TextDiff, old: str) -> tuple[str, str]:
    """The old text as the hunks see it, and what they make of it."""
    old_lines = split_lines(old)
    out_old: list[str] = []
    out_new: list[str] = []
    at = 0
    for hunk in result.hunks:
        start = hunk.old_start - 1 if hunk.old_count else hunk.old_start
        out_old += old_lines[at:start]
        out_new += old_lines[at:start]
        at = start + hunk.old_count
        for line, following in zip(hunk.lines, [*hunk.lines[1:], None], strict=True):
            if line.kind == "note":
                continue
            end = "" if following is not None and following.kind == "note" else "\n"
            if line.kind != "added":
                out_old.append(line.text + end)
            if line.kind != "removed":
                out_new.append(line.text + end)
    return "".join(out_old + old_lines[at:]), "".join(out_new + old_lines[at:])


_TEXTS = st.one_of(
    st.text(alphabet="ab\n", max_size=60),
    st.text(max_size=60).filter(lambda text: "\0" not in text),
)


@given(_TEXTS, _TEXTS)
def test_a_diff_is_the_whole_truth(old: str, new: str) -> None:
    result = diff(old.encode(), new.encode())
    assert rebuilt(result, old) == (old, new)
    assert (not result.hunks) == (old == new)


@given(
    st.lists(st.sampled_from("abcdef"), max_size=30),
    st.lists(st.sampled_from("abcdef"), max_size=30),
)
def test_it_is_as_short_as_can_be(old: list[str], new: list[str]) -> None:
    """Against the longest common subsequence by the textbook's table."""
    table = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, left in enumerate(old):
        for j, right in enumerate(new):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if left == right else max(table[i][j + 1], table[i + 1][j])
            )
    common = table[-1][-1]
    result = diff("".join(f"{x}\n" for x in old).encode(), "".join(f"{x}\n" for x in new).encode())
    assert (result.added, result.removed) == (len(new) - common, len(old) - common)


def test_it_reads_like_diff_u() -> None:
    old = [f"line {number}\n" for number in range(40)]
    new = [*old[:5], "new\n", *old[5:20], *old[21:]]
    ours = unified(diff("".join(old).encode(), "".join(new).encode()), "a", "b")
    theirs = "".join(difflib.unified_diff(old, new, "a", "b"))
    assert ours == theirs


def test_words_are_marked() -> None:
    old, new = highlight("total = price * 2", "total = price * count")
    assert old == (("total = price * ", False), ("2", True))
    assert new == (("total = price * ", False), ("count", True))
    assert highlight("abc", "xyz") == ((("abc", False),), (("xyz", False),))


def test_binary_large_and_the_end_of_the_file() -> None:
    assert diff(b"\0", b"a").binary
    assert diff(b"\xff\xfe", b"a").binary
    assert diff(b"a", b"x" * (text_diff.MOST_TEXT_BYTES + 1)).too_large
    assert diff(b"a\n", b"a").hunks[0].lines[-1].kind == "note"
    assert diff(b"same", b"same") == TextDiff()


def test_only_a_newline_ends_a_line() -> None:
    """Form feeds and U+2028 would otherwise let a line look like two, or hide what follows."""
    (hunk,) = diff(b"", "a\x0cb\u2028c\rd\n".encode()).hunks
    assert [line.text for line in hunk.lines] == ["a\x0cb\u2028c\rd"]


def test_markup_and_hunk_headers_in_the_text_stay_text() -> None:
    evil = "<script>alert(1)</script>\n@@ -1,1 +1,1 @@\n+++ b/x\n--- a/x\n"
    (hunk,) = diff(b"", evil.encode()).hunks
    assert [line.kind for line in hunk.lines] == ["added"] * 4
    assert "".join(line.text + "\n" for line in hunk.lines) == evil


def test_nothing_is_left_out_or_cut() -> None:
    many = b"".join(b"%d\n" % number for number in range(9000))
    assert len(diff(b"", many).hunks[0].lines) == diff(b"", many).added == 9000
    (line, note) = diff(b"", b"x" * 100_000).hunks[0].lines
    assert (len(line.text), note.kind) == (100_000, "note")


def test_hostile_text_does_not_take_long() -> None:
    """Texts that are worst for comparing: few different lines, in random order. The limit is
    generous: it is about never ending."""
    chance = random.Random(1)
    texts = ["".join(chance.choice("ab") + "\n" for _ in range(8000)).encode() for _ in range(2)]
    started = time.process_time()
    result = diff(*texts)
    assert time.process_time() - started < 30  # processor time: a runaway, not a slow machine
    old, new = (text.decode() for text in texts)
    assert rebuilt(result, old) == (old, new)


def test_a_card_shows_only_what_would_be_applied() -> None:
    action = FileChange(
        operation="write",
        path="a",
        before=content_hash(b"old\n"),
        after=content_hash(b"new\n"),
        mode=0o644,
    )
    old, new = Side(b"old\n", 4, 0o644), Side(b"new\n", 4)
    card = make_card(action, old, new, action.before)
    assert card.content == "text"
    assert not card.is_stale
    assert [line.kind for line in card.diff.hunks[0].lines] == ["removed", "added"]
    assert make_card(action, old, Side(b"forged\n", 7), action.before).diff.hunks == ()
    stale = make_card(action, Side(b"person\n", 7), new, content_hash(b"person\n"))
    assert stale.is_stale
    assert [line.kind for line in stale.diff.hunks[0].lines] == ["added"]
    gone = make_card(action, old, Side(None, None), action.before)
    assert (gone.content, gone.notes) == ("large", ("the content is no longer kept",))
    folder = make_card(
        FileChange(operation="mkdir", path="d", after="dir", mode=0o755), None, None, None
    )
    assert folder.content == "none"


def test_nothing_to_show_is_written_as_nothing() -> None:
    assert unified(diff(b"a\n", b"a\n"), "a", "b") == ""
    assert unified(diff(b"a\n", b"\0"), "a", "b") == ""


def test_too_many_lines_are_not_compared() -> None:
    many = b"a\n" * (text_diff.MOST_COMPARED_LINES + 1)
    assert diff(many, b"a\n") == TextDiff(too_large=True)


def test_a_word_that_was_only_added_marks_nothing_on_the_other_side() -> None:
    assert highlight("one two", "one and two") == (
        (("one two", False),),
        (("one ", False), ("and ", True), ("two", False)),
    )


def cpu_s(old: str, new: str) -> float:
    started = time.process_time()
    diff(old.encode(), new.encode())
    return time.process_time() - started


@pytest.mark.parametrize("size", [16, 64])
def test_worst_cases_of_words_and_lines_are_bounded(size: int) -> None:
    """Each fills every bound: equal words on every line, and equal lines on every diagonal."""
    pairs = [
        ("a a b " * 19, "b a a " * 19),
        ("x" * 1900 + " ", "y" * 1900 + " "),
    ]
    for left, right in pairs:
        lines = size * 1024 // len(left)
        old = "".join(f"x{number} {left}\n" for number in range(lines))
        new = "".join(f"y{number} {right}\n" for number in range(lines))
        found = diff(old.encode(), new.encode())
        assert rebuilt(found, old) == (old, new)
    ends = [[f"{name}{number}\n" for number in range(400)] for name in "uqvr"]
    old = "".join([*ends[0], *["x\n"] * 19_000, *ends[1]])
    new = "".join([*ends[2], *["x\n"] * 18_999, *ends[3]])
    assert cpu_s(old, new) < 10  # a runaway took minutes


def test_long_lines_are_not_compared_word_by_word() -> None:
    for old, new in (("a " * 1500, "b " * 1500), ("a " * 100, "a " * 99 + "b ")):
        assert highlight(old, new) == (((old, False),), ((new, False),))


def test_what_takes_too_many_steps_is_shown_as_all_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_diff, "MOST_STEPS", 10)
    same = "".join(f"{number}\n" for number in range(20))
    old, new = f"a\n{same}b\n", f"c\n{same}d\n"
    assert rebuilt(diff(old.encode(), new.encode()), old) == (old, new)


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        (b"", b"a\nb\n", (2, 0)),
        (b"a\nb\n", b"", (0, 2)),
        (b"a\nb\nc\n", b"a\nx\nc\n", (1, 1)),
        (b"a\na\n", b"a\n", (0, 1)),
        (b"a\nb\n", b"b\na\n", (0, 0)),
        (b"a\0", b"b", None),
        (b"a", b"b\0", None),
    ],
)
def test_lines_are_counted_without_a_diff(
    old: bytes, new: bytes, counts: tuple[int, int] | None
) -> None:
    assert count_lines(old, new) == counts


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_never_more_lines_than_the_diff_has(old: list[str], new: list[str]) -> None:
    before, after = ("".join(f"{line}\n" for line in one).encode() for one in (old, new))
    counts, compared = count_lines(before, after), diff(before, after)
    assert counts is not None
    assert counts[0] <= compared.added
    assert counts[1] <= compared.removed
    assert counts[0] - counts[1] == compared.added - compared.removed


def spaced(old: str, new: str) -> list[tuple[str, str]]:
    """The lines that differ in white space only."""
    lines = [line for hunk in diff(old.encode(), new.encode()).hunks for line in hunk.lines]
    return [(lines[at].kind, lines[at].text) for at in sorted(space_only(lines))]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("a b\n", "  a  b \n", [("removed", "a b"), ("added", "  a  b ")]),
        ("a\nb\n", "a\n\n\nb\n", [("added", ""), ("added", "")]),
        ("a\n \nb\n", "a\nb\n", [("removed", " ")]),
        ("a\nb\n", "if x:\n  a\n  b\n", [
            ("removed", "a"), ("removed", "b"), ("added", "  a"), ("added", "  b"),
        ]),
        ("a\n", "b\n", []),
        ("a b\n", "ab c\n", []),
        ("a\r\n", "a\n", [("removed", "a\r"), ("added", "a")]),
        ("same\n", "same\n", []),
    ],
)  # fmt: skip
def test_lines_that_differ_in_white_space_only_are_found(
    old: str, new: str, found: list[tuple[str, str]]
) -> None:
    assert spaced(old, new) == found


def test_white_space_of_very_long_blocks_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_diff, "MOST_SPACED_LINES", 2)
    assert len(spaced("a\nb\n", " a\n b\n")) == 4
    assert spaced("a\nb\nc\n", " a\n b\n c\n") == []
