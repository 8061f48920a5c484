"""Operands of a command line that may name a script in the workspace.

A script's content is part of what a person approves. This looks at names alone; the caller checks
for such a file. It rather returns too many: a file that is named but isn't run costs at most a
second question, and only if it changed.
"""

import posixpath
import re
from typing import NamedTuple

from supervisor.core.actions import WORKSPACE
from supervisor.core.shell.exec_tables import basename, tables
from supervisor.core.shell.exec_wrappers import unwrap
from supervisor.core.shell.shell import parse
from supervisor.core.shell.shell_words import Word

MOST_NAMES = 4_000
_MOST_FOLDERS = 20
_MOST_DEPTH = 4
# A redirection of a program's input: the parser leaves its target out of the words.
_INPUT = re.compile(r"(?<!<)<\s*([^\s<>&|;()'\"`$]+)")
_SUFFIXES = frozenset(
    ["sh", "bash", "zsh", "ksh", "fish", "py", "pyw", "js", "mjs", "cjs", "ts", "mts", "cts", "tsx",
     "pl", "rb", "php", "lua", "r",
     "jl", "tcl", "awk", "sed", "groovy", "ps1", "exs", "scm"]
)  # fmt: skip


class Operand(NamedTuple):
    """A possible script: `path` is relative to the workspace's root. `is_run`: an interpreter
    stands in the command, so the file may be a script whatever its name; otherwise only a file that
    looks like a script is one."""

    path: str
    is_run: bool


def operands(command: str, cwd: str = ".", root: str = WORKSPACE) -> tuple[Operand, ...]:
    """Return the possible operands of a line that runs in `cwd`, those that are run first; their
    number is bounded."""
    found: dict[str, bool] = {}
    folders = {posixpath.normpath(posixpath.join(root, cwd))}
    _look_into(command, folders, found, root, 0)
    # Executed words come first, so that the bound never drops them.
    ordered = sorted(found.items(), key=lambda one: not one[1])
    return tuple(Operand(path, is_run) for path, is_run in ordered[:MOST_NAMES])


def looks_like_script(path: str, start: bytes) -> bool:
    """Return whether a file with this name and beginning is a script."""
    stem, _, suffix = basename(path).rpartition(".")
    return start.startswith(b"#!") or (bool(stem) and suffix.lower() in _SUFFIXES)


def _look_into(text: str, folders: set[str], found: dict[str, bool], root: str, depth: int) -> None:
    script = parse(text)
    for command in script.commands:
        words = command.words
        if words[0].text == "cd" and len(folders) < _MOST_FOLDERS:
            folders |= {posixpath.normpath(posixpath.join(one, words[-1].text)) for one in folders}
            continue
        is_run = words[0].text in ("source", ".") or any(
            tables().stdin.get(basename(word.text)) for word in words
        )
        for at, word in enumerate(words):
            if at or "/" in word.text:
                _note(word, is_run or not at, folders, found, root)
        inner = unwrap(words)
        for payload in inner.payloads if inner is not None and depth < _MOST_DEPTH else ():
            if payload.text is not None:
                _look_into(payload.text, folders, found, root, depth + 1)
    for target in _INPUT.findall(text) if script.has_input else ():
        _note(Word(target), True, folders, found, root)


def _note(word: Word, is_run: bool, folders: set[str], found: dict[str, bool], root: str) -> None:
    texts = [word.text] if not word.text.startswith("-") else word.text.partition("=")[2:]
    for text in texts if word.is_literal else ():
        for folder in sorted(folders):
            path = posixpath.normpath(posixpath.join(folder, text.partition("::")[0]))
            if text and path.startswith(f"{root}/"):
                name = path.removeprefix(f"{root}/")
                found[name] = found.get(name, False) or is_run
