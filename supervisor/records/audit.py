"""The audit log: JSON lines, append-only, each with the SHA-256 of the line before.

It must never let an effect happen whose verdict isn't in the file. So a line is written (not only
queued) before the caller goes on; writing to the page cache takes microseconds and survives kill -9
of any of our processes. Flushing to the disk happens in a thread of its own and blocks no answer. A
write that fails raises `StorageError`, which the gate turns into a denial; the next write tries
again, so that a freed disk heals by itself.

The log is a regular file of our own. If another file is in its place, or its length isn't what we
wrote, the write fails. `Heads` signs how far the log goes, and keeps that beside it
(`audit_heads`).

`EVENTS` names every event that can stand in the file.
"""

import asyncio
import contextlib
import errno
import json
import os
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core.secrets.redact import Redactor
from supervisor.errors import StorageError
from supervisor.records.audit_chain import (
    START,
    Point,
    hash_at,
    line_hash,
    opened,
    said_of_requests,
)
from supervisor.records.audit_check import Outside, verify
from supervisor.records.audit_heads import KEEP_EVERY_S, Heads, mark_path, read_mark

Event = Literal[
    "supervisor_started",
    "supervisor_stopped",
    "audit_failed",
    "audit_broken",
    "audit_recovered",
    "session_started",
    "bodies_switched",
    "session_ended",
    "session_found_dead",
    "session_paused",
    "session_unpaused",
    "session_renamed",
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
    "file_loaded",
    "file_rejected",
    "all_stopped",
    "all_resumed",
    "egress_started",
    "egress_lost",
    "operator_signed_in",
    "operator_refused",
    "containment_checked",
    "mcp_server_started",
    "mcp_server_ended",
    "mcp_tools_taken",
    "install_scripts_allowed",
    "branch_taken",
    "job_not_started",
    "forge_credentials",
    "job_paused",
    "job_resumed",
    "job_done",
    "repository_added",
    "review_recorded",
    "reviews_held",
    "reviews_released",
    "undo_started",
    "undo_settled",
    "spend_reserved",
    "spend_settled",
    "budget_refused",
    "budget_nearly_used",
    "budget_raised",
    "security_event",
    "review_budget_used",
    "review_spend_creeps",
]
EVENTS: tuple[str, ...] = get_args(Event)
# How long lines are gathered for one flush; a disk alone may take as long for it.
GATHER_S = 0.025
LOOK_EVERY_S = 1.0
_TAIL_BYTES = 64 * 1024
_ENCODED_LINE = b'{"seq":%d,"at":%a,"event":"%b",%b%b,"prev":"%b"}'
_OTHERS_MAY = 0o077
_ENCODER = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))


def _encoded(body: dict[str, Any]) -> bytes:
    """One line, in ASCII whatever is in it. msgspec leaves other characters as they are, and
    takes a tenth of the time."""
    with contextlib.suppress(
        TypeError, ValueError, OverflowError
    ):  # half a surrogate pair: a name that isn't UTF-8
        line = msgspec.json.encode(body)
        if line.isascii():
            return line
    return _ENCODER.encode(body).encode()


class Encoded(NamedTuple):
    """Fields as encoded in a line, without secrets. Only `Audit.encoded` makes them."""

    text: bytes


class Audit:
    """The writer of one log. `failure` says why nothing can be written, `broken` how the log was
    changed.

    Both are None while all is well. Without `heads` nothing is signed, for tests.
    """

    def __init__(
        self, path: Path, clock: Clock, redactor: Redactor, heads: Heads | None = None
    ) -> None:
        self._path = path
        self._name = str(path)
        self._clock = clock
        self._redactor = redactor
        self._heads = heads
        self._broken_before: str | None = None
        self._broken_now: str | None = None
        self._write_failure: str | None = None
        self._is_disk_full = False
        self._missed = 0
        self._is_torn = False
        self._wanted = threading.Event()
        self._is_flushed = True
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._descriptor = _opened(path)
        facts = os.fstat(self._descriptor)
        self._identity = (facts.st_dev, facts.st_ino)
        self._changed_at: int | None = None
        self._last, self._size = START, 0
        self._found_at = float("inf")  # when the last line of the run before was written
        self._flushed = START
        self._kept: Point | None = None
        self._signed_at = self._kept_at = float("-inf")
        try:
            torn = self._read_end()
            self._begin_heads()
        except BaseException:
            os.close(self._descriptor)
            raise
        if torn:
            self._try_to_record("audit_recovered", torn_bytes=torn)
        if self._broken_before is not None:
            self._try_to_record("audit_broken", why=self._broken_before)
        # INVARIANT: what was found is on record before a head is of the log as it is now.
        if self._write_failure is None:
            self._flush_now()
        self._flusher = threading.Thread(
            target=self._flush_when_wanted, name="audit-flush", daemon=True
        )
        self._flusher.start()

    @property
    def broken(self) -> str | None:
        """Return how the log was changed, as the start or the last `examine` found."""
        return self._broken_now or self._broken_before

    @property
    def failure(self) -> str | None:
        """Return why nothing can be written, and so nothing is allowed."""
        return self._write_failure or (
            "the audit log can't be written: its disk is full" if self._is_disk_full else None
        )

    def record(self, event: Event, **fields: Any) -> None:
        """Write one line; `StorageError` where it can't be written."""
        self.record_all([(event, fields)])

    def record_all(self, events: Sequence[tuple[Event, Mapping[str, Any] | Encoded]]) -> None:
        """Write all lines in one write. If it fails, `StorageError` is raised and no line is
        written.
        """
        with self._lock:
            last, lines = self._last, []
            signature = self._due_signature()
            for event, fields in events:
                at = round(self._clock.now(), 6)
                line = self._line(last, at, event, fields, signature)
                signature = None
                lines.append(line + b"\n")
                last = Point(last.seq + 1, line_hash(line))
            if lines:
                self._append(b"".join(lines), last, len(lines))
        self._is_flushed = False
        if not self._wanted.is_set():  # or the flusher is at it
            self._wanted.set()

    def encoded(self, fields: dict[str, Any]) -> Encoded | None:
        """Return encoded fields for a caller that writes them again, valid until a new secret
        becomes known; None if they may hold a secret, or there are none.
        """
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            line = msgspec.json.encode(fields)
            if fields and line.isascii() and self._redactor.is_clean_json(line):
                return Encoded(line[1:-1])
        return None

    def said_of_requests(self, margin_s: float) -> tuple[float, set[tuple[str, str]]]:
        """Return the events about requests at the end of the log as this run found it, each with
        the request's id, and since when: this long before its last line.
        """
        since = self._found_at - margin_s
        return since, said_of_requests(self._path, since)

    def flush(self) -> None:
        """Wait until all recorded lines are on the disk."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Flush and close. Nothing can be recorded afterwards."""
        self._stopping.set()
        self._wanted.set()
        self._flusher.join()
        self._flush_now()
        if self._heads is not None:
            self._heads.close()
        os.close(self._descriptor)

    # -- whether all is well ----------------------------------------------------------------------

    def look(self) -> bool:
        """Check whether the log can be written and is in its place; called now and then. Return
        whether `examine` has something to do.

        It also notices that writing works again: the first line then says how many were missed.
        """
        facts = os.fstatvfs(self._descriptor)
        self._is_disk_full = (facts.f_bavail if os.geteuid() else facts.f_bfree) == 0
        if self._write_failure is not None and not self._is_disk_full:
            self._try_to_record("audit_failed", why=self._write_failure, missed=self._missed)
        with self._lock:
            found = self._found()
            wrong = self._why_not(found)
            if wrong is not None:
                self._write_failure = f"the audit log can't be written: {wrong}"
            return found is not None and found.st_ctime_ns != self._changed_at

    def examine(self) -> str | None:
        """Check the whole log, set `broken` and return it. Takes seconds for a long log, so call it
        in a thread.
        """
        with self._lock:
            found = self._found()
            self._changed_at = found.st_ctime_ns if found is not None else None
            outside = None
        if self._heads is not None:
            outside = Outside(self._heads.key, self._heads.kept(), read_mark(mark_path(self._path)))
        try:
            verify(self._path, outside)
        except StorageError as error:
            self._broken_now = error.message
        else:
            self._broken_now = None
        return self.broken

    # -- inside -----------------------------------------------------------------------------------

    def _try_to_record(self, event: Event, **fields: Any) -> None:
        with contextlib.suppress(StorageError):  # `failure` says so
            self.record(event, **fields)

    def _begin_heads(self) -> None:
        if self._heads is None:
            return
        try:
            found = self._heads.begin(
                self._last, lambda seq: hash_at(self._path, seq), self._is_signed
            )
            self._broken_before = f"{self._path}: {found}" if found else None
            if found is None:
                self._heads.mark(self._last)
        except OSError as error:
            self._write_failure = f"the audit log can't be written: {error.strerror}"

    def _is_signed(self) -> bool:
        """Return whether any record has a signature; asked only where nothing else is known of
        the log."""
        with self._path.open("rb") as file:
            return any(b'"signed":"' in line for line in file)

    def _due_signature(self) -> str | None:
        now = self._clock.monotonic()
        if self._heads is None or now - self._signed_at < KEEP_EVERY_S:
            return None
        self._signed_at = now
        return self._heads.key.sign(self._last)

    def _flush_now(self) -> None:
        with contextlib.suppress(OSError):
            last = self._last
            self.flush()
            self._flushed = last
            self._keep_head()

    def _keep_head(self) -> None:
        if self._heads is None:
            return
        self._kept_at = self._clock.monotonic()
        try:
            self._heads.keep(self._flushed)
            self._kept = self._flushed
        except (
            StorageError
        ) as error:  # the mark still says how far the log goes, and the next second tries again
            log.error("the audit log's head can't be kept", error=str(error))

    def _line(
        self,
        last: Point,
        at: float,
        event: Event,
        fields: Mapping[str, Any] | Encoded,
        signature: str | None,
    ) -> bytes:
        """One line without secrets: nearly always there are none, and then what was looked
        through is what is written."""
        if isinstance(fields, Encoded):
            signed = b"" if signature is None else b',"signed":"%b"' % signature.encode()
            return _ENCODED_LINE % (
                last.seq + 1,
                at,
                event.encode(),
                fields.text,
                signed,
                last.hash.encode(),
            )
        head = {"seq": last.seq + 1, "at": at, "event": event}
        end = {"prev": last.hash} if signature is None else {"signed": signature, "prev": last.hash}
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            line = msgspec.json.encode(head | dict(fields) | end)
            if line.isascii() and self._redactor.is_clean_json(line):
                return line
        return _encoded(head | self._redactor.data(dict(fields)) | end)

    def _append(self, data: bytes, last: Point, count: int) -> None:
        """INVARIANT: the log first, then the mark. See `audit_heads` for what a crash between
        the two leaves."""
        try:
            found = self._found()
            wrong = self._why_not(found)
            if wrong is not None:
                raise OSError(5, wrong)
            is_known = found is not None and found.st_ctime_ns == self._changed_at
            self._is_torn = True
            written = os.write(self._descriptor, data)
            if written != len(data):
                raise OSError(
                    28, "no space left on device"
                )  # a short write to a file means just that
            if self._heads is not None:
                self._heads.mark(last)
        except OSError as error:
            self._missed += count
            self._write_failure = f"the audit log can't be written: {error.strerror}"
            self._drop_torn_end()
            raise StorageError(
                self._write_failure,
                f"free or repair {self._path}; nothing is allowed until it can be written",
            ) from error
        self._write_failure, self._missed, self._is_torn = None, 0, False
        self._last, self._size = last, self._size + len(data)
        if is_known:
            self._changed_at = os.fstat(self._descriptor).st_ctime_ns

    def _found(self) -> os.stat_result | None:
        """Return what lies in the log's place, and is no link to it."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._name, follow_symlinks=False)  # noqa: PTH116  # before every line, and a Path takes as long as the kernel
        return None

    def _why_not(self, found: os.stat_result | None) -> str | None:
        if found is None:
            return "it was deleted; restart Gatehouse to begin a new one"
        if (found.st_dev, found.st_ino) != self._identity:
            return (
                "something else lies in its place; put the log back, or restart Gatehouse to begin"
                " a new one"
            )
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_MAY:
            return "others can read or change it; chmod 600, owned by you"
        if found.st_size > self._size:
            self._drop_torn_end()
            found = os.fstat(self._descriptor)
        if found.st_size != self._size:
            return "somebody else changed it; see `gatehouse audit --verify`, and restart Gatehouse"
        return None

    def _drop_torn_end(self) -> None:
        """A half-written line was never acknowledged; taking it away keeps the chain readable."""
        try:
            if self._is_torn and os.fstat(self._descriptor).st_size > self._size:
                os.ftruncate(self._descriptor, self._size)
            self._is_torn = False
        except OSError:
            # it is tried again before the next line; and the next start finds the torn one and says
            # so
            pass

    def _read_end(self) -> int:
        """Continue the chain of an existing file. Gives the bytes of a torn last line, which is
        dropped."""
        size = os.fstat(self._descriptor).st_size
        tail = b""
        with opened(self._path) as file:
            # Doubled until a whole last line is in it: a log of gigabytes costs no more than its
            # last line.
            length = _TAIL_BYTES
            while len(tail) < size and tail.count(b"\n") < 2:
                file.seek(max(0, size - length))
                tail, length = file.read(), length * 2
        whole = tail[: tail.rfind(b"\n") + 1]
        torn = len(tail) - len(whole)
        if torn:
            os.ftruncate(self._descriptor, size - torn)
        self._size = size - torn
        last = whole.rstrip(b"\n").rpartition(b"\n")[2]
        try:
            if last:
                found = json.loads(last)
                self._last = Point(int(found["seq"]), line_hash(last))
                self._found_at = float(found["at"])
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{self._path}: the last line is no audit record",
                "move the file away to start a new one",
            ) from error
        return torn

    def _flush_when_wanted(self) -> None:
        while not self._stopping.is_set():
            self._wanted.wait(self._until_head_is_due())
            # What comes meanwhile goes along: a line by itself costs a disk no less than a hundred.
            self._stopping.wait(GATHER_S)
            if self._is_flushed:
                # Nothing came for a while: from here on the next line wakes us. INVARIANT: a line
                # that comes between is seen below.
                self._wanted.clear()
                if self._is_flushed:
                    if self._until_head_is_due() == 0:
                        self._keep_head()
                    continue
            self._is_flushed = True
            with self._lock:
                last = self._last
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                self._write_failure = f"the audit log can't be flushed: {error.strerror}"
                continue
            self._flushed = last
            if self._until_head_is_due() == 0:
                self._keep_head()

    def _until_head_is_due(self) -> float | None:
        """Seconds until the head may be kept again; None where it is kept already."""
        if self._heads is None or self._flushed == self._kept:
            return None
        return max(0.0, self._kept_at + KEEP_EVERY_S - self._clock.monotonic())


def _opened(path: Path) -> int:
    """A descriptor to append by. `StorageError` where the log is no regular file that is ours
    alone."""
    flags = (
        os.O_WRONLY
        | os.O_APPEND
        | os.O_CREAT
        | os.O_CLOEXEC
        | os.O_NOFOLLOW
        | os.O_NONBLOCK
        | os.O_NOCTTY
    )
    remedy = "the audit log must be a file of your own, with mode 600: move away what lies there"
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        why = "it is a symlink" if error.errno == errno.ELOOP else error.strerror
        raise StorageError(f"{path}: {why}", remedy) from error
    facts = os.fstat(descriptor)
    wrong = None
    if not stat.S_ISREG(facts.st_mode):
        wrong = "it is no regular file"
    elif facts.st_nlink != 1:
        wrong = "it has other names, by which it can be changed"
    elif facts.st_uid != os.geteuid() or facts.st_mode & _OTHERS_MAY:
        wrong = "others can read or change it"
    if wrong is not None:
        os.close(descriptor)
        raise StorageError(f"{path}: {wrong}", remedy)
    return descriptor


async def watch_audit(audit: Audit, changed: Callable[[], None]) -> None:
    """Watch the log until cancelled. `changed` is called when `failure` or `broken` changed; the
    terminal shows what is wrong.
    """
    told: tuple[str | None, str | None] = (None, None)
    while True:
        try:
            if audit.look():
                await asyncio.to_thread(audit.examine)  # the first look is at all of it
        except Exception as error:  # a database that can't be read, mostly: the next look is soon
            log.error("the audit log can't be checked", error=str(error))
        found = (audit.failure, audit.broken)
        if found != told:
            for why, before in zip(found, told, strict=True):
                if why is not None and why != before:
                    log.error(why)
            told = found
            changed()
        await asyncio.sleep(LOOK_EVERY_S)
