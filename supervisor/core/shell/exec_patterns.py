"""Exec patterns: parsing, and the two ways to match a command's words.

Decides for one pattern and one command; `exec_rules` combines the answers. It must never let a
wildcard cover an opaque argument, or a word that an expansion could turn into one (see `covers`).
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from supervisor.core.shell.exec_tables import (
    basename,
    opaque_words,
    program_name,
    runs_input,
    subcommand_at,
    tables,
)
from supervisor.core.shell.shell_outline import GiveUp, spans
from supervisor.core.shell.shell_words import (
    ASSIGNMENT,
    Word,
    WordPiece,
    from_bytes_text,
    pieces,
    to_bytes_text,
)
from supervisor.errors import PolicyError

MAX_PATTERN_CHARS = 2_000
# Most patterns: only blanks and `*` in them are special to a shell.
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./^* -]+\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# The last word of a pattern: any further arguments, none outside the workspace.
INSIDE = "{workspace}"


class PatternWord(msgspec.Struct, frozen=True, gc=False):
    """One word of a pattern: `literal` if it has no wildcard; otherwise `parts`, the literal texts
    around each `*`. `raw` is the word as written."""

    literal: str | None
    parts: tuple[str, ...] = ()
    raw: str = ""

    @property
    def is_star(self) -> bool:
        """Return whether the word is only a wildcard."""
        return self.literal is None and not any(self.parts)

    def matches(self, text: str) -> bool:
        """Return whether the text is covered: `*` stands for any characters, `/` included."""
        if self.literal is not None:
            return text == self.literal
        first, last = self.parts[0], self.parts[-1]
        if (
            len(text) < len(first) + len(last)
            or not text.startswith(first)
            or not text.endswith(last)
        ):
            return False
        at, end = len(first), len(text) - len(last)
        for part in self.parts[1:-1]:
            found = text.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


class ExecPattern(msgspec.Struct, frozen=True, gc=False):
    """A compiled pattern. `has_tail`: its last word is `*`, for any further arguments; `words` then
    leaves it out.

    `stays_inside`: its last word is `{workspace}`, for any further arguments that lie inside the
    workspace.
    """

    text: str
    words: tuple[PatternWord, ...]
    has_tail: bool
    is_bare: bool
    stays_inside: bool = False

    @property
    def has_options(self) -> bool:
        """Return whether it spells out an option or the start of one."""
        return any(_starts_with_dash(word) for word in self.words[1:])

    @property
    def is_exact(self) -> bool:
        """Return whether every word is spelled out."""
        return not self.has_tail and all(word.literal is not None for word in self.words)

    def behind(self, start: int) -> "ExecPattern | None":
        """Return the pattern from word `start` on; None if that word isn't spelled out."""
        if start >= len(self.words) or self.words[start].literal is None:
            return None
        return ExecPattern(
            self.text,
            self.words[start:],
            self.has_tail,
            is_bare=False,
            stays_inside=self.stays_inside,
        )


@lru_cache(maxsize=32_768)
def compile_pattern(text: str) -> ExecPattern:
    """Return the pattern of `exec(text)`. Raise `PolicyError` with a remedy if the text isn't the
    words of one command."""
    source = to_bytes_text(text.strip())
    if not source:
        raise PolicyError(
            "an exec rule without a command", "write the command, e.g. `exec(git status)`"
        )
    if len(source) > MAX_PATTERN_CHARS:
        raise PolicyError(
            f"an exec rule of {len(source)} characters", f"keep it below {MAX_PATTERN_CHARS}"
        )
    if _CONTROL.search(source):
        raise PolicyError(f"a control character in `exec({text.strip()[:60]})`", "leave it out")
    if _PLAIN.match(source):
        words = tuple([_word_of(raw.split("*"), raw) for raw in source.split()])
    else:
        words = tuple([_pattern_word(source[a:b], text) for a, b in _word_spans(source, text)])
    if words[0].literal is not None and ASSIGNMENT.match(words[0].raw):
        raise PolicyError(
            f"`exec({text})` starts with an assignment",
            "leave it out: a rule never allows one, and the command is judged alone",
        )
    stays_inside = len(words) > 1 and words[-1].raw == INSIDE
    is_bare = all(word.is_star for word in (words[:-1] if stays_inside else words))
    has_tail = stays_inside or (len(words) > 1 and words[-1].is_star)
    return ExecPattern(
        text, words[:-1] if has_tail and not is_bare else words, has_tail, is_bare, stays_inside
    )


def _word_spans(source: str, text: str) -> tuple[tuple[int, int], ...]:
    remedy = "a rule names one command: write one rule for each, and quote what is meant literally"
    i = 0
    try:
        found = spans(source, 0, len(source))
    except GiveUp as reason:
        raise PolicyError(f"`exec({text})` holds {reason}", remedy) from None
    for start, end in found:
        if source[i:start].strip(" \t"):
            raise PolicyError(f"`exec({text})` holds `{source[i:start].strip()}`", remedy)
        i = end
    if source[i:].strip(" \t"):
        raise PolicyError(f"`exec({text})` holds `{source[i:].strip()}`", remedy)
    return found


def _pattern_word(raw: str, text: str) -> PatternWord:
    parts = [""]
    for piece in pieces(raw):
        if piece.kind == "glob" and piece.text == "*":
            parts.append("")
        elif piece.kind in ("text", "glob"):
            parts[-1] += piece.text
        else:
            raise PolicyError(
                f"`exec({text})` holds {_name(piece)}", "quote it where it is meant literally"
            )
    return _word_of([from_bytes_text(part) for part in parts], raw)


def _word_of(parts: Sequence[str], raw: str) -> PatternWord:
    if len(parts) == 1:
        return PatternWord(parts[0], raw=raw)
    # `a**b` is `a*b`.
    return PatternWord(None, (parts[0], *[part for part in parts[1:-1] if part], parts[-1]), raw)


def _name(piece: WordPiece) -> str:
    return "a brace expansion" if piece.kind == "brace" else f"the expansion `{piece.text[:40]}`"


# --- covering: for allow -------------------------------------------------------------------------


def covers(
    pattern: ExecPattern,
    words: Sequence[Word],
    inside: frozenset[int],
    *,
    opaque: frozenset[int] | None = None,
    outside: frozenset[int] | None = None,
    is_exception: bool = False,
) -> bool:
    """Return whether the pattern allows the command; the words `inside` a payload are judged
    elsewhere.

    `opaque` is `opaque_words(words)`, for a caller that has it already. `outside` is
    `outside_words(...)`; without it, a pattern that stays inside covers no argument.

    An opaque argument, which only a rule that spells it out may allow, must match a literal word. A
    word with an expansion never equals a literal. A wildcard covers it only if it can't become an
    opaque argument: the program has none, or the word certainly starts with something that isn't an
    option. A word that may become several (an unquoted expansion, a glob) is covered only by the
    last `*`, or by a word that is written exactly like the glob.
    """
    if pattern.is_bare:
        return is_exception
    if not words[0].is_literal or not _covers_name(pattern.words[0], words[0].text):
        return False
    if len(words) < len(pattern.words) or (
        len(words) > len(pattern.words) and not pattern.has_tail
    ):
        return False
    if opaque is None:
        opaque = opaque_words(words)
    spelled, count = pattern.words, len(pattern.words)
    for i in range(1, len(words)):
        word = words[i]
        wanted = spelled[i] if i < count else None
        if wanted is not None and word.is_literal and word.text == wanted.literal:
            continue
        if i in opaque and i not in inside:
            return False
        if wanted is None and pattern.stays_inside and (outside is None or i in outside):
            return False
        if wanted is not None and not _covers_word(wanted, word):
            return False
    return bool(inside) or pattern.is_exact or not runs_input(words)


def _covers_name(wanted: PatternWord, name: str) -> bool:
    if wanted.literal is not None:
        return name == wanted.literal or (
            "/" not in wanted.literal and program_name(name) == wanted.literal
        )
    # A wildcard in the name matches only in folders that the rule names.
    program = program_name(name)
    if any("/" in part for part in wanted.parts):
        return ".." not in name.split("/") and wanted.matches(name)
    return program is not None and wanted.matches(program) and not tables().wrappers.get(program)


def _covers_word(wanted: PatternWord, word: Word) -> bool:
    if word.is_literal:
        return wanted.matches(word.text)
    if word.is_many:
        return word.globs and not word.splits and word.raw != "" and wanted.raw == word.raw
    if wanted.literal is not None or "/" in wanted.parts[0]:
        return False  # below which folder it stays isn't known
    return (
        len(wanted.parts) == 2 and not wanted.parts[1] and word.prefix.startswith(wanted.parts[0])
    )


# --- touching: for deny and ask ------------------------------------------------------------------

_LONG_OF_SHORT = {
    "rm": {"recursive": "r", "force": "f"},
    "git": {"force": "f", "delete": "d", "all": "a"},
    "chmod": {"recursive": "R"},
    "chown": {"recursive": "R"},
    "cp": {"recursive": "r", "force": "f"},
}
_SAME_LETTER = {("rm", "R"): "r", ("cp", "R"): "r"}


def could_touch(pattern: ExecPattern, name: Word) -> bool:
    """Return False if the rule's name has a wildcard that already rules out a command with this
    name."""
    return pattern.words[0].literal is not None or _touches_name(pattern.words[0], name)


def touches(pattern: ExecPattern, words: Sequence[Word]) -> bool:
    """Return whether a deny or ask rule means this command: as written, or with its options in
    another form or place."""
    if pattern.is_bare:
        return True
    if not _touches_name(pattern.words[0], words[0]):
        return False
    wanted = pattern.words[1:]
    for form in _forms(words):
        if _touches_plain(wanted, form, pattern.has_tail):
            return True
    return _touches_loosely(pattern, words)


def might_touch(pattern: ExecPattern, words: Sequence[Word]) -> bool:
    """Return whether an expansion could turn the command into one that the rule means."""
    if all(word.is_literal for word in words) or not _touches_name(pattern.words[0], words[0]):
        return False
    for wanted, word in zip(pattern.words[1:], words[1:], strict=False):
        if word.is_many:
            return True
        if word.is_literal:
            if not wanted.matches(word.text) and not word.text.startswith("-"):
                return False
        else:
            start = wanted.literal if wanted.literal is not None else wanted.parts[0]
            if not start.startswith(word.prefix) and not word.prefix.startswith(start):
                return False
    is_short = len(words) < len(pattern.words)
    return not is_short or words[-1].is_many


def _touches_name(wanted: PatternWord, name: Word) -> bool:
    base = basename(name.text)
    if wanted.literal is not None:
        return base == basename(wanted.literal)
    return wanted.matches(name.text) or wanted.matches(base)


def _forms(words: Sequence[Word]) -> list[Sequence[Word]]:
    """Return the arguments as written, and without the options that may stand before a subcommand
    (`git -C x push`)."""
    forms: list[Sequence[Word]] = [words[1:]]
    program = tables().programs.get(basename(words[0].text))
    if program is not None and program.globals:
        forms.append(words[subcommand_at(program, words) :])
    else:
        i = 1
        while i < len(words) and words[i].text.startswith("-"):
            i += 1
        if i > 1:
            # Without leading options; the last of them may have taken the first operand for its
            # value.
            forms.extend(
                (words[i:], words[i + 1 :]) if "=" not in words[i - 1].text else (words[i:],)
            )
    return forms


def _touches_plain(wanted: Sequence[PatternWord], given: Sequence[Word], has_tail: bool) -> bool:
    if len(given) < len(wanted) or (len(given) > len(wanted) and not has_tail):
        return False
    for word, other in zip(wanted, given, strict=False):  # noqa: SIM110 (a generator takes longer than the rest)
        if not word.matches(other.text):
            return False
    return True


def _touches_loosely(pattern: ExecPattern, words: Sequence[Word]) -> bool:
    """Return whether the rule means the command with its options in another form: `rm -rf *` also
    means `rm -fr x`, `rm -r -f x` and `rm --recursive x -f`; the last word counts too, as in `git
    push --force *`."""
    if not pattern.has_options:
        return False
    name = basename(words[0].text)
    letters: set[str] = set()
    longs: list[str] = []
    for text in (word.text for word in words[1:]):
        if text.startswith("--"):
            longs.append(text.partition("=")[0])
        elif text.startswith("-"):
            letters |= {_SAME_LETTER.get((name, letter), letter) for letter in text[1:]}
    operands: list[PatternWord] = []
    for wanted in pattern.words[1:]:
        if wanted.literal is not None and wanted.literal.startswith("-"):
            if not _has_option(name, wanted.literal, letters, longs):
                return False
        elif wanted.parts and wanted.parts[0].startswith("-"):
            if not any(wanted.matches(word.text) for word in words[1:]):
                return False
        else:
            operands.append(wanted)
    return _operands_fit(operands, words, has_tail=pattern.has_tail)


def _starts_with_dash(wanted: PatternWord) -> bool:
    return (wanted.parts[0] if wanted.literal is None else wanted.literal).startswith("-")


def _has_option(name: str, option: str, letters: set[str], longs: Sequence[str]) -> bool:
    table = _LONG_OF_SHORT.get(name, {})
    if option.startswith("--"):
        head = option.partition("=")[0]
        letter = table.get(head[2:])
        return any(len(given) > 2 and head.startswith(given) for given in longs) or (
            letter is not None and letter in letters
        )
    given_letters = set(letters)
    for long, letter in table.items():
        if any(len(given) > 2 and f"--{long}".startswith(given) for given in longs):
            given_letters.add(letter)
    return all(_SAME_LETTER.get((name, letter), letter) in given_letters for letter in option[1:])


def _operands_fit(wanted: Sequence[PatternWord], words: Sequence[Word], *, has_tail: bool) -> bool:
    """Return whether the operands begin with the wanted ones. A word after an option may be that
    option's value."""
    reached = {0}
    for i in range(1, len(words)):
        if words[i].text.startswith("-"):
            continue
        follows_option = words[i - 1].text.startswith("-")
        next_reached = set(reached) if follows_option else set()
        for at in reached:
            if at == len(wanted):
                next_reached |= {at} if has_tail else set()
            elif wanted[at].matches(words[i].text):
                next_reached.add(at + 1)
        reached = next_reached
    return len(wanted) in reached
