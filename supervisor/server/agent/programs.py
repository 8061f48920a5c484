"""The programs' door: what any program in a session's sandboxes may ask, without a token.

A call is one POST. Its answer is a stream of JSON lines, each sent as soon as it is known:

    {"waits": TEXT, "id": ID, "page": URL}         once, where a person is asked
    {"out": TEXT}, {"err": TEXT}                   what git or a package manager prints
    {"exit": CODE, "why": TEXT, "remedy": TEXT}    the last one; a reason where it was refused

INVARIANT: the session is the listening socket's. Nothing here answers a request, and nothing can be
had that the agent's own door wouldn't give.
"""

import asyncio
import contextlib
import math
import re
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, JSONBody
from litestar.response import Stream
from litestar.types import ControllerRouterHandler

from supervisor.core.actions import Git, Packages, title
from supervisor.core.agents.inside import INDEX_PATH
from supervisor.core.approvals import Request, failure, is_settled, status
from supervisor.core.secrets.redact import Redactor
from supervisor.core.text.display import visible
from supervisor.errors import GatehouseError
from supervisor.server.agent.agent_bodies import (
    GitBody,
    ManagerBody,
    git_action,
    manager_action,
)
from supervisor.server.agent.agent_calls import AgentCalls
from supervisor.server.common.error_bodies import ErrorBody

# How long a wait for news lasts before it is begun anew.
NEWS_S = 60.0
# How often what is printed is passed on, and how much of it at once.
PRINTED_S = 0.2
MOST_PRINTED = 256 * 1024
LONGEST_LINE = 8 * 1024
# INVARIANT (law 14): so much is searched for secrets at once, and then as long again is left to
# others, over all of a session's programs.
SEARCHED_AT_ONCE = 16 * 1024
LEFT_OUT = " [the rest of this line is left out]"
_COLOURS = re.compile(r"\x1b\[[0-9;:]*[mK]")
# A program that went with its whole session leaves its request to be answered; the session's end is
# known this soon.
GONE_S = 2.0
GONE = "the program that asked has gone"

STILL_WAITS = "it waits for a person's answer still, and Gatehouse carries it out once that is yes"
ANSWERED_LATER = "don't run it again; go on with something else, or say that it waits"
NO_INDEX = "packages come by a request, and this package manager was started around Gatehouse's"
USE_OURS = "start it by its plain name with /opt/gatehouse/managers first on PATH"

type AnswerLine = dict[str, Any]


class PrintedLines:
    """What a program prints, in whole lines and without secrets."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._begun = [b"", b""]
        self._is_cut = [False, False]
        self._blocks: list[tuple[int, bytes]] = []
        self._bytes = 0

    def take(self, stream: int, block: bytes) -> None:
        """Keep a block of standard output (0) or error (1); what is too much at once is left
        out."""
        self._bytes += len(block)
        if self._bytes <= MOST_PRINTED:
            for at in range(0, len(block), SEARCHED_AT_ONCE):
                self._blocks.append((stream, block[at : at + SEARCHED_AT_ONCE]))

    def lines(self, *, is_end: bool = False) -> Iterator[AnswerLine]:
        """Yield what is whole by now, and with `is_end` the rest. Each takes a moment."""
        blocks, self._blocks, self._bytes = self._blocks, [], 0
        for stream, block in [*blocks, *([(0, b""), (1, b"")] if is_end else [])]:
            whole = self._begun[stream] + block
            if self._is_cut[stream]:
                whole = whole[whole.find(b"\n") :] if b"\n" in whole else b""
                self._is_cut[stream] = not whole
            end = len(whole) if is_end and not block else whole.rfind(b"\n") + 1
            text, self._begun[stream] = whole[:end], whole[end:]
            shown = self._redactor.printed(_as_seen(text.decode(errors="replace")))
            if len(self._begun[stream]) > LONGEST_LINE:
                shown += self._beginning(self._begun[stream])
                self._begun[stream], self._is_cut[stream] = b"", True
            if shown:
                yield {("out", "err")[stream]: shown}

    def _beginning(self, line: bytes) -> str:
        """Return the first words of a line that is too long. INVARIANT: no part of a secret, which
        may end behind the cut."""
        words = self._redactor.body(line[:LONGEST_LINE]).decode(errors="replace")
        return self._redactor.printed(_as_seen(words[: words.rfind(" ") + 1])) + LEFT_OUT


class ProgramAsks:
    """The asks of one session's programs. `page` is the address of the operator's page."""

    def __init__(self, calls: AgentCalls, page: str) -> None:
        self._calls = calls
        self._page = page
        self._waiting: Counter[str] = Counter()
        self._turn = asyncio.Lock()

    def answer(
        self, ask: Awaitable[Request], outcome: Callable[[Request], Iterable[AnswerLine]]
    ) -> Stream:
        """Return the stream for one ask. `outcome` gives the lines of a request that was carried
        out, before the last one."""
        return Stream(self._encoded(ask, outcome), media_type="application/x-ndjson")

    async def _encoded(
        self, ask: Awaitable[Request], outcome: Callable[[Request], Iterable[AnswerLine]]
    ) -> AsyncIterator[bytes]:
        async for line in self._lines(ask, outcome):
            shown = {
                key: visible(value) if isinstance(value, str) else value
                for key, value in line.items()
            }
            yield msgspec.json.encode(shown) + b"\n"

    async def _lines(
        self, ask: Awaitable[Request], outcome: Callable[[Request], Iterable[AnswerLine]]
    ) -> AsyncIterator[AnswerLine]:
        calls = self._calls
        try:
            request = await ask
        except GatehouseError as error:
            yield {"exit": 1, "why": error.message, "remedy": error.remedy}
            return
        printed, again = PrintedLines(calls.parts.redactor), request.id
        while again:
            request = calls.parts.queue.get(again) if again != request.id else request
            following = calls.parts.gate.printing.followed(request.id, printed.take)
            with self._waited_for(request), following:
                if status(request) == "pending":
                    waits = calls.parts.redactor.text(_waits(request))
                    yield {"waits": waits, "id": request.id, "page": self._page}
                until = calls.parts.clock.monotonic() + self._hold_s()
                while not is_settled(request):
                    left_s = until - calls.parts.clock.monotonic()
                    if status(request) == "pending" and left_s <= 0:
                        yield {"exit": 1, "why": STILL_WAITS, "remedy": ANSWERED_LATER}
                        return
                    wait_s = PRINTED_S if status(request) == "used" else min(NEWS_S, left_s)
                    request = await calls.news(request.id, max(wait_s, PRINTED_S))
                    async for line in self._in_turn(printed.lines()):
                        yield line
            async for line in self._in_turn(printed.lines(is_end=True)):
                yield line
            # What changed since it was shown is asked once more.
            again = (request.outcome or {}).get("asked_again", "")
        if status(request) == "used":
            for line in outcome(request):
                yield line
        yield self._last(request)

    async def _in_turn(self, lines: Iterator[AnswerLine]) -> AsyncIterator[AnswerLine]:
        """Yield each, leaving as much time to others as it took."""
        loop, is_over = asyncio.get_running_loop(), False
        while not is_over:
            async with self._turn:
                began = loop.time()
                line = next(lines, None)
                await asyncio.sleep(loop.time() - began)
            is_over = line is None
            if line is not None:
                yield line

    def git_outcome(self, request: Request) -> Iterator[AnswerLine]:
        """Yield what git said of a push, or the refs that a fetch has found."""
        assert isinstance(request.action, Git)
        if request.action.operation == "push":
            outcome = self._calls.view(request).outcome or {}
            yield {"out": str(outcome.get("said") or outcome.get("error") or "")}
        else:
            there = self._calls.parts.pushes.listed(request.id)
            yield {"refs": there.ids, "symbolic": there.symbolic, "peeled": there.peeled}

    def _hold_s(self) -> float:
        """Return how long a program waits for a person: a tool of an agent with a model would be
        ended by that agent, and its request with it."""
        parts, session_id = self._calls.parts, self._calls.session_id
        if not parts.sessions.get(session_id).agent:
            return math.inf
        return parts.gate.rulings.hold_s(session_id, parts.settings.hold_s)

    def _last(self, request: Request) -> AnswerLine:
        seen = self._calls.view(request)
        if status(request) != "used":
            return {"exit": 1, "why": seen.why, "remedy": seen.remedy}
        if failed := failure(request):
            code = (request.outcome or {}).get("exit_code") or 1
            if failed == f"exit code {code}":  # it has said why itself
                return {"exit": code}
            return {"exit": code, "why": self._calls.parts.redactor.text(failed)}
        return {"exit": 0}

    @contextlib.contextmanager
    def _waited_for(self, request: Request) -> Iterator[None]:
        """Withdraw the request if the last program that waits for it goes before the answer."""
        self._waiting[request.id] += 1
        is_left = False
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            is_left = True
            raise
        finally:
            self._waiting[request.id] -= 1
            if not self._waiting[request.id]:
                del self._waiting[request.id]
            if is_left and request.origin == "agent_tool":
                handlers = self._calls.parts.gate.handlers
                handlers.run(self._withdraw(request.id), f"withdraw-{request.id}")

    async def _withdraw(self, request_id: str) -> None:
        await asyncio.sleep(GONE_S)
        parts, session_id = self._calls.parts, self._calls.session_id
        found = parts.queue.find(request_id)
        is_over = parts.sessions.get(session_id).agent_exited_at is not None
        # Programs wait here, the agent itself at its own door.
        is_awaited = request_id in self._waiting or parts.queue.is_awaited(request_id)
        if found and status(found) == "pending" and not (is_over or is_awaited):
            parts.gate.answers.close(GONE, request_id)


def _as_seen(text: str) -> str:
    """Return what a terminal would show of printed lines, without colours. INVARIANT: secrets are
    looked for afterwards, since this may put one together."""
    lines = _COLOURS.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(one.rstrip("\r").rpartition("\r")[2] for one in lines)


def _waits(request: Request) -> str:
    count = len(request.action.plan) if isinstance(request.action, Packages) else 0
    return title(request.action) + (f" ({count} package{'s' * (count != 1)})" if count else "")


def handlers(calls: AgentCalls, page: str) -> list[ControllerRouterHandler]:
    """Return every route of the programs' door, for one session."""
    asks = ProgramAsks(calls, page)

    @post("/v1/git", status_code=200, summary="Run a git operation that reaches a remote")
    async def run_git(data: JSONBody[GitBody]) -> Stream:
        calls.spend(data)
        # A program has it from a command line, so the rules for commands hold, too.
        action = msgspec.structs.replace(git_action(data), by_exec=data.command is not None)
        return asks.answer(calls.planned(action, data.reason), asks.git_outcome)

    @post("/v1/run-package", status_code=200, summary="Run a package manager, if it fetches")
    async def run_package(data: JSONBody[ManagerBody]) -> Stream:
        calls.spend(data)
        action = manager_action(data)
        if action is None:
            return Stream(iter([b'{"plain": true, "exit": 0}\n']))
        return asks.answer(calls.planned(action, shlex.join(data.words)), lambda request: ())

    @get(f"{INDEX_PATH}/{{rest:path}}", summary="What another manager finds as its index")
    async def index(rest: FromPath[str]) -> Response[ErrorBody]:
        del rest
        return Response(
            ErrorBody(error=f"{NO_INDEX}; {USE_OURS}", why=NO_INDEX, remedy=USE_OURS),
            status_code=403,
        )

    return [run_git, run_package, index]
