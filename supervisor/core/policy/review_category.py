"""Rules of the category `review`: which acts on a forge need no person.

    review(OPERATION TARGET [--option ...])      review(post acme/* --up-to=medium)

TARGET is `[github:|bitbucket:]OWNER/REPO`, `*` in either part. An allow rule covers an approval, a
request for changes, a fork, links and a job without a scope only if it spells `--approve`,
`--request-changes`, `--fork`, `--links`, `--no-scope`; `--up-to=SEVERITY` and `--confidence=LEVEL`
narrow it. Deny and ask rules match every spelling: without options they apply to every act of the
operation, with options to acts that have at least one of them.
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple, get_args

from supervisor.core.actions import Action, Effect, title
from supervisor.core.forge_acts import (
    CONFIDENCES,
    OPERATION_WORDS,
    SEVERITIES,
    Act,
    Confidence,
    Forge,
    Operation,
    Severity,
)
from supervisor.core.policy.category import (
    FAR,
    AnyRule,
    Candidate,
    ProtectedBy,
    Reading,
    Remark,
    RuleCategory,
    RuleLook,
    Topic,
    look_at,
    miss,
)
from supervisor.core.review_markdown import unescaped
from supervisor.core.secrets.token_shapes import without_tokens
from supervisor.core.text.mistyped import nearest
from supervisor.core.verdicts import (
    CompiledRule,
    Context,
    Forced,
    Judge,
    Mode,
    Rule,
    Verdict,
    verdict_of,
)
from supervisor.errors import PolicyError

OPERATIONS: tuple[Operation, ...] = get_args(Operation)
FLAGS = ("--approve", "--request-changes", "--fork", "--links", "--no-scope", "--agent")
_TARGET = re.compile(r"(?:(github|bitbucket):)?([A-Za-z0-9._*-]+)/([A-Za-z0-9._*-]+)\Z")
_SECRET = "what looks like a secret would be posted"  # noqa: S105
# Bots read commands in the raw text, even in a block of code.
_COMMAND = re.compile(r"^[^\S\n]*/[A-Za-z]", re.MULTILINE)
_COMMANDS = "a line that a bot may take for a command would be posted"


class ReviewPattern(NamedTuple):
    """A compiled rule. `operation` is `*` for every operation, `forge` is empty for either
    forge."""

    text: str
    operation: Operation | str
    forge: Forge | str
    owner: str
    name: str
    flags: frozenset[str]
    up_to: Severity | None
    confidence: Confidence | None

    @property
    def is_bare(self) -> bool:
        """Return whether it applies to every act there is."""
        return (self.operation, self.owner, self.name) == ("*", "*", "*")


class SeenAct(NamedTuple):
    """An act as rules compare it: its repository in one letter case, and the options that must be
    spelled out."""

    act: Act
    owner: str
    name: str
    flags: frozenset[str]

    def is_covered(self, pattern: ReviewPattern) -> bool:
        """Return whether an allow rule covers it."""
        act = self.act
        if not self.is_at(pattern) or not self.flags <= pattern.flags:
            return False
        if (
            pattern.up_to
            and act.severity
            and SEVERITIES.index(act.severity) < SEVERITIES.index(pattern.up_to)
        ):
            return False
        return not (
            pattern.confidence
            and act.confidence
            and CONFIDENCES.index(act.confidence) > CONFIDENCES.index(pattern.confidence)
        )

    def is_touched(self, pattern: ReviewPattern) -> bool:
        """Return whether a deny or ask rule applies to it."""
        if not self.is_at(pattern):
            return False
        if pattern.flags and not self.flags & pattern.flags:
            return False
        if pattern.up_to and self.act.severity:
            return SEVERITIES.index(self.act.severity) >= SEVERITIES.index(pattern.up_to)
        return True

    def is_at(self, pattern: ReviewPattern) -> bool:
        """Return whether the rule applies to this operation on this repository."""
        return (
            pattern.operation in ("*", self.act.operation)
            and pattern.forge in ("", self.act.forge)
            and fnmatchcase(self.owner, pattern.owner)
            and fnmatchcase(self.name, pattern.name)
        )


class ReviewJudge(Judge[SeenAct]):
    """The review rules of a policy."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [CompiledRule(rule, compile_pattern) for rule in rules]

    @staticmethod
    def canonical(action: Action) -> SeenAct | Verdict:
        """Return the act with its repository in one letter case."""
        assert isinstance(action, Act)
        owner, slash, name = action.repository.casefold().partition("/")
        if not slash or "/" in name or not owner or not name:
            return Verdict("deny", f"`{action.repository}` is no repository", by_policy=False)
        return SeenAct(action, owner, name, frozenset(special(action)))

    def decide(self, seen: SeenAct, mode: Mode, context: Context) -> Verdict:
        """Return the verdict on an act."""
        matching = [
            one.rule for one in self._rules if context.is_active(one.rule) and one.matches(seen)
        ]
        return verdict_of(matching, forced(seen.act), "review", mode)


@lru_cache(maxsize=4096)
def compile_pattern(text: str) -> ReviewPattern:
    """Return the compiled pattern. Raise `PolicyError` if it isn't one."""
    words = text.split()
    if len(words) < 2:
        raise PolicyError(
            f"`review({text})` names no operation and repository",
            "write review(OPERATION OWNER/REPO), as in review(post acme/*)",
        )
    operation, target, *options = words
    if operation != "*" and operation not in OPERATIONS:
        raise PolicyError(
            f"`review({text})`: `{operation}` is no operation", nearest(operation, OPERATIONS)
        )
    found = _TARGET.match(target)
    if found is None:
        raise PolicyError(
            f"`review({text})`: `{target}` is no repository", "write OWNER/REPO; `*` in either"
        )
    flags = set[str]()
    chosen: dict[str, str] = {}
    for option in options:
        name, _, value = option.partition("=")
        levels = {"--up-to": SEVERITIES, "--confidence": CONFIDENCES}.get(name)
        if levels is not None and value in levels:
            chosen[name] = value
        elif levels is not None:
            raise PolicyError(
                f"`review({text})`: `{option}` names no level", f"write {name}={levels[0]}"
            )
        elif option in FLAGS:
            flags.add(option)
        else:
            raise PolicyError(
                f"`review({text})`: `{option}` is no option",
                nearest(option, (*FLAGS, "--up-to", "--confidence")),
            )
    return ReviewPattern(
        text,
        operation,
        found[1] or "",
        found[2].casefold(),
        found[3].casefold(),
        frozenset(flags),
        chosen.get("--up-to"),  # type: ignore[arg-type]
        chosen.get("--confidence"),  # type: ignore[arg-type]
    )


def check_pattern(pattern: str, effect: Effect) -> str:
    """Raise `PolicyError` if the pattern isn't valid; return a warning if it means more than it
    seems to."""
    found = compile_pattern(pattern)
    if effect == "allow" and found.operation == "*":
        return f"`review({pattern})` allows every operation there, pushes and pull requests too"
    return ""


def special(act: Act) -> Iterator[str]:
    """Yield the options that an allow rule has to spell out before it covers the act."""
    if act.verdict == "approve":
        yield "--approve"
    if act.verdict == "request_changes":
        yield "--request-changes"
    if act.fork:
        yield "--fork"
    if act.by_agent:
        yield "--agent"
    if act.links:
        yield "--links"
    if act.is_of_job and not act.scope:
        yield "--no-scope"


def forced(act: Act) -> tuple[Forced, ...]:
    """Return the parts of the act that no rule may allow."""
    bodies = (act.body, *(one.body for one in act.comments))
    texts = (act.title, act.branch, *(one.path for one in act.comments), *bodies)
    # The text is also checked as a reader sees it: an escaped `_` doesn't match a token's shape.
    readings = (reading for text in texts for reading in (text, unescaped(text)))
    has_secret = act.secrets or any(without_tokens(reading) != reading for reading in readings)
    if has_secret:
        return (Forced("ask", _SECRET),)
    return (Forced("ask", _COMMANDS),) if any(map(_COMMAND.search, bodies)) else ()


def within(inner: ReviewPattern, outer: ReviewPattern, *, is_allow: bool) -> bool:
    """Return whether `outer` covers everything that `inner` covers; False if that can't be told."""
    is_placed = (
        outer.operation in ("*", inner.operation)
        and outer.forge in ("", inner.forge)
        and _is_within(inner.owner, outer.owner)
        and _is_within(inner.name, outer.name)
    )
    narrowing = (outer.up_to, outer.confidence) in ((None, None), (inner.up_to, inner.confidence))
    flags = inner.flags <= outer.flags if is_allow else outer.flags in (frozenset(), inner.flags)
    return is_placed and narrowing and flags


def _is_within(inner: str, outer: str) -> bool:
    return outer in ("*", inner) or ("*" not in inner and fnmatchcase(inner, outer))


def example_act(text: str) -> Act:
    """Return the act that a rule's example stands for: `post acme/shop`, with the options that a
    rule may have. Raise `PolicyError` if it isn't one."""
    pattern = compile_pattern(text)
    if "*" in (pattern.operation, pattern.owner, pattern.name):
        raise PolicyError(f"`{text}` is no example of an act", "name one operation and repository")
    return Act(
        operation=pattern.operation,  # type: ignore[arg-type]
        forge=pattern.forge or "github",  # type: ignore[arg-type]
        repository=f"{pattern.owner}/{pattern.name}",
        verdict="approve"
        if "--approve" in pattern.flags
        else "request_changes"
        if "--request-changes" in pattern.flags
        else "",
        severity=pattern.up_to or "",
        confidence=pattern.confidence or "",
        fork="--fork" in pattern.flags,
        links="--links" in pattern.flags,
        by_agent="--agent" in pattern.flags,
        head="0" * 40 if "--no-scope" in pattern.flags else "",
    )


def _contains(outer: AnyRule, inner: AnyRule, _: ProtectedBy) -> bool:
    return outer.is_broad == inner.is_broad and within(
        inner.pattern, outer.pattern, is_allow=not outer.is_broad
    )


def _wide(pattern: ReviewPattern) -> Remark | None:
    bare = Remark("covers every act on every forge", "name operation and repositories")
    return bare if pattern.is_bare else None


def _width(pattern: ReviewPattern) -> str:
    does = "every act" if pattern.operation == "*" else f"the act `{pattern.operation}`"
    owner, name = pattern.owner, pattern.name
    where = f"the repository {owner}/{name}"
    if "*" in owner + name:
        where = "every repository" if owner == name == "*" else f"repositories like {owner}/{name}"
    levels = {"up to": pattern.up_to, "of confidence": pattern.confidence}
    narrowed = "".join(f", {what} {level}" for what, level in levels.items() if level)
    spelled = "".join(f", with {flag}" for flag in sorted(pattern.flags))
    return f"{does} on {where}{narrowed}{spelled}"


def _candidates(action: Act, _: str) -> Iterator[Candidate]:
    flags = "".join(f" {flag}" for flag in special(action))
    level = f" --up-to={action.severity}" if action.severity not in ("", "critical") else ""
    owner = action.repository.partition("/")[0]
    for repository, label, where in (
        (action.repository, "narrow", "in this repository"),
        (f"{owner}/*", "broad", f"in every repository of {owner}"),
    ):
        explains = f"{OPERATION_WORDS[action.operation]} {where}"
        if level:
            explains += f", where nothing is graver than {action.severity}"
        rule = f"review({action.operation} {action.forge}:{repository}{level}{flags})"
        is_narrow = label == "narrow"
        yield Candidate("narrow" if is_narrow else "broad", rule, is_narrow, explains)


def _read(judge: ReviewJudge, _: Sequence[Rule], action: Act, __: Context) -> Reading:
    facts = [("repository", f"{action.forge}:{action.repository}")]
    seen = judge.canonical(action)
    if isinstance(seen, Verdict):
        return Reading(facts)
    notes = tuple(f"a rule has to spell {one}" for one in sorted(seen.flags))
    topic = Topic("act", title(action), notes, forced(action), alone=action)

    def look(rule: Rule, _: int) -> RuleLook:
        one = CompiledRule(rule, compile_pattern)
        return look_at(one, seen, f"`{rule.pattern}` covers `{topic.text}`", _miss)

    return Reading(facts, (topic,), look)


def _miss(pattern: ReviewPattern, seen: SeenAct, broad: bool) -> RuleLook:
    if not seen.is_at(pattern):
        return miss("it is about another operation or repository", FAR)
    lacking = sorted(seen.flags - pattern.flags)
    if lacking and not broad:
        return miss(f"it doesn't spell {' '.join(lacking)}")
    return miss("its options leave this act out")


CATEGORY = RuleCategory(
    check=check_pattern,
    compile=compile_pattern,
    judge=lambda rules, _: ReviewJudge(rules),
    contains=_contains,
    key=lambda _: "",
    keys_above=lambda _: iter([""]),
    wide=_wide,
    width=_width,
    example=example_act,
    candidates=_candidates,
    read=_read,
)
