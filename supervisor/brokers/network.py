"""The supervisor's side of egress: runs the egress process, hands it the sessions' listening sockets, answers its questions.

It decides only how the gate is asked: a CONNECT and a plain request are decided (and may wait for a person); a request inside of a
CONNECT is judged by the rules, and where no rule speaks it is covered by the person's answer to its own CONNECT. Everything is
denied while egress is down, and by every failure here (law 3). It holds no key and never touches the traffic.
"""

import asyncio
import contextlib
import errno
import ipaddress
import re
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import structlog

from supervisor import process, settings
from supervisor.core.actions import Network
from supervisor.core.egress_wire import (
    MAX_MESSAGE_BYTES,
    Abandoned,
    Answer,
    CloseSession,
    Configure,
    Credential,
    ForbidEndpoints,
    FromEgress,
    OpenListener,
    PutCredentials,
    Question,
    Ready,
    Settled,
    ToEgress,
    decode_from_egress,
    encode,
)
from supervisor.core.egress_wire import Refused as RefusedByEgress
from supervisor.core.rules import Verdict
from supervisor.errors import GatehouseError, RefusedError
from supervisor.gate import Gate, Grant, Refused

log = structlog.get_logger("network")

READY_TIMEOUT_S = 30.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
# A process that lived this long was well: the next pause is the first again.
WELL_AFTER_S = 30.0
STOP_TIMEOUT_S = 5.0
MOST_QUEUED = 4096
MOST_OPEN_QUESTIONS = 2048
_DOWN = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"error":"refused","why":"egress is being started; nothing is let through meanwhile",'
    b'"remedy":"try again in a moment","rule":null,"request_id":null}'
)


@dataclass(eq=False)
class _Session:
    """`listener` is our own copy: it outlives any one egress process."""

    listener: socket.socket
    credentials: tuple[Credential, ...] = ()


@dataclass(eq=False)
class _Run:
    """One egress process: its channel, what it asks, what it was granted."""

    sock: socket.socket
    tasks: asyncio.TaskGroup
    outbox: asyncio.Queue[tuple[bytes, int | None]] = field(default_factory=lambda: asyncio.Queue(MOST_QUEUED))
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    asking: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    grants: dict[int, Grant] = field(default_factory=dict)
    # CONNECTs that a person approved, by connection: host, port, and the question whose end is the connection's.
    approved: dict[str, tuple[str, int, int]] = field(default_factory=dict)


class NetworkBroker:
    """One per supervisor. `command` starts egress; `names` stands in for DNS (tests)."""

    def __init__(
        self,
        gate: Gate,
        *,
        ca_directory: Path,
        ca_certificate: Path,
        upstream_ca_bundle: Path,
        hold_s: float = 60.0,
        forbidden: Sequence[tuple[str, int]] = (),
        names: dict[str, tuple[str, ...]] | None = None,
        command: Sequence[str] = (sys.executable, "-m", "supervisor.egress"),
    ) -> None:
        self.ca_certificate_path = ca_certificate
        self._gate = gate
        self._configure = Configure(
            ca_directory=str(ca_directory), upstream_ca_bundle=str(upstream_ca_bundle), hold_s=hold_s, names=names
        )
        self._hold_s = hold_s
        self._forbidden = tuple(forbidden)
        self._command = tuple(command)
        self._sessions: dict[str, _Session] = {}
        self._run: _Run | None = None
        self._child: process.Child | None = None
        self._stopping = asyncio.Event()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.starts = 0

    # -- for the composition root ------------------------------------------------------------------------------------------

    @property
    def healthy(self) -> bool:
        """Whether an egress process serves."""
        return self._run is not None and self._run.ready.is_set()

    @property
    def pid(self) -> int | None:
        """The process id of egress while it runs."""
        return self._child.pid if self._child is not None else None

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start egress and keep it running, in `tasks`. `GatehouseError` where it can't be started at all."""
        self._task = tasks.create_task(self._supervise(), name="egress")
        async with asyncio.timeout(READY_TIMEOUT_S):
            await self.wait_healthy()

    async def wait_healthy(self, *, after_starts: int = 0) -> None:
        """Until an egress process serves, of the `after_starts + 1`th or a later start."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.healthy and self.starts > after_starts)

    async def stop(self) -> None:
        """End egress. Its connections end; whatever is asked meanwhile is denied."""
        self._stopping.set()
        if self._run is not None:
            self._run.sock.shutdown(socket.SHUT_RDWR)
        if self._task is not None:
            await self._task
        for session_id in list(self._sessions):
            self._drop(session_id)

    async def open_session(
        self, session_id: str, listener: socket.socket, credentials: Sequence[Credential] = ()
    ) -> None:
        """Serve a listening socket: whoever connects to it is this session. The socket stays the caller's to close."""
        if session_id in self._sessions:
            raise RefusedError(f"session `{session_id}` is open already", "close it first")
        session = _Session(listener.dup(), tuple(credentials))
        session.listener.setblocking(False)
        self._sessions[session_id] = session
        if self._run is not None and self._run.ready.is_set():
            self._hand_over(self._run, session_id, session)
        else:
            self._refuse_meanwhile(session)

    async def close_session(self, session_id: str) -> None:
        """Serve it no more, and end its connections."""
        if session_id in self._sessions:
            self._drop(session_id)
            if self._run is not None:
                self._send(self._run, CloseSession(session_id=session_id))

    def forbid(self, endpoints: Sequence[tuple[str, int]]) -> None:
        """Gatehouse's own listeners, all of them: never dialled, whatever a rule says."""
        self._forbidden = tuple(endpoints)
        if self._run is not None:
            self._send(self._run, ForbidEndpoints(endpoints=self._forbidden))

    # -- the process -----------------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        """Start egress, again and again, until stopped."""
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            began = loop.time()
            try:
                await self._run_once()
            except (OSError, GatehouseError, ExceptionGroup) as error:
                log.error("egress failed", error=f"{type(error).__name__}: {error}")
            if self._stopping.is_set():
                return
            pause_s = FIRST_PAUSE_S if loop.time() - began > WELL_AFTER_S else min(pause_s * 2, LONGEST_PAUSE_S)
            log.error("egress ended and is started again; everything is denied meanwhile", pause_s=pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()

    async def _run_once(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        run: _Run | None = None
        try:
            with theirs:
                self._child = await process.spawn(
                    [*self._command, "--channel-fd", str(theirs.fileno())],
                    env={**settings.inherited("LANG", "PATH", "VIRTUAL_ENV"), "PYTHONDONTWRITEBYTECODE": "1"},
                    cwd=settings.ROOT,
                    stderr=None,
                    pass_fds=[theirs.fileno()],
                )
            async with asyncio.TaskGroup() as tasks:
                run = self._run = _Run(ours, tasks)
                sender = tasks.create_task(self._write(run), name="egress-writer")
                starter = tasks.create_task(self._begin(run), name="egress-start")
                await self._read(run)
                for task in (sender, starter, *run.asking.values()):
                    task.cancel()
        finally:
            await self._ended(run)
            ours.close()

    async def _begin(self, run: _Run) -> None:
        """Configure a new process, wait for its word, hand the sessions over."""
        self._send(run, self._configure)
        self._send(run, ForbidEndpoints(endpoints=self._forbidden))
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await run.ready.wait()
        except TimeoutError:
            log.error("egress did not become ready")
            self._cut(run)
            return
        for session_id, session in self._sessions.items():
            self._serve_again(session)
            self._hand_over(run, session_id, session)
        self.starts += 1
        async with self._changed:
            self._changed.notify_all()

    async def _ended(self, run: _Run | None) -> None:
        """Egress is gone: take its sockets back, refuse on them, settle what it left."""
        self._run = None
        for session in self._sessions.values():
            self._refuse_meanwhile(session)
        for grant in run.grants.values() if run is not None else ():
            self._gate.settle(grant, "failed", {"error": "egress ended"})
        child, self._child = self._child, None
        if child is None:
            return
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await child.wait()
        except TimeoutError:
            child.kill_tree()
        finally:
            child.close()

    # -- the channel -----------------------------------------------------------------------------------------------------

    def _send(self, run: _Run, message: ToEgress, fd: int | None = None) -> None:
        """Queue a message. A process that doesn't read is ended: what it then misses can't be an allow."""
        try:
            run.outbox.put_nowait((encode(message), fd))
        except (asyncio.QueueFull, ValueError):
            log.error("egress does not read", message=type(message).__name__)
            self._cut(run)

    def _cut(self, run: _Run) -> None:
        with contextlib.suppress(OSError):
            run.sock.shutdown(socket.SHUT_RDWR)

    async def _write(self, run: _Run) -> None:
        while True:
            packet, fd = await run.outbox.get()
            while True:
                try:
                    socket.send_fds(run.sock, [packet], [] if fd is None else [fd])
                    break
                except BlockingIOError:
                    await _writable(run.sock)
                except OSError:
                    self._cut(run)
                    return

    async def _read(self, run: _Run) -> None:
        """Obey egress until its end."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                packet = await loop.sock_recv(run.sock, MAX_MESSAGE_BYTES)
            except OSError:
                return
            if not packet:
                return
            try:
                self._obey(run, decode_from_egress(packet))
            except msgspec.DecodeError:
                log.error("egress sent a message that can't be read")
                self._cut(run)
                return

    def _obey(self, run: _Run, message: FromEgress) -> None:
        match message:
            case Ready():
                run.ready.set()
            case Question():
                self._ask(run, message)
            case Abandoned():
                task = run.asking.get(message.question_id)
                if task is not None:
                    task.cancel()
            case Settled():
                self._settle(run, message)
            case RefusedByEgress():
                log.warning("refused by egress", session=message.session_id, why=message.why, host=message.action.host)

    # -- questions -------------------------------------------------------------------------------------------------------

    def _ask(self, run: _Run, question: Question) -> None:
        if question.question_id in run.asking or len(run.asking) >= MOST_OPEN_QUESTIONS:
            self._send(run, _deny(question, "too many requests wait for an answer", "send fewer at a time"))
            return
        task = run.tasks.create_task(self._answer(run, question), name=f"question-{question.question_id}")
        if not task.done():
            run.asking[question.question_id] = task
            task.add_done_callback(lambda _: run.asking.pop(question.question_id, None))

    async def _answer(self, run: _Run, question: Question) -> None:
        try:
            if question.session_id not in self._sessions:
                answer = _deny(question, "the session has ended", "start a new session")
            elif question.after is not None:
                answer = await self._judge_addresses(run, question, question.after)
            elif question.in_tunnel:
                answer = await self._judge_inside(run, question)
            else:
                answer = await self._decide(run, question, question.action)
        except Exception as error:  # law 3: whatever goes wrong is a denial
            log.exception("question failed", error=type(error).__name__)
            answer = _deny(question, "the gate failed while it looked at this", "see the supervisor's log")
        self._send(run, answer)

    async def _decide(self, run: _Run, question: Question, action: Network) -> Answer:
        """By the gate, with a person where the rules ask for one."""
        grant = await self._gate.decide(action, session_id=question.session_id, origin="egress", hold_s=self._hold_s)
        if isinstance(grant, Refused):
            return _refused(question, grant)
        grant.use(action)
        run.grants[question.question_id] = grant
        if action.operation == "connect" and grant.request_id is not None:
            run.approved[question.connection_id] = (action.host, action.port, question.question_id)
        return Answer(
            question_id=question.question_id,
            decision="allow",
            why=grant.why,
            rule=grant.rule,
            request_id=grant.request_id,
            settle=True,
        )

    async def _judge_inside(self, run: _Run, question: Question) -> Answer:
        """A request inside of a CONNECT: the rules first; where none speaks, the person's answer to the CONNECT holds."""
        action = question.action
        verdict = self._gate.judge(action, question.session_id)
        if verdict.decision != "ask":
            return _from_verdict(question, verdict)
        approved = run.approved.get(question.connection_id)
        if not verdict.sticky and approved is not None and approved[:2] == (action.host, action.port):
            return Answer(question_id=question.question_id, decision="allow", why="covered by the approved connection")
        # Without the addresses: they change from try to try, and an approval is bound to the action.
        return await self._decide(run, question, msgspec.structs.replace(action, resolved=()))

    async def _judge_addresses(self, run: _Run, question: Question, after: int) -> Answer:
        """The addresses of an action whose name was allowed by question `after`."""
        grant = run.grants.get(after)
        if grant is None:
            return _deny(question, "the addresses of something that was not allowed", "")
        verdict = self._gate.judge(question.action, question.session_id)
        if verdict.decision == "ask" and verdict.sticky and grant.request_id is None:
            return await self._decide(run, question, question.action)
        if verdict.decision == "ask":
            return Answer(question_id=question.question_id, decision="allow", why=grant.why, rule=grant.rule)
        return _from_verdict(question, verdict)

    def _settle(self, run: _Run, settled: Settled) -> None:
        grant = run.grants.pop(settled.question_id, None)
        if grant is None:
            return
        for connection_id, (_, _, question_id) in list(run.approved.items()):
            if question_id == settled.question_id:
                del run.approved[connection_id]
        self._gate.settle(grant, settled.outcome, dict(settled.detail))

    # -- sessions --------------------------------------------------------------------------------------------------------

    def _hand_over(self, run: _Run, session_id: str, session: _Session) -> None:
        self._send(run, PutCredentials(session_id=session_id, credentials=session.credentials))
        self._send(run, OpenListener(session_id=session_id), session.listener.fileno())

    def _drop(self, session_id: str) -> None:
        session = self._sessions.pop(session_id)
        self._serve_again(session)
        session.listener.close()

    def _refuse_meanwhile(self, session: _Session) -> None:
        """While egress is down clients get a refusal at once instead of a connection that hangs."""
        loop = asyncio.get_running_loop()
        loop.add_reader(session.listener, _accept_and_refuse, session.listener)

    def _serve_again(self, session: _Session) -> None:
        asyncio.get_running_loop().remove_reader(session.listener)


def _accept_and_refuse(listener: socket.socket) -> None:
    try:
        client, _ = listener.accept()
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EINTR, errno.ECONNABORTED):
            asyncio.get_running_loop().remove_reader(listener)
        return
    with client, contextlib.suppress(OSError):
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.recv(65536)  # unread bytes would turn the answer into a reset
        client.send(_DOWN)
        client.shutdown(socket.SHUT_WR)


async def _writable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(sock)


def _deny(question: Question, why: str, remedy: str) -> Answer:
    return Answer(question_id=question.question_id, decision="deny", why=why, remedy=remedy)


def _refused(question: Question, refused: Refused) -> Answer:
    return Answer(
        question_id=question.question_id,
        decision="ask_timeout" if refused.decision == "ask" else "deny",
        why=refused.why,
        remedy=refused.remedy,
        rule=refused.rule,
        request_id=refused.request_id,
    )


def _from_verdict(question: Question, verdict: Verdict) -> Answer:
    allowed = verdict.decision == "allow"
    return Answer(
        question_id=question.question_id,
        decision="allow" if allowed else "deny",
        why=verdict.why,
        remedy=verdict.remedy,
        rule=verdict.rule,
        private_ok=allowed and names_addresses(verdict, question.action.resolved),
    )


_RULE = re.compile(r"network\((?:\S+\s+)?(?:[a-z]+://)?(?P<address>\[[^\]]*\](?:/\d+)?|[^/\s:()]+(?:/\d+)?)[^()]*\)")


def names_addresses(verdict: Verdict, resolved: Sequence[str]) -> bool:
    """Whether the rules of an allow name each of these addresses, or a network that it is in."""
    networks = []
    for rule in verdict.rules or ((verdict.rule,) if verdict.rule else ()):
        match = _RULE.fullmatch(rule)
        if match is not None:
            with contextlib.suppress(ValueError):
                networks.append(ipaddress.ip_network(match["address"].replace("[", "").replace("]", ""), strict=False))
    addresses = [ipaddress.ip_address(text) for text in resolved]
    return bool(addresses) and all(any(address in network for network in networks) for address in addresses)
