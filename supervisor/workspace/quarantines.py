"""Sessions' quarantines: keys, manifests and the allowed calls.

`core.quarantine.quarantine` decides which calls are allowed. A session in quarantine sees no file:
its workspace is empty, and everything it reads comes from here. The copy lies outside of its
sandbox. A file is opened below it, name by name, without following a link. The bytes that were read
are checked for size and digest, and those bytes are returned.

INVARIANT: a key is in memory only, and overwritten at the end. A denial is recorded on the disk
before the answer.
"""

import asyncio
import hashlib
import os
import secrets
import sys
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from supervisor.base.clock import Clock
from supervisor.base.process import run
from supervisor.core.quarantine.quarantine import (
    MOST_AT_ONCE,
    WINDOW_S,
    GlobCall,
    GrepCall,
    ManifestFile,
    Quarantine,
    QuarantineDecision,
    ReadCall,
    Risk,
    SecurityKind,
    decide,
    glob_of,
)
from supervisor.core.quarantine.quarantine_answers import (
    QuarantineAnswer,
    ReadAnswer,
    checked_answer,
    dropped_words,
)
from supervisor.core.quarantine.references import Reference, is_plain, written
from supervisor.core.secrets.redact import Redactor
from supervisor.core.text.globs import Glob
from supervisor.errors import GatehouseError, UserError
from supervisor.workspace.disk.beneath import FILE, Root, is_git_name, is_regular

MOST_FILES = 100_000
MOST_FILE_BYTES = 8 << 20
MOST_SEARCHED_BYTES = 64 << 20
MOST_LISTED = 200
MOST_CHARS = 30_000
SEARCH_S = 10.0
_SEARCH = Path(__file__).with_name("quarantine_search.py")


class CallResult(NamedTuple):
    """The answer to a call. `text` is the reason where the call isn't allowed."""

    allowed: bool
    text: str
    risk: Risk | None = None


class NoRoomError(UserError):
    """The limit of sessions in quarantine is reached."""


class _RefusedError(Exception):
    """An allowed call that can't be carried out. `kind` is recorded."""

    def __init__(self, why: str, kind: SecurityKind) -> None:
        super().__init__(why)
        self.kind = kind


class _Held:
    """The running quarantine of one session."""

    def __init__(self, folder: Path, now: float) -> None:
        self.folder = folder
        self.sid = str(uuid.uuid4())
        self.key = bytearray(secrets.token_bytes(32))
        self.began_at = now
        self.manifest: dict[str, ManifestFile] = {}
        self.calls: deque[float] = deque()
        self.limited_at = float("-inf")
        # One call at a time: a search fully uses a processor.
        self.turn = asyncio.Lock()

    def as_of(self, now: float) -> Quarantine:
        while self.calls and self.calls[0] <= now - WINDOW_S:
            self.calls.popleft()
        return Quarantine(self.sid, self.key, self.began_at, self.manifest, tuple(self.calls))

    def reference(self, path: str, now: float) -> str:
        shown = self.manifest[path]
        made = Reference(path, shown.digest, shown.size, int(now), self.sid)
        return written(made, self.key)


class SecurityRecord(Protocol):
    """The part of the audit log that is used here."""

    def record(self, event: Literal["security_event"], **fields: Any) -> None: ...
    def flush(self) -> None: ...


class Quarantines:
    """The quarantines of one supervisor. It records events called `EVENT`."""

    EVENT: Final = "security_event"

    def __init__(self, clock: Clock, audit: SecurityRecord, redactor: Redactor) -> None:
        self._clock = clock
        self._audit = audit
        self._redactor = redactor
        self._held: dict[str, _Held] = {}
        self._changed = asyncio.Event()

    def check_room(self) -> None:
        """Raise `NoRoomError` where no other quarantine may be opened."""
        if len(self._held) >= MOST_AT_ONCE:
            why = f"{MOST_AT_ONCE} sessions are in quarantine already"
            self._noted("", "too_many_sessions", "", why)
            raise NoRoomError(why, "wait for one to end")

    async def wait_for_room(self) -> None:
        """Return once another quarantine may be opened."""
        while len(self._held) >= MOST_AT_ONCE:
            self._changed.clear()
            await self._changed.wait()

    def open(self, session_id: str, folder: Path) -> None:
        """Begin a quarantine over a copy that is yet to be made."""
        self._held[session_id] = _Held(folder, self._clock.now())

    async def look(self, session_id: str) -> tuple[str, ...]:
        """Make the manifest of the copy, and start its five minutes. Return notes for the
        person."""
        held = self._held[session_id]
        held.manifest, left_out = await asyncio.to_thread(_manifest, held.folder)
        held.began_at = self._clock.now()
        note = f"in quarantine: {len(held.manifest)} files can be read, by reference alone"
        return (f"{note}; {left_out} are no plain files, or too long" if left_out else note,)

    def close(self, session_id: str) -> None:
        """End a quarantine and overwrite its key. May be called twice."""
        held = self._held.pop(session_id, None)
        if held is not None:
            held.key[:] = bytes(len(held.key))
            self._changed.set()

    def references(self, session_id: str, paths: Sequence[str]) -> dict[str, str]:
        """Return references for these files, as far as the manifest has them."""
        held, now = self._held[session_id], self._clock.now()
        return {path: held.reference(path, now) for path in paths if path in held.manifest}

    async def call(self, session_id: str, tool: str, args: Mapping[str, Any]) -> CallResult:
        """Decide on a call. Carry it out where it is allowed; record it where it isn't."""
        held, now = self._held.get(session_id), self._clock.now()
        if held is None:
            self._noted(session_id, "expired", tool[:100], "this quarantine is over")
            return CallResult(False, "this quarantine is over")
        decision = decide(tool, args, held.as_of(now), now)
        if decision.kind != "rate_limited":
            held.calls.append(now)
        if decision.kind is not None:
            # Recorded at most once a minute, so that it doesn't fill the record.
            if decision.kind != "rate_limited" or now - held.limited_at > WINDOW_S:
                held.limited_at = now if decision.kind == "rate_limited" else held.limited_at
                self._noted(session_id, decision.kind, decision.tool, decision.why, decision.risk)
            return CallResult(False, decision.why, decision.risk)
        try:
            async with held.turn:
                text = await self._carried_out(held, decision, now)
        except _RefusedError as error:
            self._noted(session_id, error.kind, decision.tool, str(error))
            return CallResult(False, str(error))
        return CallResult(True, text)

    async def _carried_out(self, held: _Held, decision: QuarantineDecision, now: float) -> str:
        match decision.call:
            case ReadCall() as wanted if decision.reference is not None:
                return await asyncio.to_thread(_read, held.folder, wanted, decision.reference)
            case GrepCall() as wanted:
                return await self._grep(held, wanted, now)
            case GlobCall() as wanted:
                return _listed(held, wanted, now)
            case _:
                raise _RefusedError("it can't be carried out", "bad_arguments")

    async def answered(self, session_id: str, answer: ReadAnswer) -> QuarantineAnswer:
        """Return the valid part of an answer; the rest is counted and recorded."""
        held = self._held.get(session_id)
        if held is None:
            raise UserError("this quarantine is over", "start another session")
        lines = await asyncio.to_thread(_lines_of, held.folder, held.manifest, answer.paths)
        checked = checked_answer(answer, held.manifest, lines, self._redactor.said)
        if checked.dropped:
            why = dropped_words(checked.dropped)
            self._noted(session_id, "dropped_answers", "", why)
        if checked.defused:
            why = f"{checked.defused} texts of the answer would have acted, and were made inert"
            self._noted(session_id, "defused_text", "", why)
        return checked

    def refused_answer(self, session_id: str, why: str) -> None:
        """Record that the response is no valid answer."""
        self._noted(session_id, "bad_answer", "", why)

    def _noted(
        self, session_id: str, kind: SecurityKind, tool: str, why: str, risk: Risk | None = None
    ) -> None:
        """Record an event, durably."""
        fields = {"session": session_id, "kind": kind, "tool": tool, "risk": risk, "why": why}
        known = {name: value for name, value in fields.items() if value}
        self._audit.record(self.EVENT, **known)
        self._audit.flush()

    async def _grep(self, held: _Held, wanted: GrepCall, now: float) -> str:
        glob = Glob(glob_of(wanted))
        paths = [path for path in held.manifest if glob.matches(path)]
        texts, is_cut = await asyncio.to_thread(_texts, held.folder, held.manifest, paths)
        query = {
            "pattern": wanted.pattern,
            "ignore_case": wanted.ignore_case,
            "sizes": [len(text) for text in texts.values()],
        }
        done = await run(
            (sys.executable, "-I", "-S", _SEARCH),
            env={"PATH": "/usr/bin:/bin"},
            stdin=msgspec.json.encode(query) + b"\n" + b"".join(texts.values()),
            timeout_s=SEARCH_S,
        )
        if not done.ok:
            said = done.stderr.decode(errors="replace").strip()
            why = said if done.exit_code == 1 and said else "it takes too long"
            raise _RefusedError(f"the pattern can't be searched for: {why[:200]}", "bad_arguments")
        return _found(held, list(texts), done.stdout, now, is_cut=is_cut)


def _found(held: _Held, paths: Sequence[str], output: bytes, now: float, *, is_cut: bool) -> str:
    lines, size, last = [], 0, ""
    for one in output.splitlines():
        number, at, text = msgspec.json.decode(one, type=tuple[int, int, str])
        if paths[number] != last:
            last = paths[number]
            lines.append(held.reference(last, now))
        lines.append(f"{at}: {text}")
        size += len(text) + 300
        if size > MOST_CHARS:
            is_cut = True
            break
    note = ["[cut: ask for less, with a glob]"] if is_cut else []
    return "\n".join([*lines, *note]) or "nothing was found"


def _listed(held: _Held, wanted: GlobCall, now: float) -> str:
    glob = Glob(glob_of(wanted))
    paths = [path for path in held.manifest if glob.matches(path)]
    lines = [held.reference(path, now) for path in paths[:MOST_LISTED]]
    if len(paths) > MOST_LISTED:
        lines.append(f"[cut: {len(paths) - MOST_LISTED} more; give a narrower pattern]")
    return "\n".join(lines) or "nothing was found"


# -- on the disk ----------------------------------------------------------------------------------


def _manifest(folder: Path) -> tuple[dict[str, ManifestFile], int]:
    """Return the plain files below a folder, sorted, and how many others there are."""
    found: dict[str, ManifestFile] = {}
    left_out = 0
    root = Root(folder)
    try:
        for place, folders, files, fd in os.fwalk(".", dir_fd=root.fd, follow_symlinks=False):
            folders[:] = sorted(one for one in folders if not is_git_name(one))
            for name in files:
                path = f"{place}/{name}".removeprefix("./")
                data = None if is_git_name(name) or not is_plain(path) else _bytes_at(fd, name)
                if data is None or len(found) >= MOST_FILES:
                    left_out += 1
                else:
                    found[path] = ManifestFile(hashlib.sha256(data).hexdigest(), len(data))
    finally:
        root.close()
    return dict(sorted(found.items())), left_out


def _bytes_at(folder: int, name: str, most: int = MOST_FILE_BYTES) -> bytes | None:
    """Return a plain file's content, or None where it isn't plain or is longer than allowed."""
    try:
        descriptor = os.open(name, FILE, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not is_regular(status) or status.st_size > most:
            return None
        data = file.read(most + 1)
    return data if len(data) <= most else None


def _checked_bytes(root: Root, path: str, shown: ManifestFile) -> bytes | None:
    """Return a file's content if it still matches the manifest; else None."""
    try:
        with root.parent(path) as (folder, name):
            data = _bytes_at(folder, name, shown.size)
    except (OSError, GatehouseError):
        return None
    if data is None or ManifestFile(hashlib.sha256(data).hexdigest(), len(data)) != shown:
        return None
    return data


def _read(folder: Path, wanted: ReadCall, reference: Reference) -> str:
    root = Root(folder)
    try:
        data = _checked_bytes(root, reference.path, ManifestFile(reference.digest, reference.size))
    finally:
        root.close()
    if data is None:
        raise _RefusedError("the file isn't what the reference names any more", "changed_file")
    if b"\0" in data[:8192]:
        return f"[{reference.path} is binary, {len(data)} bytes: it is not shown]"
    lines = data.decode("utf-8", "replace").split("\n")
    chosen = list(enumerate(lines, 1))[wanted.first_line - 1 : wanted.last_line]
    text = "\n".join(f"{number}\t{line}" for number, line in chosen)
    if len(text) > MOST_CHARS:
        cut = len(text) - MOST_CHARS
        return f"{text[:MOST_CHARS]}\n[cut: {cut} characters; give first_line and last_line]"
    return text


def _texts(
    folder: Path, manifest: Mapping[str, ManifestFile], paths: Sequence[str]
) -> tuple[dict[str, bytes], bool]:
    """Return the contents of text files, and whether there was no room for all."""
    found: dict[str, bytes] = {}
    root, left = Root(folder), MOST_SEARCHED_BYTES
    try:
        for path in paths:
            left -= manifest[path].size
            if left < 0:
                break
            data = _checked_bytes(root, path, manifest[path])
            if data is not None and b"\0" not in data[:8192]:
                found[path] = data
    finally:
        root.close()
    return found, left < 0


def _lines_of(
    folder: Path, manifest: Mapping[str, ManifestFile], paths: set[str]
) -> dict[str, Sequence[str]]:
    known = sorted(path for path in paths if path in manifest)
    found, _ = _texts(folder, manifest, known)
    return {path: data.decode("utf-8", "replace").split("\n") for path, data in found.items()}
