"""What is known of programs: which wrap a command, and which arguments turn one into something else.

Decides, for one command's words, where a payload stands and which words no wildcard may cover. The knowledge is data
(`data/wrappers.yaml`, `data/opaque_arguments.yaml`), read once, so that a reader can extend it; this module only
knows how to apply it. It must err to the side of "opaque" and "uncertain": both only ever lead to a question.
"""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from supervisor.core.exec_scripts import is_plain_awk, is_plain_sed
from supervisor.core.shell_words import ASSIGNMENT, Word

_DATA = Path(__file__).parent / "data"
SYSTEM_DIRECTORIES = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"})
UNKNOWN_WORDS = Word("...", is_literal=False, splits=True)


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
    script: Literal["", "sed", "awk"] = ""
    bundle_first: bool = False
    everything: bool = False
    globals: frozenset[str] = frozenset()
    global_flags: frozenset[str] = frozenset()
    free_dirs: frozenset[str] = frozenset()
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
    # The C loader is safe too, and ten times faster; it is missing where PyYAML was built without libyaml.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data = yaml.load((_DATA / name).read_text(encoding="utf-8"), Loader=loader)  # noqa: S506
    return msgspec.convert(data, type_, strict=True)


class _Names[T]:
    """A table by program name, with the names that are a prefix (`python3*`) behind the exact ones."""

    def __init__(self) -> None:
        self.exact: dict[str, T] = {}
        self.prefixes: list[tuple[str, T]] = []

    def add(self, name: str, value: T) -> None:
        if name.endswith("*"):
            self.prefixes.append((name[:-1], value))
        else:
            self.exact.setdefault(name, value)

    def get(self, name: str) -> T | None:
        found = self.exact.get(name)
        if found is None:
            found = next((value for prefix, value in self.prefixes if name.startswith(prefix)), None)
        return found


class _Tables:
    def __init__(self) -> None:
        wrappers = _load("wrappers.yaml", _WrapperFile)
        programs = _load("opaque_arguments.yaml", _ProgramFile)
        self.wrappers = _Names[Wrapper]()
        self.programs = _Names[Program]()
        self.stdin = _Names[bool]()
        self.shell_state = wrappers.shell_state
        self.narrow = {name: tuple(tuple(v.split()) for v in verbs) for name, verbs in programs.narrow.items()}
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
    """Both tables, read when a command is first judged."""
    return _Tables()


def basename(name: str) -> str:
    """The last part of a command's name."""
    return name.rpartition("/")[2]


def program_name(name: str) -> str | None:
    """The program that a command's name means for an allow rule: None for a path outside the system directories."""
    if "/" not in name:
        return name
    directory, _, base = name.rpartition("/")
    return base if directory in SYSTEM_DIRECTORIES else None


def is_shell_state(name: str) -> bool:
    """Whether a command of this name changes how the shell reads or finds what comes after it."""
    return name in tables().shell_state


def runs_input(words: Sequence[Word]) -> bool:
    """Whether the command is an interpreter that reads its program from standard input."""
    name = basename(words[0].text)
    if not tables().stdin.get(name):
        return False
    operands = [word for word in words[1:] if not word.text.startswith("-") and not word.text.startswith("+")]
    texts = {word.text for word in words[1:]}
    if not operands or texts & {"-", "-s", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}:
        return not texts & {"--version", "--help", "-V", "-c", "-e"} or bool(texts & {"-", "-s"})
    return name in _ALWAYS_READ_INPUT


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


# --- opaque arguments -------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _searcher(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{p})" if not p.startswith("(?i)") else f"(?i:{p[4:]})" for p in patterns))


def has_program(name: str) -> bool:
    """Whether the table knows opaque arguments of this program."""
    return tables().programs.get(basename(name)) is not None


def opaque_words(words: Sequence[Word]) -> frozenset[int]:
    """The positions (from 1) of the words that only a rule which spells them out may cover."""
    program = tables().programs.get(basename(words[0].text))
    if program is None or len(words) == 1:
        return frozenset()
    if program.subcommands or program.known:
        return _opaque_with_subcommand(program, words)
    return frozenset(_opaque(program, words, 1))


def subcommand_at(program: Program, words: Sequence[Word]) -> int:
    """The position of the first word that is neither an option nor an option's value; the end where there is none."""
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
    for each in (inner or Program(), program.each):
        if each is not None:
            found |= _opaque(each, words, at + 1)
    return frozenset(found)


def _opaque(program: Program, words: Sequence[Word], start: int) -> set[int]:
    if program.everything:
        return set(range(start, len(words)))
    found: set[int] = set()
    options_ended = False
    for i in range(start, len(words)):
        word = words[i]
        if word.text == "--" and word.is_literal and i > 0 and not _may_take_value(words[i - 1]):
            # A `--` behind an option may be that option's value: then it ends nothing.
            options_ended = not program.words
            continue
        if not options_ended or program.operands or program.script:
            is_opaque, takes_next = _is_opaque(program, word, is_first=i == start, options_ended=options_ended)
            if is_opaque:
                found.add(i)
                if takes_next and i + 1 < len(words):
                    found.add(i + 1)
    if program.script:
        found |= _script_words(program.script, words, start)
    return found


def _may_take_value(word: Word) -> bool:
    return not word.is_literal or word.text.startswith("-")


def _is_opaque(program: Program, word: Word, *, is_first: bool, options_ended: bool) -> tuple[bool, bool]:
    """Whether the word is (or could become) an opaque argument, and whether the next word may be its value."""
    text = word.text
    if not word.is_literal:
        could_be_option = word.splits or not word.prefix or word.prefix.startswith("-") or bool(program.operands)
        return (could_be_option and (not options_ended or bool(program.operands))), False
    if program.operands and _searcher(program.operands).search(text):
        return True, False
    if options_ended or not text:
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


def _opaque_bundle(program: Program, letters: str) -> bool:
    for letter in letters:
        if letter in program.short:
            return True
        if letter in program.valued or letter == "=":
            return False
    return False


def _script_words(kind: str, words: Sequence[Word], start: int) -> set[int]:
    """The words of sed and awk that hold a program which does more than read and print."""
    is_plain = is_plain_sed if kind == "sed" else is_plain_awk
    found: set[int] = set()
    has_script = False
    i = start
    while i < len(words):
        text = words[i].text
        attached = re.match(r"--expression=|--source=|-[nErsuzi]*e(?=.)", text) if kind == "sed" else None
        if kind == "sed" and (text in ("-e", "--expression") or re.fullmatch(r"-[nErsuz]+e", text)):
            has_script = True
            i += 1
            if i < len(words) and not (words[i].is_literal and is_plain(words[i].text)):
                found.add(i)
        elif attached and not text.startswith("-i"):
            has_script = True
            if not (words[i].is_literal and is_plain(text[attached.end() :])):
                found.add(i)
        elif text in (("-F", "-v") if kind == "awk" else ("-l",)):
            i += 1
        elif (not text.startswith("-") or not words[i].is_literal) and not has_script:
            has_script = True
            if not (words[i].is_literal and is_plain(text)):
                found.add(i)
        i += 1
    return found


# --- wrappers ---------------------------------------------------------------------------------------------------


class Payload(msgspec.Struct, frozen=True):
    """A command that a wrapper runs: `words` (from position `start` of the wrapper's) or `text`, a shell program.

    `is_fed`: the payload gets arguments or input that nobody knows yet.
    """

    words: tuple[Word, ...] = ()
    text: str | None = None
    start: int = 0
    dialect: str = "bash"


class Unwrapped(msgspec.Struct, frozen=True):
    """`harmless`: judge only the payloads. `own`: positions that are judged as part of a payload, not as arguments.

    `problem`: why no rule may allow it. `is_uncertain`: the place of the payload isn't known; `guesses` are for deny rules.
    """

    payloads: tuple[Payload, ...] = ()
    harmless: bool = False
    inside: frozenset[int] = frozenset()
    problem: str | None = None
    guesses: tuple[tuple[Word, ...], ...] = ()


_GUESSES = 60


def unwrap(words: Sequence[Word]) -> Unwrapped | None:
    """What the command `words` runs in turn; None where its program is no wrapper or runs nothing here."""
    name = basename(words[0].text)
    wrapper = tables().wrappers.get(name)
    if wrapper is None:
        return None
    match wrapper.form:
        case "find":
            return _unwrap_find(words)
        case "shell":
            return _unwrap_shell(wrapper, words, name)
        case "module":
            return _unwrap_module(words)
        case "words":
            return _unwrap_words(wrapper, words)
        case "argv" | "joined":
            return _unwrap_argv(wrapper, words)


def _guess(words: Sequence[Word], start: int = 1) -> tuple[tuple[Word, ...], ...]:
    return tuple(tuple(words[i:]) for i in range(start, min(len(words), start + _GUESSES)))


def _dynamic(word: Word) -> Word:
    return msgspec.structs.replace(word, is_literal=False, prefix="", splits=False)


def _option(wrapper: Wrapper, text: str) -> int:
    """How many words the option takes, or 0 where it isn't known."""
    if text in wrapper.flags or (wrapper.digits and re.fullmatch(r"-[0-9]+", text)):
        return 1
    if text in wrapper.valued or text in wrapper.replaces:
        return 2
    for option in (*wrapper.valued, *wrapper.replaces):
        if option.startswith("--") and text.startswith(option + "="):
            return 1
        if len(option) == 2 and text.startswith(option) and not text.startswith("--"):
            return 1
    if wrapper.bundles and re.fullmatch(rf"-[{re.escape(wrapper.bundles)}]+", text):
        return 1
    return 0


def _unwrap_argv(wrapper: Wrapper, words: Sequence[Word]) -> Unwrapped | None:
    i, operands, replaced, assigns = 1, wrapper.operands, "", False
    while i < len(words):
        word = words[i]
        if not word.is_literal:
            return Unwrapped(problem=f"an expansion among the words of `{words[0].text}`", guesses=_guess(words))
        text = word.text
        if text == "--":
            i += 1
            break
        if wrapper.assigns and ASSIGNMENT.match(text):
            assigns = True
            i += 1
        elif text.startswith("-"):
            taken = _option(wrapper, text)
            if taken == 0:
                return _unknown_option(words, text)
            for option in wrapper.replaces:
                if text.startswith(option):
                    replaced = (
                        words[i + 1].text if taken == 2 and i + 1 < len(words) else text[len(option) :].lstrip("=")
                    )
            i += taken
        elif operands:
            operands -= 1
            i += 1
        else:
            break
    while operands and i < len(words):
        operands -= 1
        i += 1
    problem = "an assignment before a command" if assigns else None
    if i >= len(words):
        return Unwrapped(problem=problem) if assigns else None
    return _payload_of(wrapper, words, i, replaced, problem)


def _unknown_option(words: Sequence[Word], option: str) -> Unwrapped | None:
    # `command -v x` and `env --version` run nothing; `env -S 'x y'` does.
    name = basename(words[0].text)
    if (name, option) in {("command", "-v"), ("command", "-V"), ("command", "-pv")} or option in (
        "--version",
        "--help",
    ):
        return None
    texts = [w.text for w in words[1:] if " " in w.text]
    attached = [w.text[2:] for w in words[1:] if w.text.startswith("-S")]
    return Unwrapped(
        problem=f"`{words[0].text} {option}`: what it runs can't be told",
        guesses=_guess(words),
        payloads=tuple(Payload(text=text) for text in (*texts, *attached)),
    )


def _payload_of(wrapper: Wrapper, words: Sequence[Word], start: int, replaced: str, problem: str | None) -> Unwrapped:
    payload = list(words[start:])
    if replaced:
        payload = [_dynamic(word) if replaced in word.text else word for word in payload]
    if not payload[0].is_literal:
        problem = problem or f"an expansion in the name of what `{words[0].text}` runs"
    inside = frozenset(range(start, len(words)))
    if wrapper.form == "joined":
        if any(not word.is_literal for word in payload) or wrapper.tail:
            problem = problem or f"an expansion in what `{words[0].text}` runs"
        text = " ".join(word.text for word in payload)
        return Unwrapped(
            (Payload(text=text, start=start, dialect="sh"),), wrapper.harmless, inside, problem, _guess(words, start)
        )
    if wrapper.tail and not replaced:
        payload.append(UNKNOWN_WORDS)
    return Unwrapped((Payload(words=tuple(payload), start=start),), wrapper.harmless, inside, problem)


def _unwrap_find(words: Sequence[Word]) -> Unwrapped | None:
    payloads: list[Payload] = []
    inside: set[int] = set()
    i = 1
    while i < len(words):
        if words[i].text not in ("-exec", "-execdir", "-ok", "-okdir"):
            i += 1
            continue
        end = i + 1
        while (
            end < len(words) and words[end].text != ";" and not (words[end].text == "+" and words[end - 1].text == "{}")
        ):
            end += 1
        payload = tuple(_dynamic(word) if "{}" in word.text else word for word in words[i + 1 : end])
        if not payload:
            return Unwrapped(problem="`find -exec` without a command")
        payloads.append(Payload(words=payload, start=i + 1))
        inside |= set(range(i, min(end + 1, len(words))))
        i = end + 1
    if not payloads:
        return None
    problem = None if all(p.words[0].is_literal for p in payloads) else "an expansion in the name of what `find` runs"
    return Unwrapped(tuple(payloads), inside=frozenset(inside), problem=problem)


def _unwrap_shell(wrapper: Wrapper, words: Sequence[Word], name: str) -> Unwrapped | None:
    """`bash -c TEXT`, also bundled (`-lc`); None where the shell runs a file or its input."""
    i = 1
    while i < len(words):
        text = words[i].text
        if not words[i].is_literal and text.startswith("-"):
            return Unwrapped(problem=f"an expansion among the options of `{name}`", guesses=_guess(words))
        if not text.startswith(("-", "+")) and name not in ("su", "runuser", "script"):
            return None
        bundled = re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", text)
        if bundled or text in ("--command", "--session-command"):
            return _shell_text(wrapper, words, i, name)
        attached = re.match(r"--(?:session-)?command=(.*)", text, re.DOTALL)
        if attached:
            return Unwrapped((Payload(text=attached[1]),), problem=f"`{name} --command`")
        i += 2 if text in wrapper.valued else 1
    return None


def _shell_text(wrapper: Wrapper, words: Sequence[Word], option: int, name: str) -> Unwrapped:
    known = all(_option(wrapper, word.text) for word in words[1 : option + 1])
    # Bash takes the first word behind its options as the text: `bash -c -x 'text'`.
    at = option + 1
    while at < len(words) and words[at].text.startswith(("-", "+")):
        at += 1
        known = False
    if at >= len(words):
        return Unwrapped(problem=f"`{name} -c` without a text")
    text = words[at]
    problem = None if known else f"options of `{name}` that aren't known here"
    if not text.is_literal:
        problem = f"an expansion in the text of `{name} -c`"
    guesses = () if known and text.is_literal else _guess(words)
    dialect = "bash" if name in ("bash", "rbash") else "sh"
    if name not in ("bash", "rbash", "sh", "dash", "ash", "zsh", "ksh", "mksh"):
        problem = problem or f"the text of `{name}` is read by another grammar"
    payload = Payload(text=text.text, start=at, dialect=dialect)
    return Unwrapped((payload,), wrapper.harmless, frozenset(range(1, at + 1)), problem, guesses)


def _unwrap_module(words: Sequence[Word]) -> Unwrapped | None:
    """`python -m NAME ARGS` runs NAME; in any other place `-m` is an opaque argument."""
    if len(words) < 3 or words[1].text != "-m":
        return None
    if not words[2].is_literal:
        return Unwrapped(problem="an expansion in the name of a module")
    return Unwrapped((Payload(words=tuple(words[2:]), start=2),), inside=frozenset(range(2, len(words))))


def _unwrap_words(wrapper: Wrapper, words: Sequence[Word]) -> Unwrapped | None:
    at = next((i for i, word in enumerate(words) if i and word.text in wrapper.after), -1)
    if at < 0:
        return None
    start = at + 1 + (at + 1 < len(words) and words[at + 1].text == "--")
    if start >= len(words):
        return None
    payload = tuple(words[start:]) + ((UNKNOWN_WORDS,) if wrapper.tail else ())
    if words[start].text.startswith("-") or not words[start].is_literal:
        return Unwrapped(
            problem=f"what `{words[0].text} {words[at].text}` runs can't be told", guesses=_guess(words, start)
        )
    return Unwrapped(
        (Payload(words=payload, start=start),),
        inside=frozenset(range(start, len(words))),
        guesses=_guess(words, start + 1),
    )
