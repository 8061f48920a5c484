"""Package rules as a category: containment, faults, width, examples and candidates.

`package_rules` knows how a rule is matched.
"""

import re
from collections.abc import Hashable, Iterator, Sequence

from msgspec.structs import replace

from supervisor.core.actions import Packages
from supervisor.core.packages.package_commands import (
    Item,
    fold_name,
    folded_spec,
    items_of,
    manager_named,
    managers,
    parse_command,
    risky_flags,
)
from supervisor.core.policy import package_rules
from supervisor.core.policy.category import (
    FAR,
    MOST_PARTS,
    NEAR,
    AnyRule,
    Candidate,
    ProtectedBy,
    Reading,
    Remark,
    RuleCategory,
    RuleLook,
    Topic,
    exact,
    like,
    look_at,
    miss,
)
from supervisor.core.policy.package_rules import PackageJudge, PackagePattern, SoughtPackage
from supervisor.core.text.words import fits, is_star, quoted, star_within
from supervisor.core.verdicts import CompiledRule, Context, Mode, Rule, Verdict

_NAMED = re.compile(r"([a-z]+):(\S+)\Z")


# -- containment -----------------------------------------------------------------------------------


def _contains(outer: AnyRule, inner: AnyRule, _: ProtectedBy) -> bool:
    wide: PackagePattern = outer.pattern
    narrow: PackagePattern = inner.pattern
    if wide.is_bare:
        return outer.is_broad
    if (
        narrow.is_bare
        or not star_within(wide.manager, narrow.manager)
        or not wide.options <= narrow.options
    ):
        return False
    if wide.operation is not None and not (
        narrow.operation is not None and star_within(wide.operation, narrow.operation)
    ):
        return False
    if not outer.is_broad:
        return _item_in(wide, narrow)
    if wide.item is None or is_star(wide.item):
        return True
    if narrow.item is None:
        return False
    return any(
        star_within(wide.item.casefold(), one.casefold())
        for one in (narrow.item, _plain_name(narrow))
        if one
    )


def _item_in(wide: PackagePattern, narrow: PackagePattern) -> bool:
    """Return whether one allow rule's item covers another's: a package, a file of requirements, and
    nothing are three different things."""
    if wide.item is None or narrow.item is None:
        return wide.item is None and narrow.item is None
    if wide.operation is None:
        if narrow.file:
            return False
        return any(star_within(wide.item, one) for one in (narrow.item, _plain_name(narrow)) if one)
    return wide.file == narrow.file and star_within(wide.item, narrow.item)


def _plain_name(pattern: PackagePattern) -> str:
    """Return the package's name without its version; empty if it isn't spelled out."""
    if (
        pattern.item is None
        or "*" in pattern.item + pattern.manager
        or pattern.file
        or pattern.operation is None
    ):
        return ""
    try:
        (item,) = items_of(
            Packages(manager=pattern.manager, operation=pattern.operation, names=(pattern.item,))
        )
    except ValueError:
        return ""
    return "" if item.origin else item.name


def _key(pattern: PackagePattern) -> Hashable:
    return "" if pattern.item is None or "*" in pattern.item else pattern.item.casefold()


def _keys_above(pattern: PackagePattern) -> Iterator[Hashable]:
    item = "" if pattern.item is None else pattern.item
    yield from (one.casefold() for one in ("", item, _plain_name(pattern)))


# -- in words, and from an action ------------------------------------------------------------------


def _never(pattern: PackagePattern, _: ProtectedBy, mode: Mode) -> Remark | None:
    if mode == "deny":
        # If everything else is denied, a rule that names an action makes it asked, even one that is
        # never allowed.
        return None
    if pattern.is_bare:
        return Remark(
            "is bare, and a bare rule allows no package", "name the packages, or remove it"
        )
    if pattern.manager not in managers() or pattern.operation is None:
        return None
    action = Packages(
        manager=pattern.manager, operation=pattern.operation, flags=tuple(sorted(pattern.options))
    )
    if risky_flags(action):
        shown = ", ".join(f"`{flag}`" for flag in risky_flags(action))
        return Remark(
            f"holds {shown}, which could change where code comes from",
            "remove it: that is asked each time",
        )
    if pattern.item is None:
        known = managers()[pattern.manager]
        if pattern.operation in known.operations and pattern.operation not in known.without:
            return Remark(
                "names no package, and without one nothing is allowed", "name the packages"
            )
        return None
    if pattern.file or "*" in pattern.item:
        return None
    return _never_item(pattern)


def _never_item(pattern: PackagePattern) -> Remark | None:
    action = Packages(
        manager=pattern.manager, operation=pattern.operation or "", names=(pattern.item or "",)
    )
    try:
        origins = [item.origin for item in items_of(action) if item.origin]
    except ValueError as error:
        origins = [str(error)]
    return (
        Remark(f"is never allowed: {origins[0]}", "name a package, by its name and version")
        if origins
        else None
    )


def _wide(pattern: PackagePattern) -> Remark | None:
    if pattern.is_bare or pattern.item is None or pattern.file:
        return None
    known = managers().get(pattern.manager)
    if known is not None and pattern.operation is not None and _only_removes(pattern.operation):
        return None
    if is_star(pattern.item):
        return Remark("covers every package that there is", "name the packages")
    if "*" in pattern.item:
        # `@team/*` means all packages of one owner, and `left-pad@1.*` some versions; `pytest*`
        # could be anybody's.
        if re.search(r"[/@:=<>~]", pattern.item.partition("*")[0][1:]):
            return None
        return Remark(
            "covers every package whose name begins like that, strangers' too", "name the packages"
        )
    if pattern.operation is None or _has_no_version(
        pattern.manager, pattern.operation, pattern.item
    ):
        return Remark("covers every version, also one that appears tomorrow", "name the version")
    return None


def _has_no_version(manager: str, operation: str, text: str) -> bool:
    if manager not in managers():
        return False
    try:
        (item,) = items_of(Packages(manager=manager, operation=operation, names=(text,)))
    except ValueError:
        return False
    inner = text.removesuffix("]")
    extras = inner.find("[", inner.rfind("]") + 1) if inner != text else -1
    return not item.origin and (text if extras < 0 else text[:extras]) == item.name


def _only_removes(operation: str) -> bool:
    return operation.rpartition(" ")[2] in ("uninstall", "remove")


def _width(pattern: PackagePattern) -> str:
    if pattern.is_bare:
        return "every operation of every package manager"
    who = "any package manager" if is_star(pattern.manager) else pattern.manager
    does = (
        f"{who} {pattern.operation}" if pattern.operation is not None else f"any operation of {who}"
    )
    if pattern.item is None:
        return f"{does}, without a package's name"
    if is_star(pattern.item):
        return f"{does}, for every package"
    named = f"the file {pattern.item}" if pattern.file else like("package", pattern.item)
    return f"{does}, for {named}" + (
        "" if re.search(r"[@=]", pattern.item[1:]) or pattern.file else ", in any version"
    )


def _example(example: str) -> Packages:
    """Return the operation of an example: `npm install x`, or `npm:x` as a rule names it."""
    found = _NAMED.match(example)
    manager = managers().get(found[1]) if found else None
    if found is None or manager is None:
        return parse_command(example)
    operation = next(
        one for one in ("install", "add", "get", *manager.operations) if one in manager.operations
    )
    return Packages(manager=found[1], operation=operation, names=(found[2],))


def _candidates(action: Packages, _: str) -> Iterator[Candidate]:
    if not action.operation and action.command:
        action = parse_command(action.command, action.cwd)
    manager = manager_named(action.manager) or action.manager
    items = items_of(action) if manager in managers() else []
    if len(items) > 1:
        return
    text = f" {items[0].text if items[0].is_file else quoted(items[0].text)}" if items else ""
    yield Candidate(
        "exact",
        f"packages({manager} {action.operation}{text})",
        default=True,
        explains="this package in this version only",
    )
    if items and not items[0].is_file:
        yield Candidate(
            "broad",
            f"packages({manager}:{items[0].name})",
            default=False,
            explains="this package in any version",
        )


# -- explained -------------------------------------------------------------------------------------


def _read(judge: PackageJudge, _: Sequence[Rule], action: Packages, __: Context) -> Reading:
    seen = judge.canonical(action)
    if isinstance(seen, Verdict) or not seen.sought:
        return Reading()
    cases, whole = seen.sought, seen.sought[0].action
    topics = [
        Topic(
            "package" if case.item else "operation",
            _name(case),
            forced=tuple(case.forced),
            alone=_alone(case.action, case.item),
        )
        for case in cases[:MOST_PARTS]
    ]

    def look(rule: Rule, at: int) -> RuleLook:
        one = CompiledRule(rule, package_rules.compile_pattern)
        if one.pattern.is_bare and not one.is_broad:
            why = "a bare allow rule allows nothing: name the packages"
            return RuleLook(False, why, 1, "never")
        found = look_at(one, cases[at], f"`{rule.pattern}` covers `{topics[at].text}`", _miss)
        if found.fits or rule.effect != "deny":
            return found
        # Packages that an unreadable command might name.
        rough = next((case for case in seen.rough if one.matches(case)), None)
        return found if rough is None else RuleLook(True, f"the text may hold `{_name(rough)}`")

    further = [one for case in cases[MOST_PARTS:] for one in case.forced]
    facts = _facts(whole) if whole.manager else ()
    return Reading(facts, topics, look, further, len(cases) - len(topics))


def _alone(action: Packages, item: Item | None) -> Packages:
    """Return one package of an operation as an operation of its own."""
    if item is None:
        return action
    file = (item.text.replace(" ", "=", 1),) if item.is_file else ()
    flags = (*(flag for flag in action.flags if "=" not in flag), *file)
    return replace(action, names=() if item.is_file else (item.text,), flags=flags, command=None)


def _name(case: SoughtPackage) -> str:
    action, item = case.action, case.item
    text = f"{action.manager} {action.operation} {item.text if item is not None else ''}".strip()
    return text or action.command or ""


def _facts(action: Packages) -> list[tuple[str, str]]:
    facts = [("manager", action.manager), ("operation", action.operation)]
    risky = risky_flags(action) if action.manager in managers() else []
    files = managers()[action.manager].files if action.manager in managers() else frozenset[str]()
    # A file of requirements is a separate part.
    harmless = [
        flag for flag in action.flags if flag not in risky and flag.partition("=")[0] not in files
    ]
    if risky:
        facts.append(("other flags", " ".join(risky)))
    if harmless:
        facts.append(("harmless flags", " ".join(harmless)))
    return facts


def _miss(pattern: PackagePattern, case: SoughtPackage, broad: bool) -> RuleLook:
    """Return the first part that differs, in the order manager, operation, package, flags."""
    action, item = case.action, case.item
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


CATEGORY = RuleCategory(
    check=package_rules.check_pattern,
    compile=package_rules.compile_pattern,
    judge=lambda rules, _: package_rules.PackageJudge(rules),
    contains=_contains,
    key=_key,
    keys_above=_keys_above,
    wide=_wide,
    width=_width,
    example=_example,
    candidates=_candidates,
    read=_read,
    options=lambda action: exact(_candidates(action, "")),
    never=_never,
)
