"""The plan of an install: what it would add, change and remove, and what needs attention.

Made from two states of a lock file and the registries' answers. Pure.
"""

import itertools
from collections.abc import Iterable, Mapping
from functools import cache

from msgspec.structs import replace

from supervisor.core.actions import PlannedPackage
from supervisor.core.packages.lock_files import Locked, Locks
from supervisor.core.packages.package_commands import fold_name
from supervisor.core.packages.registry_answers import RegistryFacts
from supervisor.core.text.data_tables import table

YOUNG_S = 7 * 86_400.0
MOST_PACKAGES = 2_000
_SHORTEST = 4  # names of fewer letters are one edit from each other by chance
_LONGEST = 80  # no popular name is longer, and the edits of a name grow with its square
HAS_SCRIPTS = "has install scripts"


def planned(before: Locks, after: Locks) -> tuple[PlannedPackage, ...]:
    """Return the changes between two states, by name."""
    old = _versions(key for key in before if key not in after)
    # The same version with another file, or from another place, counts as new.
    new = [one for key, one in after.items() if not _is_same(before.get(key), one)]
    changed: set[str] = set()
    found = []
    for one in sorted(new):
        earlier = old.get(one.name, ())
        is_change = len(earlier) == 1 and one.name not in changed
        found.append(_added(one, earlier[0] if is_change else ""))
        if is_change:
            changed.add(one.name)
    gone = [
        PlannedPackage(name=name, version="", before=version)
        for name, versions in sorted(old.items())
        if name not in changed
        for version in versions
    ]
    return (*found, *gone)


def _added(one: Locked, before: str) -> PlannedPackage:
    return PlannedPackage(
        name=one.name,
        version=one.version,
        before=before,
        has_scripts=one.has_scripts,
        licence=one.licence,
        link=one.link,
    )


def _versions(keys: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, rows in itertools.groupby(sorted(keys), key=lambda key: key[0]):
        found[name] = tuple(version for _, version in rows)
    return found


def _is_same(before: Locked | None, after: Locked) -> bool:
    return before is not None and (before.url, before.integrity) == (after.url, after.integrity)


def with_facts(
    kind: str,
    plan: Iterable[PlannedPackage],
    facts: Mapping[tuple[str, str], RegistryFacts],
    *,
    now: float,
) -> tuple[PlannedPackage, ...]:
    """Return the plan with the registries' facts and its notes. `now` is in seconds since the
    epoch."""
    return tuple(_with(kind, one, facts.get((one.name, one.version)), now) for one in plan)


def _with(kind: str, one: PlannedPackage, said: RegistryFacts | None, now: float) -> PlannedPackage:
    if not one.version:
        return one
    said = said or RegistryFacts()
    runs = one.has_scripts if said.has_scripts is None else said.has_scripts
    notes = []
    if near := near_popular(kind, one.name):
        notes.append(f"one edit from the popular `{near}`")
    if said.published_at is not None and now - said.published_at < YOUNG_S:
        days = max(0, int((now - said.published_at) // 86_400))
        notes.append(f"released {days} days ago" if days != 1 else "released a day ago")
    if runs:
        notes.append(HAS_SCRIPTS)
    if said.warning:
        notes.append(said.warning[:200])
    return replace(
        one,
        published_at=said.published_at,
        size=said.size,
        licence=said.licence or one.licence,
        has_scripts=runs,
        notes=tuple(notes),
        link=said.link or one.link,
    )


def what_is_unknown(kind: str, plan: Iterable[PlannedPackage]) -> tuple[str, ...]:
    """Return in words what couldn't be found out about the new packages."""
    coming = [one for one in plan if one.version]
    missing = {
        "age": sum(one.published_at is None for one in coming),
        "licence": sum(one.licence is None for one in coming),
        "size": sum(one.size is None for one in coming),
        "install scripts": sum(one.has_scripts is None for one in coming),
    }
    said = [
        f"{what} of {count} of {len(coming)} packages" for what, count in missing.items() if count
    ]
    if coming and kind not in _popular():
        said.append(f"which names are popular among {kind}")
    return tuple(said)


# -- names that look like others ------------------------------------------------------------------


@cache
def _popular() -> dict[str, frozenset[str]]:
    return {kind: frozenset(names.split()) for kind, names in table("popular_names").items()}


def near_popular(kind: str, name: str) -> str:
    """Return the popular name that is one edit away from this one (a letter more, less or other, or
    two swapped); empty if the name is popular itself, or close to none."""
    known = _popular().get(kind, frozenset())
    name = fold_name(name) if kind == "pypi" else name
    if not _SHORTEST <= len(name) <= _LONGEST or name in known:
        return ""
    return min((one for one in _edits(name) if one in known and len(one) >= _SHORTEST), default="")


def _edits(name: str) -> Iterable[str]:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-_./@"
    for at in range(len(name) + 1):
        head, tail = name[:at], name[at:]
        yield from (f"{head}{one}{tail}" for one in letters)
        if tail:
            yield head + tail[1:]
            yield from (f"{head}{one}{tail[1:]}" for one in letters)
        if len(tail) > 1:
            yield f"{head}{tail[1]}{tail[0]}{tail[2:]}"
