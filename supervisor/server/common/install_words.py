"""An install in words: what would come, and what must not be overlooked. For pages and terminal."""

import msgspec

from supervisor.core.actions import Packages, PlannedPackage

_DAY_S = 86_400.0


class PackageRow(msgspec.Struct, frozen=True):
    """One package: its name, how it changes, and what is known of it."""

    name: str
    change: str
    facts: str
    notes: tuple[str, ...]


class InstallWords(msgspec.Struct, frozen=True):
    """`rows` are all packages, those with notes first. `flags` are to be shown in red."""

    summary: str
    flags: tuple[str, ...]
    rows: tuple[PackageRow, ...]
    source: str
    unknown: str
    has_scripts: bool


def install_words(action: Packages, now: float) -> InstallWords:
    """Return what is said of an install. `now` is in seconds since the epoch."""
    plan = sorted(action.plan, key=lambda one: (not one.notes, one.name))
    added = sum(not one.before for one in plan)
    gone = sum(not one.version for one in plan)
    counts = ((added, "added"), (len(plan) - added - gone, "changed"), (gone, "removed"))
    summary = ", ".join(f"{count} {word}" for count, word in counts if count)
    reaches = f", reaching {', '.join(action.hosts)}" if action.hosts else ""
    return InstallWords(
        summary or "nothing is known to change",
        action.notes,
        tuple(_row(one, now) for one in plan),
        f"from {action.index}{reaches}" if action.index else "",
        "; ".join(action.unknown),
        not plan
        or bool(action.doubt)
        or any(one.has_scripts is not False for one in plan if one.version),
    )


def _row(one: PlannedPackage, now: float) -> PackageRow:
    if not one.version:
        change = f"{one.before} is removed"
    else:
        change = f"{one.before} to {one.version}" if one.before else one.version
    facts = (
        f"{_age(now - one.published_at)} old" if one.published_at is not None else "",
        _size(one.size) if one.size is not None else "",
        one.licence or "",
    )
    return PackageRow(one.name, change, ", ".join(filter(None, facts)), one.notes)


def _age(seconds: float) -> str:
    days = max(0, int(seconds // _DAY_S))
    for span, word in ((365, "year"), (30, "month"), (1, "day")):
        if days >= span:
            count = days // span
            return f"{count} {word}{'s' * (count > 1)}"
    return "less than a day"


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} kB"
