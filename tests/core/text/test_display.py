"""Deceptive characters become visible; ordinary text of any language stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.text.display import visible


@pytest.mark.parametrize(
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
