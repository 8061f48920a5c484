"""The screen of a terminal, as a program's output draws it: rows of text with colours by name.

pyte keeps the cells. What it is fed comes from a tokenizer of our own, since an agent writes it:
every sequence is cut to its first parameters and unknown ones are dropped. Sequences that would
take time or memory out of proportion to their length (alignment test, reverse video, combining
characters without end, a stack of saved cursors) are bounded or left out (law 14).

Pure. It must never answer a program, change its own size on a program's word, or raise.
"""

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import lru_cache, partial
from itertools import islice
from typing import Any

import msgspec
from pyte.screens import Char, Cursor, Margins, Screen, StaticDefaultDict, wcwidth

ROWS, COLUMNS = 24, 80
MOST_ROWS, MOST_COLUMNS = 120, 300
MOST_HISTORY = 500
MOST_PARAMETERS = 32
MOST_DIGITS = 5
# Marks that one character carries, such as an accent.
MOST_MARKS = 4
# A sequence that is cut off by the end of a piece is kept until its rest comes, up to so much.
MOST_UNFINISHED = 4096
# ECMA-48 in seven bits: text, control sequences, strings (titles, links, device control) with or
# without their end, shorter escapes, controls. Each begins with its own character and gives nothing
# back, so the whole is linear.
_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]++)"
    r"|\x1b\[(?P<parameters>[0-?]*+)(?P<between>[ -/]*+)(?P<final>[@-~])?"
    r"|\x1b[\]PX^_][^\x07\x18\x1a\x1b]*+(?:\x07|\x1b\\|[\x18\x1a])?"
    r"|\x1b(?P<escape>[ -/]*+[0-Z\\`-~])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f])"
)
_UNFINISHED = re.compile(r"\x1b(?:[ -/]*+|\[[0-?]*+[ -/]*+|[\]PX^_][^\x07\x18\x1a]*+)")
# What only a program draws with that addresses the screen: moves up or to a place, clears it, or
# takes the alternate one.
_ADDRESSES = re.compile(rb"\x1b\[(?:[0-9;]{0,8}[ABHJf]|\?(?:47|1047|1049)h)")
_ALTERNATE = frozenset({47, 1047, 1049})
_MODES = frozenset({7, 25})  # wraps, and shows the cursor
_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
# The first eight colours as most terminals show them, then the same brighter.
_PALETTE = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0)),
    *((0, 0, 238), (205, 0, 205), (0, 205, 205), (205, 205, 205)),
    *((127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0)),
    *((92, 92, 255), (255, 0, 255), (0, 255, 255), (255, 255, 255)),
)
type _Line = StaticDefaultDict[int, Char]


class ScreenSpan(msgspec.Struct, frozen=True):
    """Text in one look: `looks` are words such as `red`, `on-blue`, `bold`, separated by blanks."""

    text: str
    looks: str = ""


class ScreenRow(msgspec.Struct, frozen=True):
    """A line of the screen. `continues`: the program wrote on into the next one."""

    spans: tuple[ScreenSpan, ...]
    continues: bool = False

    @property
    def text(self) -> str:
        """Return it without its colours."""
        return "".join(span.text for span in self.spans)


class TerminalScreen:
    """The screen of one program: feed it output in order, then ask for its rows."""

    def __init__(self, rows: int = ROWS, columns: int = COLUMNS) -> None:
        self._screen = _Screen(*_within(columns, rows))
        self._left = ""

    @property
    def size(self) -> tuple[int, int]:
        """Return its rows and columns."""
        return self._screen.lines, self._screen.columns

    @property
    def is_alternate(self) -> bool:
        """Return whether a program took the whole screen for itself."""
        return self._screen.kept is not None

    def resize(self, rows: int, columns: int) -> None:
        """Take the size that the person's terminal has from here on."""
        self._screen.take_size(*_within(columns, rows))

    def feed(self, text: str) -> None:
        """Take what the program printed next."""
        text = self._left + text
        end = text.rfind("\x1b", max(0, len(text) - MOST_UNFINISHED))
        if end < 0 or not _UNFINISHED.fullmatch(text, end):
            end = len(text)
        self._left = text[end:]
        for token in _TOKEN.finditer(text, 0, end):
            self._screen.take(token)

    def rows(self) -> list[ScreenRow]:
        """Return the rows of the screen, without the empty ones at its end."""
        screen = self._screen
        found = [screen.row(screen.buffer[y], y == screen.cursor.y) for y in range(screen.lines)]
        while found and not found[-1].spans:
            found.pop()
        return found

    def history(self, newest: int = MOST_HISTORY) -> list[ScreenRow]:
        """Return the newest lines that went off the top of the screen, oldest first."""
        gone = self._screen.gone
        found = islice(gone, max(0, len(gone) - newest), None)
        return [self._screen.row(line, is_here=False) for line in found]


def addresses_screen(data: bytes) -> bool:
    """Return whether output is drawn on a screen, rather than line after line."""
    return _ADDRESSES.search(data) is not None


def _within(columns: int, rows: int) -> tuple[int, int]:
    return min(max(columns, 2), MOST_COLUMNS), min(max(rows, 2), MOST_ROWS)


class _Screen(Screen):
    """pyte's screen with lines that went off it, the alternate screen, and bounds."""

    def __init__(self, columns: int, rows: int) -> None:
        self.gone: deque[_Line] = deque(maxlen=MOST_HISTORY)
        self.kept: tuple[dict[int, _Line], Cursor, Margins | None] | None = None
        self._last = ""
        super().__init__(columns, rows)

    # -- what a program says ----------------------------------------------------------------------

    def take(self, token: re.Match[str]) -> None:
        """Do what one token says."""
        if token["text"]:
            self.draw(token["text"])
        elif token["control"]:
            _CONTROLS.get(token["control"], _nothing)(self)
        elif token["final"] and not token["between"]:
            self._command(token["final"], token["parameters"])
        else:
            _ESCAPES.get(token["escape"] or "", _nothing)(self)

    def _command(self, final: str, text: str) -> None:
        mark = text[:1] if text[:1] in ("<", "=", ">", "?") else ""
        if mark == "?":
            if final in "hl":
                self._private(_numbers(text[1:]), is_on=final == "h")
        elif not mark and final == "m":
            self._paint(text)
        elif not mark and final in _COMMANDS:
            _COMMANDS[final](self, *_numbers(text)[: _GIVEN.get(final, 1)])

    def _private(self, modes: Iterable[int], *, is_on: bool) -> None:
        for mode in modes:
            if mode in _ALTERNATE and is_on != (self.kept is not None):
                self._alternate(is_on=is_on)
            elif mode in _MODES:
                (self.set_mode if is_on else self.reset_mode)(mode, private=True)

    def _alternate(self, *, is_on: bool) -> None:
        if is_on:
            self.kept = dict(self.buffer), self.cursor, self.margins
            self.buffer.clear()
            self.cursor = copy(self.cursor)
            self.margins = None
            return
        assert self.kept is not None
        lines, self.cursor, self.margins = self.kept
        self.kept = None
        self.buffer.clear()
        self.buffer.update(lines)
        self._keep_within()

    def _paint(self, text: str) -> None:
        """Take colours and looks. A parameter with colons is one, with its own parts."""
        numbers: list[int] = []
        for one in text.split(";")[:MOST_PARAMETERS]:
            parts = _numbers(one.replace(":", ";"))
            if len(parts) == 1 or parts[0] not in (38, 48):
                numbers.append(parts[0])
            elif parts[1] == 2:
                numbers += [parts[0], 2, *parts[-3:]]
            else:
                numbers += parts[:3]
        self.select_graphic_rendition(*numbers)

    # -- drawing ----------------------------------------------------------------------------------

    def draw(self, data: str) -> None:
        """Draw text at the cursor. A mark joins the character before it."""
        self._last = data[-1]
        if data.isascii():
            super().draw(data)
            return
        begin = 0
        for at, char in enumerate(data):
            if wcwidth(char) <= 0:
                super().draw(data[begin:at])
                self._mark(char)
                begin = at + 1
        super().draw(data[begin:])

    def _mark(self, char: str) -> None:
        line = self.buffer[self.cursor.y]
        last = line.get(self.cursor.x - 1)
        if last is not None and unicodedata.combining(char) and len(last.data) <= MOST_MARKS:
            line[self.cursor.x - 1] = last._replace(data=last.data + char)

    def index(self) -> None:
        """Go down a line. What goes off the top of the program's own screen is kept."""
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if self.cursor.y == bottom and top == 0 and self.kept is None:
            self.gone.append(self.buffer[0])
        super().index()

    def repeat(self, count: int = 1) -> None:
        """Draw the last character so many times more, in this line."""
        if self._last and wcwidth(self._last) == 1:
            line, start = self.buffer[self.cursor.y], min(self.cursor.x, self.columns)
            self.cursor.x = min(start + max(count, 1), self.columns)
            drawn = self.cursor.attrs._replace(data=self._last)
            line.update((x, drawn) for x in range(start, self.cursor.x))

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        """Erase to the end of the line, to its beginning, or all of it."""
        if how in (0, 1, 2):
            super().erase_in_line(how, private)

    def erase_in_display(self, how: int = 0, *args: Any, **kwargs: Any) -> None:
        """Erase below the cursor, above it, or everything; a line at a time, not a cell."""
        if how in (0, 1):
            self.erase_in_line(how)
        if how == 3:
            self.gone.clear()
        everything = range(self.lines)
        lines = {
            0: range(self.cursor.y + 1, self.lines),
            1: range(self.cursor.y),
            2: everything,
            3: everything,
        }
        for y in lines.get(how, ()):
            self.buffer[y] = StaticDefaultDict(self.cursor.attrs)

    def scroll_up(self, count: int = 1) -> None:
        """Move the lines between the margins up."""
        self._at_top(self.delete_lines, count)

    def scroll_down(self, count: int = 1) -> None:
        """Move the lines between the margins down."""
        self._at_top(self.insert_lines, count)

    def _at_top(self, act: Callable[[int], None], count: int) -> None:
        x, y = self.cursor.x, self.cursor.y
        self.cursor.y = (self.margins or Margins(0, 0)).top
        act(count)
        self.cursor.x, self.cursor.y = x, y

    def save_cursor(self) -> None:
        """Remember the cursor; one, as terminals do."""
        self.savepoints.clear()
        super().save_cursor()

    def restart(self) -> None:
        """Begin anew, as after `reset`."""
        self.kept = None
        self.savepoints.clear()
        self.reset()

    def take_size(self, columns: int, rows: int) -> None:
        """Take another size, without what then lies outside."""
        if rows < self.lines and self.kept is None and self.cursor.y >= rows:
            self.gone.extend(self.buffer[y] for y in range(self.cursor.y - rows + 1))
        self.resize(rows, columns)
        self.tabstops = set(range(8, columns, 8))
        self.margins = None
        self._keep_within()

    def _keep_within(self) -> None:
        self.ensure_hbounds()
        self.ensure_vbounds()
        for y in [y for y in self.buffer if y >= self.lines]:
            del self.buffer[y]

    # -- what a person sees -----------------------------------------------------------------------

    def row(self, line: _Line, is_here: bool) -> ScreenRow:
        """Return a line in spans. `is_here`: the cursor is in it."""
        cursor = self.cursor.x if is_here and not self.cursor.hidden else -1
        width = max([*(x + 1 for x in line if x < self.columns), cursor + 1, 0])
        if line.default.bg != "default":
            width = self.columns
        spans: list[tuple[str, list[str]]] = []
        for x in range(width):
            cell = line[x]
            looks = _looks(cell[1:]) + (" cursor" if x == cursor else "")
            if not spans or spans[-1][0] != looks:
                spans.append((looks, []))
            spans[-1][1].append(cell.data)
        found = [ScreenSpan("".join(texts), looks.strip()) for looks, texts in spans]
        if found and not found[-1].looks:
            rest = found.pop().text.rstrip(" ")
            found += [ScreenSpan(rest)] if rest else []
        return ScreenRow(tuple(found), continues=line[self.columns - 1].data != " ")


def _numbers(text: str) -> list[int]:
    """Return the first parameters, each cut to what can mean anything."""
    given = text[: MOST_PARAMETERS * (MOST_DIGITS + 1)].split(";")[:MOST_PARAMETERS]
    return [int(one[:MOST_DIGITS]) if one.isdecimal() and one.isascii() else 0 for one in given]


def _nothing(screen: _Screen) -> None:
    """Do nothing: bells, answers to a program, what nobody draws with."""


def _next_line(screen: _Screen) -> None:
    screen.carriage_return()
    screen.linefeed()


@lru_cache(maxsize=4096)
def _looks(attributes: tuple[Any, ...]) -> str:
    """Return the looks of a cell: foreground, background, then flags."""
    fg, bg, bold, italics, underscore, strikethrough, reverse, _ = attributes
    front, back = _colour(fg), _colour(bg)
    if reverse:
        front, back = back, front
    flags = (
        ("reversed", reverse and not front and not back),
        ("bold", bold),
        ("italic", italics),
        ("underlined", underscore),
        ("struck", strikethrough),
    )
    words = [front, f"on-{back}" if back else "", *(word for word, is_on in flags if is_on)]
    return " ".join(filter(None, words))


@lru_cache(maxsize=4096)
def _colour(name: str) -> str:
    """Return the name of the colour nearest to pyte's; empty for the terminal's own."""
    if name == "default":
        return ""
    plain = name.replace("brown", "yellow").replace("bfightmagenta", "brightmagenta")
    if plain.removeprefix("bright") in _NAMES:
        return plain.replace("bright", "bright-")
    red, green, blue = (int(name[at : at + 2], 16) for at in (0, 2, 4))
    distances = [
        (red - one[0]) ** 2 + (green - one[1]) ** 2 + (blue - one[2]) ** 2 for one in _PALETTE
    ]
    number = distances.index(min(distances))
    return _NAMES[number % 8] if number < 8 else f"bright-{_NAMES[number % 8]}"


_CONTROLS: Mapping[str, Callable[[_Screen], None]] = {
    **dict.fromkeys("\n\v\f", _Screen.linefeed),
    "\r": _Screen.carriage_return,
    "\b": _Screen.backspace,
    "\t": _Screen.tab,
    "\x0e": _Screen.shift_out,
    "\x0f": _Screen.shift_in,
}
_ESCAPES: Mapping[str, Callable[[_Screen], None]] = {
    "7": _Screen.save_cursor,
    "8": _Screen.restore_cursor,
    "D": _Screen.index,
    "E": _next_line,
    "H": _Screen.set_tab_stop,
    "M": _Screen.reverse_index,
    "c": _Screen.restart,
    # Letters, or the parts of frames.
    "(B": partial(_Screen.define_charset, code="B", mode="("),
    "(0": partial(_Screen.define_charset, code="0", mode="("),
    ")B": partial(_Screen.define_charset, code="B", mode=")"),
    ")0": partial(_Screen.define_charset, code="0", mode=")"),
}
_COMMANDS: Mapping[str, Callable[..., None]] = {
    "@": _Screen.insert_characters,
    "A": _Screen.cursor_up,
    "B": _Screen.cursor_down,
    "C": _Screen.cursor_forward,
    "D": _Screen.cursor_back,
    "E": _Screen.cursor_down1,
    "F": _Screen.cursor_up1,
    "G": _Screen.cursor_to_column,
    "H": _Screen.cursor_position,
    "J": _Screen.erase_in_display,
    "K": _Screen.erase_in_line,
    "L": _Screen.insert_lines,
    "M": _Screen.delete_lines,
    "P": _Screen.delete_characters,
    "S": _Screen.scroll_up,
    "T": _Screen.scroll_down,
    "X": _Screen.erase_characters,
    "`": _Screen.cursor_to_column,
    "a": _Screen.cursor_forward,
    "b": _Screen.repeat,
    "d": _Screen.cursor_to_line,
    "e": _Screen.cursor_down,
    "f": _Screen.cursor_position,
    "g": _Screen.clear_tab_stop,
    "r": _Screen.set_margins,
    "s": _Screen.save_cursor,
    "u": _Screen.restore_cursor,
}
# How many parameters a command takes, where that isn't one.
_GIVEN = {"H": 2, "f": 2, "r": 2, "s": 0, "u": 0}
