"""Redact credentials in command lines, for storing and showing them.

The command itself runs, is judged and has its fingerprint in the original form. This decides which
parts of a text are credentials: by the program and the option that takes it
(`data/command_secrets.yaml`), and by names (`labelled_secrets`).

INVARIANT: expansions are never hidden, and no part of a variable that the same text may run: the
person who answers must see what acts. A hidden long value shows its length.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple

import msgspec

from supervisor.core.actions import Action, Exec, Git, Packages, Proposal
from supervisor.core.secrets.labelled_secrets import (
    SecretSpan,
    in_cookies,
    in_header,
    is_value,
    names_secret,
    spans,
)
from supervisor.core.secrets.loose_words import HIDDEN, LooseCommand, LooseWord, Run, commands
from supervisor.core.secrets.url_secrets import mark_for
from supervisor.core.text.data_tables import table

# The maximum length of a command; beyond this only labels are looked for.
MOST_CHARS = 64 * 1024
# A shorter part of a secret, found in another text, may be a coincidence.
_LEAST_CHARS = 6
_ASSIGNED = re.compile(
    r"(?:-{0,2}|-D|-P|/p:|--?[A-Za-z-]+=)([A-Za-z_][\w.:/-]*)(?:\[[^\]]*\])?\+?:?="
)
_OPTION = re.compile(r"--?([A-Za-z][\w-]*)\Z")
# A variable's value that could be a command: it has several words, and one looks like an option or
# a path.
_ACTS = re.compile(r"\s(?:[^\s;|&<>$`/]*[;|&<>$`/]|-)|[;|&`$][^\s;|&`$]*\s|\A!")
_HEADER_WORD = re.compile(r"[A-Za-z][A-Za-z0-9-]*:(?!=|//)")
# Programs that may run a text that they are given.
_SHELLS = r"(?:ba|da|z|k|fi|a)?sh|eval|source"
_INTERPRETERS = r"xargs|parallel|python[0-9.]*|perl|ruby|node|php|awk|tee|at|batch|crontab|expect"
_RUNS_TEXT = re.compile(rf"(?<![\w.-])(?:{_SHELLS}|{_INTERPRETERS})(?![\w.-])|\$[0-9@*_]|\$\{{!")
_SHELL = re.compile(rf"(?:{_SHELLS}|\.|exec|sudo|env|command|builtin|nohup|time|xargs)\Z")
# Placeholders for a value: a rule's wildcard, an example's dots.
_PLACEHOLDER = re.compile(r"[*?]+|\.{2,}|[xX]{3,}")
_SPECIAL = re.compile(r"[\s;&|<>$`(){}]")
_LETTERS = re.compile(r"-[A-Za-z0-9#]{2,8}")
_EXPANDED = re.compile(r"\$\{?(!?[A-Za-z_]\w*|[0-9@*_])")
_NEXT_FIELD = re.compile(r"&[\w.%-]+=")
_FIELD_OF_FORM = re.compile(r"(?:\A|(?<=&))([^=&\s]{1,120})=([^&]+)")


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields are explained at the top of command_secrets.yaml."""

    names: frozenset[str]
    under: tuple[str, ...] = ()
    needs: str = ""
    options: dict[str, tuple[str, ...]] = {}
    operands: dict[str, tuple[int, ...]] = {}
    clusters: bool = False
    names_values: bool = False
    items: bool = False


class _Known(NamedTuple):
    """An entry, and the kinds by option."""

    entry: _Entry
    kinds: dict[str, str]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    programs: tuple[_Entry, ...]
    stdin: dict[str, tuple[tuple[str, ...], ...]]
    printing: frozenset[str]


@cache
def _table() -> _Table:
    return msgspec.convert(table("command_secrets"), _Table, strict=True)


@cache
def _by_program() -> dict[str, tuple[_Known, ...]]:
    found: dict[str, tuple[_Known, ...]] = {}
    for entry in _table().programs:
        known = _Known(
            entry, {name: kind for kind, names in entry.options.items() for name in names}
        )
        for program in entry.names:
            found[program] = (*found.get(program, ()), known)
    return found


@cache
def _hint() -> re.Pattern[str]:
    """Compile a cheap pattern that every text with something to hide matches."""
    words = sorted(
        {*map(re.escape, _by_program()), "chpasswd", "passwd", "cryptsetup", "kinit", "sudo", "su"}
    )
    labels = "pass|pwd|token|secret|key|auth|cookie|credential|jwt|otp|bearer|signature|sig=|identified|://|x-amz|sid=|hmac|pat=|_pat"
    return re.compile(rf"(?i:{labels})|(?<![\w-])(?:{'|'.join(words)})(?![\w-])")


def without_secrets(text: str, *, is_command: bool = True) -> str:
    """Return a command line, or text about one, with `[hidden]` in place of credentials.
    `is_command` is False for a command's output."""
    return _replaced(text, _found(text, is_command=is_command))


def _replaced(text: str, found: tuple[SecretSpan, ...]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in found:
        parts += [text[done:start], mark_for(text[start:end])]
        done = end
    return "".join([*parts, text[done:]]) if found else text


def words_without_secrets(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command in words, such as a session's, without credentials."""
    joined = "\n".join(words)
    loose = []
    at = 0
    for word in words:
        loose.append(LooseWord(at, at + len(word), word, (Run(at, at + len(word), word),)))
        at += len(word) + 1
    found = list(_in_words(tuple(loose), frozenset())) if _hint().search(joined) else []
    return tuple(
        _replaced(
            word.text,
            _merged(
                word.text,
                {(a - word.start, b - word.start) for a, b in found if word.start <= a < word.end},
            )
            or _found(word.text),
        )
        for word in loose
    )


def secrets_in(action: Action) -> tuple[str, ...]:
    """Return the credentials in an action's command, to be removed from texts beside it, longest
    first."""
    text = getattr(action, "command", None) or ""
    values = {text[start:end] for start, end in _found(text)} if text else set()
    return tuple(sorted((one for one in values if len(one) >= _LEAST_CHARS), key=len, reverse=True))


def without(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these credentials."""
    for secret in secrets:
        text = text.replace(secret, mark_for(secret))
    return text


def hidden(action: Action) -> Action:
    """Return the action as it may be stored and shown."""
    match action:
        case Exec():
            shown = without_secrets(action.command)
            return (
                action
                if shown == action.command
                else msgspec.structs.replace(action, command=shown)
            )
        case Git() | Packages():
            return _words_hidden(action)
        case Proposal():
            return msgspec.structs.replace(
                action, rule=without_secrets(action.rule), why=without_secrets(action.why)
            )
    return action


def _words_hidden(action: Git | Packages) -> Action:
    """Hide the command's secrets also in the fields that were derived from its words."""
    known = secrets_in(action)

    def one(text: str) -> str:
        return without(without_secrets(text), known)

    def each(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(one, texts))

    command = action.command if action.command is None else without_secrets(action.command)
    if isinstance(action, Git):
        remote = action.remote if action.remote is None else one(action.remote)
        return msgspec.structs.replace(
            action,
            command=command,
            remote=remote,
            refspecs=each(action.refspecs),
            flags=each(action.flags),
        )
    return msgspec.structs.replace(
        action, command=command, names=each(action.names), flags=each(action.flags)
    )


@lru_cache(maxsize=16)  # one request's command is looked at several times
def _found(text: str, *, is_command: bool = True) -> tuple[SecretSpan, ...]:
    """Return the spans of credentials, in order, none inside another."""
    if _hint().search(text) is None:
        return ()
    found = {*spans(text, is_command=is_command), *(_in_commands(text) if is_command else ())}
    return _merged(text, found, is_command=is_command)


def _merged(
    text: str, found: set[SecretSpan], *, is_command: bool = True
) -> tuple[SecretSpan, ...]:
    runs_text = is_command and _RUNS_TEXT.search(text) is not None
    kept = [mark.span() for mark in HIDDEN.finditer(text)]
    merged: list[SecretSpan] = []
    for start, end in sorted(found):
        if start >= end or any(start < last and first < end for first, last in kept):
            continue
        if _PLACEHOLDER.fullmatch(text, start, end):
            continue
        # INVARIANT: if a text may be run, only single plain words of it are hidden.
        if runs_text and _SPECIAL.search(text, start, end):
            continue
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def _in_commands(text: str) -> Iterator[SecretSpan]:
    found = list(commands(text[:MOST_CHARS]))
    run = frozenset(name for command in found for name in _run_by(command.words))
    before: LooseCommand | None = None
    for command in found:
        yield from _in_words(command.words, run)
        kind = _reads_secret(command.words)
        if kind:
            fed = [
                *command.fed,
                *(_printed(before.words) if before is not None and before.feeds else ()),
            ]
            for word in fed:
                yield from _of_kind(kind, word, 0)
        before = command


def _run_by(words: tuple[LooseWord, ...]) -> Iterator[str]:
    """Return the variables that a command runs: `$NAME` in the place of a program, or of a text for
    a shell."""
    begin = next((i for i, word in enumerate(words) if not _ASSIGNED.match(word.text)), len(words))
    is_open = True
    for at, word in enumerate(words[begin:]):
        if (is_open or words[begin].text == "eval") and word.text.startswith("$"):
            yield from _EXPANDED.findall(word.text)
        # After an option may come its value, and after that the program.
        is_open = is_open and (
            word.text.startswith("-") or _SHELL.match(posixpath.basename(word.text)) is not None
        )
        if (
            at
            and words[begin + at - 1].text.startswith("-")
            and words[begin].text in ("sudo", "env", "xargs")
        ):
            is_open = True


def _reads_secret(words: tuple[LooseWord, ...]) -> str:
    """Return the kind of secret that a command reads from its input; empty if it reads none."""
    texts = [posixpath.basename(word.text) for word in words if not _ASSIGNED.match(word.text)]
    if texts[:1] == ["sudo"] and "-S" not in texts:
        texts = texts[1:]
    for kind, sets in _table().stdin.items():
        for program, *others in sets:
            if program in texts and set(texts).issuperset(others):
                # In a sentence, or after another program, which may run its input.
                kind = kind if texts[0] == program else "word"
                return "" if kind == "word" and any(map(_RUNS_TEXT.search, texts)) else kind
    return ""


def _printed(words: tuple[LooseWord, ...]) -> list[LooseWord]:
    """Return the output of `echo` and `printf`."""
    at = next((i for i, word in enumerate(words) if word.text in _table().printing), None)
    if at is None:
        return []
    return [
        word
        for word in words[at + 1 :]
        if not re.fullmatch(r"-[neE]+|--|[%\\\w]*%[sb](?:\\n)?", word.text)
    ]


def _in_words(words: tuple[LooseWord, ...], run: frozenset[str]) -> Iterator[SecretSpan]:
    without_value: set[str] = set()
    seen: set[int] = set()
    for at, word in enumerate(words):
        for known in _by_program().get(posixpath.basename(word.text), ()):
            if id(known) in seen:
                continue
            # If it doesn't apply after one word, it doesn't apply after a later one either.
            seen.add(id(known))
            behind = _under(known.entry, words, at + 1)
            if behind is not None:
                without_value |= {
                    name for name, kind in known.kinds.items() if kind in ("none", "attached")
                }
                yield from _by_entry(known, words, behind)
    if words and words[0].text == "alias":
        return
    for at, word in enumerate(words):
        has_value = at + 1 < len(words) and word.text not in without_value
        yield from _by_name(word, words[at + 1] if has_value else None, run)


def _under(entry: _Entry, words: tuple[LooseWord, ...], at: int) -> int | None:
    """Return the position from which the entry applies; None if it doesn't apply."""
    for wanted in entry.under:
        at = next((i + 1 for i in range(at, len(words)) if re.fullmatch(wanted, words[i].text)), 0)
        if at == 0:
            return None
    if entry.needs and not any(re.fullmatch(entry.needs, word.text) for word in words[at:]):
        return None
    return at


def _by_entry(known: _Known, words: tuple[LooseWord, ...], begin: int) -> Iterator[SecretSpan]:
    entry = known.entry
    for at in range(begin, len(words)):
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else None
        yield from _by_option(known, word, following)
        if (
            entry.names_values
            and following is not None
            and not word.text.startswith("-")
            and names_secret(word.text)
        ):
            yield from _of_kind("secret", following, 0)
        if entry.items and _HEADER_WORD.match(word.text):
            yield from _of_kind("header", word, 0)
    operands = [word for word in words[begin:] if not word.text.startswith("-")]
    for kind, places in entry.operands.items():
        for place in places:
            if abs(place) <= len(operands) and operands:
                yield from _of_kind(kind, operands[place - (place > 0)], 0)


def _by_option(known: _Known, word: LooseWord, following: LooseWord | None) -> Iterator[SecretSpan]:
    text, kinds = word.text, known.kinds
    name = text
    if known.entry.clusters and name not in kinds and _LETTERS.fullmatch(text):
        name = f"-{text[-1]}"
    kind = kinds.get(name)
    if kind is not None:
        is_value = following is not None and (
            name.startswith("-") or not following.text.startswith("-")
        )
        if following is not None and is_value and kind not in ("attached", "none"):
            yield from _of_kind(kind, following, 0)
        return
    before, mark, _ = text.partition("=")
    for name, begin in ((before, len(before) + 1), (text[:2], 2), (text[:3], 3)):
        kind = kinds.get(name, "none")
        if (
            kind != "none"
            and text.startswith("-")
            and (mark or name != before)
            and len(text) > begin
        ):
            yield from _of_kind(kind, word, begin)
            return


def _of_kind(kind: str, word: LooseWord, begin: int) -> Iterator[SecretSpan]:
    """Return the credential's span in a word whose value begins at `begin`."""
    value = word.text[begin:]
    if kind in ("secret", "attached"):
        yield from word.stretches(begin)
    elif kind in ("user", "pair", "pass", "percent"):
        yield from word.stretches(begin + _behind(kind, value))
    elif kind == "word":
        if _SPECIAL.search(value) is None:
            yield from word.stretches(begin)
    elif kind == "variable":
        yield from _assigned(word, begin, frozenset())
    elif kind == "form":
        for field in _FIELD_OF_FORM.finditer(value):
            if names_secret(field[1]) and is_value(field[2]):
                yield from word.stretches(begin + field.start(2), begin + field.end(2))
    elif kind == "slash":
        found = re.match(r"[^/\s@]+/(.+?)(?=@[^@]*\Z|\Z)", value)
        if found:
            yield from word.stretches(begin + found.start(1), begin + found.end(1))
    else:
        for first, last in in_header(value) if kind == "header" else in_cookies(value):
            yield from word.stretches(begin + first, begin + last)


def _behind(kind: str, value: str) -> int:
    """Return the position after a kind's mark; the end if there is no mark."""
    if kind == "pass":
        return 5 if value.startswith("pass:") else len(value)
    marks = {"user": ":", "pair": "=", "percent": "%,"}[kind]
    at = min((value.find(mark) for mark in marks if mark in value), default=-1)
    if kind == "user" and at == len(value) - 1 >= 16:
        return 0  # a key in place of a name: `-u sk_...:`
    return at + 1 if at >= 0 else len(value)


def _by_name(
    word: LooseWord, following: LooseWord | None, run: frozenset[str]
) -> Iterator[SecretSpan]:
    """Find values by their names: `NAME=VALUE`, `--name VALUE`."""
    yield from _assigned(word, 0, run)
    option = _OPTION.match(word.text)
    if option is None or following is None or following.text.startswith("-"):
        return
    if _takes_secret(option[0]) and is_value(following.text):
        yield from following.stretches(_user(option[1], following.text))


def _assigned(word: LooseWord, begin: int, run: frozenset[str]) -> Iterator[SecretSpan]:
    """Return the value of `NAME=VALUE` in a word, but not what the text may run."""
    assigned = _ASSIGNED.match(word.text, begin)
    if assigned is None or not names_secret(assigned[1]):
        return
    value = _NEXT_FIELD.split(word.text[assigned.end() :])[0]
    is_quoted_whole = (
        word.runs[0].text == "" and " " in value
    )  # it may be `NAME=VALUE command`, and is read as that, too
    may_run = assigned[1] in run or any(not name.isidentifier() for name in run) or is_quoted_whole
    if is_value(value) and not may_run and not _ACTS.search(value):
        yield from word.stretches(
            assigned.end() + _user(assigned[1], value), assigned.end() + len(value)
        )


def _takes_secret(option: str) -> bool:
    # One dash: `-pass 1` is ffmpeg's, `-token` is Consul's.
    if not option.startswith("--") and (len(option) < 6 or option == "-pass"):
        return False
    return names_secret(option.lstrip("-"))


def _user(name: str, value: str) -> int:
    """Return the span of the password: `--auth name:password` shows the name."""
    return value.find(":") + 1 if name.lower().endswith("auth") and ":" in value else 0
