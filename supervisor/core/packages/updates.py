"""Dependency updates of a job: which files they may change, and what they changed.

The versions come from the lock files of base and result, and never from the agent. Pure.
"""

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from supervisor.core.actions import Packages, PlannedPackage
from supervisor.core.jobs import MOST_GLOBS, Job, Updated, Updates
from supervisor.core.packages.install_plan import planned
from supervisor.core.packages.lock_files import LOCKS, PINS, is_one_file, locks_in
from supervisor.core.review_markdown import in_message
from supervisor.core.text.display import visible
from supervisor.errors import UserError

MOST_UPDATED, MOST_SAID, MOST_TITLE_CHARS = 200, 50, 72
# Of the lock files that a job changed, the first so many are looked into: each takes time to read.
MOST_LOCKS = 20
DAY_S = 86_400.0
_EVERYTHING = "all"
# The files that an update changes, by manager.
FILES: dict[str, tuple[str, ...]] = {
    "npm": ("package.json", "package-lock.json"),
    "pnpm": ("package.json", "pnpm-lock.yaml"),
    "pip": ("requirements*.txt", "pyproject.toml"),
    "uv": ("pyproject.toml", "uv.lock"),
    "cargo": ("Cargo.toml", "Cargo.lock"),
    "go": ("go.mod", "go.sum"),
}
# Of these only hashes count: which versions there are, another file says.
_HASHES = "go.sum"
_PINNED = re.compile(r"requirements[\w.-]*\.txt\Z|pyproject\.toml\Z")


def parse_updates(text: str, min_age_s: float) -> Updates:
    """Read `all`, managers (`npm,pip`) or packages of one (`npm:left-pad,react`). `UserError` if
    it is none of these."""
    managers, _, names = text.strip().partition(":")
    chosen = () if managers == _EVERYTHING else tuple(managers.split(","))
    if unknown := [one for one in chosen if one not in FILES]:
        raise UserError(
            f"`{unknown[0]}` is no package manager whose updates are known",
            f"write `{_EVERYTHING}`, or some of {', '.join(FILES)}",
        )
    packages = tuple(one.strip() for one in names.split(",") if one.strip())
    if packages and len(chosen) != 1:
        raise UserError(f"`{text}` names packages of no manager", "write it like npm:left-pad")
    return Updates(managers=chosen, names=packages, min_age_s=min_age_s)


def updating(job: Job) -> Job:
    """Return a job of updates with the files in its scope that these change. `UserError` if those
    are too many globs."""
    if job.updates is None:
        return job
    own = [f"**/{file}" for one in job.updates.managers or FILES for file in FILES[one]]
    scope = tuple(dict.fromkeys((*own, *job.scope)))
    if len(scope) > MOST_GLOBS:
        raise UserError(f"its scope has more than {MOST_GLOBS} globs", "use wider ones")
    return replace(job, scope=scope)


def lock_of(path: str) -> str:
    """Return the name that `locks_in` knows a file by; "" if it locks nothing."""
    name = path.rpartition("/")[2]
    return PINS if _PINNED.match(name) else name if name in LOCKS else ""


def updated(files: Mapping[str, tuple[str, str]], asked: Iterable[Packages]) -> tuple[Updated, ...]:
    """Return which versions changed; a file that can't be read stands there without any. `files`:
    each lock file by its path, as it was and is now. `asked`: the installs of the job, whose plans
    say more of a version."""
    found: dict[tuple[str, str, str], Updated] = {}
    said = {(one.name, one.version): one for action in asked for one in action.plan}
    for path, texts in sorted(files.items()):
        try:
            before, after = (locks_in(lock_of(path), text) for text in texts)
        except ValueError:
            found[path, "", ""] = Updated(name=path)
            continue
        for one in planned(before, after):
            key = one.name, one.version
            if key in before and not is_one_file(before[key], after[key]):
                # Its name stays, and its code needn't: a lock file that was written by hand.
                other = Updated(name=one.name, before=one.version, after=one.version)
                found[one.name, one.version, one.version] = other
            elif key not in before and lock_of(path) != _HASHES:
                known = said.get((one.name, one.version), PlannedPackage(name="", version=""))
                found[one.name, one.before, one.version] = Updated(
                    name=one.name,
                    before=one.before,
                    after=one.version,
                    published_at=known.published_at,
                    link=known.link,
                )
    return tuple(found.values())[:MOST_UPDATED]


def updates_title(changes: Iterable[Updated]) -> str:
    """Return what a commit of these is called."""
    said = [f"{one.name} from {one.before} to {one.after}" for one in changes if one.is_update]
    long = f"Update {', '.join(said)}"
    if len(said) != 1 and len(long) > MOST_TITLE_CHARS:
        long = f"Update {len(said)} packages"
    title = in_message(visible(long[:MOST_TITLE_CHARS], one_line=True))
    return title if said else "Update dependencies"


def update_lines(changes: Iterable[Updated], now: float) -> list[str]:
    """Return each change in a line: `left-pad: 1.0.0 -> 1.1.0, 12 days old`. `now` is in seconds
    since the epoch."""
    rows = []
    for one in changes:
        versions = f"{one.before or 'new'} -> {one.after or 'removed'}"
        if one.before == one.after:
            versions = f"{one.after} comes from another file or place than before"
        if not (one.before or one.after):
            versions = "can't be read, so what it locks isn't listed"
        age = ""
        if one.published_at is not None:
            days = max(0, int((now - one.published_at) // DAY_S))
            age = f"{days:,} day{'' if days == 1 else 's'} old"
        row = ", ".join(filter(None, (f"{one.name}: {versions}", age, one.link)))
        rows.append(visible(row[:500], one_line=True))
    left = len(rows) - MOST_SAID
    return rows[:MOST_SAID] + ([f"and {left:,} more"] if left > 0 else [])


def too_young(
    plan: Iterable[PlannedPackage], known: Iterable[tuple[str, str]], updates: Updates, now: float
) -> list[str]:
    """Return the new versions of a plan that have to wait. `known` are those that are locked
    already."""
    locked = set(known)
    return [
        f"{one.name} {one.version}"
        for one in plan
        if one.published_at is not None
        and now - one.published_at < updates.min_age_s
        and (one.name, one.version) not in locked
    ]
