"""Checks right before and after an effect. Changes nothing.

The action is rebuilt from what is about to be done, and a path is compared with what was seen
there.
"""

import os
from typing import Literal

from supervisor.core.actions import FileChange
from supervisor.core.files.changes import Seen, Signature, is_wider, name_fields, signature_of
from supervisor.workspace.disk.beneath import FILE
from supervisor.workspace.disk.host_errors import stale
from supervisor.workspace.disk.scan import TooLargeError, digest_fd


def rebuilt(
    action: FileChange,
    name: str,
    host: Seen | None,
    *,
    after: str | None,
    mode: int | None = None,
    link_target: str | None = None,
) -> FileChange:
    """Rebuild the action from what is about to be done. INVARIANT: nothing in it that takes effect
    comes unchecked from the request (law 2): the state before comes from the host now, the content
    from the bytes that will be written."""
    shown, encoded = name_fields(name)
    hazards = action.hazards
    was_executable = host is not None and host.kind == "file" and host.mode & 0o111
    writes = action.operation in ("write", "edit", "chmod", "swap") and after != "dir"
    if writes and (mode or 0) & 0o111 and not was_executable and "new-executable" not in hazards:
        hazards = (*hazards, "new-executable")
    kind: Literal["file", "dir"] = "dir" if after == "dir" else "file"
    if mode is not None and "wider" not in hazards and is_wider(kind, mode, host):
        hazards = (*hazards, "wider")
    if link_target is not None and "symlink" not in hazards:
        hazards = (*hazards, "symlink")
    return FileChange(
        operation=action.operation,
        path=shown,
        path_b64=encoded,
        before=host.token if host else None,
        after=after,
        mode=mode,
        link_target=link_target,
        hazards=hazards,
        steps=(
            action.steps if action.operation == "swap" else ()
        ),  # each is looked at when it is done
        folders=action.folders,  # and each of these when it is made
        # unchanged: checked in `check`, and when the name is given
        repositories=action.repositories,
    )


def is_identical(status: os.stat_result, signature: Signature) -> bool:
    """Return whether this is the same file and unmodified, unless somebody modified it covertly:
    compares the whole signature but the change time."""
    size, mtime_ns, _, inode, mode = signature
    return identity(status) == (size, mtime_ns, inode, mode)


def holds(folder: int, leaf: str, digest: str | None, size_bytes: int) -> bool:
    """Return whether a file's content has this digest and can be read. Return True where there is
    no digest, as for a link. `size_bytes` comes from its stat."""
    if digest is None:
        return True
    try:
        fd = os.open(leaf, FILE, dir_fd=folder)
        try:
            return digest_fd(fd, size_bytes) == digest
        finally:
            os.close(fd)
    except (OSError, TooLargeError):
        return False


def identity(status: os.stat_result) -> tuple[int, int, int, int]:
    """Return a signature without the change time, which the swap or the link itself sets."""
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_mode


def check_still(fd: int, leaf: str, name: str, host: Seen | None) -> None:
    """Raise StaleError where the path has changed since it was seen."""
    try:
        status = os.stat(leaf, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        if host is not None:
            raise stale(name) from None
        return
    if host is None or not is_same(signature_of(status), host):
        raise stale(name)


def is_same(signature: Signature, host: Seen) -> bool:
    """Return whether this is what was seen. A folder's times change with its entries, so being the
    same folder is enough."""
    return (
        signature[3:] == host.signature[3:] if host.kind == "dir" else signature == host.signature
    )
