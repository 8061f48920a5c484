"""Baseline of an overlay session: facts that survive a crash, and change times.

Making an overlay writes the facts and `trees` reads them. Where their file exists, the session's
copy is an overlay, and `merged` is only its mount point. Change times on the host tell what is
unchanged. It must never call a path unchanged when that isn't certain: an unknown path counts as
changed by the person, and is asked about.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec

from supervisor.base import plain_files
from supervisor.core.files.changes import SET_ID, SPECIAL, Known, kind_of, signature_of
from supervisor.workspace.disk.beneath import PathError, Root

FACTS = "overlay.msgpack"


class OverlayFacts(msgspec.Struct, frozen=True):
    """Facts of one overlay. `start_ns` is a change time right before the start, or 0 once the
    complete baseline is written. `apart` are paths that neither direction compares (hidden, or
    ignored by git and the agent's own), in the file system's bytes."""

    start_ns: int
    apart: tuple[bytes, ...]
    include_ignored: bool = False

    @property
    def apart_names(self) -> frozenset[str]:
        """Return these paths as the file system's names."""
        return frozenset(os.fsdecode(name) for name in self.apart)


def read_facts(folder: Path) -> OverlayFacts | None:
    """Return the facts of a session's folder, or None where its copy is no overlay."""
    try:
        return msgspec.msgpack.decode((folder / FACTS).read_bytes(), type=OverlayFacts)
    except FileNotFoundError:
        return None


def write_facts(folder: Path, facts: OverlayFacts) -> None:
    """Write the facts durably and completely, or not at all."""
    plain_files.replace(folder / FACTS, msgspec.msgpack.encode(facts))


class Since:
    """Baseline of one session, inferred from change times. `start_ns` is the change time of a file
    made right before the overlay.

    The host's folder wasn't read when the overlay was mounted. A file whose change time is before
    the start is unchanged: the kernel sets that time at a write, a change of mode and a rename
    alike. A renamed folder brings files along whose times say nothing, but the rename set its own
    time. So a path counts only if every parent folder is older than the start, too (or is newer
    only because a file was created or removed in it: then its entries are compared instead).
    """

    def __init__(self, host: Root, start_ns: int, is_apart: Callable[[str], bool]) -> None:
        self._host = host
        self._start_ns = start_ns
        self._is_apart = is_apart
        self._old_folders = {""}

    def met(self, name: str, status: os.stat_result) -> Known | None:
        """Return both sides' first state of a path whose folder was met before, or None where it
        isn't certain."""
        if name.rpartition("/")[0] not in self._old_folders or status.st_ctime_ns >= self._start_ns:
            return None
        if self._is_apart(name):
            return None
        kind = kind_of(status.st_mode)
        if kind in SPECIAL:
            return None
        if kind == "dir":
            self._old_folders.add(name)
            return Known(
                "dir", stat.S_IMODE(status.st_mode) & 0o777, host_signature=signature_of(status)
            )
        return Known(
            kind, stat.S_IMODE(status.st_mode) & (0o777 | SET_ID), None, None, signature_of(status)
        )

    def at(self, name: str) -> Known | None:
        """Return both sides' first state of any path, or None where it isn't certain."""
        try:
            if not self._is_old(name.rpartition("/")[0]):
                return None
            with self._host.parent(name) as (fd, leaf):
                return self.met(name, os.stat(leaf, dir_fd=fd, follow_symlinks=False))
        except (OSError, PathError):
            return None

    def _is_old(self, folder: str) -> bool:
        if folder not in self._old_folders and self._is_old(folder.rpartition("/")[0]):
            with self._host.parent(folder) as (fd, leaf):
                self.met(folder, os.stat(leaf, dir_fd=fd, follow_symlinks=False))
        return folder in self._old_folders
