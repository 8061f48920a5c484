"""Deceptive characters become visible; ordinary text of any language stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.text.display import MOST_STACKED, is_hidden, is_stacked, visible
from tests.tables import each_row


@each_row(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("Zürich 東京", "Zürich 東京"),
        ("a\x1b[2Jb", "a\\u{1b}[2Jb"),
        ("exe.\u202egpj", "exe.\\u{202e}gpj"),
        ("pay\u200bpal", "pay\\u{200b}pal"),
        ("a\rb", "a\\u{d}b"),
        ("tab\there\n", "tab\there\n"),
        ("\u2028", "\\u{2028}"),
        ("\x00", "\\u{0}"),
        ("\ud800", "\\u{d800}"),
        ("a\x1b[2J\n\tb", "a\\u{1b}[2J\n\tb"),
        ("a\u2800\u034f\U000e0101b", "a\\u{2800}\\u{34f}\\u{e0101}b"),
        ("e\u0301" * 3, "e\u0301" * 3),
        ("e" + "\u0301" * 6 + "x", "e" + "\u0301" * 4 + "\\u{301}\\u{301}x"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_one_line_text_has_one_line() -> None:
    assert visible("a\nb\tc", one_line=True) == "a\\nb\\u{9}c"


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    shown = visible(text, one_line=True)
    assert all(char.isprintable() for char in shown)
    assert visible(shown, one_line=True) == shown


def one_by_one(text: str, *, one_line: bool) -> str:
    """The same, each character by itself."""
    shown, stacked = "", 0
    for char in text:
        stacked = stacked + 1 if is_stacked(char) else 0
        is_kept = char in "\n\t" and not one_line
        is_odd = not char.isprintable() or (not char.isascii() and is_hidden(char))
        is_spelled = stacked > MOST_STACKED or (is_odd and not is_kept)
        spelled = "\\n" if char == "\n" else f"\\u{{{ord(char):x}}}"
        shown += spelled if is_spelled else char
    return shown


_MARKS = st.text(st.sampled_from("\u0301\u0489\u034f\u180b\u20dd"), min_size=3, max_size=9)
_PIECES = st.one_of(st.text(), _MARKS, st.sampled_from(["\n\t", "[", "]^-\\", "\u200b", "ü" * 40]))


@given(st.lists(_PIECES).map("".join), st.booleans())
def test_a_text_is_shown_as_its_characters_are(text: str, one_line: bool) -> None:
    assert visible(text, one_line=one_line) == one_by_one(text, one_line=one_line)


@pytest.mark.untraced
@each_row("plane", range(17))
def test_every_character_is_shown_as_by_itself(plane: int) -> None:
    for first in range(plane << 16, plane + 1 << 16, 1 << 12):
        text = "a".join(map(chr, range(first, first + (1 << 12))))
        assert visible(text) == one_by_one(text, one_line=False)
