"""Reader of one bash word: quotes, escapes, expansions and globs.

The strict reader of lines, the walk over the tree and the rules' patterns share it, because they
must agree on how a word is read. It must never call a word literal that the shell would still
change.

All texts here are *byte text*: UTF-8 bytes decoded as Latin-1, so that an offset is a byte offset,
the same as tree-sitter's. `to_bytes_text` and `from_bytes_text` convert.
"""

import re
from collections.abc import Generator, Iterator
from functools import lru_cache
from itertools import takewhile

import msgspec

PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./^-]+\Z")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=")
DOUBLE_RUN = re.compile(r"[^\"\\$`]+")
# The expansions that can do nothing but insert text: no default value, no indirection, no
# arithmetic on variables.
SIMPLE_EXPANSION = re.compile(
    r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[?#@*!$0-9-]|\{#?(?:[A-Za-z_][A-Za-z0-9_]*|[?@*!$-]|[0-9]+)\}|\(\([0-9"
    r" +*%-]+\)\))"
)
# Expansions that are always digits alone.
_DIGITS = re.compile(r"\$[?#$]|\$\{[?$]\}")
_MANY = re.compile(r"\$\{?[@*]")
_OTHER_TILDE = re.compile(r"~[A-Za-z0-9+_.-]+(?=/|\Z)")
_LITERAL_CAT = re.compile(
    r"\$\([ \t]*cat[ \t]+<<(-?)["
    r" \t]*(?:'([A-Za-z0-9_.!-]+)'|\"([A-Za-z0-9_.!-]+)\"|\\([A-Za-z0-9_]+))[ \t]*\n"
)
_LITERAL_CAT_END = re.compile(r"[ \t\n]*\)")
# `\x{...}` has any number of digits, of which the last two count, and may lack its brace (bash's
# `ansicstr`).
_ANSI_ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2}|\{[0-9A-Fa-f]*\}?)|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(\\\\|.)|(.))",
    re.DOTALL,
)
_CONTROL = re.compile(r"[A-Za-z@\[\]^_?]|\\\\")
_ANSI_SIMPLE = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))


_SHORT_CHARS = 64


class Word(msgspec.Struct, frozen=True, gc=False):
    """A word as the shell would pass it, as far as known without running anything.

    `text` is the word itself if `is_literal`; otherwise it shows the expansions as written.
    `prefix` is what the word certainly starts with. `splits`: it may become several words or none
    (an unquoted expansion), which may start differently from `prefix`. `globs` and `braces`: it may
    become several, all starting with `prefix`. `is_number`: one word whose expansions are digits
    (`"$?"`).
    """

    text: str
    is_literal: bool = True
    prefix: str = ""
    splits: bool = False
    globs: bool = False
    raw: str = ""
    is_number: bool = False

    @property
    def is_many(self) -> bool:
        """Return whether the shell may pass several words, or none, for it."""
        return self.splits or self.globs

    @property
    def may_be_option(self) -> bool:
        """Return whether an expansion in it may turn it into an option."""
        return not self.is_literal and (
            self.splits or self.prefix.startswith("-") or not (self.prefix or self.is_number)
        )


def to_bytes_text(text: str) -> str:
    """Return UTF-8 bytes as Latin-1 text. A lone surrogate becomes `?` (such a text is never
    allowed)."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("latin-1")


def from_bytes_text(text: str) -> str:
    """Undo `to_bytes_text`. Bytes that aren't UTF-8 are kept as surrogates, so that they equal
    nothing that was typed."""
    return (
        text
        if text.isascii()
        else text.encode("latin-1", "replace").decode("utf-8", "surrogateescape")
    )


# --- one word ------------------------------------------------------------------------------------


class WordPiece(msgspec.Struct, frozen=True, gc=False):
    """A part of a word: `text` (literal), `glob` (one unquoted `*`, `?` or `[`), `brace`, `one`
    or `many` (expansions)."""

    kind: str
    text: str


def ansi_c(body: str) -> str | None:
    """Decode `$'body'` as bash does. Return None if it holds a NUL (bash cuts the string there) or
    an escape that bash versions read differently."""

    def replace(match: re.Match[str]) -> str:
        hex_byte, u4, u8, octal, control, simple = match.groups()
        if hex_byte is not None:
            return chr(int(hex_byte.strip("{}")[-2:] or "0", 16))
        if u4 is not None or u8 is not None:
            point = int(u4 or u8, 16)
            return (
                chr(point).encode("utf-8", "replace").decode("latin-1")
                if point <= 0x10FFFF
                else "\0"
            )
        if octal is not None:
            return chr(int(octal, 8) & 0xFF)
        if control is not None:
            # How bash reads the others depends on its version.
            return chr(ord(control[0].upper()) ^ 0x40) if _CONTROL.fullmatch(control) else "\0"
        return _ANSI_SIMPLE.get(simple) or (simple if simple in "\\'\"?" else "\\" + simple)

    text = _ANSI_ESCAPE.sub(replace, body)
    return None if "\0" in text else text


def ansi_c_end(source: str, start: int) -> int:
    """Return the offset after the quote that closes `$'` at `start`, or -1."""
    i = start + 2
    while i < len(source):
        if source[i] == "\\":
            i += 2
        elif source[i] == "'":
            return i + 1
        else:
            i += 1
    return -1


def literal_cat(source: str, start: int) -> tuple[int, str] | None:
    """Return the offset after `$(cat <<'EOF' ... EOF)` at `start`, and its text; None if it is
    anything else."""
    head = _LITERAL_CAT.match(source, start)
    if head is None:
        return None
    delimiter = head[2] or head[3] or head[4]
    lines: list[str] = []
    at = head.end()
    while at < len(source):
        end = source.find("\n", at)
        if end < 0:
            return None
        line = source[at:end].lstrip("\t") if head[1] else source[at:end]
        at = end + 1
        if line == delimiter:
            tail = _LITERAL_CAT_END.match(source, at)
            return (tail.end(), "\n".join(lines).rstrip("\n")) if tail else None
        lines.append(line)
    return None


def pieces(raw: str) -> Iterator[WordPiece]:
    """Return the parts of one word's source text. Anything that isn't understood becomes one last
    part of kind `many`."""
    # A brace expansion has a `,` or `..` between its braces: looked for once, not at each brace.
    closing = raw.rfind("}")
    parted = max(raw.rfind(",", 0, max(closing, 0)), raw.rfind("..", 0, max(closing, 0)))
    i = 0
    while i < len(raw):
        char = raw[i]
        if char == "\\":
            if raw[i + 1 : i + 2] != "\n":
                yield WordPiece("text", raw[i + 1 : i + 2] or "\\")
            i += 2
        elif char == "'":
            end = raw.find("'", i + 1)
            if end < 0:
                yield WordPiece("many", raw[i:])
                return
            yield WordPiece("text", raw[i + 1 : end])
            i = end + 1
        elif char == '"':
            i = yield from _double(raw, i + 1)
        elif char == "$" or char == "`":
            i = yield from _dollar(raw, i, quoted=False)
        elif char in "*?[" and raw != "[":
            yield WordPiece("glob", char)
            i += 1
        elif char == "{" and i < parted:
            yield WordPiece("brace", raw[i:])
            return
        else:
            end = i + 1
            while end < len(raw) and raw[end] not in "\\'\"$`*?[{":
                end += 1
            yield WordPiece("text", raw[i:end])
            i = end


def _double(raw: str, start: int) -> Generator[WordPiece, None, int]:
    i = start
    yield WordPiece("text", "")
    while i < len(raw) and raw[i] != '"':
        run = DOUBLE_RUN.match(raw, i)
        if run:
            yield WordPiece("text", run[0])
            i = run.end()
        elif raw[i] == "\\":
            following = raw[i + 1 : i + 2]
            if following != "\n":
                yield WordPiece("text", following if following in '$`"\\' else "\\" + following)
            i += 2
        else:
            i = yield from _dollar(raw, i, quoted=True)
    return i + 1


def _dollar(raw: str, i: int, *, quoted: bool) -> Generator[WordPiece, None, int]:
    if raw[i] == "$" and not quoted and raw[i + 1 : i + 2] == "'":
        end = ansi_c_end(raw, i)
        text = ansi_c(raw[i + 2 : end - 1]) if end > 0 else None
        yield WordPiece("many", raw[i:]) if text is None else WordPiece("text", text)
        return end if end > 0 else len(raw)
    simple = SIMPLE_EXPANSION.match(raw, i)
    if simple:
        many = not quoted or _MANY.match(simple[0])
        yield WordPiece("many" if many else "one", simple[0])
        return simple.end()
    if quoted:
        literal = literal_cat(raw, i)
        if literal:
            yield WordPiece("text", literal[1])
            return literal[0]
    if raw[i] == "$" and (
        raw[i + 1 : i + 2] in (" ", "", '"', "\n") or not re.match(r"[({\['\"]", raw[i + 1 :])
    ):
        if raw[i + 1 : i + 2] == '"' and not quoted:
            yield WordPiece("many", raw[i:])
            return len(raw)
        yield WordPiece("text", "$")
        return i + 1
    # A substitution, or an expansion that does more than insert: its end doesn't matter, because
    # nothing after it is certain.
    yield WordPiece("many", raw[i:])
    return len(raw)


def resolve(raw: str) -> Word:
    """Return the word that byte text `raw` stands for."""
    if PLAIN.match(raw):
        return Word(raw)
    return _often(raw) if len(raw) <= _SHORT_CHARS else _read(raw)


def _read(raw: str) -> Word:
    # `~` and `~/x` stay as written, for rules and for reasons: the sandbox has one home. `~+`, `~-`
    # and `~user` are unknown folders here.
    elsewhere = _OTHER_TILDE.match(raw)
    found = list(pieces(raw[elsewhere.end() :] if elsewhere else raw))
    if elsewhere:
        found.insert(0, WordPiece("one", elsewhere[0]))
    if all(piece.kind == "text" for piece in found):
        return Word(from_bytes_text("".join(piece.text for piece in found)), raw=raw)
    prefix = "".join(piece.text for piece in takewhile(lambda piece: piece.kind == "text", found))
    kinds = {piece.kind for piece in found}
    return Word(
        text=from_bytes_text("".join(piece.text for piece in found)),
        is_literal=False,
        prefix=from_bytes_text(prefix),
        splits="many" in kinds or ("brace" in kinds and any(mark in raw for mark in "$`")),
        globs="glob" in kinds or "brace" in kinds,
        raw=raw,
        is_number=kinds <= {"text", "one"}
        and all(_DIGITS.fullmatch(p.text) for p in found if p.kind == "one"),
    )


# Cached, because `"$x"`, `*` and `*.py` occur again and again.
_often = lru_cache(maxsize=1024)(_read)
