"""Write a change's new file, link or folder beside its place, under a temporary name.

Nothing here takes effect: `Placer.place` does that. It must never stage bytes other than those that
the grant was given for.
"""

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.files.changes import OWNER, PERMISSIONS, Known, Seen, link_token, name_of
from supervisor.core.files.new_folders import modes_on_way
from supervisor.core.files.undo_steps import HeldContent, held_link
from supervisor.errors import GatehouseError
from supervisor.workspace.apply.access import keep_access
from supervisor.workspace.apply.placing import Applied, Placer
from supervisor.workspace.apply.rechecks import rebuilt
from supervisor.workspace.disk.beneath import DIRECTORY
from supervisor.workspace.disk.blobs import write_all
from supervisor.workspace.disk.scan import BLOCK_BYTES, digest_fd

NEW_FILE_MODE = 0o644
# Largest content read in one piece.
SMALL_BYTES = 256 * 1024
# `use` of a grant, called right before the effect with what is about to be done.
type Use = Callable[[FileChange], None]


class EffectContents(Protocol):
    """Source of an effect's content: snapshots, or the host's file for the copy. Read bytes are
    hashed again."""

    def open(self, digest: str) -> int: ...


class Staged(NamedTuple):
    """A finished file or link under a temporary name beside its place. `begun` is what `place`
    completes."""

    name: str
    host: Seen | None
    temporary: str
    begun: Applied


class Stager:
    """Makes the files, links and folders that changes put in place. `at` is `Applier`'s."""

    def __init__(self, contents: EffectContents, placer: Placer, at: Callable[[str], None]) -> None:
        self._contents = contents
        self._placer = placer
        self._at = at

    def begin(
        self,
        request_id: str,
        action: FileChange,
        host: Seen | None,
        after: HeldContent | None,
        temporary: str = "",
    ) -> Applied:
        """Record the intent of an action; see `Placer.begin`."""
        name, around = name_of(action), action.repositories
        return self._placer.begin(
            request_id, name, action.operation, host, after, temporary, around
        )

    def stage(
        self,
        action: FileChange,
        name: str,
        host: Seen | None,
        request_id: str,
        use: Use,
        mtime_ns: int | None,
    ) -> Staged:
        """Finish what the action puts at `name`. `host` is the state there now. Raise
        GatehouseError or OSError."""
        if action.link_target is not None:
            return self._stage_link(action, name, host, request_id, use)
        if action.after == "dir":
            return self._stage_folder(action, name, host, request_id, use)
        return self.stage_file(action, name, host, request_id, use, mtime_ns)

    def stage_file(
        self,
        action: FileChange,
        name: str,
        host: Seen | None,
        request_id: str,
        use: Use,
        mtime_ns: int | None,
    ) -> Staged:
        """Finish a file with the snapshot's content and the action's mode. Raise as `stage`."""
        mode = (action.mode if action.mode is not None else NEW_FILE_MODE) & PERMISSIONS
        with self._content(action) as (blocks, digest):
            use(rebuilt(action, name, host, after=digest, mode=action.mode))
            temporary = self._placer.temporary()
            begun = self.begin(
                request_id, action, host, HeldContent("file", mode, digest), temporary
            )
            with self._placer.staging(name, temporary, modes_on_way(action)) as (fd, leaf):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                writing = os.open(temporary, flags, 0o600, dir_fd=fd)
                try:
                    self._at("created")
                    _copy_verified(blocks, writing, digest)
                    kept = keep_access(writing, mode, host, (fd, leaf))
                    if kept != mode:  # undo must know it again
                        held = HeldContent("file", kept, digest)
                        begun = self.begin(request_id, action, host, held, temporary)
                    os.fchmod(writing, kept)
                    _set_time(writing, mtime_ns, None if action.operation == "chmod" else host)
                    self._placer.sync(writing)
                finally:
                    os.close(writing)
                self._at("written")
        seen_mode = mode | (stat.S_ISUID if "setuid" in action.hazards else 0)
        return Staged(name, host, temporary, begun._replace(known=Known("file", seen_mode, digest)))

    def _stage_link(
        self, action: FileChange, name: str, host: Seen | None, request_id: str, use: Use
    ) -> Staged:
        target = action.link_target or ""
        use(rebuilt(action, name, host, after=link_token(target), link_target=target))
        temporary = self._placer.temporary()
        begun = self.begin(request_id, action, host, held_link(target), temporary)
        with self._placer.staging(name, temporary, modes_on_way(action)) as (fd, _):
            os.symlink(target, temporary, dir_fd=fd)
            self._at("written")
        return Staged(
            name, host, temporary, begun._replace(known=Known("symlink", 0o777, None, target))
        )

    def _stage_folder(
        self, action: FileChange, name: str, host: Seen | None, request_id: str, use: Use
    ) -> Staged:
        """Stage an empty folder, which will replace something else."""
        use(rebuilt(action, name, host, after="dir", mode=action.mode))
        mode = folder_mode_of(action)
        temporary = self._placer.temporary()
        begun = self.begin(request_id, action, host, HeldContent("dir", mode), temporary)
        with self._placer.staging(name, temporary) as (fd, _):
            os.mkdir(temporary, 0o700, dir_fd=fd)
            made = os.open(temporary, DIRECTORY, dir_fd=fd)
            try:
                os.fchmod(made, mode | OWNER)
            finally:
                os.close(made)
            self._at("written")
        return Staged(name, host, temporary, begun._replace(known=Known("dir", mode)))

    @contextlib.contextmanager
    def _content(self, action: FileChange) -> Iterator[tuple[Iterable[bytes], str]]:
        """Yield the snapshot that the action is bound to, and the hash of its real content."""
        try:
            fd = self._contents.open(action.after or "")
        except FileNotFoundError:
            raise GatehouseError(
                "the content of this request is no longer kept", "make the change again"
            ) from None
        try:
            first = os.read(fd, SMALL_BYTES)
            if len(first) < SMALL_BYTES and not os.read(fd, 1):  # all of it: read once
                yield [first], content_hash(first)
            else:
                os.lseek(fd, 0, os.SEEK_SET)
                yield _blocks(fd), digest_fd(fd)
        finally:
            os.close(fd)


def folder_mode_of(action: FileChange) -> int:
    """Return a new folder's permissions, 0o755 where the action names none."""
    return (action.mode if action.mode is not None else 0o755) & PERMISSIONS


def _blocks(fd: int) -> Iterator[bytes]:
    os.lseek(fd, 0, os.SEEK_SET)
    while block := os.read(fd, BLOCK_BYTES):
        yield block


def _copy_verified(blocks: Iterable[bytes], writing: int, digest: str) -> None:
    """Copy all bytes, whose hash must be `digest`."""
    state = hashlib.blake2b(digest_size=32)
    for block in blocks:
        state.update(block)
        write_all(writing, block)
    if state.hexdigest() != digest:
        raise GatehouseError("the snapshot of this request is damaged", "make the change again")


def _set_time(fd: int, mtime_ns: int | None, host: Seen | None) -> None:
    """Set the new file's time. Use the current time where the given one is in the future, or not
    after the replaced file's: programs that compare times (make, rsync) must notice the change."""
    now_ns = os.fstat(fd).st_mtime_ns
    if (
        mtime_ns is not None
        and mtime_ns < now_ns
        and (host is None or mtime_ns > host.signature[1])
    ):
        os.utime(fd, ns=(now_ns, mtime_ns))
