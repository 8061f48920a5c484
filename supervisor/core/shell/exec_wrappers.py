"""Wrappers: find the command that another program runs, in its words.

Decides by `data/wrappers.yaml`. When in doubt it must say "uncertain": an option that isn't in the
table makes the payload's place unknown. That only ever leads to a question, and deny rules then
look at every later word.
"""

import re
from collections.abc import Sequence

import msgspec

from supervisor.core.shell.exec_tables import Wrapper, basename, tables
from supervisor.core.shell.shell_words import ASSIGNMENT, Word

UNKNOWN_WORDS = Word("...", is_literal=False, splits=True)


class Payload(msgspec.Struct, frozen=True, gc=False):
    """A command that a wrapper runs: `words` (from position `start` of the wrapper's words) or
    `text`, a shell program.

    `is_elsewhere`: it runs in a folder that isn't known yet.
    """

    words: tuple[Word, ...] = ()
    text: str | None = None
    start: int = 0
    dialect: str = "bash"
    is_elsewhere: bool = False


class Unwrapped(msgspec.Struct, frozen=True, gc=False):
    """The result of unwrapping. `harmless`: judge only the payloads. `own`: positions of words that
    are judged as part of a payload, not as arguments.

    `problem`: why no rule may allow it. `is_uncertain`: the payload's place isn't known; `guesses`
    are for deny rules.
    """

    payloads: tuple[Payload, ...] = ()
    harmless: bool = False
    inside: frozenset[int] = frozenset()
    problem: str | None = None
    guesses: tuple[Word, ...] = ()


def unwrap(words: Sequence[Word]) -> Unwrapped | None:
    """Return the payloads of the command `words`; None if its program is no wrapper or runs nothing
    here."""
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
    return _unwrap_argv(wrapper, words)


def _dynamic(word: Word) -> Word:
    return msgspec.structs.replace(word, is_literal=False, prefix="", splits=False)


def _option(wrapper: Wrapper, text: str) -> int:
    """Return how many words the option takes; 0 if it isn't known."""
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
    unsure = Unwrapped(
        problem=f"an expansion among the words of `{words[0].text}`", guesses=tuple(words[1:])
    )
    i, operands, replaced, assigns = 1, wrapper.operands, "", False
    while i < len(words):
        word = words[i]
        if not word.is_literal:
            return unsure
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
                        words[i + 1].text
                        if taken == 2 and i + 1 < len(words)
                        else text[len(option) :].lstrip("=")
                    )
            i += taken
        elif operands:
            operands -= 1
            i += 1
        else:
            break
    i += min(operands, len(words) - i)
    if any(word.is_many for word in words[1:i]):
        return unsure
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
    # `-S'x y'`, also bundled, and `--split-string='x y'`, also shortened.
    splits = [re.match(r"(?:-[A-Za-z0]*?S|--s[a-z-]*=)(.+)", w.text, re.DOTALL) for w in words[1:]]
    attached = [split[1] for split in splits if split]
    return Unwrapped(
        problem=f"`{words[0].text} {option}`: what it runs can't be told",
        guesses=tuple(words[1:]),
        payloads=tuple(Payload(text=text) for text in (*texts, *attached)),
    )


def _payload_of(
    wrapper: Wrapper, words: Sequence[Word], start: int, replaced: str, problem: str | None
) -> Unwrapped:
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
            (Payload(text=text, start=start, dialect="sh"),),
            wrapper.harmless,
            inside,
            problem,
            tuple(words[start:]),
        )
    if wrapper.tail and not replaced:
        payload.append(UNKNOWN_WORDS)
    return Unwrapped(
        (Payload(words=tuple(payload), start=start),), wrapper.harmless, inside, problem
    )


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
            end < len(words)
            and words[end].text != ";"
            and not (words[end].text == "+" and words[end - 1].text == "{}")
        ):
            end += 1
        payload = tuple(
            _dynamic(word) if "{}" in word.text else word for word in words[i + 1 : end]
        )
        if not payload:
            return Unwrapped(problem="`find -exec` without a command")
        payloads.append(
            Payload(
                words=payload, start=i + 1, is_elsewhere=words[i].text in ("-execdir", "-okdir")
            )
        )
        inside |= set(range(i, min(end + 1, len(words))))
        i = end + 1
    if not payloads:
        return None
    problem = (
        None
        if all(p.words[0].is_literal for p in payloads)
        else "an expansion in the name of what `find` runs"
    )
    return Unwrapped(tuple(payloads), inside=frozenset(inside), problem=problem)


def _unwrap_shell(wrapper: Wrapper, words: Sequence[Word], name: str) -> Unwrapped | None:
    """Unwrap `bash -c TEXT`, also bundled (`-lc`); return None if the shell runs a file or its
    input."""
    i = 1
    while i < len(words):
        text = words[i].text
        if not words[i].is_literal and text.startswith("-"):
            return Unwrapped(
                problem=f"an expansion among the options of `{name}`", guesses=tuple(words[1:])
            )
        if (
            name == "runuser"
            and not (text.startswith("-") and text != "--")
            and words[1].text in ("-u", "--user")
        ):
            start = i + (text == "--")
            return (
                Unwrapped((Payload(words=tuple(words[start:]), start=start),))
                if start < len(words)
                else None
            )
        if not text.startswith(("-", "+")) and name not in ("su", "runuser", "script"):
            return None
        bundled = re.fullmatch(r"-[A-Zabd-z]*c[A-Za-z]*", text)
        if bundled or text in ("--command", "--session-command"):
            return _shell_text(wrapper, words, i, name)
        attached = re.match(r"--(?:session-)?command=(.*)", text, re.DOTALL)
        if attached:
            return Unwrapped((Payload(text=attached[1]),), problem=f"`{name} --command`")
        takes_next = text in wrapper.valued or re.fullmatch(r"[-+][A-Za-z]*[oO]", text)
        i += 2 if takes_next else 1
    return None


def _shell_text(wrapper: Wrapper, words: Sequence[Word], option: int, name: str) -> Unwrapped:
    known = all(_option(wrapper, word.text) for word in words[1 : option + 1])
    # Bash takes the first word after its options as the text: `bash -c -x 'text'`.
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
    guesses = () if known and text.is_literal else tuple(words[1:])
    dialect = "bash" if name in ("bash", "rbash") else "sh"
    if name not in ("bash", "rbash", "sh", "dash", "ash", "zsh", "ksh", "mksh"):
        problem = problem or f"the text of `{name}` is read by another grammar"
    payload = Payload(text=text.text, start=at, dialect=dialect)
    return Unwrapped((payload,), wrapper.harmless, frozenset(range(1, at + 1)), problem, guesses)


def _unwrap_module(words: Sequence[Word]) -> Unwrapped | None:
    """Unwrap `python -m NAME ARGS`, which runs NAME; in any other place `-m` is an opaque
    argument."""
    if len(words) < 3 or words[1].text != "-m":
        return None
    if not words[2].is_literal:
        return Unwrapped(problem="an expansion in the name of a module")
    return Unwrapped(
        (Payload(words=tuple(words[2:]), start=2),), inside=frozenset(range(2, len(words)))
    )


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
            problem=f"`{words[0].text} {words[at].text}`: what it runs can't be told",
            guesses=tuple(words[start:]),
        )
    return Unwrapped(
        (Payload(words=payload, start=start),),
        inside=frozenset(range(start, len(words))),
        guesses=tuple(words[start + 1 :]),
    )
