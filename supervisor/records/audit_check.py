"""Check the whole audit log: its chain, its signatures, and the facts kept outside it.

It reads and judges; others show the result. `docs/record.md` says what a good log proves.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from supervisor.errors import StorageError
from supervisor.records.audit_chain import GENESIS, START, Point, line_hash, opened
from supervisor.records.audit_heads import (
    LogSeen,
    Mark,
    SigningKey,
    key_path,
    mark_path,
    problem,
    read_mark,
)
from supervisor.store import audit_head
from supervisor.store.audit_head import AuditHead

BROKEN = "audit_broken"
_REMEDY = "compare with a copy; keep this log, and move it away to begin a new one"


class CheckedLine(msgspec.Struct):
    """The parts of a record that count here."""

    seq: int
    prev: str
    event: str = ""
    signed: str | None = None
    why: str | None = None


class Outside(NamedTuple):
    """The facts about a log that are kept outside it. INVARIANT: they are read before the log,
    which only grows.
    """

    key: SigningKey | None
    head: AuditHead | None
    mark: Mark | None

    @classmethod
    def read(cls, log: Path, database: Path) -> "Outside":
        """Return the facts kept beside a log, with the head in a database file."""
        return cls(
            SigningKey.read(key_path(log)), audit_head.peek(database), read_mark(mark_path(log))
        )


class Checked(NamedTuple):
    """A good log: how far it goes, from which record on it is signed, and what it says about the
    log before it.
    """

    last: Point
    signed_from: int | None = None
    before: str | None = None


def verify(path: Path, outside: Outside | None = None) -> Checked:
    """Return how far an unchanged log goes. `StorageError` says what was changed, removed or added,
    and where.

    Without `outside`, as for a copy, only the chain is checked. A last line without a line break is
    ignored: it is being written, or a crash cut it off.
    """
    asked = {one.seq for one in _points(outside)}
    hashes = {0: GENESIS}
    last, signatures, before = START, list[tuple[int, Point, str]](), None
    for number, line in _lines(path):
        record = _decoded(line)
        if record is None or record.prev != last.hash or record.seq != number:
            raise StorageError(
                f"{path}:{number}: the chain is broken here: a line was changed, removed or added",
                _REMEDY,
            )
        if record.signed is not None:
            signatures.append((number, last, record.signed))
        if record.event == BROKEN and number > 1:
            raise StorageError(
                f"{path}:{number}: this record says that the log was changed: {record.why}", _REMEDY
            )
        before = record.why if record.event == BROKEN else before
        last = Point(number, line_hash(line))
        if number in asked:
            hashes[number] = last.hash
    if outside is not None:
        _check_outside(
            path, outside, LogSeen(last.seq, hashes.get, lambda: bool(signatures)), signatures
        )
    return Checked(last, signatures[0][0] if signatures else None, before)


def _check_outside(
    path: Path, outside: Outside, log: LogSeen, signatures: list[tuple[int, Point, str]]
) -> None:
    if outside.key is None:
        if signatures or outside.head is not None or outside.mark is not None:
            raise StorageError(
                f"{key_path(path)}: it is gone, and {path} is signed with it",
                "put it back from a copy",
            )
        return
    # The newest stands for all before it. Where it is wrong, the first wrong one says from where
    # on.
    if signatures and not outside.key.has_signed(*signatures[-1][1:]):
        for number, point, signature in signatures:
            if not outside.key.has_signed(point, signature):
                raise StorageError(
                    f"{path}:{number}: the signature of what is before this line is wrong", _REMEDY
                )
    if why := problem(outside.key, outside.head, outside.mark, log):
        raise StorageError(f"{path}: {why}", _REMEDY)


def _points(outside: Outside | None) -> Iterator[Point]:
    if outside is not None and outside.head is not None:
        yield Point(outside.head.seq, outside.head.hash)
    if outside is not None and outside.mark is not None:
        yield outside.mark.point


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        file = opened(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}", "put the log itself there") from error
    with file:
        for number, raw in enumerate(file, 1):
            if raw.endswith(b"\n"):
                yield number, raw[:-1]


_DECODER = msgspec.json.Decoder(CheckedLine)


def _decoded(line: bytes) -> CheckedLine | None:
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    try:  # half a surrogate pair, which msgspec takes for none
        return msgspec.convert(
            {
                key: value
                for key, value in json.loads(line).items()
                if key in CheckedLine.__struct_fields__
            },
            CheckedLine,
        )
    except (ValueError, AttributeError, RecursionError, msgspec.MsgspecError):
        return None
