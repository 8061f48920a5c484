"""Exec rules that "always" may offer for a command line.

Offers the exact pattern and, where the tables find it harmless, a narrow one: fixed words plus a
last `*`. It must never offer a pattern that wouldn't allow the line it is made from: each is judged
before it is handed out.
"""

import posixpath
import re
from collections.abc import Sequence

import msgspec

from supervisor.core.shell.exec_patterns import compile_pattern
from supervisor.core.shell.exec_places import path_from_root
from supervisor.core.shell.exec_rules import judge
from supervisor.core.shell.exec_tables import program_name, tables
from supervisor.core.shell.shell import Script, parse
from supervisor.core.shell.shell_outline import RESERVED
from supervisor.core.shell.shell_words import PLAIN, Word
from supervisor.errors import PolicyError

MAX_RULE_CHARS = 1_000
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


def quote(word: str) -> str:
    """Return the word as one pattern word that means exactly these characters."""
    if PLAIN.match(word) and word not in RESERVED:
        return word
    if _UNPRINTABLE.search(word):
        escaped = (
            word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
        )
        return "$'" + _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", escaped) + "'"
    return "'" + word.replace("'", "'\\''") + "'"


def candidates(
    text: str, cwd: str, workspace_roots: Sequence[str]
) -> tuple[str | None, str | None]:
    """Return (exact pattern, narrow pattern) for a line that no rule decides; a pattern that
    couldn't allow the line is None.

    A rule names one command, so a line of several commands gets none, except for a `cd DIR` inside
    the workspace, which needs no rule.
    """
    script = parse(text)
    if script.constructs:
        return None, None
    commands = [command.words for command in script.commands if command.words[0].text != "cd"]
    if len(commands) != 1:
        return None, None
    words = _from_root(commands[0], script, cwd, workspace_roots)
    return tuple(  # type: ignore[return-value]
        pattern if pattern is not None and _allows(pattern, text, cwd, workspace_roots) else None
        for pattern in (_exact(words), _narrow(words))
    )


def _from_root(
    words: tuple[Word, ...], script: Script, cwd: str, roots: Sequence[str]
) -> tuple[Word, ...]:
    """Write a relative command name as a rule means it. The folder is a guess; the resulting rule
    is judged before use."""
    name = words[0].text
    if "/" not in name or name.startswith("/") or not roots:
        return words
    root = posixpath.normpath(roots[0])
    place = posixpath.join(root, cwd)
    for command in script.commands:
        if command.words[0].text == "cd":
            place = posixpath.join(place, command.words[-1].text)
    seen = None if posixpath.normpath(place) == root else path_from_root(name, place, (root,))
    return (msgspec.structs.replace(words[0], text=seen), *words[1:]) if seen else words


def _allows(pattern: str, text: str, cwd: str, roots: Sequence[str]) -> bool:
    if len(pattern) > MAX_RULE_CHARS:
        return False
    try:
        compiled = compile_pattern(pattern)
    except PolicyError:
        return False
    found = judge(text, cwd, allow=[(0, compiled)], ask=(), deny=(), workspace_roots=roots)
    return found.decision == "allow" and bool(found.keys)


def _exact(words: Sequence[Word]) -> str | None:
    if not all(word.is_literal for word in words):
        return None
    return " ".join(quote(word.text) for word in words)


def _narrow(words: Sequence[Word]) -> str | None:
    fixed = fixed_words(words)[1]
    return " ".join([*(quote(word.text) for word in fixed), "*"]) if fixed else None


def verbs_of(name: Word) -> Sequence[tuple[str, ...]]:
    """Return the words after a program that may stand before a last `*`. A path is kept as written;
    the table knows it by its name if it lies in a system directory."""
    verbs = tables().narrow.get(program_name(name.text) or "") if name.is_literal else None
    return () if verbs is None else verbs or ((),)


def fixed_words(words: Sequence[Word]) -> tuple[tuple[str, ...], Sequence[Word]]:
    """Return the verb of the `narrow` table that a command has, and its words up to that verb;
    nothing if it has none."""
    for verb in verbs_of(words[0]):
        fixed = words[: len(verb) + 1]
        if len(fixed) == len(verb) + 1 and all(
            _is_verb(v, w) for v, w in zip(verb, fixed[1:], strict=True)
        ):
            return verb, fixed
    return (), ()


def _is_verb(wanted: str, word: Word) -> bool:
    """Return whether the word fits the `narrow` table: the verb itself, or for `?` any literal
    name."""
    if not word.is_literal:
        return False
    return word.text == wanted or (
        wanted == "?" and not word.text.startswith("-") and "=" not in word.text
    )
