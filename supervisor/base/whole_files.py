"""Write small files atomically: after a crash the old content or the new (law 7).

It is for files of the data folder, which only we write. `workspace.apply` writes an agent's changes
to the workspace.
"""

import os
import secrets
from pathlib import Path


def write_temporary(path: Path, data: bytes, mode: int = 0o600) -> Path:
    """Write a new file beside `path`, flushed to the disk, with exactly this mode; the caller moves
    or removes it."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode
    )
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    return temporary


def replace(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Put `data` in the place of `path`. When this returns, it survives a power cut."""
    write_temporary(path, data, mode).replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
