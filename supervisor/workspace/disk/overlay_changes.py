"""Upper folder of an overlay copy: which paths the agent changed.

The mounted view has their content. The agent did not touch a path that isn't in the upper folder,
whatever the view shows: the host's folder shines through. The kernel promises nothing about such a
path once the host changes: a file replaced by rename stays the old one, and one created after a
failed look-up stays missing. So call `holds` before any conclusion.

The upper folder's own marks (whiteouts, opaque folders) say where to look; the view shows what is
there, as the agent sees it. A whiteout alone means a deletion only for an unknown path: overlayfs
lets nobody make one in the view. It must never read content from the upper folder, or take a path
for deleted because of a mark.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from supervisor.workspace.disk.beneath import DIRECTORY, PathError, Root

UPPER = "upper"
OPAQUE = "user.overlay.opaque"
_GONE = (FileNotFoundError, NotADirectoryError, PathError)


class Whiteout(NamedTuple):
    """Path of a whiteout, and a time before which it was made."""

    name: str
    before_ns: int


class Upper:
    """Upper folder of one mounted session: `view` is the mounted folder, `root` the upper one."""

    def __init__(self, folder: Path, merged_fd: int, apart: frozenset[str]) -> None:
        self.root = Root(folder / UPPER)
        self.view = Root.of(os.dup(merged_fd), folder / "merged")
        self._apart = apart

    def close(self) -> None:
        """Close both descriptors."""
        self.root.close()
        self.view.close()

    def is_apart(self, name: str) -> bool:
        """Return whether neither direction compares a path, as decided at the start for it or a
        parent folder."""
        while name:
            if name in self._apart:
                return True
            name = name.rpartition("/")[0]
        return False

    def holds(self, name: str) -> bool:
        """Return whether the view's state of a path comes from the agent (or from us), and doesn't
        shine through."""
        *above, leaf = name.split("/")
        if self._is_covered(above):
            return True
        try:
            with _folder(self.root, above) as fd:
                os.stat(leaf, dir_fd=fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # what can't be read was made so by the agent
        return True

    def whiteout(self, name: str) -> Whiteout | None:
        """Return the whiteout that hides a host path, on itself or on a parent folder."""
        with contextlib.ExitStack() as opened:
            fd, parts = self.root.fd, name.split("/")
            for number, part in enumerate(parts, 1):
                try:
                    status = os.stat(part, dir_fd=fd, follow_symlinks=False)
                    if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
                        return Whiteout("/".join(parts[:number]), os.fstat(fd).st_mtime_ns)
                    fd = os.open(part, DIRECTORY, dir_fd=fd)
                except OSError:
                    return None
                opened.callback(os.close, fd)
        return None

    def covers(self, folder: str) -> bool:
        """Return whether nothing of the host's shines through in this folder, since it was deleted,
        replaced, or made anew."""
        return self._is_covered(folder.split("/") if folder else [])

    def _is_covered(self, parts: Sequence[str]) -> bool:
        with contextlib.ExitStack() as opened:
            fd = self.root.fd
            for part in parts:
                try:
                    fd = os.open(part, DIRECTORY, dir_fd=fd)
                except FileNotFoundError:
                    return False  # all of it shines through
                except OSError:
                    return True  # a whiteout, a file, a link
                opened.callback(os.close, fd)
                if _is_opaque(fd):
                    return True
        return False

    def entries(self, folder: str) -> Iterator[tuple[str, os.stat_result | None]]:
        """Yield a folder's names in the upper folder, with the view's status: None where the view
        shows nothing."""
        try:
            with self.root.directory(folder) as upper, os.scandir(upper) as listing:
                names = [entry.name for entry in listing]
        except (OSError, PathError) as error:
            if not _is_gone(error):
                raise
            return
        with contextlib.ExitStack() as opened:
            try:
                view = opened.enter_context(self.view.directory(folder))
            except (OSError, PathError) as error:
                if not _is_gone(error):
                    raise
                view = -1
            for name in names:
                yield name, _status(view, name)

    def pin(self, name: str) -> os.stat_result:
        """Make the kernel copy a file or link into the upper folder as the view shows it. Only then
        can it be swapped for another without being missing for a moment: the host may have deleted
        a file that shines through."""
        with self.view.parent(name) as (fd, leaf):
            status = os.stat(leaf, dir_fd=fd, follow_symlinks=False)
            # Any attribute change copies it up, even to the present values.
            os.utime(
                leaf, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=fd, follow_symlinks=False
            )
            return os.stat(leaf, dir_fd=fd, follow_symlinks=False)

    def folders_among(self, names: Collection[str]) -> set[str]:
        """Return the folders that the upper folder has, too, with all their parents."""
        found: set[str] = set()
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            with (
                contextlib.suppress(OSError, PathError),
                self.root.directory(folder) as fd,
                os.scandir(fd) as listing,
            ):
                leaves = [entry.name for entry in listing if entry.is_dir(follow_symlinks=False)]
                here = {f"{folder}/{leaf}" if folder else leaf for leaf in leaves}
                waiting += here.intersection(names)
                found |= here.intersection(names)
        return found

    def dead(self, folders: Iterable[str], host: Root) -> set[str]:
        """Return the folders that the view still takes from a host folder which was deleted or
        replaced since.

        The view then lists the old entries, or none, whatever was put into the new folder; that is
        how it is detected.
        """
        return {folder for folder in folders if folder and self._is_dead(folder.split("/"), host)}

    def _is_dead(self, parts: Sequence[str], host: Root) -> bool:
        shown = _names(self.view, parts)
        if shown is None:
            return False
        ours, there = _names(self.root, parts) or set(), _names(host, parts)
        if there is None:
            # A folder that is also in the upper one lists correctly, but still shows old entries by
            # name. And it can't be deleted, since the kernel asks the vanished folder whether it is
            # empty.
            return not self._is_covered(parts)
        try:
            with _folder(self.view, parts) as fd:
                visible = {name for name in ours if _status(fd, name) is not None}
        except OSError:
            return False
        return shown != (visible if self._is_covered(parts) else visible | (there - ours))

    def hide(self, names: Iterable[str]) -> list[str]:
        """Hide paths that shine through: those that the host ignores and got only now. Return the
        hidden ones."""
        hidden: list[str] = []
        for name in names:
            *above, leaf = name.split("/")
            with contextlib.suppress(OSError):
                if self.holds(name):
                    continue
                with _folder(self.view, above) as fd:
                    if stat.S_ISDIR(os.stat(leaf, dir_fd=fd, follow_symlinks=False).st_mode):
                        shutil.rmtree(leaf, dir_fd=fd)
                    else:
                        _unlink(fd, leaf)
                hidden.append(name)
        return hidden


@contextlib.contextmanager
def _folder(root: Root, parts: Sequence[str]) -> Iterator[int]:
    """Give a folder's descriptor as `Root.directory` does, for listed names: git's own folder may
    be among them, to be hidden."""
    fd = os.dup(root.fd)
    try:
        for part in parts:
            inner = os.open(part, DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _names(root: Root, parts: Sequence[str]) -> set[str] | None:
    """Return a folder's names, or None where there is none that can be read."""
    try:
        with _folder(root, parts) as fd:
            return set(os.listdir(fd))  # noqa: PTH208  # of a descriptor
    except OSError:
        return None


def _unlink(fd: int, leaf: str) -> None:
    try:
        os.unlink(leaf, dir_fd=fd)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        # The host renamed a file that the agent has changed. The kernel takes both names for that
        # one file until the new name is in the upper folder, too.
        os.utime(leaf, dir_fd=fd, follow_symlinks=False)
        os.unlink(leaf, dir_fd=fd)


def _is_opaque(fd: int) -> bool:
    try:
        return os.getxattr(fd, OPAQUE) == b"y"
    except OSError:
        return False


def _status(view: int, name: str) -> os.stat_result | None:
    if view < 0:
        return None
    try:
        return os.stat(name, dir_fd=view, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_gone(error: OSError | PathError) -> bool:
    return isinstance(error, _GONE) or (isinstance(error, OSError) and error.errno == errno.ELOOP)
