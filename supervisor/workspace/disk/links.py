"""Check whether a path leaves the workspace by a link, for `policy check`.

It is advice about the disk as it is now. Channels never rely on it: they open every component
without following links.
"""

import errno
import os
import stat
from pathlib import Path

from supervisor.core.lab.check import OnDisk
from supervisor.core.text.paths import shown

# Hard links are counted by searching for the other names. A larger workspace isn't searched, and
# the file is then refused.
MOST_SEARCHED = 200_000


def look(root: str, path: str) -> OnDisk:
    """Return the state of the canonical `path` in the folder `root`, or an empty state where there
    is no such folder."""
    if not Path(root).is_dir():
        return OnDisk()
    why = why_outside(root, path)
    if why is not None:
        return OnDisk(why)
    base = Path(root).resolve()
    real = (base / path).resolve().relative_to(base).as_posix()
    return OnDisk(path=None if real == path else real, is_link=(base / path).is_symlink())


def why_outside(root: str, path: str) -> str | None:
    """Return why `path`, relative to `root`, leaves it by a symlink or a hard link. Return None
    where it doesn't, or nothing is there."""
    base = Path(root).resolve()
    try:
        inside = (base / path).resolve()
        _follow(inside)
    except (OSError, ValueError, RuntimeError) as error:
        return f"`{shown(path)}` can't be followed: {type(error).__name__}"
    if not inside.is_relative_to(base):
        return f"`{shown(path)}` leaves the workspace by a symbolic link"
    try:
        status = inside.lstat()
    except OSError:
        return None
    if (
        stat.S_ISREG(status.st_mode)
        and status.st_nlink > 1
        and _names_below(base, status) < status.st_nlink
    ):
        return f"`{shown(path)}` is a hard link to a file outside the workspace"
    return None


def _follow(path: Path) -> None:
    """Raise `OSError` where links form a loop; `resolve` returns such a path unchanged."""
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise


def _names_below(base: Path, status: os.stat_result) -> int:
    """Return how many of the file's names are below `base`; fewer where the search ends early."""
    found = searched = 0
    for folder, _, names in base.walk():
        for name in names:
            searched += 1
            if searched > MOST_SEARCHED:
                return found
            try:
                other = (folder / name).lstat()
            except OSError:
                continue
            found += (other.st_dev, other.st_ino) == (status.st_dev, status.st_ino)
    return found
