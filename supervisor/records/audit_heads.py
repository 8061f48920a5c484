"""Sign how far the audit log goes, and keep that outside it.

A hash chain alone can be made anew after a change, and shows nothing of a missing end. So the log's
newest head (a record's number and the hash of its line) is signed with Ed25519 and kept in the
database, `KEEP_EVERY_S` apart and at the end. Before that comes the mark: with each append,
`audit.end` gets the log's length and hash, with a MAC, in the same step.

INVARIANT: the order of writes is log, then mark; log on the disk, then head in the database. So
these states are legal, and `problem` finds every other one:

    the log is as long as the mark says          in order
    the log is longer than the mark              killed between the two writes
    the mark is further than the head            less than `KEEP_EVERY_S` passed, or killed before
                                                 the head was kept
    no head, and no record is signed             a log of before there were signatures, or a first
                                                 start that was cut off
    the mark is further than the log, but was    the machine went down: what wasn't flushed is lost,
                                                 and the head counts
      written before this boot
"""

import base64
import hashlib
import hmac
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from sqlalchemy import Engine

from supervisor.base import plain_files
from supervisor.core.text.numbers import whole_number
from supervisor.errors import StorageError
from supervisor.records.audit_chain import Point
from supervisor.store import audit_head
from supervisor.store.audit_head import AuditHead

KEEP_EVERY_S = 1.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOST_KEY_BYTES = 4096


class SigningKey:
    """The key that signs heads. Whoever can read it can forge a log."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        raw = private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        self._for_marks = hashlib.sha256(b"gatehouse audit mark\0" + raw).digest()
        public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.id = hashlib.sha256(public).hexdigest()[:16]

    @classmethod
    def read(cls, path: Path) -> "SigningKey | None":
        """Read the key from a file; None where there is none. `StorageError` where it can't be
        used.
        """
        remedy = (
            "put it back from a copy, with mode 600; or move it away together with audit.log to"
            " begin anew"
        )
        try:
            descriptor = plain_files.opened(path, os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}", remedy) from error
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
                raise StorageError(
                    f"{path}: others can read or change it", f"chmod 600 {path}, owned by you"
                )
            data = file.read(_MOST_KEY_BYTES)
        try:
            private = load_pem_private_key(data, None)
        except ValueError as error:
            raise StorageError(f"{path}: it is no private key", remedy) from error
        if not isinstance(private, Ed25519PrivateKey):
            raise StorageError(f"{path}: it is no Ed25519 key", remedy)
        return cls(private)

    @classmethod
    def make(cls, path: Path) -> "SigningKey":
        """Make a new key, kept in a file of mode 600; `OSError` where that can't be written."""
        private = Ed25519PrivateKey.generate()
        plain_files.replace(
            path, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        return cls(private)

    def sign(self, point: Point) -> str:
        """Return the signature of a head, in base64."""
        return base64.b64encode(self._private.sign(_message(point))).decode()

    def has_signed(self, point: Point, signature: str) -> bool:
        """Return whether this key made the signature for this head."""
        try:
            self._private.public_key().verify(
                base64.b64decode(signature, validate=True), _message(point)
            )
        except (InvalidSignature, ValueError):
            return False
        return True

    def mac(self, text: str) -> str:
        """Return the MAC of a mark, which is made with each append: a signature would take thirty
        times as long.
        """
        return hmac.digest(self._for_marks, text.encode(), "sha256").hex()


class Mark(NamedTuple):
    """The content of `audit.end`: how far the log went, in which boot of the machine."""

    point: Point
    boot: str
    mac: str


class Heads:
    """The files kept beside one log. `key` is there once it was begun."""

    def __init__(self, log: Path, engine: Engine) -> None:
        self._log = log
        self._mark_path = mark_path(log)
        self._engine = engine
        self._descriptor: int | None = None
        self._boot = boot_id()
        self._key: SigningKey | None = None

    @property
    def key(self) -> SigningKey:
        assert self._key is not None
        return self._key

    def begin(
        self, last: Point, hash_at: Callable[[int], str | None], is_signed: Callable[[], bool]
    ) -> str | None:
        """Read the key, or make it. Return how the log, which ends with `last`, was changed; None
        where it wasn't.

        `StorageError` where the log is signed and the key is gone: a forged log would look the
        same.
        """
        head, mark = self.kept(), read_mark(self._mark_path)
        key = SigningKey.read(key_path(self._log))
        if key is None and (head is not None or mark is not None):
            if last.seq:
                raise StorageError(
                    f"{key_path(self._log)}: it is gone, and {self._log} is signed with it",
                    "put it back from a copy, or move audit.log away to begin a new one",
                )
            self._key = SigningKey.make(key_path(self._log))
            return f"it is gone, and the key that it was signed with{_of_so_many(head)}"
        self._key = key or SigningKey.make(key_path(self._log))
        return problem(self._key, head, mark, LogSeen(last.seq, hash_at, is_signed))

    def kept(self) -> AuditHead | None:
        """The head in the database."""
        with self._engine.connect() as connection:
            return audit_head.read(connection)

    def mark(self, point: Point) -> None:
        """Write how far the log now goes; `OSError` where that fails."""
        text = f"{point.seq:020d} {point.hash} {self._boot}"
        line = f"{text} {self.key.mac(text)}\n".encode()
        is_new = self._descriptor is None
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(self._mark_path, flags, 0o600)
        # In place, and always of one length: it needs no new room on the disk, and is never half
        # written.
        if os.pwrite(self._descriptor, line, 0) != len(line):
            raise OSError(28, "no space left on device")
        if is_new:
            os.fsync(self._descriptor)

    def keep(self, point: Point) -> None:
        """Sign a head and store it in the database. INVARIANT: all lines up to it are on the disk.

        `StorageError` where the database can't be written.
        """
        head = AuditHead(point.seq, point.hash, self.key.sign(point))
        with self._engine.connect() as connection:
            # No flush for it: an older head than the newest is a legal one, and a flush would hold
            # up who writes meanwhile.
            connection.exec_driver_sql("PRAGMA synchronous=NORMAL")
            try:
                audit_head.write(connection, head)
                connection.commit()
            finally:
                connection.rollback()
                connection.exec_driver_sql("PRAGMA synchronous=FULL")

    def close(self) -> None:
        """Give the mark's descriptor back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class LogSeen(NamedTuple):
    """The facts seen in a log: its last record's number, the hash of any line, whether any record
    has a signature."""

    seq: int
    hash_at: Callable[[int], str | None]
    is_signed: Callable[[], bool]


def problem(key: SigningKey, head: AuditHead | None, mark: Mark | None, log: LogSeen) -> str | None:
    """Return how a log differs from the facts kept outside it; None where it doesn't."""
    if head is not None:
        point = Point(head.seq, head.hash)
        if not key.has_signed(point, head.signature):
            return "its head in the database is not signed with audit.key"
        if why := _missing(point, log):
            return why
        if mark is None:
            return "audit.end, which says how long it is, is gone"
    elif log.is_signed():
        return "its records are signed, and the database knows no head of it"
    if mark is None:
        return None
    if not hmac.compare_digest(key.mac(_text(mark)), mark.mac):
        return "audit.end, which says how long it is, was changed"
    if mark.point.seq > log.seq and mark.boot != boot_id():
        return None
    return _missing(mark.point, log)


def read_mark(path: Path) -> Mark | None:
    """Return what `audit.end` says; None where there is none. The MAC of foreign content fits
    nothing.
    """
    try:
        descriptor = plain_files.opened(path, os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError:
        return Mark(Point(0, ""), "", "")
    with os.fdopen(descriptor, "rb") as file:
        words = file.read(512).decode("ascii", "replace").split()
    if not words:
        return None
    number = whole_number(words[0], 20)
    if len(words) != 4 or number is None:
        return Mark(Point(0, ""), "", "")
    return Mark(Point(number, words[1]), words[2], words[3])


def key_path(log: Path) -> Path:
    """Return the path of a log's key."""
    return log.with_name("audit.key")


def mark_path(log: Path) -> Path:
    """Return the path of a log's mark."""
    return log.with_name("audit.end")


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return _BOOT_ID.read_text().strip()


def _missing(point: Point, log: LogSeen) -> str | None:
    if point.seq > log.seq:
        if log.seq == 0:
            return f"it is gone or empty, and had {point.seq} records"
        return f"its end is missing: it had {point.seq} records, and has {log.seq}"
    if log.hash_at(point.seq) != point.hash:
        return f"record {point.seq}, or one before it, is not the one that was written"
    return None


def _of_so_many(head: AuditHead | None) -> str:
    return f"; it had {head.seq} records" if head is not None else ""


def _text(mark: Mark) -> str:
    return f"{mark.point.seq:020d} {mark.point.hash} {mark.boot}"


def _message(point: Point) -> bytes:
    return b"gatehouse audit head\n%d\n%b" % (point.seq, point.hash.encode())
