"""Verdict on a file change: path rules, protected names and hazards.

Decides by canonical paths. INVARIANT: a path that could leave the workspace is denied, no wildcard
covers a protected name, and no rule allows a hazard (a link, a device, a set-uid or newly
executable bit, a name that can't be shown).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from supervisor.core.actions import Action, Effect, FileChange
from supervisor.core.policy.git_folders import LEAVE_APART, WORKSPACE_ITSELF
from supervisor.core.policy.protected_names import Protected, Protection, built_in
from supervisor.core.text.globs import (
    Glob,
    GlobStep,
    has_wildcard,
    inner_expression,
    steps_fit,
    steps_of,
)
from supervisor.core.text.globs import check as check_glob
from supervisor.core.text.paths import WorkspacePath, canonical, fold, is_git_name, leaves
from supervisor.core.text.prefixes import FEW, Prefixes
from supervisor.core.verdicts import (
    Context,
    Forced,
    Judge,
    Matches,
    Mode,
    Rule,
    Verdict,
    combine,
    verdict_of,
)
from supervisor.errors import PolicyError

OF_REPOSITORY = "git takes this folder for a repository's own, with its hooks and configuration"
USE_GIT = "ask for the git operation instead; `.git` itself is never changed from the sandbox"
STAY_INSIDE = "name a path relative to the workspace's root, without `..`"
# Marks a name that may be anywhere in a path, in an index of beginnings: no path holds a NUL.
_NAME_MARK = "\0"
_SET_ID_BITS = 0o6000
_EXECUTE_BITS = 0o111


def check_pattern(pattern: str, effect: Effect) -> str:
    """Raise `PolicyError` if the pattern isn't valid; there are no warnings."""
    if pattern in ("*", "**"):
        return ""
    if pattern.startswith(("/", "~")):
        raise PolicyError(
            f"`filesystem({pattern})` is not below the workspace",
            "name a path relative to the workspace's root",
        )
    if pattern.endswith("/"):
        raise PolicyError(
            f"`filesystem({pattern})` ends in a slash",
            f"write `filesystem({pattern}**)` for all below it",
        )
    if ".." in pattern.split("/"):
        raise PolicyError(
            f"`filesystem({pattern})` holds `..`",
            "nothing outside of the workspace is ever changed",
        )
    check_glob(tidy(pattern), f"filesystem({pattern})")
    return ""


def check_name(pattern: str) -> None:
    """Raise `PolicyError` if a protected name isn't valid."""
    if not pattern.strip():
        raise PolicyError("an empty protected name", "leave it out")
    check_pattern(pattern, "deny")


def tidy(pattern: str) -> str:
    """Return a pattern in the form in which it is compared: without empty segments and dots."""
    # A bare category means everything, not only the first level.
    if pattern in ("*", "**"):
        return pattern
    return "/".join(segment for segment in pattern.split("/") if segment not in ("", ".")) or "**"


class _Entry:
    """A rule, its pattern, and for deny and ask rules the pattern in folded spelling."""

    __slots__ = ("_exceptions", "folded", "glob", "rule")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        text = tidy(rule.pattern)
        self.glob = self.folded = Glob(text)
        if rule.effect != "allow" and (folded := fold(text)) != text:
            self.folded = Glob(folded)
        self._exceptions: tuple[tuple[Glob, Glob], ...] | None = None

    def matches(self, path: WorkspacePath, folded: str) -> bool:
        rule = self.rule
        if rule.pattern in ("*", "**"):
            hit = True
        elif rule.effect == "allow":
            hit = self.glob.matches(path.text)
        else:
            hit = self.folded.matches(folded) or self.glob.matches(path.text)
        return hit and not (rule.exceptions and self.is_excepted(path, folded))

    def is_excepted(self, path: WorkspacePath, folded: str) -> bool:
        """Return whether an exception applies. An exception of an allow rule matches every
        spelling, one of a deny or ask rule only its own."""
        if self._exceptions is None:
            texts = [tidy(text) for text in self.rule.exceptions]
            self._exceptions = tuple((Glob(text), Glob(fold(text))) for text in texts)
        if self.rule.effect == "allow":
            return any(
                plain.matches(path.text) or loose.matches(folded)
                for plain, loose in self._exceptions
            )
        return any(plain.matches(path.text) for plain, _ in self._exceptions)


class _Spelling(NamedTuple):
    """Lookup keys of a path.

    `folders`: the path itself, every folder above it, and the root. `endings`: possible endings of
    a pattern that matches it. `names`: its segments.
    """

    text: str
    folders: tuple[str, ...]
    endings: tuple[str, ...]
    names: tuple[str, ...]


def _spelling(text: str) -> _Spelling:
    folders = [text]
    end = text.rfind("/")
    while end > 0:
        folders.append(text[:end])
        end = text.rfind("/", 0, end)
    name = text[text.rfind("/") + 1 :]
    dot = name.rfind(".")
    endings = ("", name, f"*{name[dot:]}") if dot >= 0 else ("", name)
    return _Spelling(text, (*folders, ""), endings, tuple(text.split("/")))


class _Index:
    """Path rules by whole path, or by literal folder and ending. Deny and ask rules are kept in
    folded spelling."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.by_path: dict[str, list[_Entry]] = {}
        self.below: dict[str, dict[str, list[_Entry]]] = {}
        self.everything: list[_Entry] = []
        self._by_start: dict[tuple[str, str], Prefixes[_Entry]] = {}
        for rule in rules:
            self._add(_Entry(rule))

    def _add(self, entry: _Entry) -> None:
        if entry.rule.pattern in ("*", "**"):
            self.everything.append(entry)
            return
        glob = entry.folded
        if glob.literal is not None:
            self.by_path.setdefault(glob.literal, []).append(entry)
            return
        endings = self.below.setdefault("/".join(glob.fixed), {})
        endings.setdefault(_ending(glob), []).append(entry)

    def matching(self, place: "Place", context: Context) -> list[Rule]:
        """Return the rules in force that match."""
        path, folded = place.path, place.folded
        entries = self._candidates(place.spelled)
        if folded is not place.spelled:
            entries = [
                *{id(entry): entry for entry in (*entries, *self._candidates(folded))}.values()
            ]
        return [
            entry.rule
            for entry in entries
            if context.is_active(entry.rule) and entry.matches(path, folded.text)
        ]

    def _candidates(self, path: _Spelling) -> list[_Entry]:
        found = [*self.by_path.get(path.text, ()), *self.everything]
        below = self.below
        for folder in path.folders:
            endings = below.get(folder)
            if endings is not None:
                for ending in path.endings:
                    entries = endings.get(ending)
                    if entries is not None:
                        found += (
                            entries
                            if len(entries) <= FEW
                            else self._starting(folder, ending, entries, path.text)
                        )
        return found

    def _starting(self, folder: str, ending: str, entries: list[_Entry], path: str) -> list[_Entry]:
        """Return those of many rules for one folder and ending whose literal start the path has."""
        index = self._by_start.get((folder, ending))
        if index is None:
            index = self._by_start[folder, ending] = Prefixes(
                (self._beyond(one, folder), one) for one in entries
            )
        beyond = path[len(folder) :]
        return index.starting([beyond, *map(_NAME_MARK.__add__, beyond.split("/"))])

    @staticmethod
    def _beyond(entry: _Entry, folder: str) -> str:
        if entry.rule.effect != "allow":
            # Deny and ask rules also match other spellings, which start differently.
            return ""
        start = entry.glob.start[len(folder) :]
        inside = entry.glob.name_inside
        return start if start or inside is None else _NAME_MARK + inside


def _ending(glob: Glob) -> str:
    """Return the common ending of all paths that a pattern matches: a last name, `*.extension`, or
    nothing."""
    if glob.last is not None:
        return glob.last
    last = glob.text.rpartition("/")[2]
    extension = last[1:]
    if last.startswith("*.") and extension.isascii() and extension[1:].isalnum():
        return last
    return ""


class _Names:
    """The protected names in force: whole names in one dictionary, the rest in one regular
    expression."""

    def __init__(self, names: Sequence[Protected]) -> None:
        self.git = next(
            name for name in names if name.decision == "deny" and name.pattern == ".git/**"
        )
        self.whole: dict[str, Protected] = {}
        self.patterns: list[tuple[re.Pattern[str], Protected]] = []
        self.deep: list[tuple[Sequence[GlobStep], Protected]] = []
        for name in sorted(names, key=lambda one: one.decision != "deny"):
            text = fold(tidy(name.pattern)).removesuffix("/**")
            if "/" not in text and not has_wildcard(text):
                self.whole.setdefault(Glob(text).literal or text, name)
            elif "**" in text.split("/"):
                self.deep.append(((None, *steps_of(text), None), name))
            else:
                self.patterns.append((_anywhere([text]), name))
        self.any_pattern = _anywhere(
            [fold(tidy(name.pattern)).removesuffix("/**") for _, name in self.patterns]
        )

    def of(self, place: "Place") -> Protected | None:
        """Return the strictest protected name that a path has."""
        if place.is_git:
            return self.git
        if place.repository:
            return Protected(f"{place.repository}/**", OF_REPOSITORY, "deny", LEAVE_APART)
        folded, whole = place.folded, self.whole
        found = (
            []
            if whole.keys().isdisjoint(folded.names)
            else [whole[one] for one in folded.names if one in whole]
        )
        if self.patterns and self.any_pattern.search(folded.text):
            found += [name for regex, name in self.patterns if regex.search(folded.text)]
        found += [name for steps, name in self.deep if steps_fit(steps, folded.names)]
        return min(found, key=lambda name: name.decision != "deny") if found else None


def _anywhere(texts: Iterable[str]) -> re.Pattern[str]:
    """Compile an expression that finds any of these globs at any depth, and everything below a
    match."""
    return re.compile(
        rf"(?:\A|/)(?:{'|'.join(map(inner_expression, texts)) or '(?!)'})(?:/|\Z)", re.DOTALL
    )


@lru_cache(maxsize=64)
def _names(ask: frozenset[str], deny: frozenset[str], lifted: frozenset[str]) -> _Names:
    table = built_in()
    added = "a protected name of this policy"
    return _Names(
        [
            *(Protected(name, why, "deny") for name, why in table["deny"].items()),
            *(Protected(name, added, "deny") for name in sorted(deny)),
            *(
                Protected(name, why, "ask")
                for name, why in table["ask"].items()
                if name not in lifted
            ),
            *(Protected(name, added, "ask") for name in sorted(ask)),
        ]
    )


def protected_name(path: str) -> Protected | None:
    """Return the strictest built-in protected name that a path has, whatever a policy says."""
    return _names(frozenset(), frozenset(), frozenset()).of(_place(WorkspacePath(path)))


class Place(NamedTuple):
    """One path of a change as rules see it: spelled, folded (the same object if equal), whether it
    contains the name of git's own folder, and its hazards. `repository`: the folder around it that
    git takes for a repository's own."""

    path: WorkspacePath
    spelled: _Spelling
    folded: _Spelling
    is_git: bool
    forced: Sequence[Forced] = ()
    repository: str = ""


def _place(path: WorkspacePath, forced: Sequence[Forced] = (), repository: str = "") -> Place:
    folded = path.folded
    spelled = _spelling(path.text)
    is_git = ("git" in folded or not path.text.isascii()) and any(map(is_git_name, spelled.names))
    seen = spelled if folded == path.text else _spelling(folded)
    return Place(path, spelled, seen, is_git, forced, repository)


def _around(path: WorkspacePath, repositories: Sequence[str]) -> str:
    """Return the first of these folders that equals or contains a path. An action names folders in
    the form in which it shows its paths."""
    shown = path.text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return next(
        (
            one
            for one in repositories
            if one == WORKSPACE_ITSELF or f"{shown}/".startswith(f"{one}/")
        ),
        "",
    )


type _Seen = Sequence[Place]


class FileJudge(Judge[_Seen]):
    """The filesystem rules of a policy, indexed, and its protected names."""

    def __init__(self, rules: Sequence[Rule], protection: Protection) -> None:
        self._index = _Index(rules)
        self._names = _names(protection.ask, protection.deny, protection.lifted)

    @staticmethod
    def canonical(action: Action) -> _Seen | Verdict:
        """Return a `FileChange`'s canonical path, both paths if there are two, or all paths of a
        swap."""
        assert isinstance(action, FileChange)
        try:
            places = places_of(action)
        except ValueError as error:
            return Verdict("deny", str(error), remedy=STAY_INSIDE)
        if action.operation == "rename" and action.to is None:
            return Verdict("deny", "a rename that doesn't say where to", remedy="name both paths")
        if any(
            target is not None and leaves(place.path.text, target)
            for place, target in _links(action, places)
        ):
            return Verdict("deny", "a link that points out of the workspace", remedy=STAY_INSIDE)
        return places

    def decide(self, seen: _Seen, mode: Mode, context: Context) -> Verdict:
        """Return the verdict; if there are two paths, the stricter one."""
        if len(seen) == 1:
            return self._judge_path(seen[0], mode, context)
        return combine(self._judge_path(place, mode, context) for place in seen)

    def _judge_path(self, place: Place, mode: Mode, context: Context) -> Verdict:
        rules = self._index.matching(place, context)
        protected = self._names.of(place)
        if protected is None:
            return verdict_of(rules, place.forced, "filesystem", mode)
        path, matches = place.path.text, Matches(rules, place.forced)
        matches.allow = [rule for rule in matches.allow if _tidy_literal(rule) == path]
        spelled = bool(matches.allow) or any(_tidy_literal(rule) == path for rule in matches.ask)
        if not spelled:
            matches.forced = [*place.forced, force_of(protected)]
        return matches.verdict("filesystem", mode)

    def name_of(self, place: Place) -> Protected | None:
        """Return the strictest protected name of a path, or None."""
        return self._names.of(place)

    def names_noted(self, action: FileChange) -> list[str]:
        """Return why the names of an action need their own look: protected names, even if a rule
        spells them out, and names that can't be shown."""
        seen = self.canonical(action)
        if isinstance(seen, Verdict):
            return [seen.why]
        found: dict[str, None] = {}
        for place in seen:
            found |= {one.why: None for one in _oddity(place.path)}
            if (protected := self._names.of(place)) is not None:
                found[force_of(protected).why] = None
        return list(found)

    def protected(self, path: str, repositories: Sequence[str] = ()) -> Protected | None:
        """Return the strictest protected name of a canonical path, or None. `repositories` are
        those of its action."""
        place = WorkspacePath(path)
        return self._names.of(_place(place, (), _around(place, repositories)))


def places_of(action: FileChange) -> list[Place]:
    """Return each path of an action as rules see it. Raise `ValueError` if one leaves the
    workspace."""
    paths = [canonical(action.path, action.path_b64)]
    if action.to is not None:
        paths.append(canonical(action.to, action.to_b64))
    paths += [canonical(step.path, step.path_b64) for step in action.steps]
    # INVARIANT: a swap's hazards are those of its steps, too, so the strictest of all places has
    # each of them.
    hazards = list(hazards_of(action))
    around = action.repositories
    return [
        _place(path, [*hazards, *_oddity(path)], _around(path, around) if around else "")
        for path in paths
    ]


def _links(action: FileChange, places: Sequence[Place]) -> Iterator[tuple[Place, str | None]]:
    """Return the path and the target of each link of an action."""
    yield places[0], action.link_target
    below = places[len(places) - len(action.steps) :]
    yield from zip(below, (step.link_target for step in action.steps), strict=True)


def _tidy_literal(rule: Rule) -> str | None:
    return Glob(tidy(rule.pattern)).literal


def force_of(name: Protected) -> Forced:
    """Return a protected name's effect on a change of a path that no rule spells out."""
    why = f"protected name {name.pattern}: {name.why}"
    if name.decision == "deny":
        return Forced("deny", why, USE_GIT if name.pattern.startswith(".git/") else name.remedy)
    return Forced("ask", why, sticky=False)


def _oddity(path: WorkspacePath) -> Iterator[Forced]:
    if path.is_odd:
        yield Forced("ask", f"{path.is_odd} is never allowed by a rule")


def hazards_of(action: FileChange) -> Iterator[Forced]:
    """Return the hazards that no rule may allow."""
    for name in sorted(hazard_names(action)):
        yield Forced("ask", f"{name} is never allowed by a rule")


def hazard_names(action: FileChange) -> set[str]:
    """Return the names of its hazards, by itself or by a step. A chmod without a mode could set any
    mode."""
    names = set(action.hazards)
    if action.operation == "symlink" or action.link_target is not None:
        names.add("symlink")
    mode = action.mode or 0
    if mode & _SET_ID_BITS:
        names.add("setuid")
    for step in action.steps:
        names.update(step.hazards)
        names.update(["symlink"] if step.link_target is not None else [])
        names.update(["setuid"] if (step.mode or 0) & _SET_ID_BITS else [])
    is_of_file = action.after != "dir"  # a folder's execute bits let nobody run anything
    if action.operation == "chmod" and (
        action.mode is None or (is_of_file and mode & _EXECUTE_BITS)
    ):
        names.add("new-executable")
    return names


# -- for `explain`: one rule and one path, whatever else is in force ------------------------------


def fits(rule: Rule, path: WorkspacePath) -> bool:
    """Return whether a rule's pattern covers a path, ignoring its exceptions and its time limit."""
    return rule.pattern in ("*", "**") or _Entry(replace(rule, exceptions=())).matches(
        path, path.folded
    )


def exception_for(rule: Rule, path: WorkspacePath) -> str | None:
    """Return the exception that excludes a path from a rule; None if there is none."""
    return next((one for one in rule.exceptions if _takes_out(rule, one, path)), None)


def _takes_out(rule: Rule, exception: str, path: WorkspacePath) -> bool:
    return _Entry(replace(rule, exceptions=(exception,))).is_excepted(path, path.folded)


def spells_out(rule: Rule, path: WorkspacePath) -> bool:
    """Return whether a rule names exactly this path: only such a rule lifts a protected name."""
    return _tidy_literal(rule) == path.text
