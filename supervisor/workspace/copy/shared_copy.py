"""The private copy on a volume that containers share: there while its session runs, and in the
session's own folder afterwards.

A volume can't be moved, so its content is. Where the session's folder has a link, the copy is on
the volume.
"""

import os
import shutil
from pathlib import Path

from supervisor.errors import UserError
from supervisor.workspace.trees.trees import COPY


def lend(folder: Path, volume: Path) -> None:
    """Have a session's copy on the volume, with what its folder holds of one. `UserError` where
    another session's is there still."""
    for other in folder.parent.iterdir():
        if other != folder and (other / COPY).is_symlink():
            raise UserError(
                f"compose runs one session at a time, and {other.name} hasn't ended",
                f"answer what it asked, or end it: gatehouse stop {other.name}",
            )
    for entry in _entries(volume):
        _remove(entry)
    copy = folder / COPY
    if copy.is_dir() and not copy.is_symlink():
        for entry in _entries(copy):
            shutil.move(entry, volume / entry.name)
        copy.rmdir()
    if not copy.is_symlink():
        copy.symlink_to(volume)


def take_back(folder: Path) -> None:
    """Move the copy into the session's folder; nothing where it is there."""
    copy = folder / COPY
    if not copy.is_symlink():
        return
    volume = copy.readlink()
    fresh = folder / f"{COPY}.new"
    fresh.mkdir(mode=0o700, exist_ok=True)
    for entry in _entries(volume):
        shutil.move(entry, fresh / entry.name)
    copy.unlink()
    fresh.rename(copy)


def _entries(folder: Path) -> list[Path]:
    with os.scandir(folder) as found:
        return [Path(one.path) for one in found]


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()
