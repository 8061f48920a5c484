"""Read the audit log: lines from its end, and the hash that chains them.

It reads only a regular file and follows no link. It writes nothing (`audit` does) and judges
nothing (`audit_check` does).
"""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from supervisor.base import plain_files

GENESIS = "0" * 64
_BLOCK_BYTES = 64 * 1024


class Point(NamedTuple):
    """A place in the log: the number of a record and the hash of its line. It stands for all
    records up to there."""

    seq: int
    hash: str


START = Point(0, GENESIS)


def line_hash(line: bytes) -> str:
    """SHA-256 of a line without its newline, hex: `head -n1 audit.log | tr -d '\\n' | sha256sum`
    gives the same."""
    return hashlib.sha256(line).hexdigest()


def opened(path: Path) -> BinaryIO:
    """Open the log to read; `OSError` where there is none, or it isn't a regular file."""
    return os.fdopen(plain_files.opened(path, os.O_NOFOLLOW), "rb")


def newest_first(
    path: Path, limit: int, before_seq: int | None = None, event: str = ""
) -> list[dict[str, Any]]:
    """Return up to `limit` records, newest first; only older than `before_seq` and of one event,
    where given.
    """
    found: list[dict[str, Any]] = []
    wanted = f'"event":"{event}"'.encode() if event else b""
    for line in _lines_backwards(path):
        if wanted not in line:
            continue
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if event and record.get("event") != event:
            continue
        if before_seq is None or record.get("seq", 0) < before_seq:
            found.append(record)
        if len(found) == limit:
            break
    return found


def said_of_requests(path: Path, since: float) -> set[tuple[str, str]]:
    """Return the events about requests since then, each with the request's id."""
    said = set[tuple[str, str]]()
    for line in _lines_backwards(path):
        try:
            record = json.loads(line)
            if record["at"] < since:
                break
            said.add((record["event"], str(record.get("request"))))
        except (ValueError, KeyError, TypeError):
            continue
    return said


def hash_at(path: Path, seq: int) -> str | None:
    """Return the hash of a record's line; None where there is no such record. The search starts at
    the end.
    """
    if seq == 0:
        return GENESIS
    for line in _lines_backwards(path):
        try:
            found = json.loads(line)["seq"]
        except (ValueError, KeyError, TypeError):
            continue
        if found <= seq:
            return line_hash(line) if found == seq else None
    return None


def _lines_backwards(path: Path) -> Iterator[bytes]:
    """The lines from the end, read in blocks so that a long file costs what is looked at. None
    where no log lies there."""
    try:
        file = opened(path)
    except OSError:
        return
    with file:
        position, rest = file.seek(0, os.SEEK_END), b""
        while position > 0:
            size = min(_BLOCK_BYTES, position)
            position -= size
            file.seek(position)
            head, *lines = (file.read(size) + rest).split(b"\n")
            rest = head
            yield from (line for line in reversed(lines) if line)
        if rest:
            yield rest
