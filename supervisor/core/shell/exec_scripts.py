"""Check whether a sed or awk command only reads and prints.

Decides by a list of what is known to be plain, never by a list of what is dangerous: sed runs
commands with `e` and writes files with `w`, awk with `system`, pipes and redirections. It must
never call a program plain that it doesn't read to its end, nor take a word that could be the
program for the program's input.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

from supervisor.core.shell.shell_words import Word


def _regex(delimiter: str) -> str:
    """Return the source of a regular expression that matches only patterns which every sed ends at
    the same place. It excludes brackets that hold this delimiter or a backslash: only some seds
    take it for the end or for an escape."""
    end = re.escape(delimiter)
    named = "" if delimiter == ":" else r"\[:[a-z]+:\]|"
    inside = rf"(?:{named}[^\[\]\\\n{end}])"
    return rf"(?:[^\[\\\n{end}]|\\[^c\n]|\[\^?\]?+{inside}*+\])*+"


_ADDRESS = rf"(?:[0-9]+(?:~[0-9]+)?|\$|/{_regex('/')}/[IM]*|\+[0-9]+)"
_SED_HEAD = re.compile(rf"(?:{_ADDRESS}(?:[ \t]*,[ \t]*{_ADDRESS})?)?[ \t]*!?[ \t]*")
_DELIMITER = re.compile(r"[!-/:-@_`{|}~]")
_SED_LETTER = re.compile(r"[pdDPhHgGxnNlFz=]|[qQ][0-9]*")
_SED_FLAGS = re.compile(r"[gpIi0-9]*")
_SED_END = re.compile(r"[ \t]*(?:[;\n}]+[ \t;\n}]*|\Z)")


def is_plain_sed(text: str) -> bool:
    """Return whether a sed script holds only printing, deleting, hold-space commands, `s` without
    `e`/`w`, and `y`. Source for the commands: the GNU sed 4.9 manual, section 3."""
    i = 0
    text = text.strip(" \t\n;")
    while i < len(text):
        head = _SED_HEAD.match(text, i)
        i = head.end() if head else i
        if text[i : i + 1] == "{":
            i += 1
            while text[i : i + 1] in (" ", "\t", ";", "\n"):
                i += 1
            continue
        end = _sed_command(text, i)
        if end < 0:
            return False
        behind = _SED_END.match(text, end)
        if behind is None:
            return False
        i = behind.end()
    return True


def _sed_command(text: str, i: int) -> int:
    letter = _SED_LETTER.match(text, i)
    if letter:
        return letter.end()
    delimiter = text[i + 1 : i + 2]
    if text[i : i + 1] not in ("s", "y") or not _DELIMITER.fullmatch(delimiter):
        return -1
    parts = _substitution(delimiter).match(text, i + 2)
    if parts is None:
        return -1
    flags = _SED_FLAGS.match(text, parts.end()) if text[i] == "s" else None
    return flags.end() if flags else parts.end()


@cache
def _substitution(delimiter: str) -> re.Pattern[str]:
    end = re.escape(delimiter)
    return re.compile(rf"{_regex(delimiter)}{end}(?:[^\\\n{end}]|\\[^c])*{end}", re.DOTALL)


_AWK_CALL = re.compile(r"(?<![A-Za-z0-9_])[0-9]*+([A-Za-z_][A-Za-z0-9_]*+)\(")
_AWK_KNOWN_CALLS = frozenset(
    [
        "if",
        "while",
        "for",
        "in",
        "print",
        "printf",
        "length",
        "substr",
        "split",
        "gsub",
        "sub",
        "match",
        "tolower",
        "toupper",
        "sprintf",
        "int",
        "index",
        "sqrt",
        "log",
        "exp",
        "return",
    ]
)
_AWK_REFUSED = re.compile(
    r"[@>\\|]|system|getline|close|fflush|ENVIRON|PROCINFO|SYMTAB|FUNCTAB|function|func\b|include|load"
)


def is_plain_awk(text: str) -> bool:
    """Return whether an awk program only computes and prints to standard output.

    It has no `system`, `getline`, pipe, output redirection, indirect call or function of its own.
    Strings and regular expressions aren't told from code (awk's own rule for `/` is too fine to
    copy). So a program with a `>`, a single `|`, or a backslash that isn't part of `\\n` or `\\t`
    is never called plain. If nothing is printed, `>` only compares (POSIX awk: an output
    redirection belongs to `print` or `printf`).
    """
    bare = text.replace("||", " ").replace(">=", " ").replace("\\n", " ").replace("\\t", " ")
    if "print" not in bare:
        bare = bare.replace(">", " ")
    if _AWK_REFUSED.search(bare):
        return False
    return all(name in _AWK_KNOWN_CALLS for name in _AWK_CALL.findall(bare))


type _Kind = Literal["sed", "awk"]


class _Options(NamedTuple):
    """The options of a program that takes a script. Group 1 is a value in the same word; without
    it, the value is the next word."""

    flag: re.Pattern[str]
    script: re.Pattern[str]
    value: re.Pattern[str]
    next_value: re.Pattern[str]
    file: re.Pattern[str]
    in_place: re.Pattern[str]


def _options(*patterns: str) -> _Options:
    return _Options(*(re.compile(pattern, re.DOTALL) for pattern in patterns))


_NONE = "(?!)"
# Every option of GNU sed 4.9.
_SED = _options(
    r"-[nErsuzb]+|--(?:quiet|silent|regexp-extended|separate|unbuffered|null-data|zero-terminated"
    r"|binary|posix|debug|sandbox|follow-symlinks|help|version)",
    r"(?:-[nErsuzb]*e|--expression=)(.+)|-[nErsuzb]*e|--expression",
    r"(?:-[nErsuzb]*l|--line-length=)([0-9]+)|-[nErsuzb]*l|--line-length",
    "[0-9]+",  # in BSD's sed `-l` has no value
    r"(?:-[nErsuzb]*f|--file=)(.+)|-[nErsuzb]*f|--file",
    r"-[nErsuzb]*i.*|--in-place(?:=.*)?",
)
# The options of POSIX awk: gawk, mawk and original-awk differ on all others.
_AWK = _options("--version", _NONE, "-[Fv](.+)|-[Fv]", ".+", "-f(.+)|-f", _NONE)


def script_words(kind: _Kind, words: Sequence[Word], start: int) -> frozenset[int]:
    """Return the positions of a sed or awk command's words that only a rule which spells them out
    may cover: scripts that do more than read and print, and options that load or write files. If an
    option isn't known, these are all the words: it may take the next word as its value."""
    found: set[int] = set()
    has_script = options_ended = False
    i = start
    while i < len(words):
        word, text = words[i], words[i].text
        if options_ended or not word.is_literal or text == "-" or not text.startswith("-"):
            if has_script:
                is_opaque = word.may_be_option and not options_ended
            else:
                is_opaque = not _is_plain(kind, _literal(words, i))
            found |= {i} if is_opaque else set()
            # awk takes no options after its program; GNU sed takes them anywhere.
            options_ended, has_script = options_ended or kind == "awk", True
        elif text == "--":
            options_ended = True
        else:
            option = _option(kind, words, i)
            if option is None:
                return frozenset(range(start, len(words)))
            found |= option.opaque
            has_script = has_script or option.is_script
            i += option.takes_next
        i += 1
    return frozenset(i for i in found if i < len(words))


class _Option(NamedTuple):
    opaque: set[int]
    takes_next: bool
    is_script: bool = False


def _option(kind: _Kind, words: Sequence[Word], i: int) -> _Option | None:
    """Return what the option at `i` means; None if it isn't known."""
    options, text = _SED if kind == "sed" else _AWK, words[i].text
    if options.flag.fullmatch(text):
        return _Option(set(), takes_next=False)
    if options.in_place.fullmatch(text):
        return _Option({i}, takes_next=False)
    if found := options.file.fullmatch(text):
        return _Option({i} if found[1] else {i, i + 1}, not found[1], is_script=True)
    if found := options.script.fullmatch(text):
        at = i if found[1] else i + 1
        is_plain = _is_plain(kind, found[1] or _literal(words, i + 1))
        return _Option(set() if is_plain else {at}, not found[1], is_script=True)
    if found := options.value.fullmatch(text):
        known = found[1] or options.next_value.fullmatch(_literal(words, i + 1) or "")
        return _Option(set() if known else {i + 1}, not found[1])
    return None


def _is_plain(kind: _Kind, script: str | None) -> bool:
    is_plain = is_plain_sed if kind == "sed" else is_plain_awk
    return script is not None and is_plain(script)


def _literal(words: Sequence[Word], i: int) -> str | None:
    """Return a word's text; None if it isn't known yet or there is no word."""
    return words[i].text if i < len(words) and words[i].is_literal else None
