"""Opaque arguments: which words of a program no wildcard may cover.

Reads both tables once (`data/wrappers.yaml`, `data/opaque_arguments.yaml`) and applies them to one
command's words. The knowledge is data, so that a reader can extend it. When in doubt it says
"opaque": that only ever leads to a question.
"""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Literal

import msgspec

from supervisor.core.shell.exec_scripts import script_words
from supervisor.core.shell.exec_secrets import secret_words
from supervisor.core.shell.shell_words import Word
from supervisor.core.text.data_tables import table

SYSTEM_DIRECTORIES = frozenset(
    {"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}
)


class Wrapper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of wrappers.yaml; the fields are explained at the top of that file."""

    harmless: bool = False
    form: Literal["argv", "shell", "joined", "find", "module", "words"] = "argv"
    names: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    valued: tuple[str, ...] = ()
    operands: int = 0
    digits: bool = False
    assigns: bool = False
    tail: bool = False
    replaces: tuple[str, ...] = ()
    bundles: str = ""
    after: frozenset[str] = frozenset()


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of opaque_arguments.yaml; the fields are explained at the top of that file."""

    names: tuple[str, ...] = ()
    short: str = ""
    valued: str = ""
    long: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    script: Literal["", "sed", "awk"] = ""
    bundle_first: bool = False
    everything: bool = False
    stops: bool = False
    globals: frozenset[str] = frozenset()
    global_flags: frozenset[str] = frozenset()
    free_dirs: frozenset[str] = frozenset()
    free_flags: frozenset[str] = frozenset()
    subcommands: dict[str, "Program"] = {}
    each: "Program | None" = None
    known: frozenset[str] = frozenset()


class _WrapperFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wrappers: dict[str, Wrapper]
    shell_state: frozenset[str]
    stdin_programs: tuple[str, ...]


class _ProgramFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    programs: dict[str, Program]
    narrow: dict[str, tuple[str, ...]]


def _load[T](name: str, type_: type[T]) -> T:
    return msgspec.convert(table(name), type_, strict=True)


class _Names[T]:
    """A table by program name: exact names first, then names that are a prefix (`python3*`)."""

    def __init__(self) -> None:
        self.exact: dict[str, T] = {}
        # By the first letter: most names are in no table, and that must be found out quickly.
        self.prefixes: dict[str, list[tuple[str, T]]] = {}

    def add(self, name: str, value: T) -> None:
        if name.endswith("*"):
            self.prefixes.setdefault(name[0], []).append((name[:-1], value))
        else:
            self.exact.setdefault(name, value)

    def get(self, name: str) -> T | None:
        found = self.exact.get(name)
        if found is None:
            for prefix, value in self.prefixes.get(name[:1], ()):
                if name.startswith(prefix):
                    return value
        return found


class _Tables:
    def __init__(self) -> None:
        wrappers = _load("wrappers", _WrapperFile)
        programs = _load("opaque_arguments", _ProgramFile)
        self.wrappers = _Names[Wrapper]()
        self.programs = _Names[Program]()
        self.stdin = _Names[bool]()
        self.shell_state = wrappers.shell_state
        self.narrow = {
            name: tuple(tuple(v.split()) for v in verbs) for name, verbs in programs.narrow.items()
        }
        for name, wrapper in wrappers.wrappers.items():
            for each in (name, *wrapper.names):
                self.wrappers.add(each, wrapper)
        # A program's own entry comes before another entry's list of names.
        for name, program in programs.programs.items():
            self.programs.add(name, program)
        for program in programs.programs.values():
            for each in program.names:
                self.programs.add(each, program)
        for name in wrappers.stdin_programs:
            self.stdin.add(name, True)


@cache
def tables() -> _Tables:
    """Return both tables, which are read when a command is first judged."""
    return _Tables()


def basename(name: str) -> str:
    """Return the last part of a command's name."""
    return name.rpartition("/")[2] if "/" in name else name


def program_name(name: str) -> str | None:
    """Return the program that a command's name means for an allow rule; None for a path outside the
    system directories."""
    if "/" not in name:
        return name
    directory, _, base = name.rpartition("/")
    return base if directory in SYSTEM_DIRECTORIES else None


def is_shell_state(name: str) -> bool:
    """Return whether a command with this name changes how the shell reads or finds what comes after
    it."""
    return name in tables().shell_state


def runs_input(words: Sequence[Word]) -> bool:
    """Return whether the command is an interpreter that reads its program from standard input."""
    name = basename(words[0].text)
    if not tables().stdin.get(name):
        return False
    operands = [
        word
        for word in words[1:]
        if not word.text.startswith("-") and not word.text.startswith("+")
    ]
    texts = {word.text for word in words[1:]}
    if texts == {"-v"} and name not in _SHELLS:
        return False
    if not operands or texts & {"-", "-s", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}:
        return not texts & {"--version", "--help", "-V", "-c", "-e"} or bool(texts & {"-", "-s"})
    return name in _ALWAYS_READ_INPUT


_SHELLS = frozenset(
    {"sh", "bash", "dash", "ash", "rbash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "yash"}
)
_ALWAYS_READ_INPUT = frozenset(
    [
        "ssh",
        "rsh",
        "psql",
        "mysql",
        "mariadb",
        "sqlite3",
        "redis-cli",
        "mongosh",
        "duckdb",
        "ftp",
        "sftp",
        "telnet",
        "at",
        "batch",
        "crontab",
        "gdb",
        "lldb",
        "ed",
        "ex",
        "su",
        "runuser",
    ]
)


# --- opaque arguments ----------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _searcher(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(
        "|".join(f"(?:{p})" if not p.startswith("(?i)") else f"(?i:{p[4:]})" for p in patterns)
    )


def opaque_words(words: Sequence[Word]) -> frozenset[int]:
    """Return the positions (from 1) of the words that only a rule which spells them out may
    cover."""
    if len(words) == 1:
        return frozenset()
    whatever = secret_words(words) | _climbing_words(words)
    program = tables().programs.get(basename(words[0].text))
    if program is None:
        return whatever
    if program.subcommands or program.known:
        return _opaque_with_subcommand(program, words) | whatever
    return _opaque(program, words, 1) | whatever


# A part of a path that leads up, also after an option's name; `a..b` isn't one.
_CLIMBS = re.compile(r"(?:\A|[/=:,])\.\.(?:[/:,]|\Z)")


def _climbing_words(words: Sequence[Word]) -> frozenset[int]:
    """Return the positions of words with a `..` in their path: they lead out of any folder that a
    wildcard stands in."""
    return frozenset(
        i for i, word in enumerate(words) if i and ".." in word.text and _CLIMBS.search(word.text)
    )


def plain_form(words: tuple[Word, ...]) -> tuple[tuple[Word, ...], list[str]] | None:
    """Return the command without its leading options that change nothing, and the folders of `-C
    DIR` and the like among them.

    `-C DIR` is the same as `cd DIR` before the command; the caller decides whether it is free.
    Return None if there are no such options.
    """
    program = tables().programs.get(basename(words[0].text))
    if program is None:
        return None
    folders: list[str] = []
    i = 1
    while i + 1 < len(words) and words[i].is_literal:
        if words[i].text in program.free_flags:
            i += 1
        elif words[i].text in program.free_dirs and words[i + 1].is_literal:
            folders.append(words[i + 1].text)
            i += 2
        else:
            break
    return ((words[0], *words[i:]), folders) if i > 1 else None


def subcommand_at(program: Program, words: Sequence[Word]) -> int:
    """Return the position of the first word that is neither an option nor an option's value; the
    end if there is none."""
    i = 1
    while i < len(words) and words[i].is_literal and words[i].text.startswith("-"):
        i += 2 if words[i].text in program.globals else 1
    return min(i, len(words))


def _opaque_with_subcommand(program: Program, words: Sequence[Word]) -> frozenset[int]:
    at = subcommand_at(program, words)
    found: set[int] = set()
    for i in range(1, at):
        if words[i].text not in program.global_flags:
            found.add(i)
    if at == len(words):
        return frozenset(found)
    name = words[at]
    inner = program.subcommands.get(name.text)
    if not name.is_literal or (inner is None and name.text not in program.known):
        return frozenset(found | set(range(at, len(words))))
    for each in filter(None, (inner or Program(), program.each)):
        found |= _opaque(each, words, at + 1)
    return frozenset(found)


def _opaque(program: Program, words: Sequence[Word], start: int) -> frozenset[int]:
    if program.everything:
        return frozenset(range(start, len(words)))
    if program.script:
        return script_words(program.script, words, start)
    found: set[int] = set()
    options_ended = False
    for i in range(start, len(words)):
        word = words[i]
        if word.text == "--" and word.is_literal and i > 0 and not _may_take_value(words[i - 1]):
            # A `--` after an option may be that option's value: then it doesn't end the options.
            options_ended = not program.words
            continue
        if not options_ended or program.operands:
            is_opaque, takes_next = _is_opaque(
                program, word, is_first=i == start, options_ended=options_ended
            )
            if is_opaque:
                found.add(i)
                if takes_next and i + 1 < len(words):
                    found.add(i + 1)
            elif (
                program.stops
                and not word.text.startswith("-")
                and not (i > start and _may_take_value(words[i - 1]))
            ):
                return frozenset(found)
    return frozenset(found)


def _may_take_value(word: Word) -> bool:
    return not word.is_literal or word.text.startswith("-")


def _is_opaque(
    program: Program, word: Word, *, is_first: bool, options_ended: bool
) -> tuple[bool, bool]:
    """Return whether the word is (or could become) an opaque argument, and whether the next word
    may be its value."""
    text = word.text
    if not word.is_literal and not word.splits and re.match(r"--[a-z][a-z-]*=", word.prefix):
        # `--grep="$X"` is that one option, whatever is in it.
        head = word.prefix.partition("=")[0]
        is_opaque, _ = _is_opaque(program, Word(head), is_first=False, options_ended=options_ended)
        return is_opaque or _could_match(program.operands, word), False
    if not word.is_literal:
        may_be_option = word.may_be_option and not options_ended
        return may_be_option or _could_match(program.operands, word), False
    if program.operands and _searcher(program.operands).search(text):
        return True, False
    if (
        options_ended
        or not text
        or (program.harmless and _searcher(program.harmless).fullmatch(text))
    ):
        return False, False
    head = text.partition("=")[0]
    for pattern in program.words:
        if text.startswith(pattern[:-1]) if pattern.endswith("*") else head == pattern:
            return True, not pattern.endswith("*") and head == text
    if text.startswith("--"):
        return (len(head) > 2 and any(long.startswith(head) for long in program.long)), head == text
    if text.startswith("-"):
        return _opaque_bundle(program, text[1:]), True
    if program.bundle_first and is_first:
        return _opaque_bundle(msgspec.structs.replace(program, valued=""), text), True
    return False, False


def _could_match(patterns: Sequence[str], word: Word) -> bool:
    """Return whether an expansion could make the word match one of the patterns, judged by the
    start of both."""
    for pattern in patterns:
        head = re.match(r"\^([A-Za-z0-9_:/-]*)(?![*?+{|])", pattern)
        start = head[1] if head else ""
        if word.splits or word.prefix.startswith(start) or start.startswith(word.prefix):
            return True
    return False


def _opaque_bundle(program: Program, letters: str) -> bool:
    for letter in letters:
        if letter in program.short:
            return True
        if letter in program.valued or letter == "=":
            return False
    return False
