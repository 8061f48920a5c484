"""Translate Claude Code's Bash rules to exec rules.

Decides which exec rule means the same as theirs, or less for allow and more for ask and deny. The
two languages read a command differently: Claude Code compares a rule with the text of each simple
command, `*` being any text; Gatehouse compares it with the words that a program would get. It must
never make an allow rule that matches more than Claude Code's.

Source: https://code.claude.com/docs/en/permissions ("Wildcard patterns", "Bash"), read in November
2026:
    no `*`              the one command
    `X *`, `X:*`        X, and X with anything after a space, if it is the rule's only wildcard
    `X*`                whatever begins with X: `ls*` is `lsof` too
    any other `*`       any text, spaces included
Wrappers (`timeout`, `nice`, ...) are stripped before that; each part of a compound command is
compared by itself.
"""

import re
from itertools import takewhile

from supervisor.core.packages.package_commands import manager_named, managers, operation_named
from supervisor.core.policy.categories import compiled, never
from supervisor.core.policy.exec_category import runs_anything
from supervisor.core.policy.git_refs import REACHES
from supervisor.core.policy.policy_text import parse_rule
from supervisor.core.shell.exec_patterns import ExecPattern, PatternWord, compile_pattern
from supervisor.core.shell.exec_tables import basename, tables
from supervisor.core.shell.exec_wrappers import unwrap
from supervisor.core.shell.shell_words import Word
from supervisor.errors import PolicyError

# Wrappers that Claude Code strips before it compares, so a rule that begins with one never matches.
_TAKEN_OFF = frozenset(
    {"timeout", "time", "nice", "nohup", "stdbuf", "command", "builtin", "noglob", "xargs"}
)
# Rules about a parameter of the tool, not about the command.
_PARAMETER = re.compile(
    r"(command|run_in_background|timeout|description|dangerouslyDisableSandbox)\s*:(?!\*\Z)"
)
# Quoted text, or everything after an unclosed quote.
_QUOTED = re.compile(r"'[^']*+'|\"(?:[^\"\\]|\\.)*+\"|([\"'].*)", re.DOTALL)
_ASSIGNMENTS = re.compile(r"\A(?:[A-Za-z_][A-Za-z0-9_]*=[^\s\"'\\$`]*\s+)+")
_OPERATORS = re.compile(r"[;|&\n]")
# Characters at which a text stops being words that both languages read alike.
_UNLIKE = re.compile(r"[*\"'\\$`(){}<>~#!]")
_OPTION = re.compile(r"-[A-Za-z0-9-][A-Za-z0-9=_.,:/+*-]*")
# Words that a git rule matches at any position.
_PUSH_OPTIONS = frozenset(
    {
        "-f",
        "--force",
        "--force-with-lease",
        "-d",
        "--delete",
        "--mirror",
        "--all",
        "--tags",
        "--prune",
    }
)
WHOLE_CATEGORY = ""


class NoCounterpartError(Exception):
    """Raised if a rule can't be carried over; the text says why.

    `opens`: for an ask or deny rule, the programs whose allow rules would then let through what
    Claude Code asks or denies (None: no program; `WHOLE_CATEGORY`: any).
    """

    def __init__(self, reason: str, opens: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.opens = opens


def _plain(spec: str) -> str:
    """Return the rule with its `:*` in the equivalent form with a blank, and each run of `*` as
    one."""
    spec = re.sub(r":\*\Z", " *", spec.strip())
    return re.sub(r"\*{2,}", "*", spec).strip()


# -- allow: the same, or less ---------------------------------------------------------------------


def allow(spec: str) -> tuple[str, str]:
    """Return the pattern of an exec rule that allows nothing which `Bash(spec)` doesn't allow, and
    how it is narrower. Raise `NoCounterpartError` if there is none."""
    if _PARAMETER.match(spec):
        raise NoCounterpartError("an allow rule about a parameter says nothing there either")
    text = _plain(spec)
    if not text.strip("* "):
        raise NoCounterpartError("a rule for every command allows nothing here: name the commands")
    if "\\" in text:
        raise NoCounterpartError("holds a backslash, which the two languages read differently")
    pattern = _compiled(text)
    if any("*" in (word.literal or "") for word in pattern.words):
        raise NoCounterpartError(
            "a `*` in quotes is any text there, and a star here: write the rule by hand"
        )
    carried, note = _narrowed(pattern)
    _refuse_traps(carried)
    return carried, note or _narrower_by_payload(pattern)


def _compiled(text: str) -> ExecPattern:
    try:
        return compile_pattern(text)
    except PolicyError as error:
        raise NoCounterpartError(f"{_reason(error)}: {error.remedy}") from None


def _reason(error: PolicyError) -> str:
    # The rule itself is shown before it.
    return re.sub(r"\A`exec\(.*\)` ", "", error.message, flags=re.DOTALL)


def _narrowed(pattern: ExecPattern) -> tuple[str, str]:
    words = [word.raw for word in pattern.words]
    name, last = pattern.words[0], pattern.words[-1]
    wild = [i for i, word in enumerate(pattern.words) if word.literal is None]
    if wild in ([], [len(words) - 1]) and not pattern.has_tail and _ends_in_a_word(last):
        # `ls*` would also match `lsof`; the rule means the whole word.
        return " ".join([*words[:-1], words[-1].rstrip("*"), "*"]), "narrower: only as a whole word"
    if name.literal is None:
        raise NoCounterpartError(
            "its `*` stands for the program, so it allows any: name the programs"
        )
    if name.literal in _TAKEN_OFF:
        raise NoCounterpartError(
            f"Claude Code takes `{name.literal}` off before it compares: write what stands"
            " behind it"
        )
    if 1 in wild and (len(words) > 2 or pattern.has_tail):
        raise NoCounterpartError(
            "its `*` stands for the subcommand, so it allows any of them: name them"
        )
    if pattern.has_tail and wild:
        # A last `*` that isn't the only one needs some text after the space.
        return " ".join([*words, "*", "*"]), "narrower: each `*` but the last is one word"
    tail = ["*"] if pattern.has_tail else []
    return " ".join([*words, *tail]), "narrower: `*` is one word" if wild else ""


def _ends_in_a_word(word: PatternWord) -> bool:
    """Return whether the word is text that ends in a letter or digit, directly followed by a
    `*`."""
    if word.literal is not None or len(word.parts) != 2 or word.parts[1]:
        return False
    return word.parts[0][-1:].isalnum()


def _narrower_by_payload(pattern: ExecPattern) -> str:
    """Return how a rule such as `bash -c *` becomes narrower: for Claude Code it covers whatever
    the shell is given, here only the shell itself."""
    words = [Word(word.literal) for word in pattern.words if word.literal is not None]
    inner = (
        unwrap([*words, Word("x")])
        if pattern.has_tail and len(words) == len(pattern.words)
        else None
    )
    return (
        "narrower: what it runs needs a rule of its own"
        if inner is not None and inner.payloads
        else ""
    )


def _refuse_traps(text: str) -> None:
    """Refuse rules that are traps as a prefix: interpreters, runners, and commands that no rule may
    allow."""
    try:
        rule = compiled(parse_rule(f"exec({text})", "allow"))
    except PolicyError as error:
        raise NoCounterpartError(f"{error.message}: {error.remedy}") from None
    remark = runs_anything(rule.pattern) or never(rule, lambda _: None, "ask")
    if remark is not None:
        raise NoCounterpartError(f"{remark.what}: {remark.remedy}")


# -- ask and deny: the same, or more --------------------------------------------------------------


def strict(spec: str) -> tuple[str, str]:
    """Return the pattern of an exec rule that touches whatever `Bash(spec)` matches, and how it is
    wider. Raise `NoCounterpartError` if there is none."""
    if _PARAMETER.match(spec):
        raise NoCounterpartError("is about a parameter of the tool, which commands here don't have")
    text = _plain(spec)
    if not text.strip("* "):
        return "*", ""
    command = _ASSIGNMENTS.sub("", text)
    if command != text:
        return strict(command)[0], "wider: whatever variables are set before it"
    if _OPERATORS.search(_QUOTED.sub(r"\1", text)):
        raise NoCounterpartError(
            "no single command has an operator in it, so it matches nothing there either"
        )
    body, is_open = text.removesuffix("*"), text.endswith("*")
    if "*" not in body and "\\" not in body and _reads_alike(body):
        if not is_open:
            return text, ""
        if body.endswith((" ", "\t")):
            return f"{body.strip()} *", ""
        if body[-1:] not in "\"'":
            return f"{body}* *", ""
    return _by_options(text) or _cut(text)


def _reads_alike(text: str) -> bool:
    try:
        return not any("*" in (word.literal or "*") for word in compile_pattern(text).words)
    except PolicyError:
        return False


def _by_options(text: str) -> tuple[str, str] | None:
    """Drop the `*` before an option, as in `git * --force`: a rule here finds an option wherever it
    stands."""
    words = text.split()
    first = next((i for i, word in enumerate(words) if "*" in word), len(words))
    fixed, options = words[:first], [word for word in words[first:] if word.strip("*")]
    if (
        not options
        or any(_UNLIKE.search(word) for word in fixed)
        or not all(map(_OPTION.fullmatch, options))
    ):
        return None
    return " ".join([*(fixed or ["*"]), *options, "*"]), "wider: these options in any place"


def _cut(text: str) -> tuple[str, str]:
    """Cut the rule off before the first part that can't be translated."""
    found = _UNLIKE.search(text)
    head = text[: found.start()] if found else text
    words = head.split()
    part = words.pop() if words and not head[-1:].isspace() else ""
    if not words and not part:
        raise NoCounterpartError(
            "can't be said of words: write an exec rule by hand", WHOLE_CATEGORY
        )
    if len(words) == 1 and not part:
        # A rule for the whole program would be wider than intended.
        reason = (
            f"can't be said of words, short of all that `{words[0]}` does: write an exec rule by"
            " hand"
        )
        name = basename(words[0])
        # The wrapped command needs rules for its own program.
        raise NoCounterpartError(reason, WHOLE_CATEGORY if tables().wrappers.get(name) else name)
    carried = " ".join([*words, *([f"{part}*"] if part else []), "*"])
    try:
        compile_pattern(carried)
    except PolicyError as error:
        raise NoCounterpartError(_reason(error), WHOLE_CATEGORY) from None
    return carried, "wider: whatever begins like that"


def elsewhere(pattern: str) -> str | None:
    """Return the git or package rule for whatever else an ask or deny rule forbids in Claude Code:
    here, a push or an install needn't be a command."""
    words = pattern.split()
    if words[0] == "git":
        return _git(words)
    manager = manager_named(words[0])
    return _packages(manager, words) if manager is not None else None


def _git(words: list[str]) -> str | None:
    if words[1:2] and words[1] in _PUSH_OPTIONS:
        words = ["git", "push", *words[1:]]
    is_about_others = "*" not in words[1] and words[1] not in REACHES if len(words) > 1 else True
    return None if is_about_others else _widest_said("git", words, 1, _PUSH_OPTIONS)


def _packages(manager: str, words: list[str]) -> str | None:
    second = words[1] if len(words) > 1 else ""
    operations = managers()[manager].operations
    is_known = operation_named(manager, second) or operation_named(manager, " ".join(words[1:3]))
    if not is_known and "*" not in second and not second.startswith("-"):
        if not any(one.startswith(f"{second} ") for one in operations) or not second:
            return None
        # `uv pip *`: an operation of two words.
        words = [words[0], f"{second}*"]
    return _widest_said("packages", words, 0, frozenset())


def _widest_said(
    category: str, words: list[str], first: int, options: frozenset[str]
) -> str | None:
    """Return the rule that spells out the most words, from `first` on, and covers whatever follows
    them."""
    kept = list(
        takewhile(
            lambda word: "*" not in word and (not word.startswith("-") or word in options), words
        )
    )
    rest = words[len(kept) :]
    # A word that is cut short still gives a prefix, unless it is an option.
    begins = rest and rest[0].strip("*") and not rest[0].startswith("-")
    tails = [[rest[0]], ["*"], []] if begins else [["*"], []] if rest else [[], ["*"]]
    candidates = (
        f"{category}({' '.join([*kept[first:count], *tail])})"
        for count in range(len(kept), 0, -1)
        for tail in (tails if count == len(kept) else [["*"], []])
    )
    return next((one for one in candidates if _is_a_rule(one)), None)


def _is_a_rule(text: str) -> bool:
    try:
        parse_rule(text, "deny")
    except PolicyError:
        return False
    return True
