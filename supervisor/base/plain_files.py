"""Read files that a person named, and only regular files; write small files of ours atomically.

Policies, prices, credentials, authorities. Never a FIFO, a socket or a device: opening a FIFO waits
until somebody writes to it, and a device may have no end, which held up the start, and every
verdict after it. A link to a file is allowed, but where `opened` is told to follow none.

What is written is in the data folder, which only we write: after a crash the old content or the new
(law 7). `workspace.apply` writes an agent's changes to the workspace.
"""

import errno
import os
import secrets
import stat
from pathlib import Path

from supervisor.errors import UserError

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def opened(path: Path, flags: int = 0) -> int:
    """A descriptor to read from; `OSError`, whose `strerror` says why, also where it isn't a
    file."""
    # Looked at first: to open some devices is to act on them. And again, since another may lie
    # there by then.
    facts = path.stat(follow_symlinks=not flags & os.O_NOFOLLOW)
    if not stat.S_ISLNK(facts.st_mode):
        _check(facts, path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | flags)
    try:
        _check(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_bytes(path: Path) -> bytes:
    """Return the whole of a file."""
    with os.fdopen(opened(path), "rb") as file:
        return file.read()


def read_small(path: Path, most_bytes: int) -> bytes:
    """Return the whole of a file that isn't trusted: no link, no more than `most_bytes`."""
    with os.fdopen(opened(path, os.O_NOFOLLOW), "rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", str(path))
    return data


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Read as text, like `Path.read_text`; `UnicodeDecodeError` where it is none."""
    with os.fdopen(opened(path), encoding=encoding) as file:
        return file.read()


def told_text(path: Path, says: str, setting: str) -> str | None:
    """Return the text of one of the person's own files, which `says` what nobody else may say; None
    where there is none. `UserError` where it can't be read, or others could have written it."""
    try:
        with os.fdopen(opened(path), encoding="utf-8") as file:
            facts = os.fstat(file.fileno())
            text = file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: {why_not_text(error)}", f"give the file with {setting}"
        ) from error
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UserError(f"{path}: others can write it, and say {says}", f"chmod go-w {path}")
    if facts.st_uid not in (os.geteuid(), 0):
        raise UserError(
            f"{path}: it belongs to somebody else, who could say {says}", f"chown $(id -un) {path}"
        )
    return text


def why_not_text(error: OSError | UnicodeDecodeError) -> str:
    """In words why `read_text` gave none; the path isn't among them."""
    return getattr(error, "strerror", None) or "is not UTF-8 text"


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


def _check(facts: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(
            errno.EINVAL,
            f"it is {_KINDS.get(stat.S_IFMT(facts.st_mode), 'no file')}, and only a file is read",
            str(path),
        )
