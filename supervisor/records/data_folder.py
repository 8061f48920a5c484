"""Make, check and lock the data folder, and write its supervisor's address there."""

import fcntl
import os
import time
from pathlib import Path

import msgspec

from supervisor.base import plain_files
from supervisor.core.text.utf8 import is_text
from supervisor.errors import StorageError, UserError

_CONTACT = "supervisor.json"
# What a start itself writes, and some room for a session.
_LEAST_BYTES = 8 << 20
# A verb of the CLI that looks whether somebody has the lock has it for that moment itself.
_TRIES, _PAUSE_S = 5, 0.05


class Contact(msgspec.Struct, frozen=True):
    """`data/supervisor.json`: the address of this data folder's running supervisor."""

    pid: int
    port: int


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may enter; `UserError` where it can't be made."""
    if not is_text(str(folder)):
        raise UserError(
            f"the data folder {folder}: its name is not UTF-8 text", "give another with --data-dir"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    except OSError as error:
        remedy = "give another one with --data-dir"
        if folder.is_dir():
            raise UserError(
                f"the data folder {folder} can't be made private, as only its owner may:"
                f" {error.strerror}",
                remedy,
            ) from error
        raise UserError(
            f"the data folder {folder} can't be made: {error.strerror}", remedy
        ) from error


def check_room(folder: Path) -> None:
    """Refuse to start on a full disk: a later failure would be less clear."""
    facts = os.statvfs(folder)
    free_bytes = (facts.f_bavail if os.geteuid() else facts.f_bfree) * facts.f_frsize
    if free_bytes < _LEAST_BYTES:
        raise StorageError(
            f"the disk of the data folder {folder} is full: {free_bytes >> 10} kB are free",
            f"free {_LEAST_BYTES >> 20} MB at least, then start again",
        )


def lock(folder: Path) -> int:
    """Lock the data folder; return the descriptor that holds the lock. Refuse a second supervisor
    (UserError)."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        else:
            return descriptor
    os.close(descriptor)
    raise UserError(
        f"another Gatehouse uses {folder}", "stop it, or give another folder with --data-dir"
    )


def write_contact(folder: Path, port: int, token: str) -> None:
    """Write this process's port and token for other programs of this user."""
    plain_files.replace(folder / "operator.token", token.encode())
    plain_files.replace(folder / _CONTACT, msgspec.json.encode(Contact(os.getpid(), port)))


def remove_contact(folder: Path) -> None:
    """Remove an ended supervisor's address."""
    (folder / _CONTACT).unlink(missing_ok=True)
