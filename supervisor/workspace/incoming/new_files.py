"""Fast path for many new host files: a checkout, a generator, an archive.

`incoming` needs a dozen walks from the root per path. This module opens each folder once for all
its files, but handles only the simplest case: an unknown path and a plain file small enough for
memory. Everything else is left to `incoming`, which also reports what is wrong.

It must never follow a link, replace what the agent has made, or let the agent see half a file.
"""

import contextlib
import os
import secrets
import stat
from types import TracebackType
from typing import NamedTuple, Self

from supervisor.base.clock import wait_out_tick
from supervisor.core.actions import content_hash
from supervisor.core.files.changes import PERMISSIONS, SET_ID, Known, Seen, signature_of
from supervisor.errors import GatehouseError
from supervisor.workspace.apply.placing import TEMPORARY_PREFIX
from supervisor.workspace.disk.beneath import FILE, Root, is_regular, split

LARGEST_BYTES = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Brought(NamedTuple):
    """The host's state, and the state that both sides agree on now."""

    host: Seen
    known: Known


class NewFiles:
    """Brings new files in one run over sorted names. It keeps the last file's folder open.
    Blocking: call it in a thread."""

    def __init__(self, host: Root, copy: Root) -> None:
        self._host = host
        self._copy = copy
        self._folder: str | None = None
        self._opened = contextlib.ExitStack()
        self._ends = (-1, -1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._opened.close()

    def bring(self, name: str) -> Brought | None:
        """Bring a file that neither side knew of. Return None, and do nothing, where the case isn't
        that simple."""
        folder, _, leaf = name.rpartition("/")
        try:
            split(leaf)
            if folder != self._folder:
                self._enter(folder)
            return self._bring(leaf)
        except (OSError, GatehouseError):
            return None

    def _enter(self, folder: str) -> None:
        self._opened.close()
        self._folder = None
        self._ends = (
            self._opened.enter_context(self._host.directory(folder)),
            self._opened.enter_context(self._copy.directory(folder)),
        )
        self._folder = folder

    def _bring(self, leaf: str) -> Brought | None:
        source, target = self._ends
        reading = os.open(leaf, FILE, dir_fd=source)
        try:
            status = os.fstat(reading)
            if not is_regular(status) or status.st_size > LARGEST_BYTES or status.st_mode & SET_ID:
                return None
            wait_out_tick(status.st_ctime_ns)
            data = os.read(reading, status.st_size + 1)
            if len(data) != status.st_size or signature_of(os.fstat(reading)) != signature_of(
                status
            ):
                return None
        finally:
            os.close(reading)
        made = _place(target, leaf, data, status)
        digest = content_hash(data)
        host = Seen(
            kind="file",
            mode=stat.S_IMODE(status.st_mode),
            signature=signature_of(status),
            digest=digest,
            links=status.st_nlink,
            uid=status.st_uid,
            gid=status.st_gid,
        )
        return Brought(
            host,
            Known(
                "file", host.mode & PERMISSIONS, digest, None, host.signature, signature_of(made)
            ),
        )


def _place(folder: int, leaf: str, data: bytes, like: os.stat_result) -> os.stat_result:
    """Write a file completely, then name it. Return its status. Raise FileExistsError where
    something has that name."""
    temporary = f"{TEMPORARY_PREFIX}{secrets.token_hex(12)}"
    writing = os.open(temporary, _NEW, 0o600, dir_fd=folder)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(writing, view) :]
            os.utime(writing, ns=(like.st_atime_ns, like.st_mtime_ns))
            os.fchmod(writing, like.st_mode & PERMISSIONS)
            os.link(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            os.unlink(temporary, dir_fd=folder)
        # The status of our own file, even if another has its name by now: unlinking changed its
        # change time.
        return os.fstat(writing)
    finally:
        os.close(writing)
