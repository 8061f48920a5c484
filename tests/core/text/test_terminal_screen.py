"""A terminal's screen: what programs draw comes out where they drew it, whatever they say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.text.terminal_screen import (
    MOST_COLUMNS,
    MOST_HISTORY,
    MOST_MARKS,
    MOST_ROWS,
    MOST_UNFINISHED,
    ScreenRow,
    ScreenSpan,
    TerminalScreen,
    addresses_screen,
)
from tests.worst_cases import FLOOR_S, LARGE, MOST_GROWTH, MOST_S, taken_s


def drawn(text: str, rows: int = 6, columns: int = 20) -> TerminalScreen:
    screen = TerminalScreen(rows, columns)
    screen.feed(f"\x1b[?25l{text}")
    return screen


def lines(screen: TerminalScreen) -> list[str]:
    return [row.text.removesuffix(" ") for row in screen.rows()]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one\r\ntwo", ["one", "two"]),
        ("\tx\b\by\x07\x00", ["       yx"]),
        ("a\x0bb\x0cc", ["a", " b", "  c"]),
        ("gone\x1b[2J\x1b[Hhere", ["here"]),
        ("a\x1b[5yb\x1b[>0mc\x1b[?5nd", ["abcd"]),
        ("\x1b[3;5Hx\x1b[2;2fy", ["", " y", "    x"]),
        ("abc\x1b[Dx\x1b[2Gy\x1b[1`z", ["zyx"]),
        ("\x1b[3Ca\x1b[1ab", ["   a b"]),
        ("a\x1b[2Bb\x1b[Ac\x1b[1ed", ["a", "  c", " b d"]),
        ("\x1b[3dlow\x1b[2Fup\x1b[Ednext", ["up", "dnext", "low"]),
        ("abcdef\x1b[3G\x1b[K", ["ab"]),
        ("abcdef\x1b[3G\x1b[1K", ["   def"]),
        ("abcdef\x1b[2Kx", ["      x"]),
        ("abcdef\x1b[9K", ["abcdef"]),
        ("a\r\nb\r\nc\x1b[2;1H\x1b[J", ["a"]),
        ("a\r\nb\r\nc\x1b[2;1H\x1b[1J", ["", "", "c"]),
        ("a\x1b[7J", ["a"]),
        ("abcd\x1b[2G\x1b[2Px", ["ax"]),
        ("abcd\x1b[2G\x1b[2@x", ["ax bcd"]),
        ("abcd\x1b[2G\x1b[2Xx", ["ax d"]),
        ("a\r\nb\x1b[1;1H\x1b[Lx", ["x", "a", "b"]),
        ("a\r\nb\x1b[1;1H\x1b[M", ["b"]),
        ("a\r\nb\x1b[Sc", ["b", " c"]),
        ("a\r\nb\x1b[Tc", ["", "ac", "b"]),
        ("ab\x1b[3bc", ["abbbbc"]),
        ("\x1b[99bc", ["c"]),
        ("a\x1b7\x1b[3;3Hb\x1b8c\x1b[sd\x1b[ue", ["ace", "", "  b"]),
        ("\x1b8a", ["a"]),
        ("a\x1bEb\x1bMc\x1bDd", ["ac", "b d"]),
        ("abc\x1bcx", ["x"]),
        ("\x1b[3g\x1b[5G\x1bH\r\tx", ["    x"]),
        ("\x1b[?7l" + "x" * 30 + "y", ["x" * 19 + "y"]),
        ("e\u0301 漢x\ufe0f", ["e\u0301 漢x"]),
        ("\u0301a", ["a"]),
        ("\x1b(0lqk\x1b(B q\x1b)0\x0eq\x0fq\x1b)B\x0eq", ["┌─┐ q─qq"]),
        ("title\x1b]0;a title\x07\x1b]8;;http://x\x1b\\\x1bPq#1\x1b\\.", ["title."]),
        ("\x1b]0;cut off\x1b[1mx", ["x"]),
        ("\x1b[?2004h\x1b[>1u\x1b[=5h\x1b[!p\x1b[4\x01\x1b[zx\x1b%G\x1b=", ["x"]),
        ("\x1b[9;9;9;9Ax\x1b[999999999999Cy", ["x                  y"]),
        ("\x1b[²Ax\x1b[;Hy", ["yAx"]),
        ("\x1b[2;3r\x1b[3;1Ha\r\nb\r\nc", ["", "b", "c"]),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_a_program_draws_stands_where_it_drew_it(text: str, shown: list[str]) -> None:
    assert lines(drawn(text)) == shown
    in_pieces = TerminalScreen(6, 20)
    for char in f"\x1b[?25l{text}":
        in_pieces.feed(char)
    assert lines(in_pieces) == shown


def test_lines_that_leave_the_screen_are_kept_up_to_a_number() -> None:
    screen = drawn("".join(f"line {number}\r\n" for number in range(600)))
    assert lines(screen) == [f"line {number}" for number in range(595, 600)]
    gone = [row.text for row in screen.history()]
    assert len(gone) == MOST_HISTORY
    assert gone[-1] == "line 594"
    screen.feed("\x1b[3J")
    assert screen.history() == screen.rows() == []


def test_the_alternate_screen_leaves_the_other_as_it_was() -> None:
    screen = drawn("shell\r\n\x1b[?1049h\x1b[Hfull" + "\r\n" * 20)
    assert screen.is_alternate
    assert lines(screen) == []
    assert screen.history() == []
    screen.feed("\x1b[?1049h\x1b[?1049l\x1b[?47l$")
    assert not screen.is_alternate
    assert lines(screen) == ["shell", "$"]
    screen.feed("\x1b[?1049hx\x1bc")
    assert (screen.is_alternate, lines(screen)) == (False, [""])


def test_another_size_keeps_what_fits() -> None:
    screen = drawn("".join(f"{number}\r\n" for number in range(5)) + "x" * 15)
    screen.resize(3, 10)
    assert screen.size == (3, 10)
    assert lines(screen) == ["3", "4", "x" * 10]
    assert [row.text for row in screen.history()] == ["0", "1", "2"]
    screen.resize(5, 30)
    screen.feed("\x1b[5;30Hy")
    assert lines(screen)[-1] == " " * 29 + "y"
    screen.feed("\x1b[?1049h\x1b[5;1Hlow")
    screen.resize(2, 8)
    screen.feed("\x1b[?1049l")
    assert len(lines(screen)) <= 2
    screen.resize(10**6, 10**6)
    assert screen.size == (MOST_ROWS, MOST_COLUMNS)
    screen.resize(0, 0)
    assert screen.size == (2, 2)


@pytest.mark.parametrize(
    ("sequence", "looks"),
    [
        ("0", ""),
        ("1;31", "red bold"),
        ("3;4;9", "italic underlined struck"),
        ("33", "yellow"),
        ("93;105", "bright-yellow on-bright-magenta"),
        ("34;7", "on-blue"),
        ("7", "reversed"),
        ("38;5;208", "yellow"),
        ("38:5:21", "blue"),
        ("48;2;0;200;0", "on-green"),
        ("38:2::250:250:250", "bright-white"),
        ("4:3", "underlined"),
        ("38;5", ""),
        ("38;5;999", ""),
        ("38;2;99999;0;0", "black"),
        ("1;22;31;39", ""),
    ],
)
def test_colours_have_names(sequence: str, looks: str) -> None:
    row = drawn(f"\x1b[{sequence}mx").rows()[0]
    if sequence == "38;2;99999;0;0":  # whatever it is, it is a colour
        assert len(row.spans[0].looks.split()) == 1
    else:
        assert row.spans == (ScreenSpan("x", looks),)


def test_a_cleared_ground_has_its_colour_and_the_cursor_is_seen() -> None:
    screen = drawn("\x1b[44m\x1b[2J")
    assert screen.rows() == [ScreenRow((ScreenSpan(" " * 20, "on-blue"),))] * 6
    screen = TerminalScreen(3, 5)
    screen.feed("ab")
    assert screen.rows() == [ScreenRow((ScreenSpan("ab"), ScreenSpan(" ", "cursor")))]
    screen.feed("\x1b[31mcde")
    assert screen.rows()[0].continues


def test_marks_and_unfinished_sequences_are_bounded() -> None:
    screen = drawn("e" + "\u0301\x1b[m" * 1000)
    assert screen.rows() == [ScreenRow((ScreenSpan("e" + "\u0301" * MOST_MARKS),))]
    screen = drawn("\x1b]0;" + "x" * (MOST_UNFINISHED - 4))
    screen.feed("y" * 10)
    assert lines(screen) == []
    screen.feed("z")
    assert lines(screen) == ["z"]


@pytest.mark.parametrize(
    ("data", "is_drawn"),
    [
        (b"plain\r\n\x1b[31mred\x1b[0m\x1b[K", False),
        (b"50 %\r51 %", False),
        (b"\x1b[2J", True),
        (b"\x1b[10;1H", True),
        (b"\x1b[1A\x1b[2K", True),
        (b"\x1b[?1049h", True),
        (b"\x1b[?25l", False),
    ],
)
def test_a_program_that_draws_is_told_from_one_that_prints(data: bytes, is_drawn: bool) -> None:
    assert addresses_screen(data) is is_drawn


PIECES = st.one_of(
    st.text(max_size=5),
    st.sampled_from(["\x1b[", "\x1b]", "\x1b", "\x1bP", ";", "?", "9999", "\n", "\x07", "38:2"]),
    st.sampled_from("@ABCDEFGHJKLMPSTXZabcdefghlmnqrstu78c\\()#%^_"),
)


@given(st.lists(PIECES, max_size=40), st.integers(-1, 400), st.integers(-1, 400))
def test_nothing_that_a_program_says_raises(texts: list[str], rows: int, columns: int) -> None:
    screen = TerminalScreen(5, 12)
    for text in texts:
        screen.feed(text)
    screen.resize(rows, columns)
    screen.feed("".join(texts))
    found = screen.rows()
    assert len(found) <= screen.size[0] <= MOST_ROWS
    assert all(len(one.spans) <= MOST_COLUMNS for one in [*found, *screen.history()])


@pytest.mark.untraced
@pytest.mark.parametrize(
    "unit",
    [
        *("\n", "\t", "x", "漢", "e\u0301", "a\x1b[9999b", "\x1b7", "\x1b#8", "\x1b]0;", "\x1b["),
        *("\x1b[J", "\x1b[2J", "\x1b[K", "\x1b[L", "\x1b[@", "\x1b[9S", "\x1b[?47h\x1b[?47l"),
    ],
    ids=repr,
)
def test_time_grows_with_the_output_and_not_faster(unit: str) -> None:
    def fed(size: int) -> float:
        screen = TerminalScreen(MOST_ROWS, MOST_COLUMNS)
        for _ in range(MOST_ROWS):
            screen.feed("x" * MOST_COLUMNS)
        return taken_s(screen.feed, unit * (size // len(unit))) or MOST_S

    # A machine with much to do slows one measurement, never all three.
    assert any(fed(LARGE) <= max(FLOOR_S, MOST_GROWTH * fed(LARGE // 4)) for _ in range(3))
