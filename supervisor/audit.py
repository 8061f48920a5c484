"""The audit log: JSON lines, append-only, each with the SHA-256 of the line before.

What it must never do: let an effect happen whose verdict isn't in the file. So a line is written (not only queued)
before the caller goes on; writing to the page cache takes microseconds and survives kill -9 of any of our processes.
Flushing to the disk happens in a thread of its own and blocks no answer. A write that fails raises `StorageError`,
which the gate turns into a denial; the next write tries again, so that a freed disk heals by itself.

`EVENTS` names every event that can stand in the file.
"""

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from supervisor.clock import Clock
from supervisor.core.redact import Redactor
from supervisor.errors import StorageError

Event = Literal[
    "supervisor_started",
    "supervisor_stopped",
    "audit_recovered",
    "session_started",
    "bodies_switched",
    "session_ended",
    "session_found_dead",
    "agent_exited",
    "verdict_given",
    "request_asked",
    "request_answered",
    "request_superseded",
    "request_closed",
    "denial_lifted",
    "effect_started",
    "effect_settled",
    "effect_unknown",
    "rule_added",
    "rule_removed",
    "rule_ended",
    "policy_loaded",
    "policy_rejected",
    "all_stopped",
    "all_resumed",
    "egress_started",
    "egress_lost",
    "operator_signed_in",
    "review_recorded",
    "undo_started",
    "undo_settled",
    "spend_reserved",
    "spend_settled",
    "budget_refused",
    "budget_nearly_used",
    "budget_raised",
]
EVENTS: tuple[str, ...] = get_args(Event)
GENESIS = "0" * 64
# How long lines are gathered for one flush; a disk alone may take as long for it.
GATHER_S = 0.025
_TAIL_BYTES = 64 * 1024
_ENCODED_LINE = b'{"seq":%d,"at":%a,"event":"%b",%b,"prev":"%b"}'
_ENCODER = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))


def line_hash(line: bytes) -> str:
    """SHA-256 of a line without its newline, hex: `head -n1 audit.log | tr -d '\\n' | sha256sum` gives the same."""
    return hashlib.sha256(line).hexdigest()


def _encoded(body: dict[str, Any]) -> bytes:
    """One line, in ASCII whatever is in it. msgspec leaves other characters as they are, and takes a tenth of the time."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):  # half a surrogate pair: a name that isn't UTF-8
        line = msgspec.json.encode(body)
        if line.isascii():
            return line
    return _ENCODER.encode(body).encode()


class Encoded(NamedTuple):
    """Fields as they stand in a line, without secrets: made by `Audit.encoded` only."""

    text: bytes


class Audit:
    """One writer of one file. `failure` says why the last write failed, None while all is well."""

    def __init__(self, path: Path, clock: Clock, redactor: Redactor) -> None:
        self._path = path
        self._clock = clock
        self._redactor = redactor
        self.failure: str | None = None
        self._wanted = threading.Event()
        self._is_flushed = True
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}", "the audit log must be writable") from error
        self._seq, self._size, self._previous = 0, 0, GENESIS
        torn = self._read_end()
        self._flusher = threading.Thread(target=self._flush_when_wanted, name="audit-flush", daemon=True)
        self._flusher.start()
        if torn:
            self.record("audit_recovered", torn_bytes=torn)

    def record(self, event: Event, **fields: Any) -> None:
        """Write one line; `StorageError` where it can't be written."""
        self.record_all([(event, fields)])

    def record_all(self, events: Sequence[tuple[Event, Mapping[str, Any] | Encoded]]) -> None:
        """Write a line for each, all of them in one write; `StorageError` where that fails, and then none is there."""
        with self._lock:
            seq, previous, lines = self._seq, self._previous, []
            for event, fields in events:
                seq += 1
                at = round(self._clock.now(), 6)
                if isinstance(fields, Encoded):
                    line = _ENCODED_LINE % (seq, at, event.encode(), fields.text, previous.encode())
                else:
                    line = self._line({"seq": seq, "at": at, "event": event}, dict(fields), {"prev": previous})
                lines.append(line + b"\n")
                previous = line_hash(line)
            if lines:
                self._append(b"".join(lines))
                self._seq, self._previous = seq, previous
        self._is_flushed = False
        if not self._wanted.is_set():  # or the flusher is at it
            self._wanted.set()

    def encoded(self, fields: dict[str, Any]) -> Encoded | None:
        """Fields for who writes the same again, for as long as no secret becomes known; None where there may be one in them, or there are none."""
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            line = msgspec.json.encode(fields)
            if fields and line.isascii() and self._redactor.is_clean_json(line):
                return Encoded(line[1:-1])
        return None

    def flush(self) -> None:
        """Wait until all that was recorded is on the disk."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Flush and close. Nothing can be recorded afterwards."""
        self._stopping.set()
        self._wanted.set()
        self._flusher.join()
        os.close(self._descriptor)

    def _line(self, head: dict[str, Any], fields: dict[str, Any], end: dict[str, Any]) -> bytes:
        """One line without secrets: nearly always there are none, and then what was looked through is what is written."""
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            line = msgspec.json.encode(head | fields | end)
            if line.isascii() and self._redactor.is_clean_json(line):
                return line
        return _encoded(head | self._redactor.data(fields) | end)

    def _append(self, data: bytes) -> None:
        try:
            if os.fstat(self._descriptor).st_nlink == 0:
                raise OSError(2, "it was deleted; restart Gatehouse to begin a new one")
            written = os.write(self._descriptor, data)
            if written != len(data):
                raise OSError(28, "no space left on device")  # a short write to a file means just that
        except OSError as error:
            self.failure = f"the audit log can't be written: {error.strerror}"
            self._drop_torn_end()
            raise StorageError(
                self.failure, f"free or repair {self._path}; nothing is allowed until it can be written"
            ) from error
        self.failure = None
        self._size += len(data)

    def _drop_torn_end(self) -> None:
        """A half-written line was never acknowledged; taking it away keeps the chain readable."""
        try:
            if os.fstat(self._descriptor).st_size > self._size:
                os.ftruncate(self._descriptor, self._size)
        except OSError:
            pass  # the next start finds the torn line and says so

    def _read_end(self) -> int:
        """Continue the chain of an existing file. Gives the bytes of a torn last line, which is dropped."""
        size = os.fstat(self._descriptor).st_size if self._path.is_file() else 0
        tail = b""
        with self._path.open("rb") if size else contextlib.nullcontext() as file:
            # Doubled until a whole last line is in it: a log of gigabytes costs no more than its last line.
            length = _TAIL_BYTES
            while file is not None and len(tail) < size and tail.count(b"\n") < 2:
                file.seek(max(0, size - length))
                tail, length = file.read(), length * 2
        whole = tail[: tail.rfind(b"\n") + 1]
        torn = len(tail) - len(whole)
        if torn:
            os.ftruncate(self._descriptor, size - torn)
        self._size = size - torn
        last = whole.rstrip(b"\n").rpartition(b"\n")[2]
        try:
            self._seq = int(json.loads(last)["seq"]) if last else 0
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{self._path}: the last line is no audit record", "move the file away to start a new one"
            ) from error
        self._previous = line_hash(last) if last else GENESIS
        return torn

    def _flush_when_wanted(self) -> None:
        while not self._stopping.is_set():
            self._wanted.wait()
            # What comes meanwhile goes along: a line by itself costs a disk no less than a hundred.
            self._stopping.wait(GATHER_S)
            if self._is_flushed:
                # Nothing came for a while: from here on the next line wakes us. INVARIANT: a line that comes between is seen below.
                self._wanted.clear()
                if self._is_flushed:
                    continue
            self._is_flushed = True
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:  # EINVAL: a pipe or /dev/full, which has nothing to flush
                if error.errno != 22:
                    self.failure = f"the audit log can't be flushed: {error.strerror}"


def verify(path: Path) -> int:
    """The number of lines, when each carries the hash of the one before and the numbers have no gap.

    `StorageError` names the first line that was changed, removed or inserted.
    """
    previous, count = GENESIS, 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            line = raw.rstrip(b"\n")
            try:
                record = json.loads(line)
                intact = record["prev"] == previous and record["seq"] == number
            except (ValueError, KeyError, TypeError):
                intact = False
            if not intact:
                raise StorageError(
                    f"{path}:{number}: the chain is broken here",
                    "compare with a copy: a line was changed, removed or added",
                )
            previous, count = line_hash(line), number
    return count


def newest_first(path: Path, limit: int, before_seq: int | None = None) -> list[dict[str, Any]]:
    """Up to `limit` records, newest first; those older than `before_seq` where it is given."""
    found: list[dict[str, Any]] = []
    for line in _lines_backwards(path):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if before_seq is None or record.get("seq", 0) < before_seq:
            found.append(record)
        if len(found) == limit:
            break
    return found


def _lines_backwards(path: Path) -> Iterator[bytes]:
    """The lines from the end, read in blocks so that a long file costs what is looked at."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        position, rest = file.seek(0, os.SEEK_END), b""
        while position > 0:
            size = min(_TAIL_BYTES, position)
            position -= size
            file.seek(position)
            head, *lines = (file.read(size) + rest).split(b"\n")
            rest = head
            yield from (line for line in reversed(lines) if line)
        if rest:
            yield rest
