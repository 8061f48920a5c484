"""Rows of differences: escaped, in colour, with what changed marked, and nothing left out."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from supervisor.core.files.text_diff import diff
from supervisor.server.common import diff_views
from supervisor.server.common.diff_views import (
    GAP_ROWS,
    DiffView,
    Texts,
    colours_of,
    gap_rows,
    gaps_of,
    painted,
    texts_of,
    view_of,
)
from supervisor.server.operator.pages import page_frame

SECRET = "hunter2"


class Painter:
    """Colours each line's first letter."""

    async def colours(self, path: str, text: str) -> Sequence[Sequence[tuple[int, str]]]:
        return [[(1, "k")] for _ in text.split("\n")]


def redact(text: str) -> str:
    return text.replace(SECRET, "[redacted]")


def shown(old: str, new: str, **more: int) -> DiffView:
    return view_of(diff(old.encode(), new.encode()), redact, most_rows=more.pop("most_rows", 1000))


def codes(view: DiffView) -> list[str]:
    return [f"{row.sign}{row.code}" for hunk in view.hunks for row in hunk.rows]


async def test_rows_have_colours_marks_and_what_stands_at_them() -> None:
    old, new = b"a b\nc\n", b"a x\nc\n"
    texts = await texts_of(Painter(), "a.py", old, new)
    view = view_of(diff(old, new), redact, texts, most_rows=9, at={1: ["said"]})
    assert codes(view) == [
        '\N{MINUS SIGN}<span class="k">a</span> <del>b</del>',
        '+<span class="k">a</span> <ins>x</ins>',
        '<span class="k">c</span>',
    ]
    assert [row.things for row in view.hunks[0].rows] == [(), ("said",), ()]
    assert [row.at for row in view.hunks[0].rows] == ["o1", "n1", "n2"]


async def test_a_difference_without_its_texts_has_colours_too_but_far_down_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [f"{number}\n" for number in range(100)]
    changed = [*lines[:90], "x\n", *lines[91:]]
    found = diff("".join(lines).encode(), "".join(changed).encode())
    view = view_of(found, redact, await colours_of(Painter(), "a.py", found), most_rows=9)
    assert codes(view)[3:5] == [
        '\N{MINUS SIGN}<span class="k">9</span>0',
        '+<span class="k">x</span>',
    ]
    assert view.hunks[0].gap is view.tail is None  # what lies between isn't known
    monkeypatch.setattr(diff_views, "MOST_COLOURED_LINES", 90)
    assert await colours_of(Painter(), "a.py", found) == Texts()


def test_a_template_puts_a_block_below_each_line_that_has_something() -> None:
    view = view_of(diff(b"a\n", b"b\n"), redact, most_rows=9, at={1: ["<b>"]})
    source = (
        '{% import "diff.html" as diff %}'
        '{% call(thing) diff.file("src/a.py", view) %}<i>{{ thing }}</i>{% endcall %}'
    )
    page = page_frame._templates.from_string(source).render(view=view)
    assert re.search(
        r'<td class="code"[^>]*>b</td></tr>\s*<tr class="say"><td colspan="4"><i>&lt;b&gt;</i>',
        page,
    )
    assert '<span class="dir">src/</span>a.py' in page


TEXT = st.text(st.sampled_from("ab <>&\"'\t\r\u202e\u0301\u200b漢"), max_size=12)
LINES = st.lists(TEXT, max_size=6).map(lambda lines: "".join(f"{line}\n" for line in lines))


@given(LINES, LINES, st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["k", ""])), max_size=6))
def test_no_text_becomes_markup_and_none_is_lost(
    old: str, new: str, colours: list[tuple[int, str]]
) -> None:
    every = [colours] * 9
    found = diff(old.encode(), new.encode())
    view = view_of(found, lambda text: text, Texts(["x"], ["x"], every, every), most_rows=1000)
    lines = [line for hunk in found.hunks for line in hunk.lines]
    for line, row in zip(lines, [row for hunk in view.hunks for row in hunk.rows], strict=True):
        assert row.text == line.text
        without = re.sub(
            r'</?(?:ins|del)>|<span class="k">|</span>|<span class="blanks"[^>]*>CR', "", row.code
        )
        assert "<" not in without
        assert ">" not in without
        assert not re.search("[\u202e\u200b\r]", row.code)


def test_a_tower_of_marks_is_spelled_out_whatever_the_colours_cut() -> None:
    tower = "e" + "\u0301" * 20
    colours = [[(1, "k")] * 21] * 2
    view = view_of(
        diff(b"", f"{tower}\n".encode()), redact, Texts([""], [""], colours, colours), most_rows=9
    )
    assert "\\u{301}" * 16 in codes(view)[0]


def test_a_line_with_a_secret_is_shown_without_it_and_without_marks() -> None:
    view = shown(f"a {SECRET[:4]}x\n", f"a {SECRET}\n")
    assert codes(view)[1] == "+a [redacted]"


def test_cr_lf_is_said_once_where_every_line_has_it_and_at_the_line_where_not() -> None:
    same = shown("a\r\nb\r\n", "a\r\nc\r\n")
    assert same.is_crlf
    assert not any("CR" in code for code in codes(same))
    mixed = shown("a\nb\n", "a\r\nb\n")
    assert not mixed.is_crlf
    assert [("CR</span>" in code) for code in codes(mixed)] == [False, True, False]


def test_a_missing_end_of_line_is_a_row() -> None:
    assert codes(shown("a\n", "a"))[-1] == "\\ no newline at the end of the file"


def test_rows_that_differ_in_white_space_only_say_so() -> None:
    view = shown("if a:\nb\n", "if a:\n  b\n")
    assert [row.css for row in view.hunks[0].rows] == ["context", "rem space", "add space"]


async def test_what_lies_between_hunks_is_counted_and_can_be_shown() -> None:
    lines = [f"{number}\n" for number in range(3 * GAP_ROWS)]
    new = [*lines[:10], "x\n", *lines[11:20], "y\n", "z\n", *lines[20:]]
    old_text, new_text = "".join(lines).encode(), "".join(new).encode()
    texts = await texts_of(Painter(), "a", old_text, new_text)
    found = diff(old_text, new_text)
    first, second, last = gaps_of(found, texts)
    assert first is not None
    assert second is not None
    assert last is not None
    assert (first.lines, second.lines) == (7, 3)
    shown_rows, left = gap_rows(second, redact, texts)
    assert left is None
    assert [(row.old, row.new, row.text) for row in shown_rows] == [
        (one + 1, one + 1, f"{one}") for one in (14, 15, 16)
    ]
    count, start, gap = 0, 0, last
    while gap is not None:
        rows, gap = gap_rows(last, redact, texts, start)
        start += len(rows)
        count += len(rows)
        assert rows[-1].new == rows[-1].old + 2  # type: ignore[operator]
    assert count == last.lines
    hunks = view_of(found, redact, texts, most_rows=1000)
    assert [one.gap for one in hunks.hunks] == [first, second]
    assert hunks.tail == last
    assert gaps_of(found, Texts()) == [None] * 3


def test_a_removed_file_has_lines_of_before() -> None:
    assert shown("a\nb\n", "").hunks[0].span == "lines 1 to 2 before"
    assert shown("", "a\n").hunks[0].span == "line 1"


@pytest.mark.parametrize("data", [b"\xff", b"a\xc3"])
async def test_what_is_no_text_has_no_lines(data: bytes) -> None:
    assert await texts_of(Painter(), "a", b"", data) == Texts()


def test_pieces_and_colours_may_end_anywhere() -> None:
    spans = (("ab", False), ("cd", True), ("e", False))
    assert painted(spans, [(3, "k"), (9, "s")], "ins") == Markup(
        '<span class="k">ab</span><ins><span class="k">c</span><span class="s">d</span></ins>'
        '<span class="s">e</span>'
    )
