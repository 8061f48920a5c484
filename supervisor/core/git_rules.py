"""The verdict on a git operation: rules about remotes, branches, and what rewrites or deletes.

Decides ref by ref, each of which must be allowed. INVARIANT: force, delete, mirror, all branches, tags and every option that isn't
known as harmless are matched only by an allow rule that spells them; deny and ask rules look at where a ref ends up, however it is
spelled.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from supervisor.core.actions import Action, Effect, Git
from supervisor.core.git_refs import (
    FORCES,
    HARMLESS,
    REACHES,
    READS,
    UNREAD,
    Ref,
    agrees,
    from_words,
    parse_command,
    refs_of,
    rough_actions,
    special_flags,
)
from supervisor.core.verdicts import Context, Forced, Matches, Rule, Verdict, by_rules, combine
from supervisor.core.words import fits, is_star, split_pattern
from supervisor.errors import PolicyError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*\Z")
# Other operations that git has: a rule of one such word speaks of it, not of a branch.
_OPERATIONS = REACHES | {
    "add", "am", "apply", "archive", "bisect", "blame", "branch", "bundle", "checkout", "cherry-pick", "clean", "clone", "commit",
    "config", "diff", "format-patch", "gc", "grep", "init", "log", "merge", "mv", "notes", "rebase", "reflog", "remote", "request-pull",
    "reset", "restore", "revert", "rm", "send-email", "show", "stash", "status", "submodule", "switch", "tag", "worktree",
}  # fmt: skip
_FURTHER = frozenset({"--mirror", "--all", "--branches", "--tags", "--follow-tags", "--prune"})


class GitPattern(NamedTuple):
    """A compiled pattern: its words without options, and its options by their full names."""

    words: tuple[str, ...]
    options: frozenset[str]
    is_bare: bool


def compile_pattern(text: str) -> GitPattern:
    """The pattern of `git(text)`; `PolicyError` where it is none."""
    words = list(split_pattern(text, f"git({text})"))
    if words[0] == "git" and len(words) > 1:
        raise PolicyError(f"`git({text})` names git twice", f"write `git({text.strip()[4:].strip()})`")
    if all(map(is_star, words)):
        return GitPattern(("*",), frozenset(), is_bare=True)
    plain: list[str] = []
    options: set[str] = set()
    for index, word in enumerate(words):
        if word.startswith("+"):
            options.add("--force")
            word = word[1:]
        if word.startswith("-"):
            options.update(_options(words[0], word))
        elif word.startswith(":") and len(word) > 1:
            options.add("--delete")
            plain.append(_tidy_ref(word[1:]))
        elif word == "tag" and index >= 1 and index + 1 < len(words) and words[0] == "push":
            continue
        else:
            is_tag = index >= 2 and words[index - 1] == "tag" and words[0] == "push"
            plain.append(f"refs/tags/{word}" if is_tag else _tidy_ref(word))
    if not plain:
        raise PolicyError(f"`git({text})` names no operation", "write e.g. `git(push origin feature/*)`")
    if len(plain) > 3 and plain[0] in REACHES:
        raise PolicyError(f"`git({text})` names more than one ref", "write one rule for each")
    return GitPattern(tuple(plain), frozenset(options), is_bare=False)


def _options(operation: str, word: str) -> Iterable[str]:
    """An option as it appears in an action; harmless ones stay, because the rule names them."""
    parsed = from_words([operation, word]).flags
    return parsed or (word,)


def _tidy_ref(word: str) -> str:
    source, colon, target = word.partition(":")
    return (
        f"{source.removeprefix('refs/heads/')}:{target.removeprefix('refs/heads/')}"
        if colon
        else word.removeprefix("refs/heads/")
    )


def check_pattern(pattern: str, effect: Effect) -> str:
    """Raise `PolicyError` where the pattern can't be one; no pattern is refused for its effect."""
    compile_pattern(pattern)
    return ""


class _Entry:
    __slots__ = ("_exceptions", "pattern", "rule")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.pattern = compile_pattern(rule.pattern)
        self._exceptions: tuple[GitPattern, ...] | None = None

    def matches(self, action: Git, ref: Ref | None, flags: frozenset[str]) -> bool:
        broad = self.rule.effect != "allow"
        if not (touches if broad else covers)(self.pattern, action, ref, flags):
            return False
        if self._exceptions is None:
            self._exceptions = tuple(map(compile_pattern, self.rule.exceptions))
        return not any((covers if broad else touches)(one, action, ref, flags) for one in self._exceptions)


class GitJudge:
    """The git rules of a policy, by the branch or folder of branches that they spell."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._entries: dict[Effect, dict[str, list[_Entry]]] = {"allow": {}, "ask": {}, "deny": {}}
        for rule in rules:
            entry = _Entry(rule)
            self._entries[rule.effect].setdefault(_anchor(entry.pattern), []).append(entry)

    def judge(self, action: Action, mode: Effect, context: Context) -> Verdict:
        """The verdict on a `Git` action."""
        assert isinstance(action, Git)
        if action.command is not None and not action.operation and not action.flags:
            action = parse_command(action.command, action.cwd)
        if not agrees(action):
            return Verdict(
                "deny", "the fields of this action and its command don't say the same", remedy="send one of them"
            )
        unread = next((flag.removeprefix(UNREAD) for flag in action.flags if flag.startswith(UNREAD)), None)
        if unread is not None or not _NAME.match(action.operation):
            return self._unread(action, unread or "no git operation is named", mode, context)
        refusal = _refusal(action, context)
        try:
            refs: list[Ref | None] = [*refs_of(action)] or [None]
        except ValueError as error:
            return Verdict("deny", str(error), remedy="name the branch")
        flags = special_flags(action)
        verdict = combine(self._judge_ref(action, ref, flags, mode, context) for ref in refs)
        if refusal is not None and verdict.decision != "deny":
            return Verdict("deny", refusal, remedy="use a remote that the host's repository has")
        return verdict

    def _unread(self, action: Git, why: str, mode: Effect, context: Context) -> Verdict:
        """A command that can't be read is at most asked; deny rules see every operation that it might hold."""
        for rough in rough_actions(action.command or ""):
            try:
                refs: list[Ref | None] = [*refs_of(rough)] or [None]
            except ValueError:
                continue
            flags = special_flags(rough)
            denied = [rule for ref in refs for rule in self._matching("deny", rough, ref, flags, context)]
            if denied:
                return by_rules("deny", denied)
        matches = Matches()
        matches.forced = [Forced("ask", f"{why}, so no rule may allow it")]
        return matches.verdict("git", mode)

    def _judge_ref(
        self, action: Git, ref: Ref | None, flags: frozenset[str], mode: Effect, context: Context
    ) -> Verdict:
        flags = flags_for(ref, flags)
        matches = Matches()
        matches.deny = self._matching("deny", action, ref, flags, context)
        matches.ask = self._matching("ask", action, ref, flags, context)
        matches.allow = self._matching("allow", action, ref, flags, context)
        matches.forced = self.forced(action, ref, flags, context)
        verdict = matches.verdict("git", mode)
        if flags and not verdict.rule:
            shown = ", ".join(f"`{flag}`" for flag in sorted(flags))
            return Verdict(
                verdict.decision,
                f"{verdict.why}; {shown} needs a rule that says so",
                remedy=verdict.remedy,
                sticky=verdict.sticky,
            )
        return verdict

    def forced(self, action: Git, ref: Ref | None, flags: frozenset[str], context: Context) -> list[Forced]:
        """What of one ref is never allowed by a rule, as the other rules are."""
        is_open_ended = (ref is not None and ref.kind == "unknown") or any(
            flag.partition("=")[0] in _FURTHER for flag in flags
        )
        if is_open_ended and action.operation == "push" and self._speaks_of_branches(context):
            return [
                Forced("ask", "which branches this pushes isn't said, and there are deny or ask rules for branches")
            ]
        return []

    def _speaks_of_branches(self, context: Context) -> bool:
        """Whether a deny or ask rule in force is about some branch: a push that doesn't say which could go around it."""
        strict = [
            entry
            for table in (self._entries["deny"], self._entries["ask"])
            for found in table.values()
            for entry in found
        ]
        return any(_names_a_branch(entry.pattern) and context.is_active(entry.rule) for entry in strict)

    def _matching(
        self, effect: Effect, action: Git, ref: Ref | None, flags: frozenset[str], context: Context
    ) -> list[Rule]:
        table = self._entries[effect]
        if not table:
            return []
        return [
            entry.rule
            for key in _anchors_of(action, ref)
            for entry in table.get(key, ())
            if entry.matches(action, ref, flags) and context.is_active(entry.rule)
        ]


def flags_for(ref: Ref | None, flags: frozenset[str]) -> frozenset[str]:
    """The special options of an action as they are for one ref: `+ref` forces."""
    if ref is None or not ref.force or any(flag.partition("=")[0] in FORCES for flag in flags):
        return flags
    return flags | {"--force"}


def _anchor(pattern: GitPattern) -> str:
    """What a match must hold somewhere: the last word, or of one with a wildcard the folders before it. Empty: not known."""
    words = pattern.words
    if len(words) > 1 and words[0] not in REACHES:
        return ""
    literal, star, _ = words[-1].partition("*")
    return literal[: literal.rfind("/") + 1] if star else literal


def _anchors_of(action: Git, ref: Ref | None) -> set[str]:
    """Every anchor that a pattern about this could have."""
    found = {"", action.operation, action.remote or ""}
    if ref is not None:
        for name in {*_spellings(ref.name), ref.text}:
            found.add(name)
            at = name.find("/")
            while at >= 0:
                found.add(name[: at + 1])
                at = name.find("/", at + 1)
    return found


def _names_a_branch(pattern: GitPattern) -> bool:
    first, last = pattern.words[0], pattern.words[-1]
    return not is_star(last) and (first not in _OPERATIONS or (first == "push" and len(pattern.words) > 1))


def _refusal(action: Git, context: Context) -> str | None:
    """Why the remote is none that may be reached, None where it is (or where the operation has none)."""
    repos = [flag.partition("=")[2] for flag in action.flags if flag.startswith("--repo=")]
    for remote in (*([action.remote] if action.remote is not None else []), *repos):
        if remote.startswith("-"):
            return f"the remote `{remote}` could be taken for an option"
        if action.operation in REACHES | {"clone"} and remote not in context.remotes:
            return f"`{remote}` is not a remote that is configured"
        if re.match(r"(?:ext|fd|file)::?", remote, re.IGNORECASE):
            return f"the remote `{remote}` would run a program or read files"
    return None


# -- two ways to match: covers (allow, narrow) and touches (deny and ask, broad) ------------------------------------------


def covers(pattern: GitPattern, action: Git, ref: Ref | None, flags: frozenset[str]) -> bool:
    """Whether an allow rule covers one ref of an action: every special option is spelled, and nothing else is implied."""
    if not options_agree(pattern.options, flags):
        return False
    if pattern.is_bare:
        return action.operation in REACHES and not flags and (ref is None or ref.kind == "branch")
    return any(_words_cover(pattern.words, subject) for subject in subjects(action, ref, flags))


def options_agree(wanted: frozenset[str], given: frozenset[str]) -> bool:
    special = {option for option in wanted if option not in HARMLESS}
    # A rule that allows any force allows the careful one too.
    reduced = {"--force" if flag.partition("=")[0] in FORCES and "--force" in special else flag for flag in given}
    reduced = {
        "--force-with-lease" if flag.startswith("--force-with-lease=") and "--force-with-lease" in special else flag
        for flag in reduced
    }
    if "--force-if-includes" in reduced and special & FORCES:
        reduced.discard("--force-if-includes")
    return reduced == special


def subjects(action: Git, ref: Ref | None, flags: frozenset[str]) -> list[tuple[str, ...]]:
    """What an action is called in allow rules."""
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
    if operation == "push" and ref.kind == "branch" and not flags and ref.name not in _OPERATIONS:
        found.append((ref.name,))
    if operation in READS and remote:
        found.append((operation, remote))
    return found


def _words_cover(pattern: Sequence[str], subject: Sequence[str]) -> bool:
    return len(pattern) == len(subject) and all(map(word_covers, pattern, subject))


def word_covers(pattern: str, word: str) -> bool:
    """A wildcard reaches neither into a mapping, nor into another namespace, nor to what isn't said (`HEAD`)."""
    if "*" not in pattern:
        return pattern == word
    if word in ("HEAD", "@", ":") or "*" in word:
        return False
    if (":" in word) != (":" in pattern):
        return False
    if ":" in word:
        return all(map(word_covers, pattern.split(":", 1), word.split(":", 1)))
    if word.startswith(("refs/", "tags/", "heads/", "remotes/")):
        namespace = "/".join(word.split("/")[: 2 if word.startswith("refs/") else 1]) + "/"
        return pattern.startswith(namespace) and fits(pattern, word)
    return fits(pattern, word)


def touches(pattern: GitPattern, action: Git, ref: Ref | None, flags: frozenset[str]) -> bool:
    """Whether a deny or ask rule is about one ref of an action, however it is spelled and whatever else is said."""
    names = {flag.partition("=")[0] for flag in flags} | flags
    if names & FORCES:
        names |= {"--force"}
    if not {option for option in pattern.options if option not in HARMLESS} <= names:
        return False
    if pattern.is_bare:
        return True
    operation, remote = action.operation, action.remote or ""
    refs = _spellings(ref.name) | {ref.text} if ref is not None else set()
    words = pattern.words
    if len(words) == 1:
        is_branch = operation == "push" and any(fits(words[0], one) for one in refs)
        return fits(words[0], operation) or is_branch
    if not fits(words[0], operation):
        return False
    if operation not in REACHES:
        given = [remote, *action.refspecs] if remote else list(action.refspecs)
        rest = [word for word in words[1:] if not is_star(word)]
        return all(any(fits(word, one) for one in given) for word in rest)
    if len(words) == 2:
        return fits(words[1], remote) or is_star(words[1]) or any(fits(words[1], one) for one in refs)
    return (fits(words[1], remote) or not remote) and (is_star(words[2]) or any(fits(words[2], one) for one in refs))


def _spellings(name: str) -> set[str]:
    """Every way to write the ref that `name` ends up as."""
    if not name:
        return set()
    short = re.sub(r"\A(?:refs/)?(?:heads|tags)/", "", name)
    return (
        {name, short, f"heads/{short}", f"refs/heads/{short}"}
        if "tags/" not in name
        else {name, short, f"refs/tags/{short}"}
    )
