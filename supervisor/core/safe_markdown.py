"""Markdown of a model that may be posted: code, lists and emphasis stay, everything else is text.

Pure, and linear in the text. A small reader finds what stays and writes it anew, in one spelling;
all other characters are escaped as in `review_markdown.plain`. So no reader of Markdown finds a
link, an image, a heading, HTML, a mention or a reference in it, whatever the text holds (law 6).
"""

import re
from typing import NamedTuple

from supervisor.core.review_markdown import escaped, fenced, line_escaped, unindented
from supervisor.core.text.display import visible

# Deeper lists are shown at this level.
MOST_LEVELS = 4
# Kinds of code that a block may name. Others could do more than colour it, as `suggestion` and
# `mermaid` do on GitHub.
LANGUAGES = frozenset(
    {
        *("bash", "c", "clojure", "console", "cpp", "cs", "csharp", "css", "dart", "diff"),
        *("dockerfile", "elixir", "erlang", "go", "graphql", "groovy", "haskell", "hcl", "html"),
        *("http", "ini", "java", "javascript", "js", "json", "jsx", "julia", "kotlin", "latex"),
        *("less", "lua", "makefile", "nginx", "nix", "objc", "ocaml", "perl", "php", "powershell"),
        *("proto", "python", "py", "r", "rb", "ruby", "rs", "rust", "sass", "scala", "scss", "sh"),
        *("shell", "sql", "svelte", "swift", "terraform", "text", "toml", "ts", "tsx", "txt"),
        *("typescript", "vue", "xml", "yaml", "yml", "zig", "zsh"),
    }
)
_FENCE = re.compile(r"( *+)(`{3,}+|~{3,}+)([^`]*+)")
_ITEM = re.compile(r"([ \t]*+)(?:[-*+]|(0|[1-9][0-9]{0,8}+)[.)])[ \t]++(.*+)")
_TICKS = re.compile("`++")
_STARS = re.compile(r"\*++")
_BEFORE = " \t(\"'"
_AFTER = re.compile("[.,;:!?)\"']*+(?:[ \t]|\\Z)")


def safe(text: str) -> str:
    """Return `text` with its code, lists and emphasis, and the rest as plain text."""
    blocks = _Blocks()
    lines = visible(text.replace("\r\n", "\n")).split("\n")
    at = 0
    while at < len(lines):
        fence = _FENCE.fullmatch(lines[at])
        at += 1
        if fence is None:
            blocks.line(lines[at - 1])
            continue
        start = at
        while at < len(lines) and not _closes(lines[at], fence[2]):
            at += 1
        blocks.code(fence, lines[start:at])
        at += 1
    return "\n".join(blocks.lines)


def safe_line(text: str) -> str:
    """Return `text` on one line, with its code, and the rest as plain text."""
    line = visible(text.replace("\r\n", "\n"), one_line=True).strip()
    return line_escaped(_marked(line, _code_spans(line)))


def code_span(text: str) -> str:
    """Return one line as code."""
    shown = visible(text, one_line=True)
    return _span(shown) if shown.strip() else ""


def fitted(text: str, most_chars: int) -> str:
    """Return the same as `safe`, of as much of the text as fits."""
    found = safe(text)
    most = min(len(text), most_chars)
    while len(found) > most_chars:
        found = safe(text[:most].rstrip() + "…")
        most = max(0, most - max(1, (len(found) - most_chars) // 2))
    return found


class _Level(NamedTuple):
    """A list that is open: the column of its items in the text, the columns of an item's content
    in what is written, and its last number; None for a list of bullets."""

    column: int
    width: int
    number: int | None


class _Blocks:
    """Writes blocks line by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._levels: list[_Level] = []

    def line(self, line: str) -> None:
        """Write a line outside of code."""
        item = _ITEM.fullmatch(line)
        if not line.strip():
            self.lines.append("")
        elif item is None or not item[3] or not self._item(item):
            self._text(line)

    def code(self, fence: re.Match[str], lines: list[str]) -> None:
        """Write a block of code."""
        indent = len(fence[1])
        self._close(indent)
        info = fence[3].strip().lower()
        shown = "\n".join(one[min(indent, _leading(one)) :] for one in lines)
        block = fenced(shown, info if info in LANGUAGES else "")
        pad = " " * self._width()
        self.lines += [pad + one if one else "" for one in block.split("\n")]

    def _item(self, item: re.Match[str]) -> bool:
        """Write an item of a list; return whether it is one. A number that doesn't follow the one
        before is none: it would be shown as another."""
        column = len(item[1].expandtabs(4))
        number = None if item[2] is None else int(item[2])
        levels = self._levels
        while len(levels) > 1 and column < levels[-1].column:
            levels.pop()
        is_nested = not levels or (column >= levels[-1].column + 2 and len(levels) < MOST_LEVELS)
        begins = is_nested or (number is None) != (levels[-1].number is None)
        if not begins and number is not None and number != (levels[-1].number or 0) + 1:
            return False
        if not is_nested:
            column = levels.pop().column
        if begins and not (levels and number is None and is_nested):
            self._part()
        pad = " " * self._width()
        marker = "- " if number is None else f"{number}. "
        levels.append(_Level(column, len(pad) + len(marker), number))
        self.lines.append(pad + marker + line_escaped(_inline(item[3])))
        return True

    def _text(self, line: str) -> None:
        if self.lines and not self.lines[-1]:
            self._close(len(line[: len(line) - len(line.lstrip())].expandtabs(4)))
        if self._levels:
            self.lines.append(" " * self._width() + line_escaped(_inline(line.strip())))
        else:
            self.lines.append(unindented(line_escaped(_inline(line))))

    def _close(self, column: int) -> None:
        """End the lists whose items don't hold what begins at this column."""
        while self._levels and column <= self._levels[-1].column:
            self._levels.pop()

    def _part(self) -> None:
        """Part what follows from a paragraph, which it might be taken to go on with."""
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def _width(self) -> int:
        return self._levels[-1].width if self._levels else 0


# A piece of a line that stays: where it begins and ends, and how it is written.
type _Piece = tuple[int, int, str]


def _inline(line: str) -> str:
    """Return a line with its code and emphasis."""
    code = _code_spans(line)
    return _marked(line, sorted([*code, *_emphasis(line, code)]))


def _marked(line: str, pieces: list[_Piece]) -> str:
    made, done = [], 0
    for start, end, written in pieces:
        made += [escaped(line[done:start]), written]
        done = end
    return "".join([*made, escaped(line[done:])])


def _code_spans(line: str) -> list[_Piece]:
    """Return the code of a line: what lies between two runs of backticks of one length."""
    runs = [found.span() for found in _TICKS.finditer(line)]
    closing: list[int | None] = []
    next_of: dict[int, int] = {}
    for at in reversed(range(len(runs))):
        size = runs[at][1] - runs[at][0]
        closing.append(next_of.get(size))
        next_of[size] = at
    closing.reverse()
    found: list[_Piece] = []
    at = 0
    while at < len(runs):
        (start, inner), close = runs[at], closing[at]
        at += 1
        if close is None:
            continue
        content, end = line[inner : runs[close][0]], runs[close][1]
        # Between dollar signs GitHub reads mathematics.
        is_maths = "$" in line[max(0, start - 1) : start] + line[end : end + 1]
        if content.strip() and not is_maths:
            if content[0] == content[-1] == " ":
                content = content[1:-1]
            found.append((start, end, _span(content)))
        at = close + 1
    return found


def _span(content: str) -> str:
    """Return code whose backticks can't end it."""
    longest = max(map(len, _TICKS.findall(content)), default=0)
    is_padded = content.startswith("`") or content.endswith("`")
    is_padded = is_padded or content[0] == content[-1] == " "
    pad, fence = " " if is_padded else "", "`" * (longest + 1)
    return f"{fence}{pad}{content}{pad}{fence}"


def _emphasis(line: str, code: list[_Piece]) -> list[_Piece]:
    """Return the stars of emphasis: two runs of one or two with no other between, the first at the
    beginning of a word, the second at an end."""
    parts, done = [], 0
    for start, end, _ in code:
        parts += [line[done:start], "`" * (end - start)]
        done = end
    shown = "".join([*parts, line[done:]])
    runs = [found.span() for found in _STARS.finditer(shown)]
    found: list[_Piece] = []
    at = 0
    while at + 1 < len(runs):
        (start, end), (last, after) = runs[at], runs[at + 1]
        size = end - start
        is_pair = size == after - last and size <= 2 and shown[end] not in " \t"
        begins = start == 0 or shown[start - 1] in _BEFORE
        if is_pair and begins and shown[last - 1] not in " \t" and _AFTER.match(shown, after):
            found += [(start, end, "*" * size), (last, after, "*" * size)]
            at += 1
        at += 1
    return found


def _closes(line: str, fence: str) -> bool:
    found = line.strip()
    return len(found) >= len(fence) and not found.strip(fence[0])


def _leading(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
