"""Comparisons of a path with what was seen there, right before and after an effect.

They are separate from `placing` because moves and the clean-up after a crash compare, too. They
change nothing.
"""

import os

from supervisor.core.files.changes import Seen, Signature, signature_of
from supervisor.workspace.disk.beneath import FILE
from supervisor.workspace.disk.host_errors import stale
from supervisor.workspace.disk.scan import TooLargeError, digest_fd


def is_identical(status: os.stat_result, signature: Signature) -> bool:
    """Return whether this is the same file, unmodified unless on purpose in secret: all of a
    signature but the change time."""
    size, mtime_ns, _, inode, mode = signature
    return identity(status) == (size, mtime_ns, inode, mode)


def holds(folder: int, leaf: str, digest: str | None, size_bytes: int) -> bool:
    """Return whether a file's content is this one, and can be read; True where none is told, as of
    a link. `size_bytes`: by its stat."""
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
    """Return a signature without the change time: that is of the swap or the link itself."""
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
    """Return whether this is what was seen. A folder's times change with what is in it: being the
    same folder is enough."""
    return (
        signature[3:] == host.signature[3:] if host.kind == "dir" else signature == host.signature
    )
