"""Run the egress process and hand it the sessions' listening sockets.

It decides only that nothing passes while egress is down: its sockets then answer 503 at once. The
process is restarted and gets the sockets again, of which this side keeps copies. This side holds no
key and never sees the traffic.
"""

import asyncio
import contextlib
import itertools
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from supervisor import settings
from supervisor.base import log, process
from supervisor.core.network.egress_wire import (
    Abandoned,
    Answer,
    Body,
    CloseListener,
    CloseSession,
    Configure,
    Credential,
    Draw,
    EgressRefused,
    ForbidEndpoints,
    FromEgress,
    KeepBodies,
    Listener,
    Moving,
    OpenListener,
    Outcomes,
    PutCredentials,
    Question,
    Ready,
    Reserve,
    RulesChanged,
    Settled,
    Spent,
    ToEgress,
    Used,
)
from supervisor.core.policy.policy_text import LONGEST_HOLD_S
from supervisor.core.policy.rules import Policy
from supervisor.errors import StorageError, UserError
from supervisor.gate.gate import Gate
from supervisor.ledger.spending import Spending
from supervisor.network import reach
from supervisor.network.egress_channel import Channel
from supervisor.network.egress_questions import EgressQuestions, deny
from supervisor.network.metering import ModelCalls
from supervisor.network.network_log import NetworkLog
from supervisor.network.reach import Reach

READY_TIMEOUT_S = 30.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
# After a process that lived this long, the restart pauses begin anew.
WELL_AFTER_S = 30.0
MOST_OPEN_QUESTIONS = 2048
# -P keeps the folder that it runs in off its path. Gatehouse's own folder may be a workspace, where
# an agent could add files that would become modules of egress.
EGRESS = (sys.executable, "-P", "-m", "supervisor.egress")
STOP_TIMEOUT_S = 5.0
_DOWN = (
    b"HTTP/1.1 503 egress is being started; nothing is let through meanwhile\r\n"
    b"Content-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"error":"refused","why":"egress is being started; nothing is let through meanwhile",'
    b'"remedy":"try again in a moment","rule":null,"request_id":null}'
)


class Reconsidering:
    """Judges open connections again when rules may have changed, in the background and in small
    steps. One per egress process."""

    def __init__(
        self, tasks: asyncio.TaskGroup, questions: EgressQuestions, channel: Channel
    ) -> None:
        self._tasks = tasks
        self._questions = questions
        self._channel = channel
        self._is_outdated = False
        self._is_over = False
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Judge everything; if a round is running, do another after it."""
        self._is_outdated = True
        if not self._is_over and (self._task is None or self._task.done()):
            self._task = self._tasks.create_task(self._run(), name="what goes on is judged again")

    def cancel(self) -> None:
        """Stop, since egress is gone, and nothing may begin any more."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._is_outdated:
            self._is_outdated = False
            for messages in self._questions.reconsider():
                for message in messages:
                    self._channel.send(message)
                await self._channel.sent()


class _Lent(NamedTuple):
    """Our own copy of a session's socket, its kind, and for `host` the port of this machine."""

    socket: socket.socket
    kind: Listener
    port: int = 0


def _refuse_on(lent: _Lent) -> None:
    """Refuse clients at once while egress is down, so that no connection hangs. Name queries wait
    for the next egress."""
    if lent.kind != "names":
        asyncio.get_running_loop().add_reader(lent.socket, _accept_and_refuse, lent.socket)


def _accept_and_refuse(listener: socket.socket) -> None:
    try:
        client, _ = listener.accept()
    except OSError:
        return
    with client, contextlib.suppress(OSError):
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.recv(65536)  # unread bytes would turn the answer into a reset
        client.send(_DOWN)
        client.shutdown(socket.SHUT_WR)


def _give_up(lent: _Lent) -> None:
    """Close our copy."""
    asyncio.get_running_loop().remove_reader(lent.socket)
    lent.socket.close()


def _is_same(one: socket.socket, other: socket.socket) -> bool:
    """Return whether two descriptors are the same socket."""
    if other.fileno() < 0:
        return False
    return os.path.sameopenfile(one.fileno(), other.fileno())


@dataclass(eq=False)
class _Session:
    """A served session. `listeners` are our own copies, which outlive any egress process."""

    credentials: tuple[Credential, ...] = ()
    keeps_bodies: bool = False
    listeners: dict[int, "_Lent"] = field(default_factory=dict)


@dataclass(eq=False)
class _Run:
    """One egress process: its channel, and its questions."""

    tasks: asyncio.TaskGroup
    channel: Channel
    questions: EgressQuestions
    calls: ModelCalls
    reconsidering: Reconsidering
    is_configured: asyncio.Event = field(default_factory=asyncio.Event)
    serves: bool = False
    asking: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    settled: list[Settled] = field(default_factory=list)


class NetworkBroker:
    """One per supervisor. Without `spending`, no model is called. `names` stands in for DNS
    (tests)."""

    def __init__(
        self,
        gate: Gate,
        network_log: NetworkLog,
        *,
        ca_directory: Path,
        ca_certificate: Path,
        upstream_ca_bundle: Path,
        hold_s: float = 60.0,
        spending: Spending | None = None,
        ask_at_limit: bool = True,
        model_hosts: Sequence[str] = (),
        forbidden: Sequence[tuple[str, int]] = (),
        names: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.ca_certificate_path = ca_certificate
        self.starts = 0
        self._gate = gate
        self._log = network_log
        self._configure = Configure(
            ca_directory=str(ca_directory),
            upstream_ca_bundle=str(upstream_ca_bundle),
            hold_s=max(hold_s, LONGEST_HOLD_S),  # a policy may say more than the setting
            names=names,
            model_hosts=tuple(model_hosts),
        )
        self._hold_s = hold_s
        self._spending = spending
        self._ask_at_limit = ask_at_limit
        self._forbidden = tuple(forbidden)
        self._sessions: dict[str, _Session] = {}
        self._reaches: dict[str, Reach] = {}
        self._listener_ids = itertools.count(1)
        self._run: _Run | None = None
        self._child: process.Child | None = None
        self._stopping = asyncio.Event()
        self._served = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    # -- for the composition root -----------------------------------------------------------------

    @property
    def healthy(self) -> bool:
        """Return whether an egress process serves."""
        return self._run is not None and self._run.serves

    @property
    def pid(self) -> int | None:
        """Return the process id of egress while there is one."""
        return self._child.pid if self._child is not None else None

    @property
    def open_questions(self) -> int:
        """Return how many questions of egress wait for an answer now."""
        return len(self._run.asking) if self._run is not None else 0

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start egress and keep it running, in `tasks`. Raise `UserError` where it doesn't come
        up."""
        self._task = tasks.create_task(self._supervise(), name="egress")
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self.wait_healthy()
        except TimeoutError:
            raise UserError("egress does not start", "see its lines on standard error") from None

    async def wait_healthy(self, *, after_starts: int = 0) -> None:
        """Wait until an egress serves that was started after the first `after_starts` starts."""
        async with self._served:
            await self._served.wait_for(lambda: self.healthy and self.starts > after_starts)

    async def stop(self) -> None:
        """End egress. Its connections end, and questions asked meanwhile are denied."""
        self._stopping.set()
        if self._run is not None:
            await self._run.calls.all_told()
        if self._run is not None:
            self._run.channel.cut()
        if self._task is not None:
            # Also if it was cancelled because a task beside it failed: that failure is reported.
            await asyncio.wait({self._task})
        for session_id in list(self._sessions):
            await self.close_session(session_id)

    async def open_session(
        self,
        session_id: str,
        listener: socket.socket,
        credentials: Sequence[Credential] = (),
        *,
        kind: Listener = "proxy",
        port: int = 0,
    ) -> None:
        """Serve a socket: every connection to it belongs to this session. The caller closes the
        socket. Another call for the same session adds a socket; only new credentials replace the
        old ones."""
        session = self._sessions.setdefault(session_id, _Session())
        listener_id = next(self._listener_ids)
        lent = session.listeners[listener_id] = _Lent(listener.dup(), kind, port)
        lent.socket.setblocking(False)
        if credentials:
            session.credentials = tuple(credentials)
        if self._run is not None and self._run.serves:
            self._run.channel.send(
                PutCredentials(session_id=session_id, credentials=session.credentials)
            )
            self._run.channel.send(_opening(session_id, listener_id, lent), lent.socket)
        else:
            _refuse_on(lent)

    async def open_reach(
        self,
        session_id: str,
        listener: socket.socket,
        hosts: frozenset[tuple[str, int]],
        own: frozenset[tuple[str, int]] | None,
    ) -> str:
        """Serve a socket for one command of a session, which may read at these hosts and no others.
        Return the id to close it by (`close_session`).

        With `own`, it is the plan of a command that wasn't approved: it gets no secret, and where
        the rules ask, it may read only at the `own` hosts. None: a person, or a rule, approved the
        command.
        """
        stand_in = reach.stand_in(session_id)
        self._reaches[stand_in] = Reach(session_id, hosts, hosts if own is None else own)
        session = self._sessions.get(session_id) if own is None else None
        credentials = session.credentials if session is not None else ()
        await self.open_session(stand_in, listener, credentials)
        return stand_in

    async def open_server(
        self,
        session_id: str,
        listener: socket.socket,
        own: Policy,
        credentials: Sequence[Credential],
    ) -> str:
        """Serve a socket for an MCP server that runs beside a session, by rules and with
        credentials of its own. Return the id to close it by (`close_session`)."""
        stand_in = reach.stand_in(session_id)
        self._reaches[stand_in] = Reach(session_id, frozenset(), frozenset(), own)
        await self.open_session(stand_in, listener, credentials)
        return stand_in

    def put_credentials(self, session_id: str, credentials: Sequence[Credential]) -> None:
        """Replace a session's credentials, if it is served."""
        if session_id in self._sessions:
            session = self._sessions[session_id]
            session.credentials = tuple(credentials)
            self._tell(PutCredentials(session_id=session_id, credentials=session.credentials))

    def _tell(self, message: ToEgress) -> None:
        """Send a message to the running egress. The next one gets the whole state when it
        begins."""
        if self._run is not None and self._run.serves:
            self._run.channel.send(message)

    async def close_listener(self, session_id: str, listener: socket.socket) -> None:
        """Stop serving one socket of a session (whose tool sandbox ended), if the session is
        served."""
        session = self._sessions.get(session_id)
        for listener_id, lent in list(session.listeners.items()) if session is not None else ():
            if session is not None and _is_same(lent.socket, listener):
                _give_up(session.listeners.pop(listener_id))
                if self._run is not None:
                    self._run.channel.send(
                        CloseListener(session_id=session_id, listener_id=listener_id)
                    )

    async def close_session(self, session_id: str) -> None:
        """Stop serving a session, and end its connections."""
        session = self._sessions.pop(session_id, None)
        self._reaches.pop(session_id, None)
        if session is None:
            return
        for lent in session.listeners.values():
            _give_up(lent)
        if self._run is not None:
            self._run.calls.closing(session_id)
            self._run.channel.send(CloseSession(session_id=session_id))

    def keep_bodies(self, session_id: str, *, is_on: bool) -> None:
        """Keep the beginnings of an open session's bodies from now on, or stop. May be repeated."""
        session = self._sessions.get(session_id)
        if session is None or session.keeps_bodies == is_on:
            return
        session.keeps_bodies = is_on
        self._tell(KeepBodies(session_id=session_id, is_on=is_on))

    def end_connections(self) -> None:
        """Cut every connection of every session now, including streams and WebSockets. Egress is
        restarted."""
        if self._run is not None:
            self._run.channel.cut()

    def reconsider(self) -> None:
        """End what the rules no longer allow, in the background."""
        if self._run is not None:
            self._run.reconsidering.begin()

    def rules_changed(self) -> None:
        """Reconsider running traffic, and clear the likely allows."""
        if self._run is not None:
            self._run.channel.send(RulesChanged())
        self.reconsider()

    def forbid(self, endpoints: Sequence[tuple[str, int]]) -> None:
        """Replace the list of Gatehouse's own listeners, which are never dialled, whatever a rule
        says."""
        self._forbidden = tuple(endpoints)
        if self._run is not None:
            self._run.channel.send(ForbidEndpoints(endpoints=self._forbidden))

    # -- the process ------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        """Start egress, again and again, until stopped."""
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            began = loop.time()
            try:
                await self._run_once()
            except (
                Exception
            ) as error:  # whatever it was: nothing is let through, and it is tried again
                log.exception("egress failed", error=type(error).__name__)
            if self._stopping.is_set():
                return
            pause_s = (
                FIRST_PAUSE_S
                if loop.time() - began > WELL_AFTER_S
                else min(pause_s * 2, LONGEST_PAUSE_S)
            )
            self._record("egress_lost", pause_s=pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()

    async def _run_once(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._child = await _start_egress(theirs)
            async with asyncio.TaskGroup() as tasks:
                hold_s = self._hold_s
                calls = ModelCalls(
                    self._gate, self._spending, hold_s, ask_at_limit=self._ask_at_limit
                )
                channel = Channel(
                    ours,
                    lambda message: self._obey(run, reach.meant(message)),
                    lambda: self._settle(run),
                )
                questions = EgressQuestions(self._gate, hold_s, self._reaches)
                again = Reconsidering(tasks, questions, channel)
                run = self._run = _Run(tasks, channel, questions, calls, again)
                begin = tasks.create_task(self._begin(run))
                try:
                    await channel.read()
                finally:
                    run.reconsidering.cancel()
                    for task in (begin, *run.asking.values()):
                        task.cancel()
        finally:
            self._take_back()
            ours.close()
            await self._reap()

    async def _begin(self, run: _Run) -> None:
        """Configure a new process, wait until it is ready, and hand the sessions over."""
        run.channel.send(msgspec.structs.replace(self._configure, start=self.starts))
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await run.is_configured.wait()
        except TimeoutError:
            log.error("egress is not ready in time")
            run.channel.cut()
            return
        run.channel.send(ForbidEndpoints(endpoints=self._forbidden))
        for session_id, session in self._sessions.items():
            run.channel.send(PutCredentials(session_id=session_id, credentials=session.credentials))
            run.channel.send(KeepBodies(session_id=session_id, is_on=session.keeps_bodies))
            for listener_id, lent in session.listeners.items():
                asyncio.get_running_loop().remove_reader(lent.socket)
                run.channel.send(_opening(session_id, listener_id, lent), lent.socket)
        run.serves = True
        self.starts += 1
        self._record("egress_started", pid=self.pid)
        async with self._served:
            self._served.notify_all()

    def _take_back(self) -> None:
        """Refuse on the sockets of a lost egress, and settle its open questions."""
        run, self._run = self._run, None
        for session in self._sessions.values():
            for lent in session.listeners.values():
                _refuse_on(lent)
        if run is not None:
            self._settle(run)
            run.questions.settle_all("egress ended")
            for spent, charge in run.calls.lose_all():
                self._log.called(spent, charge)
            self._log.egress_ended()
            run.channel.close()

    async def _reap(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await _reap_egress(child)

    def _record(self, event: str, **facts: object) -> None:
        try:
            self._gate.audit.record(event, **facts)  # type: ignore[arg-type]
        except StorageError as error:
            log.error("not recorded", event_name=event, error=str(error))

    # -- the channel ------------------------------------------------------------------------------

    def _obey(self, run: _Run, message: FromEgress) -> None:
        match message:
            case Ready():
                run.is_configured.set()
            case Question() | Reserve() | Draw():
                self._ask(run, message)
            case Abandoned():
                task = run.asking.get(message.question_id)
                if task is not None:
                    task.cancel()
            case Settled():
                run.settled.append(message)
            case Outcomes():
                run.settled.extend(message.settled)
            case Moving():
                self._log.moving(message)
            case EgressRefused():
                run.questions.refused(message)
                self._log.refused(message)
            case Spent():
                self._log.called(message, run.calls.spent(message))
            case Used():
                run.calls.used(message)
            case Body():
                self._log.body(message)

    def _settle(self, run: _Run) -> None:
        """Record the reported outcomes of allowed questions."""
        if not run.settled:
            return
        settled, run.settled = run.settled, []
        run.questions.settle(*settled)
        for one in settled:
            self._log.settled(one)

    def _ask(self, run: _Run, question: Question | Reserve | Draw) -> None:
        if question.session_id not in self._sessions and question.session_id not in {
            one.session_id for one in self._reaches.values()
        }:
            run.channel.send(deny(question, "the session has ended", "start a new session"))
        elif question.question_id in run.asking or len(run.asking) >= MOST_OPEN_QUESTIONS:
            run.channel.send(
                deny(question, "too many requests wait for an answer", "send fewer at a time")
            )
        elif (
            isinstance(question, Question)
            and (answer := run.questions.by_rules(question)) is not None
        ):
            self._reply(run, question, answer)
        else:
            # Questions that rules alone answer are answered before this returns; the group waits
            # for the others.
            begun = asyncio.Task(
                self._answer(run, question), loop=asyncio.get_running_loop(), eager_start=True
            )
            if begun.done():
                begun.result()
                return
            try:
                task = run.tasks.create_task(
                    _end_of(begun), name=f"question-{question.question_id}"
                )
            except RuntimeError:  # the group is ending
                begun.cancel()
                raise
            run.asking[question.question_id] = task
            task.add_done_callback(lambda _: run.asking.pop(question.question_id, None))

    async def _answer(self, run: _Run, question: Question | Reserve | Draw) -> None:
        if not isinstance(question, Question):
            answer = await run.calls.answer(question)
            if isinstance(question, Reserve) and answer.decision == "allow":
                self._log.calling(question)
            run.channel.send(answer)
            return
        asked_at = asyncio.get_running_loop().time()
        answer = await run.questions.answer(question)
        # Only a person takes long.
        by_person = answer.request_id is not None or answer.decision == "ask_timeout"
        held_s = round(asyncio.get_running_loop().time() - asked_at, 3) if by_person else 0.0
        self._reply(run, question, answer, held_s)

    def _reply(self, run: _Run, question: Question, answer: Answer, held_s: float = 0.0) -> None:
        run.channel.send(answer)
        self._log.answered(reach.of_session(question), answer, held_s)


async def _end_of(task: asyncio.Task[None]) -> None:
    """Wait until the task is done. If cancelled, cancel it too."""
    await task


def _opening(session_id: str, listener_id: int, lent: _Lent) -> OpenListener:
    return OpenListener(
        session_id=session_id, listener_id=listener_id, kind=lent.kind, port=lent.port
    )


def egress_environment() -> dict[str, str]:
    """Return the environment of egress.

    INVARIANT: the looked-up name is the judged one. `search` in this machine's resolv.conf would
    turn an unknown name into another (`api.example.com.corp.example`); LOCALDOMAIN (resolver(5))
    replaces that list. /etc/hosts counts as before.
    """
    return settings.inherited("LANG", "PATH") | settings.for_our_python() | {"LOCALDOMAIN": "."}


async def _start_egress(channel: socket.socket) -> process.Child:
    """Start egress with its end of the channel, which the caller still has to close."""
    return await process.spawn(
        [*EGRESS, "--channel-fd", str(channel.fileno())],
        env=egress_environment(),
        cwd=settings.ROOT,
        stderr=None,
        pass_fds=[channel.fileno()],
    )


async def _reap_egress(child: process.Child) -> None:
    """Wait for an egress whose channel is closed; kill it after `STOP_TIMEOUT_S`."""
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await child.wait()
    except TimeoutError:
        child.kill_tree()
    finally:
        child.close()
