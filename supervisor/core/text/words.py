"""Split git and package commands into words, and match their wildcards.

For command lines that no shell will read: it refuses whatever a shell would treat specially. `*`
stays in its word and crosses `/`.
"""

import re
from collections.abc import Sequence

from supervisor.core.text.display import first_hidden
from supervisor.errors import PolicyError

MAX_CHARS = 10_000
# Replaces the wildcards of a pattern when another pattern is compared with it: a character that
# only the other's wildcards match.
ANYTHING = "\x00"
_OPERATORS = frozenset(";&|<>(){}")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./^\[\]*?-]+\Z")


def split_command(text: str) -> list[str]:
    """Return the words of one simple command. Raise `ValueError` (a sentence part) if a shell would
    see more than words in it."""
    if len(text) > MAX_CHARS:
        raise ValueError("is too long")
    # Braille's blank is left to the parsers, which refuse it in names; here it could only lead to a
    # question.
    if first_hidden(text, kept="\t\u2800") is not None:
        raise ValueError("holds a line break or a hidden character")
    if _PLAIN.match(text.replace(" ", "a")) and "~" not in text:
        return text.split()
    words: list[str] = []
    at = 0
    while at < len(text):
        if text[at] in " \t":
            at += 1
            continue
        word, at = _word(text, at)
        words.append(word)
    return words


def _word(text: str, at: int) -> tuple[str, int]:
    if text[at] in "#~!":
        raise ValueError(f"holds a word that starts with `{text[at]}`")
    parts: list[str] = []
    while at < len(text) and text[at] not in " \t":
        char = text[at]
        if char == "'":
            end = text.find("'", at + 1)
            if end < 0:
                raise ValueError("has a quote that isn't closed")
            parts.append(text[at + 1 : end])
            at = end + 1
        elif char == '"':
            part, at = _double_quoted(text, at + 1)
            parts.append(part)
        elif char == "\\":
            if at + 1 >= len(text):
                raise ValueError("ends in a backslash")
            parts.append(text[at + 1])
            at += 2
        elif char in _OPERATORS or char in "$`":
            raise ValueError(f"holds `{char}`, which a shell would act on")
        else:
            parts.append(char)
            at += 1
    return "".join(parts), at


def _double_quoted(text: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while at < len(text):
        char = text[at]
        if char == '"':
            return "".join(parts), at + 1
        if char in "$`":
            raise ValueError(f"holds `{char}`, which a shell would act on")
        if char == "\\" and text[at + 1 : at + 2] in ("\\", '"', "$", "`"):
            at += 1
            char = text[at]
        parts.append(char)
        at += 1
    raise ValueError("has a quote that isn't closed")


def split_pattern(text: str, rule: str) -> tuple[str, ...]:
    """Return the words of a pattern. Raise `PolicyError` if they aren't words. `rule` is the text
    to show."""
    try:
        words = split_command(text)
    except ValueError as error:
        raise PolicyError(f"`{rule}` {error}", "a pattern is the words of one command") from None
    if not words:
        raise PolicyError(f"`{rule}` is empty", "write the words of one command")
    return tuple(words)


def is_star(word: str) -> bool:
    """Return whether a pattern's word is only a wildcard."""
    return bool(word) and not word.strip("*")


def fits(pattern: str, word: str) -> bool:
    """Return whether a pattern's word covers a word. `*` stands for any characters; no wildcard
    covers an empty word."""
    if "*" not in pattern:
        return pattern == word
    return word != "" and stars_fit(pattern.split("*"), word)


def stars_fit(parts: Sequence[str], text: str) -> bool:
    """Return whether a text consists of the parts in order, with anything between them. The
    leftmost place of each part is taken, so it takes linear steps."""
    first, last = parts[0], parts[-1]
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in parts[1:-1]:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def star_within(wide: str, narrow: str) -> bool:
    """Return whether a pattern's word covers everything that another one covers."""
    return fits(wide, narrow.replace("*", ANYTHING))


def quoted(text: str) -> str:
    """Return a word as a pattern spells it."""
    return (
        text
        if re.fullmatch(r"[A-Za-z0-9@._/+~^:=\[\],! -]*", text) and " " not in text
        else f"'{text}'"
    )
