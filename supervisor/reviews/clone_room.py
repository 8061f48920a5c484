"""Disk space of clones: how much is in use, and which trees are removed to make room.

A tree is first renamed to a place where nothing is ever opened, then removed in a thread. So a kill
at any moment leaves either a whole tree or leftovers that the next start removes.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

# The limit for all clones together; beyond it, the least recently used clone is removed first.
MOST_BYTES = 20 * 1024**3
# Each fetch leaves one pack. A clone with more is deleted, which is less work than repacking it.
MOST_PACKS = 100
_GONE = "gone"
_USED = "used"
_SIZE = "size-bytes"


class _Clone(NamedTuple):
    used_at: float
    folder: Path
    size_bytes: int


class CloneRoom:
    """The disk space of one supervisor's clones, below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._users: Counter[Path] = Counter()

    @contextlib.asynccontextmanager
    async def used(self, clone: Path) -> AsyncIterator[None]:
        """Keep a clone from being removed until the block ends, then make room."""
        self._users[clone] += 1
        try:
            yield
        finally:
            self._users[clone] -= 1
            with contextlib.suppress(OSError):
                (clone / _USED).touch()
            await self._make_room()

    async def is_kept(self, clone: Path, *, may_go: bool) -> bool:
        """Return whether there is a usable clone; if not, leave an empty folder. `may_go`: none of
        its checkouts is in use. No fetch into it may run meanwhile."""
        await self._sweep()
        packs = await asyncio.to_thread(_whole_packs, clone)
        if (clone / "HEAD").is_file() and not (may_go and packs > MOST_PACKS):
            return True
        self._put_aside(clone)
        await asyncio.to_thread(clone.mkdir, parents=True, mode=0o700)
        await self._sweep()
        return False

    async def packs_bytes(self, clone: Path) -> int:
        """Return the size of a clone's packs, including those still being fetched."""
        return sum((await asyncio.to_thread(_packs, clone)).values())

    async def trees(self, clone: Path) -> list[Path]:
        """Return the checkouts of a clone; anything else is removed."""
        (clone / "trees").mkdir(exist_ok=True)
        found = await asyncio.to_thread(lambda: sorted((clone / "trees").iterdir()))
        for one in found:
            if not (admin_of(one).is_dir() and (one / ".git").is_file()):
                await self.remove_tree(one)
        return [one for one in found if one.is_dir()]

    async def remove_tree(self, folder: Path) -> None:
        """Remove a checkout, off the loop."""
        self._put_aside(folder)
        self._put_aside(admin_of(folder))
        await self._sweep()

    async def _make_room(self) -> None:
        clones = await asyncio.to_thread(self._clones)
        size_bytes = sum(one.size_bytes for one in clones)
        for one in sorted(clones):
            if size_bytes > MOST_BYTES and not self._users[one.folder]:
                self._put_aside(one.folder)
                size_bytes -= one.size_bytes
        await self._sweep()

    def _clones(self) -> list[_Clone]:
        folders = self._root.iterdir() if self._root.is_dir() else ()
        return [
            _Clone(_used_at(folder), folder, _size_bytes(folder))
            for folder in folders
            if folder.name != _GONE
        ]

    def _put_aside(self, path: Path) -> None:
        """Rename a tree for removal. INVARIANT: no name in there is ever opened."""
        if os.path.lexists(path):
            gone = self._root / _GONE
            gone.mkdir(parents=True, mode=0o700, exist_ok=True)
            path.rename(gone / secrets.token_hex(16))

    async def _sweep(self) -> None:
        """Remove trees that were put aside, now or before a kill."""
        await asyncio.to_thread(_remove_all, self._root / _GONE)


def admin_of(tree: Path) -> Path:
    """Return git's folder of a checkout."""
    return tree.parent.parent / "worktrees" / tree.name


def make_tree(tree: Path) -> None:
    """Make an empty checkout, as git-worktree(1) lays one out."""
    admin = admin_of(tree)
    admin.mkdir(parents=True)
    tree.mkdir()
    (admin / "commondir").write_text("../..\n")
    (admin / "gitdir").write_text(f"{tree}/.git\n")
    (admin / "HEAD").write_text("ref: refs/heads/none\n")
    (tree / ".git").write_text(f"gitdir: {admin}\n")


def note_size(tree: Path, size_bytes: int) -> None:
    """Record how much space a checkout takes."""
    (admin_of(tree) / _SIZE).write_text(f"{size_bytes}")


def _used_at(clone: Path) -> float:
    try:
        return (clone / _USED).stat().st_mtime
    except OSError:
        return 0.0


def _size_bytes(clone: Path) -> int:
    noted = 0
    for one in clone.glob(f"worktrees/*/{_SIZE}"):
        with contextlib.suppress(OSError, ValueError):
            noted += int(one.read_text())
    return noted + sum(_packs(clone).values())


def _packs(clone: Path) -> dict[Path, int]:
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for one in os.scandir(clone / "objects" / "pack"):
            with contextlib.suppress(FileNotFoundError):
                if not one.name.endswith((".idx", ".rev")):
                    found[Path(one.path)] = one.stat(follow_symlinks=False).st_size
    return found


def _whole_packs(clone: Path) -> int:
    """Remove the leftovers of a killed fetch; return the number of packs."""
    count = 0
    for one in _packs(clone):
        if one.name.startswith("tmp_"):
            one.unlink(missing_ok=True)
        count += one.suffix == ".pack"
    return count


def _remove_all(gone: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        for one in gone.iterdir():
            shutil.rmtree(one, ignore_errors=True)
