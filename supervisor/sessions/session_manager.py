"""Sessions from start to end: copy, sandbox, MAX_UPTIME, last pass, recovery.

    starting -> running -> waiting -> stopping -> ended
    (core.sessions.state derives it from facts)

Level, not edge: at start-up the sessions without a recorded end are taken up where they stand.
Their sandboxes died with the supervisor, so they go on as `waiting`: the agent's changes are
compared once more, and the cards wait for answers.

It owns no channel: gate, egress, the agent's API and the workspace are in `surroundings`.
"""

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Engine

from supervisor.base import log, plain_files
from supervisor.base.clock import Clock
from supervisor.core.actions import content_hash
from supervisor.core.review_markdown import review_markdown
from supervisor.core.secrets.command_secrets import words_without_secrets
from supervisor.core.session_names import SessionIdentity, checked_name, identity, shown_workspace
from supervisor.core.sessions import Session, SessionId, as_started, copy_progress, state
from supervisor.errors import GatehouseError, NotFoundError, StorageError, UserError
from supervisor.records.audit import Audit
from supervisor.sandbox import running
from supervisor.sandbox.base import Running, Sandbox
from supervisor.sessions import session_output
from supervisor.sessions.start_session import StartSession, as_before, checked_workspace
from supervisor.sessions.surroundings import Surroundings
from supervisor.store import sessions as store

AGENT_GRACE_S = 10.0
PROGRESS_EVERY_S = 0.25
UPTIME_ENDED = "MAX_UPTIME was reached"
COPY = "merged"  # the private copy, in the session's folder
WAITS_FOR_ANSWER = "the agent is done; its changes wait for your answer in the inbox"


class _Live:
    """Facts of a session that exist only while this process runs."""

    def __init__(self) -> None:
        self.stop_reason: str | None = None
        self.stopped_by = ""
        self.wanted_stop = asyncio.Event()
        self.ended = asyncio.Event()
        self.running: Running | None = None
        self.exit_code: int | None = None
        self.progress: dict[str, int] | None = None
        self.limit = asyncio.timeout(None)
        self.marked_at = self.printed_at = 0.0
        self.size: tuple[int, int] | None = None


class SessionManager:
    """The sessions of this supervisor. `on_change` and `on_output` callbacks run in the event
    loop and must not block."""

    def __init__(
        self,
        *,
        engine: Engine,
        audit: Audit,
        clock: Clock,
        sandbox: Sandbox,
        surroundings: Surroundings,
        folder: Path,
        max_uptime_s: float,
    ) -> None:
        self._engine = engine
        self._audit = audit
        self._clock = clock
        self._sandbox = sandbox
        self._surroundings = surroundings
        self._folder = folder
        self._max_uptime_s = max_uptime_s
        self._live: dict[str, _Live] = {}
        self._change_watchers: list[Callable[[Session], None]] = []
        self._output_watchers: list[Callable[[str, bytes], None]] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping: str | None = None
        self._numbers: dict[str, int] = {}

    # -- asking -----------------------------------------------------------------------------------

    def get(self, session_id: str) -> Session:
        """Return the session with all its facts, or `NotFoundError`."""
        with self._engine.connect() as connection:
            session = store.get(connection, session_id)
        if session is None:
            raise NotFoundError(
                f"no session has the id `{session_id[:64]}`", "`gatehouse sessions` lists them"
            )
        return session

    def identity(self, session: Session) -> SessionIdentity:
        """Return the session's name, icon and colour for people, neither redacted nor made
        visible."""
        if session.id not in self._numbers:
            self._numbers = {one: number for number, one in enumerate(self.ids(), 1)}
        return identity(
            session,
            self._numbers.get(session.id, 1),
            started=datetime.fromtimestamp(session.created_at),
            now=datetime.fromtimestamp(self._clock.now()),
        )

    def recent(self, limit: int = 100) -> list[Session]:
        """Return the sessions, newest first."""
        with self._engine.connect() as connection:
            return store.newest(connection, limit)

    def ids(self) -> list[str]:
        """Return the ids of all sessions, oldest first."""
        with self._engine.connect() as connection:
            return store.in_order(connection)

    def live(self) -> list[Session]:
        """Return the sessions that haven't ended, newest first."""
        with self._engine.connect() as connection:
            found = store.not_ended(connection)
        return sorted(found, key=lambda one: one.created_at, reverse=True)

    def ended(self, limit: int, skip: int = 0) -> tuple[list[Session], int]:
        """Return ended sessions, newest first, from the one at `skip` on, and how many there are
        in all."""
        with self._engine.connect() as connection:
            return store.ended(connection, limit, skip), store.count_ended(connection)

    def last_of_job(self, name: str) -> Session | None:
        """Return the newest session of a named job."""
        with self._engine.connect() as connection:
            return store.newest_of_job(connection, name)

    def close_branch(self, session_id: str, closed: str) -> bool:
        """Record with a job's session what became of its branch. Return whether a branch waited."""
        result = self.get(session_id).job_result
        if result is None or not result.waits:
            return False
        self._change(session_id, job_result=msgspec.structs.replace(result, closed=closed))
        return True

    def has_branch(self, session_id: str) -> bool:
        """Return whether a branch of its copy waits to be taken."""
        return any(one.id == session_id for one in self.with_branches())

    def with_branches(self) -> list[Session]:
        """Return the ended sessions of jobs whose branch waits to be taken, newest first."""
        with self._engine.connect() as connection:
            found = store.newest_jobs(connection)
        return [
            one
            for one in found
            if one.ended_at is not None and one.job_result is not None and one.job_result.waits
        ]

    def authenticate(self, session_id: str, token: str) -> bool:
        """Return whether `token` is this session's agent token and the session hasn't ended."""
        session = self.get(session_id)
        matches = hmac.compare_digest(session.token_hash, content_hash(token.encode()))
        return matches and session.ended_at is None

    def folder(self, session_id: str) -> Path:
        """Return the folder of a session's copy, output and review."""
        return self._folder / session_id

    def output(self, session_id: str, offset: int) -> tuple[bytes, int]:
        """Return the agent's output from byte `offset` on, at most 256 kB, and the next offset."""
        self.get(session_id)
        return session_output.read(self.folder(session_id), offset)

    def output_size(self, session_id: str) -> int:
        """Return the bytes of kept output, so that a page can begin near the end."""
        return session_output.size(self.folder(session_id))

    def progress(self, session_id: str) -> dict[str, int] | None:
        """Return the progress of the private copy while it is being made: `{"done", "total",
        "bytes"}` in files and bytes."""
        live = self._live.get(session_id)
        return live.progress if live else None

    def running(self, session_id: str) -> Running | None:
        """Return the sandbox of a session while it runs."""
        live = self._live.get(session_id)
        return live.running if live else None

    def on_change(self, callback: Callable[[Session], None]) -> None:
        self._change_watchers.append(callback)

    def on_output(self, callback: Callable[[str, bytes], None]) -> None:
        self._output_watchers.append(callback)

    # -- doing ------------------------------------------------------------------------------------

    def run_in(self, tasks: asyncio.TaskGroup) -> None:
        """Set the task group that sessions run in."""
        self._tasks = tasks

    async def start(self, wanted: StartSession) -> Session:
        """Record a session and begin it; copying and starting go on after this returns.
        `UserError` for bad input."""
        if self._stopping is not None or self._tasks is None:
            raise UserError("Gatehouse is shutting down", "start it again first")
        if wanted.resume is not None:
            wanted = as_before(self.get(wanted.resume), wanted)
        if wanted.workspace == Path():
            raise UserError("no workspace is named", "give the folder of the project")
        workspace = checked_workspace(wanted.workspace)
        token = secrets.token_urlsafe(32)
        now = self._clock.now()
        facts: dict[str, Any] = {"command": wanted.command, "notices": (), "base": wanted.base}
        facts |= await self._surroundings.plan(msgspec.structs.replace(wanted, workspace=workspace))
        session = Session(
            id=SessionId(secrets.token_hex(16)),
            kind=wanted.kind,
            workspace=str(workspace),
            name=checked_name(wanted.name),
            token_hash=content_hash(token.encode()),
            created_at=now,
            deadline_at=now + wanted.uptime_s(self._max_uptime_s),
            **facts,
        )
        # The redacted command is kept and shown; the agent starts with the given words.
        session = msgspec.structs.replace(session, command=words_without_secrets(session.command))
        self._audit.record(
            "session_started", **as_started(session), **self._surroundings.policy_on_record(session)
        )
        with self._engine.begin() as connection:
            store.add(connection, session)
        self.folder(session.id).mkdir(parents=True, mode=0o700)
        live = self._live[session.id] = _Live()
        self._surroundings.open(session, wanted)
        self._announce(session)
        self._tasks.create_task(
            self._run(session, live, (wanted, token)), name=f"session-{session.id}"
        )
        return session

    async def stop(self, session_id: str, *, reason: str, by: str) -> None:
        """Begin the orderly end of a session; returns at once. Stopping an ended session does
        nothing.
        """
        self.get(session_id)
        live = self._live.get(session_id)
        if live is not None and live.stop_reason is None:
            if self.get(session_id).paused_at is not None:
                self.unpause(session_id, by=by)
            live.stop_reason, live.stopped_by = reason, by
            live.wanted_stop.set()

    def pause(self, session_id: str, *, by: str) -> Session:
        """Pause a running session's processes and its uptime. `UserError` where its agent doesn't
        run.
        """
        session, live = self.get(session_id), self._live.get(session_id)
        if live is None or state(session) != "running":
            raise UserError("this session's agent doesn't run", "only one that runs is paused")
        how = self._sandbox.pause(self.folder(session_id) / COPY)
        live.limit.reschedule(None)
        self._audit.record("session_paused", session=session_id, how=how, by=by)
        return self._change(session_id, paused_at=self._clock.now())

    def unpause(self, session_id: str, *, by: str) -> Session:
        """Continue a paused session. `UserError` where it isn't paused."""
        session, live = self.get(session_id), self._live.get(session_id)
        if live is None or session.paused_at is None:
            raise UserError("this session isn't paused", "see `gatehouse sessions`")
        now = self._clock.now()
        self._audit.record("session_unpaused", session=session_id, by=by)
        deadline_at = session.deadline_at + now - session.paused_at
        live.limit.reschedule(asyncio.get_running_loop().time() + max(0.0, deadline_at - now))
        session = self._change(session_id, paused_at=None, deadline_at=deadline_at)
        self._sandbox.unpause(self.folder(session_id) / COPY)
        return session

    def rename(self, session_id: str, name: str, *, by: str) -> Session:
        """Give a session another name; "" gives the usual one back. `UserError` if it can't be a
        name."""
        self.get(session_id)
        name = checked_name(name)
        self._audit.record("session_renamed", session=session_id, name=name, by=by)
        return self._change(session_id, name=name)

    def resize(self, session_id: str, rows: int, columns: int) -> None:
        """Give the agent's terminal the size of the person's, and note it with the output."""
        live = self._live.get(session_id)
        if live is None:
            return
        if live.size != (rows, columns):
            session_output.mark_size(self.folder(session_id), rows, columns)
        live.size = rows, columns
        if live.running is not None:
            live.running.resize(rows, columns)

    async def stop_all(self, reason: str) -> None:
        """End every session in order and wait for it. No session can be started afterwards."""
        self._stopping = reason
        for session_id in list(self._live):
            await self.stop(session_id, reason=reason, by="gatehouse")
        for live in list(self._live.values()):
            await live.ended.wait()

    async def wait_ended(self, session_id: str) -> Session:
        """Wait for the session's end."""
        live = self._live.get(session_id)
        if live is not None:
            await live.ended.wait()
        return self.get(session_id)

    def record_review(self, session_id: str, review: dict[str, Any]) -> Session:
        """Keep the findings that the review agent reported: with the session, and as `review.json`
        and `review.md` beside it.

        `review` has the fields of the agent API's `ReviewBody`, checked there; a later report
        replaces an earlier one.
        """
        self._audit.record(
            "review_recorded", session=session_id, findings=len(review.get("findings", ()))
        )
        folder = self.folder(session_id)
        try:
            plain_files.replace(
                folder / "review.json", msgspec.json.format(msgspec.json.encode(review)) + b"\n"
            )
            plain_files.replace(
                folder / "review.md", review_markdown(review).encode("utf-8", "backslashreplace")
            )
        except OSError as error:
            raise StorageError(
                f"the review can't be written: {error.strerror}", "look at the data folder"
            ) from error
        facts = {name: value for name, value in review.items() if name != "turns"}
        return self._change(session_id, review=facts)

    def keep_bodies(self, session_id: str, *, is_on: bool, by: str) -> Session:
        """Start or stop keeping the start of its requests' bodies for the Network tab."""
        if self.get(session_id).ended_at is not None:
            raise UserError("the session has ended", "bodies of a running session can be kept")
        self._audit.record("bodies_switched", session=session_id, keep=is_on, by=by)
        return self._change(session_id, keep_bodies=is_on)

    def take_up_sessions(self) -> list[str]:
        """At start-up, resume sessions that a crash left. Return a line about each for
        the person.
        """
        assert self._tasks is not None
        lines = []
        with self._engine.connect() as connection:
            left = store.not_ended(connection)
        for session in left:
            killed = running.kill(session.pid, session.pid_started)
            where = shown_workspace(session) or self.identity(session).name
            line = (
                f"session {session.id} on {where} had no recorded end: the supervisor"
                " died; its agent was ended with it"
            )
            if killed:
                line += " (its sandbox still ran, and was killed now)"
            policy = self._surroundings.policy_on_record(session)
            self._audit.record("session_found_dead", session=session.id, killed=killed, **policy)
            live = self._live[session.id] = _Live()
            self._surroundings.open(session)
            notices = (
                *session.notices,
                (
                    "the supervisor died during this session; changes that the agent had made wait"
                    " for your answer"
                ),
            )
            now = self._clock.now()
            paused_s = 0.0 if session.paused_at is None else now - session.paused_at
            session = self._change(
                session.id,
                agent_exited_at=session.agent_exited_at or now,
                notices=notices,
                deadline_at=session.deadline_at + paused_s,
                paused_at=None,
            )
            self._tasks.create_task(self._run(session, live, None), name=f"session-{session.id}")
            lines.append(line)
        return lines

    # -- the life of one session ------------------------------------------------------------------

    async def _run(
        self, session: Session, live: _Live, new: tuple[StartSession, str] | None
    ) -> None:
        """Run a session's whole life, with the request and the token; without, the rest of one
        whose agent died in a crash."""
        reason = "failed"
        limit = live.limit = asyncio.timeout(max(0.0, session.deadline_at - self._clock.now()))
        try:
            async with limit:
                if new is not None:
                    session = await self._start_agent(session, live, *new)
                    session = await self._until_agent_exits(session, live)
                has_terminal = new is not None and new[0].tty
                reason = await self._until_answered(session, live, has_terminal=has_terminal)
        except GatehouseError as error:
            reason = str(error)
        except Exception as error:
            if limit.expired():
                reason = UPTIME_ENDED
            else:
                log.exception("session failed", session=session.id)
                reason = f"internal error: {type(error).__name__}: {error}"
        finally:
            await asyncio.shield(self._end(session, live, live.stop_reason or reason))

    async def _start_agent(
        self, session: Session, live: _Live, wanted: StartSession, token: str
    ) -> Session:
        begun = told = self._clock.monotonic()

        def on_progress(done: int, total: int, size: int) -> None:
            nonlocal told
            now = self._clock.monotonic()
            live.progress = copy_progress(done, total, size, now - begun)
            if now - told >= PROGRESS_EVERY_S:
                told = now
                self._announce(session)

        notes = await _unless(
            live.wanted_stop, self._surroundings.copy_workspace(session, wanted, on_progress)
        )
        live.progress = None
        if notes:
            session = self._change(session.id, notices=(*session.notices, *notes))
        if live.wanted_stop.is_set():
            return session
        is_given = session.kind in ("agent", "quarantine") and wanted.command
        given = msgspec.structs.replace(session, command=wanted.command) if is_given else session
        spec = self._surroundings.spec(given, token, tty=wanted.tty)
        live.running = await self._sandbox.start(
            spec,
            on_output=lambda data: self._keep_output(session.id, data),
            on_listeners=lambda listeners: self._surroundings.attach(session, listeners),
        )
        if live.size is not None:  # told before there was a terminal
            live.running.resize(*live.size)
        facts = {"pid": live.running.pid, "pid_started": live.running.pid_started}
        return self._change(session.id, started_at=self._clock.now(), **facts)

    async def _until_agent_exits(self, session: Session, live: _Live) -> Session:
        if live.running is None or live.wanted_stop.is_set():
            return session
        live.exit_code = await _unless(live.wanted_stop, live.running.wait())
        if live.exit_code is None:
            return session
        why = live.running.killed_why
        self._audit.record("agent_exited", session=session.id, exit_code=live.exit_code, why=why)
        notices = (*session.notices, why) if why else session.notices
        return self._change(
            session.id, agent_exited_at=self._clock.now(), exit_code=live.exit_code, notices=notices
        )

    async def _until_answered(self, session: Session, live: _Live, *, has_terminal: bool) -> str:
        """After the agent: close its own parts, compare its last changes, and wait for the
        cards. Whoever gave it a terminal wants that back: cards are answered after the end."""
        if live.wanted_stop.is_set():
            return live.stop_reason or "stopped"
        if session.job is not None and session.job_result is None:
            result = await _unless(live.wanted_stop, self._surroundings.finish_job(session))
            if result is None:
                return live.stop_reason or "stopped"
            session = self._change(session.id, job_result=result)
        self._surroundings.close_requests(session.id, "the agent has exited")
        await self._surroundings.final_pass(session, "the agent has exited")
        if has_terminal:
            return "the agent has exited"
        if self._surroundings.waits_for_person(session.id):
            notices = (*self.get(session.id).notices, WAITS_FOR_ANSWER)
            self._change(session.id, notices=notices)
        while self._surroundings.waits_for_person(session.id):
            await _unless(
                live.wanted_stop, self._surroundings.until_something_is_answered(session.id)
            )
            if live.wanted_stop.is_set():
                return live.stop_reason or "stopped"
        return "the agent has exited"

    async def _end(self, session: Session, live: _Live, reason: str) -> None:
        """The orderly end, in the order that users rely on. A step that fails is said, and
        doesn't keep the others from running."""
        session = self._try_change(session, stopping_at=self._clock.now())
        await self._step(session, "closing requests", self._close_requests(session, reason))
        await self._step(session, "final pass", self._surroundings.final_pass(session, reason))
        if live.running is not None and live.exit_code is None:
            await self._step(session, "ending the agent", _end_agent(live))
            await self._step(session, "last pass", self._surroundings.final_pass(session, reason))
        await self._step(session, "closing requests", self._close_requests(session, reason))
        await self._step(session, "detach", self._surroundings.detach(session))
        exit_code = live.exit_code if live.exit_code is not None else session.exit_code
        with contextlib.suppress(GatehouseError):
            self._audit.record(
                "session_ended",
                session=session.id,
                reason=reason,
                by=live.stopped_by or "gatehouse",
                exit_code=exit_code,
            )
        self._try_change(
            session, ended_at=self._clock.now(), end_reason=reason, exit_code=exit_code
        )
        live.ended.set()
        del self._live[session.id]

    async def _step(self, session: Session, name: str, step: Any) -> None:
        try:
            await step
        except Exception as error:
            log.exception("ending a session", session=session.id, step=name)
            with contextlib.suppress(GatehouseError):
                notices = (*self.get(session.id).notices, f"{name} failed: {error}")
                self._change(session.id, notices=notices)

    async def _close_requests(self, session: Session, reason: str) -> None:
        self._surroundings.close_requests(session.id, reason)

    def _keep_output(self, session_id: str, data: bytes) -> None:
        live, now = self._live.get(session_id), self._clock.now()
        if live is not None:
            is_late = now - live.marked_at >= session_output.MARK_EVERY_S
            if is_late or now - live.printed_at >= session_output.PAUSE_S:
                live.marked_at = now
                session_output.mark_time(self.folder(session_id), now)
            live.printed_at = now
        session_output.append(self.folder(session_id), data)
        for watcher in self._output_watchers:
            watcher(session_id, data)

    def _change(self, session_id: str, **facts: object) -> Session:
        with self._engine.begin() as connection:
            session = store.change(connection, session_id, **facts)
        self._announce(session)
        return session

    def _try_change(self, session: Session, **facts: object) -> Session:
        """Record facts of an ending session. Where they can't be, the next start finds the
        session without an end."""
        try:
            return self._change(session.id, **facts)
        except GatehouseError as error:
            log.error("session not recorded", session=session.id, error=str(error))
            return session

    def _announce(self, session: Session) -> None:
        for watcher in self._change_watchers:
            watcher(session)


async def _unless[T](event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`, or None where the event came first and it was cancelled. Raises
    what `work` raises."""
    try:
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(work)
            waiting = tasks.create_task(event.wait())
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            working.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return None if working.cancelled() else working.result()


async def _end_agent(live: _Live) -> None:
    """SIGTERM, ten seconds, SIGKILL to everything in the sandbox."""
    assert live.running is not None
    live.running.terminate()
    try:
        async with asyncio.timeout(AGENT_GRACE_S):
            live.exit_code = await live.running.wait()
    except TimeoutError:
        live.running.kill("it did not end within 10 s of SIGTERM")
        live.exit_code = await live.running.wait()
