"""Words of a command that name a file with secrets.

Goes by `data/secret_names.yaml`. No wildcard covers such a word, as with the protected names of
`filesystem` rules, so it can only ever lead to a question. It looks at names alone: `grep -r . .`
reads every file too.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec

from supervisor.core.shell.shell_words import Word
from supervisor.core.text.data_tables import table
from supervisor.core.text.globs import GlobStep, steps_fit

# A longer word is a message or a program rather than a file name.
_MAX_NAME_CHARS = 500
# A word whose braces stand for more names than this may hold any name.
_MOST_SPELLINGS = 1_000
_UNQUOTED = str.maketrans("", "", "\\'\"")
_BRACKETS = re.compile(r"\[[^/]*\]")
_NAME_ENDS = re.compile("[/:=@,]")
_WILDCARD = re.compile("[*?]")
_STEPS: dict[str, GlobStep] = {"*": None, "?": bool}


class _Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields are explained at the top of secret_names.yaml."""

    secrets: dict[str, str]
    found: tuple[str, ...]
    samples: tuple[str, ...]
    names_only: frozenset[str]
    unless: str
    searching: frozenset[str]


@cache
def _names() -> _Names:
    return msgspec.convert(table("secret_names"), _Names, strict=True)


@cache
def _secrets() -> tuple[tuple[str, re.Pattern[str]], ...]:
    names = _names()
    # `-f.env` and `-rf.env`: an option's letters directly followed by the name.
    starts = r"\A|(?<=[/:=@,])|(?<=\A-[A-Za-z])|(?<=\A-[A-Za-z]{2})|(?<=\A-[A-Za-z]{3})"
    head = rf"(?:{starts})(?!.*[-._](?:{'|'.join(names.samples)})\Z)"
    return tuple(
        (mark, re.compile(rf"{head}{name}\Z", re.IGNORECASE))
        for mark, name in names.secrets.items()
    )


def names_a_secret(text: str) -> bool:
    """Return whether the word is the name of a file that holds keys or passwords."""
    return bool(_naming((text,)))


def _naming(texts: Sequence[str]) -> list[int]:
    """Return the positions of texts that name secrets. A quick check returns early in the usual
    case that none does."""
    together = "\n".join(texts).lower()
    likely = [name for mark, name in _secrets() if mark in together]
    if not likely:
        return []
    return [
        i
        for i, text in enumerate(texts)
        if len(text) <= _MAX_NAME_CHARS and any(n.search(text) for n in likely)
    ]


def _may_become_one(text: str) -> bool:
    """Return whether the shell may turn a word with braces or wildcards into such a name. When in
    doubt, it says yes."""
    if len(text) > _MAX_NAME_CHARS:
        return True
    spellings = _spellings(text.translate(_UNQUOTED))
    return spellings is None or any(
        any(map(_finds_one, _patterns(each))) or names_a_secret(each) for each in spellings
    )


def _spellings(text: str) -> list[str] | None:
    """Expand the braces of a word; None if there are too many results."""
    if "{" not in text:
        return [text]
    done: list[str] = []
    rest = [re.sub(r"\{[^{},]*\.\.[^{},]*\}", "*", text)]
    while rest:
        if len(done) + len(rest) > _MOST_SPELLINGS:
            return None
        each = rest.pop()
        braces = re.search(r"\{([^{}]*,[^{}]*)\}", each)
        if braces is None:
            done.append(each)
        else:
            rest += [
                each[: braces.start()] + part + each[braces.end() :]
                for part in braces[1].split(",")
            ]
    return done


def _patterns(text: str) -> Iterator[str]:
    """Return the parts of a path that are patterns, in lower case; the contents of brackets are
    ignored."""
    parts = _NAME_ENDS.split(_BRACKETS.sub("*", text.lower()))
    return (part for part in parts if "*" in part or "?" in part)


def _finds_one(pattern: str) -> bool:
    # A wildcard at the start finds no name with a leading dot, and a pattern for all names isn't
    # meant for these.
    start = _WILDCARD.split(pattern, 1)[0]
    names = [name for name in _names().found if name.startswith(start)] if start else []
    if not names:
        return False
    # One letter per step: no regular expression is compiled from an agent's text.
    steps = [_STEPS.get(letter, letter) for letter in pattern]
    return any(steps_fit(steps, name) for name in names)


def secret_words(words: Sequence[Word]) -> frozenset[int]:
    """Return the positions (from 1) of the words that name a secret which the command would read or
    pass on."""
    found = [i for i in _naming([word.text for word in words]) if i]
    if any(word.globs for word in words):
        risky = {
            text
            for text in {word.text for word in words[1:] if word.globs}
            if _may_become_one(text)
        }
        found = sorted(
            {
                *found,
                *(i for i, word in enumerate(words) if i and word.globs and word.text in risky),
            }
        )
    if not found:
        return frozenset()
    names = _names()
    program = posixpath.basename(words[0].text)
    if program in names.names_only or f"{program} {words[1].text}" in names.names_only:
        reads = any(re.match(names.unless, word.text) for word in words[1:])
        return frozenset(found) if reads else frozenset()
    sought = _sought(words) if program in names.searching else 0
    return frozenset(i for i in found if i != sought)


# Options of grep and similar programs after which the first operand is still the search text, or
# isn't a file.
_FLAGS = re.compile(
    r"-[abchilnoqrsvwxEFHILPRSUV]+"
    r"|--(?:recursive|ignore-case|line-number|count|hidden|no-[a-z-]+|(?:files|word|line|fixed)-[a-z-]+"
    r"|(?:colou?r|include|exclude|exclude-dir|glob|type)(?:=.*)?)"
)


def _sought(words: Sequence[Word]) -> int:
    """Return the position of the text that a search program looks for; 0 if an option may have
    given it."""
    for i, word in enumerate(words[1:], start=1):
        if not word.text.startswith("-"):
            return i
        if not word.is_literal or not _FLAGS.fullmatch(word.text):
            return 0
    return 0
