"""Verdict on a package operation: managers, operations and packages.

Decides package by package, each of which must be allowed. INVARIANT: no rule allows an option that
isn't known as harmless, or a word that says where code comes from; the reason shows it. A bare
allow rule never matches.
"""

import contextlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from supervisor.core.actions import Action, Effect, Packages, PlannedPackage
from supervisor.core.packages.package_commands import (
    UNREAD,
    Item,
    agrees,
    fold_name,
    folded_spec,
    items_of,
    manager_named,
    managers,
    operation_named,
    parse_command,
    risky_flags,
    rough_actions,
)
from supervisor.core.text.prefixes import Prefixes
from supervisor.core.text.words import fits, is_star, split_pattern
from supervisor.core.verdicts import (
    CONTRADICTS_ITSELF,
    CompiledRule,
    Context,
    Forced,
    Judge,
    Mode,
    Rule,
    Verdict,
    by_rules,
    combine,
    verdict_of,
)
from supervisor.errors import PolicyError

MAX_WORDS = 500
_SHORT = re.compile(r"(?P<manager>[a-z*][a-z0-9.*]*):(?P<name>[^\s:]+)\Z")


class PackagePattern(NamedTuple):
    """A compiled pattern. `operation` None: `manager:name`, every operation and version. `item`
    None: no package is named.

    `file` is `-r` or `-c` if the item is a file of requirements.
    """

    manager: str
    operation: str | None
    item: str | None
    file: str = ""
    options: frozenset[str] = frozenset()
    is_bare: bool = False


# Cached, because a pattern is read three times: checked, tried on its examples, and indexed.
@lru_cache(maxsize=32_768)
def compile_pattern(text: str) -> PackagePattern:
    """Return the pattern of `packages(text)`. Raise `PolicyError` if it isn't one."""
    rule = f"packages({text})"
    words = split_pattern(text, rule)
    short = _SHORT.match(words[0]) if len(words) == 1 else None
    if all(map(is_star, words)) or (short and is_star(short["manager"]) and is_star(short["name"])):
        return PackagePattern("*", None, "*", is_bare=True)
    if short:
        manager = _manager(short["manager"], rule)
        return PackagePattern(manager, None, folded_spec(manager, short["name"]))
    manager = _manager(words[0], rule)
    plain = [word for word in words[1:] if not word.startswith("-")]
    options = [word for word in words[1:] if word.startswith("-")]
    if not plain:
        raise PolicyError(
            f"`{rule}` names no operation", f"write e.g. `packages({words[0]} install NAME)`"
        )
    operation, rest = _operation(manager, plain, rule)
    if rest and manager in managers():
        operation = managers()[manager].same.get(operation, operation)
    file = next((option for option in options if option in ("-r", "-c")), "")
    if len(rest) > 1:
        raise PolicyError(f"`{rule}` names more than one package", "write one rule for each")
    item = None if not rest else rest[0] if file else folded_spec(manager, rest[0])
    is_bare = is_star(manager) and is_star(operation) and (item is None or is_star(item))
    return PackagePattern(manager, operation, item, file, frozenset(options) - {file}, is_bare)


def _manager(word: str, rule: str) -> str:
    if "*" in word:
        return word
    found = manager_named(word)
    if found is None:
        raise PolicyError(
            f"unknown package manager `{word}` in `{rule}`", f"known are {', '.join(managers())}"
        )
    return found


def _operation(manager: str, words: Sequence[str], rule: str) -> tuple[str, Sequence[str]]:
    pair = " ".join(words[:2])
    if len(words) > 1 and operation_named(manager, pair):
        return pair, words[2:]
    found = operation_named(manager, words[0])
    if found is None and "*" not in words[0] and "*" not in manager:
        known = ", ".join(managers()[manager].operations)
        raise PolicyError(f"unknown operation `{words[0]}` in `{rule}`", f"known are {known}")
    return found or words[0], words[1:]


def check_pattern(pattern: str, effect: Effect) -> str:
    """Raise `PolicyError` if the pattern isn't valid; return a warning if it never matches."""
    if compile_pattern(pattern).is_bare and effect == "allow":
        return f"`packages({pattern})` is bare, so it allows nothing: name the packages"
    return ""


class SoughtPackage(NamedTuple):
    """One package of an action (None if it names none): folded spec, lookup keys, and the parts
    that no rule may allow."""

    action: Packages
    item: Item | None
    spec: str
    texts: frozenset[str]
    forced: Sequence[Forced]

    def is_covered(self, pattern: PackagePattern) -> bool:
        """Return whether an allow rule covers it: narrow."""
        action, item = self.action, self.item
        if (
            pattern.is_bare
            or not fits(pattern.manager, action.manager)
            or not pattern.options.issubset(action.flags)
        ):
            return False
        if pattern.operation is None:
            if item is None or item.is_file:
                return False
            return fits(pattern.item or "", item.name) or fits(pattern.item or "", self.spec)
        if not fits(pattern.operation, action.operation):
            return False
        if item is None or pattern.item is None:
            return item is None and pattern.item is None
        if item.is_file:
            return f"{pattern.file} {pattern.item}" == item.text or (
                bool(pattern.file)
                and item.text.startswith(f"{pattern.file} ")
                and fits(pattern.item, item.name)
            )
        return not pattern.file and fits(pattern.item, self.spec)

    def is_touched(self, pattern: PackagePattern) -> bool:
        """Return whether a deny or ask rule applies to it: broad, with any version and in any
        letter case."""
        if pattern.is_bare:
            return True
        action, item = self.action, self.item
        if not fits(pattern.manager, action.manager):
            return False
        given = {*action.flags, *(flag.partition("=")[0] for flag in action.flags)}
        if not pattern.options <= given:
            return False
        if pattern.operation is not None and not fits(pattern.operation, action.operation):
            return False
        if pattern.item is None or is_star(pattern.item):
            return True
        if item is None:
            return False
        wanted = pattern.item.casefold()
        return any(fits(wanted, one.casefold()) for one in {item.name, item.text, self.spec})


class _Seen(NamedTuple):
    """An action as rules see it. `rough`: the possible packages of an unreadable command;
    `problem`: why it names no packages. `coming`: the packages that its plan would bring."""

    sought: tuple[SoughtPackage, ...]
    rough: tuple[SoughtPackage, ...] = ()
    problem: str = ""
    coming: tuple[SoughtPackage, ...] = ()


class PackageJudge(Judge[_Seen]):
    """Package rules of a policy, indexed by manager (empty: a wildcard) and by the start of the
    package's name."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        by_manager: dict[str, list[tuple[str, CompiledRule[PackagePattern]]]] = {}
        for rule in rules:
            entry = CompiledRule(rule, compile_pattern)
            pattern = entry.pattern
            manager = "" if "*" in pattern.manager else pattern.manager
            start = (pattern.item or "").partition("*")[0].casefold()
            by_manager.setdefault(manager, []).append((start, entry))
        self._by_manager = {manager: Prefixes(entries) for manager, entries in by_manager.items()}

    @staticmethod
    def canonical(action: Action) -> _Seen | Verdict:
        """Return a `Packages` action package by package, parsed if it came as a command line."""
        assert isinstance(action, Packages)
        if action.command is not None and not action.operation and not action.flags:
            action = parse_command(action.command, action.cwd)
        elif not agrees(action):
            return CONTRADICTS_ITSELF
        rough = _rough(action) if any(flag.startswith(UNREAD) for flag in action.flags) else ()
        action = canonical_action(action)
        forced = forced_of(action)
        if len(action.names) + len(action.flags) > MAX_WORDS:
            return Verdict(
                "deny",
                "more packages and options in one command than can be judged",
                remedy="name fewer",
            )
        try:
            items: list[Item | None] = [*items_of(action)] if action.manager in managers() else []
        except ValueError as error:
            return _Seen((), rough, str(error))
        coming = tuple(
            _sought(action, _coming(action, one), ()) for one in action.plan if one.version
        )
        return _Seen(
            tuple(_sought(action, item, forced) for item in items or [None]), rough, "", coming
        )

    def decide(self, seen: _Seen, mode: Mode, context: Context) -> Verdict:
        """Return the verdict; of several packages, the strictest."""
        if seen.rough:
            denied = [
                rule
                for sought in seen.rough
                for rule in self._matching(sought, context)
                if rule.effect == "deny"
            ]
            if denied:
                return by_rules("deny", denied)
        if seen.problem:
            return Verdict("deny", seen.problem, remedy="name packages only")
        parts = [self._judge_item(sought, mode, context) for sought in seen.sought]
        for sought in seen.coming:
            # The rule that allows a package also covers its dependencies, unless another rule names
            # them.
            closed = [one for one in self._matching(sought, context) if one.effect != "allow"]
            parts += [verdict_of(closed, (), "packages", mode)] if closed else []
        return parts[0] if len(parts) == 1 else combine(parts)

    def _judge_item(self, sought: SoughtPackage, mode: Mode, context: Context) -> Verdict:
        return verdict_of(self._matching(sought, context), sought.forced, "packages", mode)

    def _matching(self, sought: SoughtPackage, context: Context) -> list[Rule]:
        """Return the rules in force that match."""
        found: list[Rule] = []
        manager = sought.action.manager
        for name in ("", manager) if manager else ("",):
            index = self._by_manager.get(name)
            if index is not None:
                entries = index.starting(sought.texts)
                found += [
                    entry.rule
                    for entry in entries
                    if context.is_active(entry.rule) and entry.matches(sought)
                ]
        return found


def _sought(action: Packages, item: Item | None, forced: Sequence[Forced]) -> SoughtPackage:
    if item is None:
        return SoughtPackage(action, None, "", frozenset({""}), forced)
    spec = folded_spec(action.manager, item.text)
    texts = {item.name.casefold(), item.text.casefold(), spec.casefold()}
    return SoughtPackage(action, item, spec, frozenset(texts), [*forced, *origin_of(item)])


def _coming(action: Packages, one: PlannedPackage) -> Item:
    table = managers()[action.manager]
    joint = {"pip": "==", "colon": ":"}.get(table.versions, "@")
    name = fold_name(one.name) if table.fold else one.name
    return Item(f"{one.name}{joint}{one.version}", name)


def _rough(action: Packages) -> tuple[SoughtPackage, ...]:
    """Return the possible packages of an unreadable command, for deny rules only: an invalid word
    hides no others."""
    found: list[SoughtPackage] = []
    for rough in map(canonical_action, rough_actions(action.command or "")):
        found += [_sought(rough, item, ()) for item in (None, *items_of(replace(rough, names=())))]
        for name in rough.names:
            with contextlib.suppress(ValueError):
                found += [
                    _sought(rough, item, ())
                    for item in items_of(replace(rough, names=(name,), flags=()))
                ]
    return tuple(found)


def canonical_action(action: Packages) -> Packages:
    """Return the action with the table's names for manager and operation (fields may use other
    spellings)."""
    manager = manager_named(action.manager) or action.manager
    operation = operation_named(manager, action.operation) or action.operation
    table = managers().get(manager)
    if table is not None and action.names:
        operation = table.same.get(operation, operation)
    return replace(action, manager=manager, operation=operation)


def forced_of(action: Packages) -> list[Forced]:
    """Return the parts of the whole action that no rule ever allows."""
    unread = next(
        (flag.removeprefix(UNREAD) for flag in action.flags if flag.startswith(UNREAD)), None
    )
    if unread is not None:
        return [Forced("ask", f"{unread}, so no rule may allow it")]
    if action.manager not in managers():
        return [Forced("ask", "the package manager is not known, so no rule may allow it")]
    table = managers()[action.manager]
    found = []
    risky = risky_flags(action)
    if risky:
        shown = ", ".join(
            f"`{flag[:100].encode('ascii', 'backslashreplace').decode()}`" for flag in risky
        )
        found.append(
            Forced(
                "ask",
                f"{shown} could change where code comes from or run it, so no rule may allow it",
            )
        )
    if action.operation not in table.operations:
        found.append(
            Forced(
                "ask",
                f"`{action.manager} {action.operation}` is not an operation that rules can allow",
            )
        )
    elif (
        not action.names
        and action.operation not in table.without
        and not any(flag.partition("=")[0] in table.files for flag in action.flags)
    ):
        found.append(Forced("ask", f"`{action.manager} {action.operation}` names no package"))
    if action.doubt:
        found.append(Forced("ask", f"{action.doubt}, so no rule may allow it"))
    return found


def origin_of(item: Item | None) -> list[Forced]:
    """Return the part of a package that says where its code comes from; no rule ever allows it."""
    return (
        [Forced("ask", f"{item.origin}, so no rule may allow it")]
        if item is not None and item.origin
        else []
    )
