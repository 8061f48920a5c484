"""Explain a package operation: packages, flags, and where a rule differs.

Decides nothing (see `explain`). `package_rules` tells whether a rule fits; only the wording is made
here.
"""

import contextlib

import msgspec

from supervisor.core.actions import Action, Packages
from supervisor.core.lab.explanation import FAR, MOST_PARTS, NEAR, RuleLook, Topic, excepted, miss
from supervisor.core.packages.package_commands import (
    UNREAD,
    Item,
    agrees,
    fold_name,
    folded_spec,
    items_of,
    managers,
    parse_command,
    risky_flags,
    rough_actions,
)
from supervisor.core.policy.package_rules import (
    PackagePattern,
    canonical_action,
    compile_pattern,
    covers,
    forced_of,
    origin_of,
    touches,
)
from supervisor.core.text.words import fits
from supervisor.core.verdicts import Forced, Rule

# One package of an operation, as the judge compares it with a rule.
type _Case = tuple[Packages, Item | None]


class PackagesReading:
    """A `Packages` action as it was understood, package by package. No topic where it
    contradicts itself or a word is no package."""

    def __init__(self, action: Action) -> None:
        assert isinstance(action, Packages)
        if action.command is not None and not action.operation and not action.flags:
            action = parse_command(action.command, action.cwd)
        self.facts: list[tuple[str, str]] = []
        self.forced: list[Forced] = []
        self.left_out = 0
        self.topics: list[Topic] = []
        self.cases: list[_Case] = []
        # Further stand-ins for an unreadable command, for deny rules.
        self.rough: list[_Case] = []
        if not agrees(action):
            return
        if any(flag.startswith(UNREAD) for flag in action.flags):
            self.rough = [
                case for rough in rough_actions(action.command or "") for case in _rough(rough)
            ]
        action = canonical_action(action)
        forced = forced_of(action)
        try:
            items: list[Item | None] = [*items_of(action)] if action.manager in managers() else []
        except ValueError:
            return
        self.facts = _facts(action) if action.manager else []
        self.forced = [item for one in items[MOST_PARTS:] for item in origin_of(one)]
        self.left_out = len(items[MOST_PARTS:])
        items = items[:MOST_PARTS] or [None]
        self.cases = [(action, item) for item in items]
        self.topics = [
            Topic(
                "package" if item else "operation",
                _name(action, item),
                forced=(*forced, *origin_of(item)),
                alone=_alone(action, item),
            )
            for item in items
        ]

    def look(self, rule: Rule, at: int) -> RuleLook:
        """Return what a rule says of one package."""
        pattern, case = compile_pattern(rule.pattern), self.cases[at]
        broad = rule.effect != "allow"
        if not broad and pattern.is_bare:
            return RuleLook(
                False, "a bare allow rule allows nothing: name the packages", 1, "never"
            )
        if (touches if broad else covers)(pattern, *case):
            exception = _exception(rule, case)
            return (
                excepted(exception)
                if exception
                else RuleLook(True, f"`{rule.pattern}` covers `{self.topics[at].text}`")
            )
        rough = next(
            (one for one in self.rough if touches(pattern, *one) and not _exception(rule, one)),
            None,
        )
        if rule.effect == "deny" and rough is not None:
            return RuleLook(True, f"the text may hold `{_name(*rough)}`")
        return _miss(pattern, *case, broad=broad)


def _rough(action: Packages) -> list[_Case]:
    """As the judge reads it: a word that is no package hides no other."""
    action = canonical_action(action)
    found: list[_Case] = [
        (action, item) for item in items_of(msgspec.structs.replace(action, names=()))
    ]
    for name in action.names:
        with contextlib.suppress(ValueError):
            found += [
                (action, item)
                for item in items_of(msgspec.structs.replace(action, names=(name,), flags=()))
            ]
    return [*found, (action, None)]


def _alone(action: Packages, item: Item | None) -> Packages:
    """One package of an operation as an operation of its own."""
    if item is None:
        return action
    file = (item.text.replace(" ", "=", 1),) if item.is_file else ()
    flags = (*(flag for flag in action.flags if "=" not in flag), *file)
    return msgspec.structs.replace(
        action, names=() if item.is_file else (item.text,), flags=flags, command=None
    )


def _exception(rule: Rule, case: _Case) -> str | None:
    takes_out = touches if rule.effect == "allow" else covers
    return next((one for one in rule.exceptions if takes_out(compile_pattern(one), *case)), None)


def _name(action: Packages, item: Item | None) -> str:
    text = f"{action.manager} {action.operation} {item.text if item is not None else ''}".strip()
    return text or action.command or ""


def _facts(action: Packages) -> list[tuple[str, str]]:
    facts = [("manager", action.manager), ("operation", action.operation)]
    risky = risky_flags(action) if action.manager in managers() else []
    files = managers()[action.manager].files if action.manager in managers() else frozenset[str]()
    # A file of requirements is a part of its own.
    harmless = [
        flag for flag in action.flags if flag not in risky and flag.partition("=")[0] not in files
    ]
    if risky:
        facts.append(("other flags", " ".join(risky)))
    if harmless:
        facts.append(("harmless flags", " ".join(harmless)))
    return facts


def _miss(pattern: PackagePattern, action: Packages, item: Item | None, *, broad: bool) -> RuleLook:
    """Return the first part that differs, in the order manager, operation, package, flags."""
    if not fits(pattern.manager, action.manager):
        if not action.manager:
            return miss("the command can't be read, so only deny rules are asked", FAR)
        is_near = (
            item is not None and pattern.item is not None and _is_same_name(pattern.item, item)
        )
        return miss(
            f"is about `{pattern.manager}`; here the manager is `{action.manager}`",
            NEAR if is_near else FAR,
        )
    if pattern.operation is not None and not fits(pattern.operation, action.operation):
        return miss(
            f"is about `{pattern.operation}`; here the operation is `{action.operation}`", 3
        )
    if pattern.item is None:
        assert item is not None
        what = "a file of requirements" if item.is_file else "packages"
        return miss(
            f"names no package, so it is about `{action.manager} {pattern.operation}` without"
            f" {what}",
            2,
        )
    if item is None:
        return miss(f"is about the package `{pattern.item}`; here none is named", 3)
    if item.is_file != bool(pattern.file) and not broad:
        kinds = ("a package", "a file of requirements")
        return miss(f"is about {kinds[bool(pattern.file)]}; this is {kinds[item.is_file]}", 3)
    missing = sorted(pattern.options - set(action.flags))
    if missing and _item_fits(pattern, action, item):
        return miss(
            f"is only about {', '.join(f'`{one}`' for one in missing)}, which isn't there", 1
        )
    is_same = _is_same_name(pattern.item, item)
    hint = (
        f": only the version differs; `{action.manager}:{item.name}` means every version"
        if is_same
        else ""
    )
    return miss(f"is about `{pattern.item}`; here it is `{item.text}`{hint}", 1 if is_same else 3)


def _item_fits(pattern: PackagePattern, action: Packages, item: Item) -> bool:
    return any(
        fits(pattern.item or "", one) for one in (item.name, folded_spec(action.manager, item.text))
    )


def _is_same_name(wanted: str, item: Item) -> bool:
    start = "@" if wanted.startswith("@") else ""
    name = start + wanted.removeprefix("@").partition("@")[0].partition("=")[0]
    return fold_name(name) == fold_name(item.name)
