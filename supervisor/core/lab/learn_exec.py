"""Candidate exec rules for one approved command: by program and verb.

Decides by the tables of `exec_tables` (`narrow`: where fixed words plus a last `*` are harmless).
Two things may be spelled out, and only once they were approved twice: a program or a script of the
workspace, and a look at a server of the sandbox's own. It must never offer anything else verbatim:
what a person approved once, in its place, is not what they would approve always.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence

import msgspec

from supervisor.core.lab.learn_options import ONE_WILDCARD, SPELLED_OUT, Option
from supervisor.core.shell.exec_candidates import is_verb, quote
from supervisor.core.shell.exec_tables import basename, plain_form, program_name, tables
from supervisor.core.shell.exec_wrappers import unwrap
from supervisor.core.shell.shell_words import Word

MOST_CHARS = 120
_INTERPRETERS = re.compile(r"(?:python[0-9.]*|node|ruby|perl|php|sh|bash|dash)\Z")
_LOOPBACK_URL = re.compile(
    r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/-]*)?\Z"
)
_CURL_FLAGS = re.compile(r"-[sSfiIv]+\Z|--(?:silent|show-error|fail|include|head)\Z")


def exec_options(words: tuple[Word, ...]) -> tuple[Option, ...]:
    """Return candidate rules for an uncovered command; none where only its very words would do."""
    name = program_name(words[0].text)
    if name is not None:
        words = (msgspec.structs.replace(words[0], text=name), *words[1:])
        words = (plain_form(words) or (words,))[0]
    found = [*_narrow(words), *_fed(words), *_spelled(words)]
    return tuple(one for one in found if len(one.rule) <= MOST_CHARS)


def _rule(words: Sequence[Word], *tail: str) -> str:
    # `{}` needs no quotes, and is never written with them.
    shown = (word.text if word.text == "{}" else quote(word.text) for word in words)
    return f"exec({' '.join([*shown, *tail])})"


def _narrow(words: tuple[Word, ...]) -> Iterator[Option]:
    """Program and verb with a last `*`; where the verb is a name that the project gave (`npm run
    NAME`), also without."""
    verbs = tables().narrow.get(program_name(words[0].text) or "")
    if verbs is None or not words[0].is_literal:
        return
    for verb in verbs or ((),):
        fixed = words[: len(verb) + 1]
        if len(fixed) <= len(verb) or not all(
            is_verb(v, w) for v, w in zip(verb, fixed[1:], strict=True)
        ):
            continue
        if "?" in verb:
            yield Option(_rule(fixed), SPELLED_OUT)
        if verb != ("?",):
            yield Option(_rule(fixed, "*"), ONE_WILDCARD)
        return
    if ("?",) in verbs and len(words) == 1:
        # `make` alone is its default target.
        yield Option(_rule(words), SPELLED_OUT)


def _fed(words: tuple[Word, ...]) -> Iterator[Option]:
    """`xargs wc *`: the command that it runs is judged as if it stood alone."""
    unwrapped = unwrap(words) if words[0].text == "xargs" else None
    for payload in unwrapped.payloads if unwrapped else ():
        for option in _narrow(payload.words):
            if option.weight == ONE_WILDCARD:
                inner = option.rule.removeprefix("exec(").removesuffix(")")
                yield Option(_rule(words[: payload.start], inner), ONE_WILDCARD)


def _spelled(words: tuple[Word, ...]) -> Iterator[Option]:
    if not all(word.is_literal for word in words):
        return
    name = words[0].text
    is_own = _is_in_workspace(name) and "/" in name
    is_script = (
        len(words) > 1
        and program_name(name) is not None
        and _INTERPRETERS.match(basename(name)) is not None
        and _is_in_workspace(words[1].text)
        and not words[1].text.startswith("-")
    )
    if is_own or is_script or _is_own_server(words):
        yield Option(_rule(words), SPELLED_OUT, 2)


def _is_in_workspace(path: str) -> bool:
    """Return whether a relative path stays below where it is used; where that is, the engine
    knows."""
    return bool(path) and path[0] not in "/~" and ".." not in posixpath.normpath(path).split("/")


def _is_own_server(words: Sequence[Word]) -> bool:
    """`curl` of a loopback address, with nothing that writes, sends or follows."""
    if words[0].text != "curl" or len(words) < 2:
        return False
    return all(_LOOPBACK_URL.match(word.text) or _CURL_FLAGS.match(word.text) for word in words[1:])
