"""Egress's portions and reservations against the ledger, in any order of what can happen: of what
sessions and their installs send, nothing passes a limit, and nothing stays held by who is gone.

Everything is real but the socket between the two, whose messages the test delivers one by one, and
the time.
"""

import asyncio
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from supervisor.base.clock import RealClock
from supervisor.core.budget import Amounts, parse_budget
from supervisor.core.models.model_calls import ModelCall, Tokens
from supervisor.core.models.usage import Usage
from supervisor.core.network.egress_wire import (
    Abandoned,
    Answer,
    CloseSession,
    Draw,
    FromEgress,
    Reserve,
    Spent,
    ToEgress,
    Used,
    decode_from_egress,
    decode_to_egress,
    encode,
)
from supervisor.egress.admission.egress_sessions import ClientConnection, EgressSession, Sessions
from supervisor.egress.admission.portions import REPORT_S, Allowances
from supervisor.egress.admission.questions import GRACE_S, Questions
from supervisor.ledger.spending import Spending
from supervisor.network.metering import ModelCalls
from supervisor.network.reach import meant
from tests.examples import examples
from tests.fakes.gated import World
from tests.ledger.test_spending import TABLE, session

HOLD_S = 60.0
OWN = {"s1": "40requests,9000b,0.02usd", "s2": "100requests,20000b"}
PER_DAY = "60requests,14000b,0.03usd"
TOTAL = "90requests,16000b,0.04usd"
CALL = ModelCall(
    api="messages", model="claude-haiku-4-5", body_bytes=952, max_output_tokens=1000,
    writes_cache=False, writes_long_cache=False
)  # fmt: skip
# What ends much happens seldom, or nothing else would.
SELDOM = st.sampled_from([True, False, False, False, False, False])
NOTHING = Usage(has_input=True, has_output=True, failed=True)


class OwnTime(asyncio.SelectorEventLoop):
    """A loop whose time moves only when it is told to."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def settle(self) -> None:
        """Run what is ready, and what that makes ready."""
        self.run_until_complete(_turns())


async def _turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


class Wire:
    """One direction of the channel: packets in order."""

    is_full = False

    def __init__(self) -> None:
        self.packets: deque[bytes] = deque()

    def send(self, message: FromEgress | ToEgress, *, always: bool = False) -> None:
        self.packets.append(encode(message))


class EgressEnd:
    """Egress's real half, without sockets."""

    def __init__(self, up: Wire) -> None:
        self.sessions = Sessions()
        self.questions = Questions(cast("Any", up), HOLD_S)
        self.allowances = Allowances(self.questions, self.sessions, RealClock())

    def obey(self, message: ToEgress) -> None:
        if isinstance(message, Answer):
            self.questions.answered(message)
        elif isinstance(message, CloseSession):
            found = self.sessions.get(message.session_id)
            self.sessions.close(message.session_id)
            self.allowances.close(found)

    def connect(self, found: EgressSession) -> ClientConnection:
        connection = ClientConnection("c", found, cast("Any", Transport()), 0.0)
        found.connections.add(connection)
        return connection


class Transport:
    """One whose end nobody sees."""

    def get_extra_info(self, name: str) -> None:
        return None

    def abort(self) -> None:
        """Nothing to end."""


class Orders(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = OwnTime()
        asyncio.set_event_loop(self.loop)
        self.folder = Path(tempfile.mkdtemp())
        self.world = World(self.folder)
        self.sent: dict[str, Counter[str]] = {"s1": Counter(), "s2": Counter()}
        self.told: dict[str, Counter[str]] = {"s1": Counter(), "s2": Counter()}
        self.beyond: dict[str, Amounts] = {"s1": Amounts(), "s2": Amounts()}
        self.installs = 0
        self.closed: set[str] = set()
        self.begin_supervisor()
        self.begin_egress()

    # -- the two halves ---------------------------------------------------------------------------

    def begin_supervisor(self) -> None:
        limits = {"per_day": parse_budget(PER_DAY, "x"), "total": parse_budget(TOTAL, "x")}
        self.spending = Spending(
            self.world.engine, self.world.audit, self.world.clock, TABLE, **limits
        )
        for name in sorted(set(OWN) - self.closed):
            self.spending.open_session(session(name, OWN[name]))

    def begin_egress(self) -> None:
        self.up, self.down = Wire(), Wire()
        self.calls = ModelCalls(self.world.gate, self.spending, HOLD_S, ask_at_limit=False)
        self.asking: dict[int, asyncio.Task[None]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.holders = [name for name in OWN if name not in self.closed]
        self.egress = self.loop.run_until_complete(self.made())

    async def made(self) -> EgressEnd:
        return EgressEnd(self.up)

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.loop.create_task(work)

    def inside[T](self, callback: Callable[[T], None], argument: T) -> None:
        """Call it in the loop."""
        self.loop.call_soon(callback, argument)
        self.loop.settle()

    async def answer(self, message: Draw | Reserve) -> None:
        self.down.send(await self.calls.answer(message))

    def obey(self, message: FromEgress) -> None:
        match meant(message):
            case Draw() | Reserve() as asked:
                self.asking[asked.question_id] = self.begin(self.answer(asked))
            case Abandoned(question_id=question_id):
                self.asking[question_id].cancel()
            case Used(session_id=holder) as used:
                self.told[holder.partition("+")[0]] += Counter(
                    requests=used.requests, bytes_out=used.bytes_out
                )
                self.calls.used(used)
            case Spent() as spent:
                self.calls.spent(spent)

    # -- what the clients do ----------------------------------------------------------------------

    async def request(self, found: EgressSession, name: str, pieces: list[int]) -> None:
        """Announce a body, send it piece by piece."""
        allowances = self.egress.allowances
        if await allowances.take(found, "requests", 1) is not None:
            return
        self.sent[name]["requests"] += 1
        if await allowances.cover(found, "bytes_out", sum(pieces)) is not None:
            return
        for piece in pieces:
            if await allowances.take(found, "bytes_out", piece) is not None:
                return
            self.sent[name]["bytes_out"] += piece
            for _ in range(20):
                await asyncio.sleep(0)

    @rule(
        at=st.integers(0, 9),
        pieces=st.lists(st.integers(1, 1500), min_size=1, max_size=4),
        is_quick=st.booleans(),
    )
    def ask(self, at: int, pieces: list[int], is_quick: bool) -> None:
        if self.holders:
            name = self.holders[at % len(self.holders)]
            found = self.egress.sessions.get(name)
            self.tasks.append(self.begin(self.request(found, name.partition("+")[0], pieces)))
            self.loop.settle()
            if is_quick:
                self.hear_all()

    @rule(at=st.integers(0, 9))
    def abort(self, at: int) -> None:
        if self.tasks:
            self.tasks.pop(at % len(self.tasks)).cancel()
            self.loop.settle()

    async def call(self, connection: ClientConnection, output: int | None) -> None:
        answer = await self.egress.questions.reserve(connection, "h", CALL, of=0)
        if answer.decision != "allow":
            return
        if connection not in connection.session.connections:
            self.egress.questions.spent(answer, NOTHING)
            return
        usage = None
        if output is not None:
            usage = Usage(
                tokens=Tokens(input=100, output=output), model=CALL.model,
                has_input=True, has_output=True,
            )  # fmt: skip
        self.egress.questions.spent(answer, usage)

    @rule(at=st.integers(0, 9), output=st.none() | st.integers(0, 1000), is_quick=st.booleans())
    def call_a_model(self, at: int, output: int | None, is_quick: bool) -> None:
        if self.holders:
            found = self.egress.sessions.get(self.holders[at % len(self.holders)])
            self.begin(self.call(self.egress.connect(found), output))
            self.loop.settle()
            if is_quick:
                self.hear_all()

    @rule(at=st.integers(0, 9))
    def hang_up(self, at: int) -> None:
        """Whoever waits for a reservation goes away."""
        every = [one for found in self.egress.sessions.all() for one in found.connections]
        if every:
            self.inside(self.egress.sessions.disconnect, every[at % len(every)])

    # -- what the supervisor does -----------------------------------------------------------------

    @rule(of=st.sampled_from(sorted(OWN)))
    def open_install(self, of: str) -> None:
        if of in self.holders:
            self.installs += 1
            self.holders.append(f"{of}+{self.installs}")
            self.ask(len(self.holders) - 1, [100], is_quick=True)

    @rule(at=st.integers(0, 9))
    def close_install(self, at: int) -> None:
        installs = [one for one in self.holders if "+" in one]
        if installs:
            self.close(installs[at % len(installs)])

    @rule(of=st.sampled_from(sorted(OWN)), really=SELDOM)
    def close_session(self, of: str, really: bool) -> None:
        if really and of in self.holders and len(self.closed) < len(OWN) - 1:
            self.closed.add(of)
            self.spending.close_session(of)
            self.close(of)

    def close(self, holder: str) -> None:
        self.holders.remove(holder)
        self.calls.closing(holder)
        self.down.send(CloseSession(session_id=holder))

    # -- what happens meanwhile -------------------------------------------------------------------

    @rule(count=st.integers(1, 9))
    def hear_egress(self, count: int) -> None:
        for _ in range(count):
            if self.up.packets:
                self.inside(self.obey, decode_from_egress(self.up.packets.popleft()))

    @rule(count=st.integers(1, 9))
    def hear_supervisor(self, count: int) -> None:
        for _ in range(count):
            if self.down.packets:
                self.inside(self.egress.obey, decode_to_egress(self.down.packets.popleft()))

    @rule()
    def hear_all(self) -> None:
        """Once nothing is under way, exactly what was sent and what egress has left counts."""
        while self.up.packets or self.down.packets:
            self.hear_egress(9)
            self.hear_supervisor(9)
        left: Counter[str] = Counter()
        for found in self.egress.sessions.all():
            for kind, count in found.left.items():
                left[f"{found.id.partition('+')[0]} {kind}"] += count + found.used[kind]
        for name in OWN:
            now, beyond = self.used(name), self.beyond[name]
            for kind in ("requests", "bytes_out"):
                counted = self.told[name][kind] + left[f"{name} {kind}"]
                assert getattr(now, kind) == counted + getattr(beyond, kind)

    @rule(seconds=st.sampled_from([REPORT_S, HOLD_S + GRACE_S]))
    def wait(self, seconds: float) -> None:
        self.loop.now += seconds + 0.1
        self.loop.settle()

    @rule()
    def next_day(self) -> None:
        self.world.clock.advance(24 * 3600)

    @rule(really=SELDOM)
    def kill_egress(self, really: bool) -> None:
        """Nobody knows any more what of its portions went out: all of them counts."""
        if really:
            self.lose()
            self.begin_egress()

    @rule(really=SELDOM)
    def kill_supervisor(self, really: bool) -> None:
        if really:
            self.lose(is_all=True)
            self.begin_supervisor()
            self.begin_egress()

    def lose(self, *, is_all: bool = False) -> None:
        for task in (*self.tasks, *self.asking.values()):
            task.cancel()
        self.loop.settle()
        before = {name: self.used(name) for name in OWN}
        if is_all:
            self.spending.lose_all()
        else:
            self.calls.lose_all()
        for name in OWN:
            now = self.used(name)
            assert now == before[name], "nothing is given back of what nobody saw"
            self.beyond[name] = msgspec.structs.replace(
                self.beyond[name],
                requests=now.requests - self.told[name]["requests"],
                bytes_out=now.bytes_out - self.told[name]["bytes_out"],
            )

    # -- what holds -------------------------------------------------------------------------------

    def used(self, name: str) -> Amounts:
        return self.spending.standing(name, OWN[name]).used["session"]

    @invariant()
    def nothing_passes_a_limit(self) -> None:
        total: Counter[str] = Counter()
        for name, budget in OWN.items():
            standing = self.spending.standing(name, budget)
            for scope, limits in standing.limits.items():
                for kind in ("cost", "tokens", "requests", "bytes_out"):
                    most = getattr(limits, kind)
                    assert most is None or getattr(standing.used[scope], kind) <= most, scope
            own = standing.used["session"]
            assert self.sent[name]["requests"] <= own.requests
            assert self.sent[name]["bytes_out"] <= own.bytes_out
            total += self.sent[name]
        most = parse_budget(TOTAL, "x")
        assert total["requests"] <= (most.requests or 0)
        assert total["bytes_out"] <= (most.bytes_out or 0)

    def teardown(self) -> None:
        """Once all have ended, nothing is held any more."""
        try:
            served = self.egress.sessions.all()
            for holder in list(self.holders):
                self.close(holder)
            self.wait(HOLD_S + GRACE_S)
            self.hear_all()
            assert self.egress.sessions.all() == []
            assert not any(any(one.left.values()) for one in served)
            for name in OWN:
                assert self.spending.spent(name) is not None, "a reservation stayed open"
            self.loop.run_until_complete(self.calls.all_told())
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.settle()
            self.world.close()
            self.loop.close()
            shutil.rmtree(self.folder)


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=examples(12), stateful_step_count=30, deadline=None)
