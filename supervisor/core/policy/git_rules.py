"""Verdict on a git operation: remotes, branches, force and deletion.

Decides ref by ref, each of which must be allowed. INVARIANT: an allow rule matches force, delete,
mirror, all branches, tags and every option that isn't known as harmless only if it spells them;
deny and ask rules look at where a ref ends up, however it is spelled.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from supervisor.core.actions import Action, Effect, Git
from supervisor.core.policy.git_refs import (
    FORCES,
    REACHES,
    READS,
    RUNS_OR_READS,
    TAKES_REFS,
    UNREAD,
    Ref,
    agrees,
    deletes_names,
    from_words,
    harmless,
    joined_tags,
    parse_command,
    refs_of,
    rough_actions,
    special_flags,
)
from supervisor.core.text.prefixes import Prefixes
from supervisor.core.text.ref_names import full_ref, own_refs
from supervisor.core.text.words import fits, is_star, split_pattern
from supervisor.core.verdicts import (
    CONTRADICTS_ITSELF,
    CompiledRule,
    Context,
    Forced,
    Judge,
    Matches,
    Mode,
    Rule,
    Verdict,
    by_rules,
    combine,
    verdict_of,
)
from supervisor.errors import PolicyError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*\Z")
# Other git operations: a rule of one such word means the operation, not a branch.
OPERATIONS = REACHES | {
    "add", "am", "apply", "archive", "bisect", "blame", "branch", "bundle", "checkout",
    "cherry-pick", "clean", "clone", "commit",
    "config", "diff", "format-patch", "gc", "grep", "init", "log", "merge", "mv", "notes", "rebase",
    "reflog", "remote", "request-pull",
    "reset", "restore", "revert", "rm", "send-email", "show", "stash", "status", "submodule",
    "switch", "tag", "worktree",
}  # fmt: skip
MAX_REFS = 500
_NAMESPACE = re.compile(r"\A(?:refs/)?(?:heads|tags)/")
# Between the words of a subject in the index; a word that holds it only means one comparison more.
_SEPARATOR = "\0"
_FURTHER = frozenset({"--mirror", "--all", "--branches", "--tags", "--follow-tags", "--prune"})


class GitPattern(NamedTuple):
    """A compiled pattern: its words without options, and its options by their full names."""

    words: tuple[str, ...]
    options: frozenset[str]
    is_bare: bool


# Cached, because a pattern is read three times: checked, tried on its examples, and indexed.
@lru_cache(maxsize=32_768)
def compile_pattern(text: str) -> GitPattern:
    """Return the pattern of `git(text)`. Raise `PolicyError` if it isn't one."""
    words = list(split_pattern(text, f"git({text})"))
    if words[0] == "git" and len(words) > 1:
        raise PolicyError(
            f"`git({text})` names git twice", f"write `git({text.strip()[4:].strip()})`"
        )
    if all(map(is_star, words)):
        return GitPattern(("*",), frozenset(), is_bare=True)
    operands = [word for word in words if not word.startswith("-")]
    if not operands:
        raise PolicyError(
            f"`git({text})` names no operation", "write e.g. `git(push origin feature/*)`"
        )
    operation, plain = operands[0], operands
    options = {
        option for word in words if word.startswith("-") for option in _options(words[0], word)
    }
    # The words of any other operation have only one spelling (`git(show :README)`).
    if len(operands) == 1 or "*" in operation or operation in TAKES_REFS:
        plain, implied = _refs(operands)
        options |= implied
    if len(plain) > 3 and plain[0] in REACHES:
        raise PolicyError(f"`git({text})` names more than one ref", "write one rule for each")
    return GitPattern(tuple(plain), frozenset(options), is_bare=False)


def _options(operation: str, word: str) -> Iterable[str]:
    """Return an option as it appears in an action. Harmless options are kept, because the rule
    names them."""
    parsed = from_words([operation, word]).flags
    return parsed or (word,)


def _refs(words: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return words that may be refs in the spelling that an action uses, and the options that
    `+ref` and `:ref` stand for."""
    plain, options = [], set()
    for word in joined_tags(words) if words[0] == "push" else words:
        ref = word.removeprefix("+")
        if ref != word:
            options.add("--force")
        if ref.startswith(":") and len(ref) > 1:
            options.add("--delete")
            ref = ref[1:]
        plain.append(_tidy_ref(ref))
    return plain, options


def _tidy_ref(word: str) -> str:
    source, colon, target = word.partition(":")
    return (
        f"{source.removeprefix('refs/heads/')}:{target.removeprefix('refs/heads/')}"
        if colon
        else word.removeprefix("refs/heads/")
    )


def check_pattern(pattern: str, effect: Effect) -> str:
    """Raise `PolicyError` if the pattern isn't valid. No pattern is refused for its effect."""
    compile_pattern(pattern)
    return ""


class SoughtRef(NamedTuple):
    """One ref of an action (None if it names none), with its lookup keys.

    `starts`: the subjects of allow rules, joined; `texts`: every name that a deny or ask rule may
    use for it.
    """

    action: Git
    ref: Ref | None
    flags: frozenset[str]
    subjects: Sequence[tuple[str, ...]]
    starts: tuple[str, ...]
    texts: frozenset[str]

    def is_covered(self, pattern: GitPattern) -> bool:
        """Return whether an allow rule covers it: the rule must spell every special option, and
        nothing else may be implied."""
        ref, flags, operation = self.ref, self.flags, self.action.operation
        if not options_agree(pattern.options, flags, operation):
            return False
        if pattern.is_bare:
            return operation in REACHES and not flags and (ref is None or ref.kind == "branch")
        words, count = pattern.words, len(pattern.words)
        for subject in self.subjects:
            if len(subject) == count and all(map(word_covers, words, subject)):
                return True
        return False

    def is_touched(self, pattern: GitPattern) -> bool:
        """Return whether a deny or ask rule applies to it, however it is spelled and whatever else
        the command says."""
        action, ref, flags = self.action, self.ref, self.flags
        names = {flag.partition("=")[0] for flag in flags} | flags
        if names & FORCES:
            names |= {"--force"}
        if not pattern.options - harmless(action.operation) <= names:
            return False
        if pattern.is_bare:
            return True
        operation, remote = action.operation, action.remote or ""
        # A file system that folds case takes `MAIN` for `main`, here or at the other end.
        refs = (
            {one.casefold() for one in _spellings(ref.name) | {ref.text}}
            if ref is not None
            else set()
        )
        words, last = pattern.words, pattern.words[-1].casefold()
        if len(words) == 1:
            is_branch = operation == "push" and any(fits(last, one) for one in refs)
            return fits(words[0], operation) or is_branch
        if not fits(words[0], operation):
            return False
        if operation not in REACHES:
            given = [remote, *action.refspecs] if remote else list(action.refspecs)
            rest = [word for word in words[1:] if not is_star(word)]
            return all(any(fits(word, one) for one in given) for word in rest)
        if len(words) == 2:
            return fits(words[1], remote) or is_star(last) or any(fits(last, one) for one in refs)
        return (fits(words[1], remote) or not remote) and (
            is_star(last) or any(fits(last, one) for one in refs)
        )


class _Seen(NamedTuple):
    """An action as rules see it. `remotes`: every remote that it names. `unread`: why no operation
    can be made out; `sought` then holds everything that it might contain."""

    action: Git
    remotes: tuple[str, ...]
    unread: str | None
    sought: tuple[SoughtRef, ...]
    # For a planned push, as it was written: a rule for `git push` still applies to it.
    written: tuple[SoughtRef, ...] = ()


class GitJudge(Judge[_Seen]):
    """Git rules of a policy, indexed: allow rules by the start of a subject, others by the start of
    their last word."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        entries = [CompiledRule(rule, compile_pattern) for rule in rules]
        strict = [entry for entry in entries if entry.is_broad]
        self._allow = Prefixes((_start(one.pattern), one) for one in entries if not one.is_broad)
        self._strict = Prefixes((_anchor(one.pattern), one) for one in strict)
        self._about_branches = [one.rule for one in strict if names_a_branch(one.pattern)]

    @staticmethod
    def canonical(action: Action) -> _Seen | Verdict:
        """Return a `Git` action ref by ref, parsed if it came as a command line."""
        assert isinstance(action, Git)
        parsed = parsed_action(action)
        if parsed is None:
            return CONTRADICTS_ITSELF
        action = parsed
        unread, remotes = why_unread(action), _remotes(action)
        if unread is not None:
            return _Seen(action, remotes, unread, tuple(_rough(action)))
        try:
            planned = as_planned(action)
            unsaid = [ref.kind == "unknown" for ref in refs_of(action)]
            written = tuple(_sought(action)) if action.updates and all(unsaid) else ()
            return _Seen(action, remotes, None, tuple(_sought(planned)), written)
        except ValueError as error:
            return Verdict("deny", str(error), remedy="name the branch")

    def decide(self, seen: _Seen, mode: Mode, context: Context) -> Verdict:
        """Return the verdict; of several refs, the strictest."""
        if seen.unread is not None:
            return self._unread(seen, seen.unread, mode, context)
        refusal = _refusal(seen, context)
        verdict = self._judge_refs(seen.sought, mode, context)
        if seen.written and verdict.decision == "ask" and verdict.rule is None:
            as_written = self._judge_refs(seen.written, mode, context)
            verdict = as_written if as_written.decision == "allow" else verdict
        if refusal is not None and verdict.decision != "deny":
            return Verdict("deny", refusal, remedy="use a remote that the host's repository has")
        return verdict

    def _judge_refs(self, every: Sequence[SoughtRef], mode: Mode, context: Context) -> Verdict:
        parts = [self._judge_ref(sought, mode, context) for sought in every]
        return parts[0] if len(parts) == 1 else combine(parts)

    def _unread(self, seen: _Seen, why: str, mode: Mode, context: Context) -> Verdict:
        """Judge a command that can't be read: it is asked at best, and deny rules see every
        operation that it might hold."""
        denied = [
            entry.rule
            for sought in seen.sought
            for entry in self._strict.starting(sought.texts)
            if entry.rule.effect == "deny"
            and context.is_active(entry.rule)
            and entry.matches(sought)
        ]
        if denied:
            return by_rules("deny", denied)
        matches = Matches()
        matches.forced = [Forced("ask", f"{why}, so no rule may allow it")]
        return matches.verdict("git", mode)

    def _judge_ref(self, sought: SoughtRef, mode: Mode, context: Context) -> Verdict:
        flags = sought.flags
        entries = self._allow.starting(sought.starts) + self._strict.starting(sought.texts)
        rules = [
            entry.rule
            for entry in entries
            if context.is_active(entry.rule) and entry.matches(sought)
        ]
        forced = self.forced(sought.action, sought.ref, flags, context)
        verdict = verdict_of(rules, forced, "git", mode)
        if flags and not verdict.rule:
            shown = ", ".join(f"`{flag}`" for flag in sorted(flags))
            return Verdict(
                verdict.decision,
                f"{verdict.why}; {shown} needs a rule that says so",
                remedy=verdict.remedy,
                sticky=verdict.sticky,
            )
        return verdict

    def forced(
        self, action: Git, ref: Ref | None, flags: frozenset[str], context: Context
    ) -> list[Forced]:
        """Return the parts of one ref that no rule ever allows."""
        if action.operation != "push" or not self._about_branches:
            return []
        is_open_ended = (ref is not None and ref.kind == "unknown") or (
            bool(flags) and any(flag.partition("=")[0] in _FURTHER for flag in flags)
        )
        if is_open_ended and any(map(context.is_active, self._about_branches)):
            # A push that doesn't name its branches could bypass a rule about a branch.
            return [
                Forced(
                    "ask",
                    "which branches this pushes isn't said, and there are deny or ask rules for"
                    " branches",
                )
            ]
        return []


def parsed_action(action: Git) -> Git | None:
    """Return an action that came as a command line with its parts; None if it contradicts
    itself."""
    if action.command is not None and not action.operation and not action.flags:
        return parse_command(action.command, action.cwd)
    return action if agrees(action) else None


def as_planned(action: Git) -> Git:
    """Return a push whose words name the refs that it was found to move: `git push` and `HEAD`
    become the branch, a name that is a tag becomes that tag, and refs that the remote moves along
    (other names of the same ref) are added. Raise `ValueError` if any other ref moves."""
    if not action.updates:
        return action
    gone = {one.ref: not one.new for one in action.updates}
    words = joined_tags(action.refspecs or ("HEAD",))
    named = [_planned_word(word, action, gone) for word in words]
    said = frozenset[str]().union(*(refs for _, refs in named))
    left = [one for one in action.updates if one.ref not in said]
    planned = [word for word, _ in named]
    for at, word in enumerate(words):
        if word.removeprefix("+") in ("HEAD", "@") and left and left[0].new:
            said |= {left[0].ref}
            planned[at] = "+" * word.startswith("+") + left.pop(0).ref.removeprefix("refs/heads/")
    moves = {(one.old, one.new) for one in action.updates if one.ref in said and one.new}
    for one in left:
        if (one.old, one.new) not in moves:
            raise ValueError(f"this push moves `{one.ref}`, which its words don't name")
    return replace(action, refspecs=(*planned, *(one.ref for one in left)), updates=())


def _planned_word(word: str, action: Git, gone: dict[str, bool]) -> tuple[str, frozenset[str]]:
    """Return a word with the ref that it was found to name, and its refs among the moved ones."""
    force, bare = "+" if word.startswith("+") else "", word.removeprefix("+")
    if bare in ("HEAD", "@"):
        return word, frozenset()
    source, colon, target = bare.partition(":")
    could = frozenset({full_ref(target)}) if colon else own_refs(bare)
    deletes = (not source and bool(colon)) or deletes_names(action)
    moved = frozenset(ref for ref in could & gone.keys() if gone[ref] == deletes)
    if moved == {f"refs/tags/{bare}"}:
        return f"{force}refs/tags/{bare}", moved
    return word, moved


def _sought(action: Git) -> Iterator[SoughtRef]:
    """Return lookup keys for each ref. Raise `ValueError` for an invalid ref."""
    flags = special_flags(action)
    refs: list[Ref | None] = [*refs_of(action)]
    if len(refs) > MAX_REFS:
        raise ValueError(f"{len(refs)} refs in one command are more than can be judged")
    for ref in refs or [None]:
        called = _subjects(action, ref, flags)
        texts = {action.operation, action.remote or ""}
        if ref is not None:
            texts |= {*_spellings(ref.name), ref.text}
        folded = frozenset(map(str.casefold, texts))
        yield SoughtRef(action, ref, flags, called, tuple(map(_SEPARATOR.join, called)), folded)


def _rough(action: Git) -> Iterator[SoughtRef]:
    """Return lookup keys for every operation that an unreadable command might hold: an invalid ref
    hides no others."""
    for rough in rough_actions(action.command or ""):
        yield from _sought(replace(rough, refspecs=()))
        for refspec in rough.refspecs:
            with contextlib.suppress(ValueError):
                yield from _sought(replace(rough, refspecs=(refspec,)))


def _start(pattern: GitPattern) -> str:
    """Return the common start of all subjects that an allow rule covers."""
    return "" if pattern.is_bare else _SEPARATOR.join(pattern.words).partition("*")[0]


def _anchor(pattern: GitPattern) -> str:
    """Return the start of a text that every action touched by a deny or ask rule has: the
    operation, or the last word."""
    words = pattern.words
    word = words[0] if len(words) > 1 and words[0] not in REACHES else words[-1]
    return word.partition("*")[0].casefold()


def why_unread(action: Git) -> str | None:
    """Return why no git operation can be made out in an action; None if one can."""
    for flag in action.flags:
        if flag.startswith(UNREAD):
            return flag.removeprefix(UNREAD) or "no git operation is named"
    return None if _NAME.match(action.operation) else "no git operation is named"


def names_a_branch(pattern: GitPattern) -> bool:
    """Return whether a deny or ask rule is about a branch, so that a push which doesn't name its
    branches is at least asked."""
    first, last = pattern.words[0], pattern.words[-1]
    return not is_star(last) and (
        first not in OPERATIONS or (first == "push" and len(pattern.words) > 1)
    )


def _remotes(action: Git) -> tuple[str, ...]:
    repos = [flag.partition("=")[2] for flag in action.flags if flag.startswith("--repo=")]
    return tuple(repos) if action.remote is None else (action.remote, *repos)


def _refusal(seen: _Seen, context: Context) -> str | None:
    """Return why the remote may not be reached; None if it may, or if the operation has none."""
    for remote in seen.remotes:
        if remote.startswith("-"):
            return f"the remote `{remote}` could be taken for an option"
        if seen.action.operation in TAKES_REFS and remote not in context.remotes:
            return f"`{remote}` is not a remote that is configured"
        if RUNS_OR_READS.match(remote):
            return f"the remote `{remote}` would run a program or read files"
    return None


def options_agree(wanted: frozenset[str], given: frozenset[str], operation: str) -> bool:
    """Return whether a rule's options equal the special options of an action with this
    operation."""
    if not wanted and not given:
        return True
    special = wanted - harmless(operation)
    # A rule that allows any force allows the careful one too.
    reduced = {
        "--force" if flag.partition("=")[0] in FORCES and "--force" in special else flag
        for flag in given
    }
    reduced = {
        (
            "--force-with-lease"
            if flag.startswith("--force-with-lease=") and "--force-with-lease" in special
            else flag
        )
        for flag in reduced
    }
    if "--force-if-includes" in reduced and special & FORCES:
        reduced.discard("--force-if-includes")
    return reduced == special


def _subjects(action: Git, ref: Ref | None, flags: frozenset[str]) -> list[tuple[str, ...]]:
    """Return an action's names as allow rules write them."""
    operation, remote = action.operation, action.remote
    if ref is None:
        found: list[tuple[str, ...]] = [(operation, remote)] if remote else []
        if operation not in REACHES:
            return [(operation, *([remote] if remote else []), *action.refspecs)]
        return [*found, (operation,)]
    if ref.kind == "unknown" and not ref.text:
        return [(operation, remote)] if remote else [(operation,)]
    found = [(operation, remote, ref.text)] if remote else []
    found.append((operation, ref.text))
    if operation == "push" and ref.kind == "branch" and not flags and ref.name not in OPERATIONS:
        found.append((ref.name,))
    if operation in READS and remote:
        found.append((operation, remote))
    return found


def word_covers(pattern: str, word: str) -> bool:
    """Return whether a word covers a name. A wildcard reaches neither into a mapping, nor into
    another namespace, nor to an unnamed ref (`HEAD`)."""
    if "*" not in pattern:
        return pattern == word
    if word in ("HEAD", "@", ":") or "*" in word:
        return False
    has_colon = ":" in word
    if has_colon != (":" in pattern):
        return False
    if has_colon:
        return all(map(word_covers, pattern.split(":", 1), word.split(":", 1)))
    if word.startswith(("refs/", "tags/", "heads/", "remotes/")):
        namespace = "/".join(word.split("/")[: 2 if word.startswith("refs/") else 1]) + "/"
        return pattern.startswith(namespace) and fits(pattern, word)
    return fits(pattern, word)


def _spellings(name: str) -> set[str]:
    """Return every way to write the ref that `name` resolves to."""
    if not name:
        return set()
    short = _NAMESPACE.sub("", name) if "/" in name else name
    return (
        {name, short, f"heads/{short}", f"refs/heads/{short}"}
        if "tags/" not in name
        else {name, short, f"refs/tags/{short}"}
    )
