"""Bounded reads of one whole file, for a person or an agent.

Changes nothing and follows no link.
"""

import os

from supervisor.core.files.changes import Seen
from supervisor.errors import UserError
from supervisor.workspace.disk.beneath import FILE, PathError, Root, is_regular
from supervisor.workspace.disk.scan import look

LARGEST_EDIT_BYTES = 16 << 20


def look_quietly(root: Root, name: str) -> Seen | None:
    """Return a path's state; None where nothing is, or on any error."""
    try:
        return look(root, name)
    except Exception:
        return None


def read_file(
    root: Root, name: str, limit_bytes: int = LARGEST_EDIT_BYTES, *, cut: bool = False
) -> bytes:
    """A file's content; `UserError` where it is longer than the limit, unless it may be `cut`.
    OSError where it can't be read."""
    with root.parent(name) as (folder, leaf):
        fd = os.open(leaf, FILE, dir_fd=folder)
    with os.fdopen(fd, "rb") as file:
        if not is_regular(os.fstat(fd)):
            raise PathError(f"`{name}` is not a regular file", "choose another")
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes and not cut:
        raise UserError(
            f"`{name}` is too large to edit", f"at most {limit_bytes >> 20} MB; write it as a whole"
        )
    return data[:limit_bytes]


def decode(data: bytes) -> str:
    """Text that any bytes survive in; `encode` gives them back."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """Return the bytes that `decode` was given."""
    return text.encode("utf-8", "surrogateescape")
