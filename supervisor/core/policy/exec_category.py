"""Exec rules as a category: faults, width, and rules from a command.

`command_rules` and `exec_rules` know how a rule is matched; `exec_containment` knows whether one
rule covers another.
"""

import fnmatch
import posixpath
import re
from collections.abc import Hashable, Iterator, Sequence
from functools import cache

import msgspec

from supervisor.core.actions import WORKSPACE, Exec, McpCall
from supervisor.core.mcp_calls import PREFIX, call_written
from supervisor.core.policy.category import (
    ONE_WILDCARD,
    SPELLED_OUT,
    AnyRule,
    Candidate,
    Option,
    ProtectedBy,
    Reading,
    Remark,
    RuleCategory,
)
from supervisor.core.policy.command_rules import CommandJudge, check_pattern
from supervisor.core.shell import exec_containment, exec_rules
from supervisor.core.shell.exec_candidates import candidates, fixed_words, quote, verbs_of
from supervisor.core.shell.exec_patterns import ExecPattern, PatternWord, compile_pattern
from supervisor.core.shell.exec_tables import (
    basename,
    is_shell_state,
    plain_form,
    program_name,
    tables,
)
from supervisor.core.shell.exec_wrappers import unwrap
from supervisor.core.shell.shell_words import ASSIGNMENT, Word
from supervisor.core.text.data_tables import table
from supervisor.core.verdicts import Context, Mode, Rule

MOST_CHARS = 120
_INTERPRETERS = re.compile(r"(?:python[0-9.]*|node|ruby|perl|php|sh|bash|dash)\Z")
_LOOPBACK_URL = re.compile(
    r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/-]*)?\Z"
)
_CURL_FLAGS = re.compile(r"-[sSfiIv]+\Z|--(?:silent|show-error|fail|include|head)\Z")


def _contains(outer: AnyRule, inner: AnyRule, _: ProtectedBy) -> bool:
    if not outer.is_broad:
        return exec_containment.allow_in_allow(outer.pattern, inner.pattern)
    if not inner.is_broad:
        return exec_containment.allow_in_strict(outer.pattern, inner.pattern)
    return exec_containment.strict_in_strict(outer.pattern, inner.pattern)


def _key(pattern: ExecPattern) -> Hashable:
    spelled = exec_containment.spelled_words(pattern)
    return spelled[-1] if spelled else ()


def _keys_above(pattern: ExecPattern) -> Iterator[Hashable]:
    yield from ((), *exec_containment.spelled_words(pattern))


def _never(pattern: ExecPattern, _: ProtectedBy, __: Mode) -> Remark | None:
    if pattern.is_bare:
        return Remark(
            "is bare, and a bare rule allows no command", "name the commands, or remove it"
        )
    name = pattern.words[0].literal
    if name is None:
        return None
    if is_shell_state(name):
        return Remark(
            f"is about `{name}`, which no rule may allow",
            "remove it: the command is asked each time",
        )
    if name.startswith(PREFIX) and len(pattern.words) == 1 and not pattern.has_tail:
        return Remark(
            "names no arguments, and every call has some", f"write `exec({pattern.text} *)`"
        )
    literals = [word.literal for word in pattern.words]
    lead = [
        Word(text)
        for text in literals[: literals.index(None) if None in literals else None]
        if text is not None
    ]
    wrapper, inner = tables().wrappers.get(basename(name)), unwrap(lead)
    if wrapper is not None and wrapper.assigns and inner is not None and inner.payloads:
        before = lead[1 : inner.payloads[0].start]
        if any(ASSIGNMENT.match(word.text) for word in before):
            return Remark(
                "sets a variable for a command, which no rule may allow",
                "write the rule without it",
            )
    if pattern.is_exact:
        line = " ".join(quote(text) for text in literals if text is not None)
        said = exec_rules.judge(
            line, ".", allow=[(0, pattern)], ask=(), deny=(), workspace_roots=(WORKSPACE,)
        )
        if said.never_allow:
            reason = said.why.removeprefix("no rule may allow ")
            return Remark(
                f"holds what no rule may allow: {reason}",
                "remove it: the command is asked each time",
            )
    return None


@cache
def _runners() -> dict[tuple[str, ...], str]:
    known = table("wide_rules")
    found = {
        words: f"lets `*` stand for {means}" for words, means in known["runs_anything"].items()
    }
    for words, besides in known["runs_allowed"].items():
        found[words] = f"lets every command that another rule allows run {besides}"
    return {tuple(words.split()): what for words, what in found.items()}


def runs_anything(pattern: ExecPattern) -> Remark | None:
    """Return what a wildcard in a program's place lets run; None if it stands for an argument."""
    words = pattern.words
    if pattern.is_bare:
        return None
    if words[0].literal is None:
        # `./scripts/*` names a folder, and `* --version` the one argument.
        is_named = "/" in words[0].parts[0] or (len(words) > 1 and not pattern.has_tail)
        return (
            None
            if is_named
            else Remark("lets any program run whose name fits", "name the programs")
        )
    lead: list[str] = []
    for word in words:
        if word.literal is None:
            break
        lead.append(word.literal)
    is_open = (
        words[len(lead)].is_star
        if len(lead) < len(words)
        else pattern.has_tail and not pattern.stays_inside
    )
    if not is_open:
        return None
    spelled = [basename(lead[0]) if lead[0].startswith("/") else lead[0], *lead[1:]]
    for runner, what in _runners().items():
        if len(runner) == len(spelled) and all(map(fnmatch.fnmatchcase, spelled, runner)):
            return Remark(what, "name what is run, in a rule for each")
    return None


def _crosses_folders(pattern: ExecPattern) -> Remark | None:
    """Return whether a `*` after the start of a name reaches into other folders, because it crosses
    `/`. After a folder it stays below that folder."""
    name = basename(pattern.words[0].literal or "")
    if name in table("wide_rules")["not_paths"]:
        return None
    at = next((i for i, word in enumerate(pattern.words) if i and _looks_like_a_path(word)), 0)
    if not at or "/" in pattern.words[at].parts[0]:
        return None
    word = pattern.words[at].raw
    remedy = f"spell the path out, or write `exec({name} *)` where any file will do"
    return Remark(f"has `{word}`, where `*` crosses `/`: it is no folder's limit", remedy)


def _looks_like_a_path(word: PatternWord) -> bool:
    if word.literal is not None or word.is_star:
        return False
    start = word.parts[0]
    return (
        bool(start)
        and not start.startswith(("-", "+"))
        and "://" not in start
        and start[-1] not in ":=@,"
    )


def _width(pattern: ExecPattern) -> str:
    if pattern.is_bare:
        return "any command"
    words = " ".join(word.raw for word in pattern.words)
    if pattern.is_exact:
        return f"exactly the command {words}"
    tail = pattern.has_tail and all(word.literal is not None for word in pattern.words)
    start = f"any command that begins with {words}" if tail else f"any command like {pattern.text}"
    return f"{start}, on what lies in the workspace" if pattern.stays_inside else start


def _candidates(action: Exec | McpCall, workspace: str) -> Iterator[Candidate]:
    if isinstance(action, McpCall):
        # INVARIANT: a rule for the agent's own server would hold for an operator's of that name.
        if action.by_agent:
            return
        yield from _of_call(f"{PREFIX}{action.server}__{action.tool}", action.arguments)
        return
    exact, narrow = candidates(action.command, action.cwd, (workspace,))
    if exact:
        yield Candidate(
            "exact",
            f"exec({exact})",
            default=True,
            explains="this command with these arguments only",
        )
    if narrow:
        yield Candidate(
            "narrow",
            f"exec({narrow})",
            default=False,
            explains="this command with any further arguments",
        )


def _of_call(name: str, arguments: str) -> Iterator[Candidate]:
    exact = f"exec({name} {quote(arguments)})"
    yield Candidate("exact", exact, default=True, explains="this tool with these arguments only")
    said = "this tool with any arguments"
    yield Candidate("narrow", f"exec({name} *)", default=False, explains=said)


# -- learned from a command ------------------------------------------------------------------------


def exec_options(words: tuple[Word, ...]) -> tuple[Option, ...]:
    """Return rules that may be learned from an uncovered command; none if only its exact words
    would do.

    Two things may be spelled out after two approvals: a program or script of the workspace, and a
    read-only request to a server of the sandbox's own. Nothing else is offered verbatim: approving
    something once, in its place, doesn't mean approving it always.
    """
    name = program_name(words[0].text)
    if name is not None:
        words = (msgspec.structs.replace(words[0], text=name), *words[1:])
        words = (plain_form(words) or (words,))[0]
    found = [*_harmless(words), *_fed(words), *_spelled(words)]
    return tuple(one for one in found if len(one.rule) <= MOST_CHARS)


def _rule(words: Sequence[Word], *tail: str) -> str:
    # `{}` needs no quotes, and is always written without them.
    shown = (word.text if word.text == "{}" else quote(word.text) for word in words)
    return f"exec({' '.join([*shown, *tail])})"


def _harmless(words: tuple[Word, ...]) -> Iterator[Option]:
    """Return program and verb with a last `*`; also without it, if the verb is a name that the
    project gave (`npm run NAME`)."""
    verb, fixed = fixed_words(words)
    if "?" in verb:
        yield Option(_rule(fixed), SPELLED_OUT)
    if fixed and verb != ("?",):
        yield Option(_rule(fixed, "*"), ONE_WILDCARD)
    if not fixed and len(words) == 1 and ("?",) in verbs_of(words[0]):
        # `make` alone is its default target.
        yield Option(_rule(words), SPELLED_OUT)


def _fed(words: tuple[Word, ...]) -> Iterator[Option]:
    """Yield rules for a line such as `xargs wc *`: the command that it runs is judged as if it
    stood alone."""
    unwrapped = unwrap(words) if words[0].text == "xargs" else None
    for payload in unwrapped.payloads if unwrapped else ():
        for option in _harmless(payload.words):
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
    """Return whether a relative path stays below the folder in which it is used; the engine knows
    which folder that is."""
    return bool(path) and path[0] not in "/~" and ".." not in posixpath.normpath(path).split("/")


def _is_own_server(words: Sequence[Word]) -> bool:
    """Return whether the command is a `curl` of a loopback address, with no option that writes,
    sends or follows."""
    if words[0].text != "curl" or len(words) < 2:
        return False
    return all(_LOOPBACK_URL.match(word.text) or _CURL_FLAGS.match(word.text) for word in words[1:])


def _read(
    judge: CommandJudge, rules: Sequence[Rule], action: Exec | McpCall, context: Context
) -> Reading:
    from supervisor.core.policy import exec_reading

    return exec_reading.read(judge, rules, action, context)


CATEGORY = RuleCategory(
    check=check_pattern,
    compile=compile_pattern,
    judge=lambda rules, _: CommandJudge(rules),
    contains=_contains,
    key=_key,
    keys_above=_keys_above,
    wide=lambda pattern: runs_anything(pattern) or _crosses_folders(pattern),
    width=_width,
    example=lambda example: call_written(example) or Exec(command=example),
    candidates=_candidates,
    read=_read,
    never=_never,
    is_wide_unsaid=True,
)
