"""One MCP server of one session: its sandbox, and the bridge in there that speaks to it.

The bridge (`agent_image/mcp_bridge.py`) connects to a loopback socket of the sandbox. What comes
from it is a stranger's: lines of bounded length, read into fixed fields, long ones in a thread.
INVARIANT (law 14): nothing else of a server reaches this process.
"""

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from supervisor.core.mcp_calls import ListedTool, ToolList, tool_list
from supervisor.core.text.display import visible
from supervisor.errors import GatehouseError, RefusedError
from supervisor.sandbox.base import Running, Sandbox, Spec

# From its start to its list.
START_S = 30.0
LINE_BYTES = 1024 * 1024
LONG_LINE_BYTES = 16 * 1024
MOST_WAITING = 16
MOST_WHY_CHARS = 600
# Of what nobody asked for, lists mostly: so many at once, and one more each second. The bridge
# lists at most once a second.
MOST_UNASKED = 20
LINES_AT_ONCE = 16

type Clean = Callable[[Any], Any]
type LendProxy = Callable[[socket.socket], Awaitable[Callable[[], Awaitable[None]]]]


class _FromBridge(msgspec.Struct, frozen=True):
    tools: list[ListedTool] | None = None
    more: int = 0
    id: int = 0
    text: str = ""
    chars: int = 0
    is_error: bool = False
    error: str | None = None
    is_refused: bool = False
    ended: str | None = None
    printed: str = ""


class McpAnswer(msgspec.Struct, frozen=True):
    """What a tool answered, `text` cut to what is passed on of `chars` characters."""

    text: str
    chars: int
    is_error: bool


class UnknownError(RefusedError):
    """A call was sent, and nobody knows what came of it."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{why}; the call may or may not have happened", "look before you call again"
        )


class McpConnection:
    """A running server. `proxy_port` and `bridge_port` are where its sandbox listens; `lend_proxy`
    has egress serve the first; `clean` takes secrets out of what it says."""

    def __init__(
        self,
        sandbox: Sandbox,
        proxy_port: int,
        bridge_port: int,
        lend_proxy: LendProxy,
        clean: Clean,
    ) -> None:
        self._sandbox = sandbox
        self._clean = clean
        self._proxy_port = proxy_port
        self._bridge_port = bridge_port
        self._lend_proxy = lend_proxy
        self._give_back: Callable[[], Awaitable[None]] | None = None
        self._door: socket.socket | None = None
        self._running: Running | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[_FromBridge]] = {}
        self._is_listed = asyncio.Event()
        self._starting: asyncio.Timeout | None = None
        # Its tools as it listed them last; None until it does.
        self.listed: ToolList | None = None
        self.why_ended = ""

    async def serve(self, spec: Spec, order: dict[str, Any]) -> None:
        """Start the server and read what it says, until it ends; `why_ended` says why then. `order`
        is what the bridge connects to."""
        loop = asyncio.get_running_loop()
        late = loop.call_later(START_S, self.kill, f"it listed no tools within {START_S:g} s")
        try:
            reader, self._writer = await self._started(spec, order)
            await self._read(reader, late.cancel)
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            # A line that is too long, or isn't one; or `kill` ended the start.
            said = f"it said what isn't understood ({type(error).__name__})"
            self.why_ended = self.why_ended or said
        except GatehouseError as error:
            self.why_ended = self.why_ended or self._plain(str(error))
        finally:
            late.cancel()
            await self._end()

    async def until_listed(self) -> ToolList:
        """Return its tools, once it listed them; `RefusedError` where it didn't: it is ended then,
        after `START_S` at the latest."""
        await self._is_listed.wait()
        if self.listed is None or self.why_ended:
            why = self.why_ended or "it listed no tools"
            raise RefusedError(why, "the operator can look with `gatehouse doctor`")
        return self.listed

    async def call(self, tool: str, arguments: dict[str, Any], timeout_s: float) -> McpAnswer:
        """Call a tool. `RefusedError` where it wasn't sent or was refused, `UnknownError` where no
        answer came. A server that doesn't answer in time is ended, with its other calls: nobody can
        tell whether it is slow or hangs."""
        if self.why_ended or self._writer is None or len(self._waiting) >= MOST_WAITING:
            why = self.why_ended or "too many calls of it run already"
            raise RefusedError(why, "call again later")
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        order = {"id": number, "tool": tool, "arguments": arguments}
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.write(msgspec.json.encode(order) + b"\n")
                await self._writer.drain()
                said = await answer
        except TimeoutError:
            self.kill(f"a call took more than {timeout_s:g} s")
            raise UnknownError(self.why_ended) from None
        except OSError as error:
            raise UnknownError(self.why_ended or str(error)) from None
        finally:
            self._waiting.pop(number, None)
        if said.error is None:
            return McpAnswer(said.text, max(said.chars, len(said.text)), said.is_error)
        if said.is_refused:
            raise RefusedError(self._plain(said.error), "call again, if it may help")
        raise UnknownError(self._plain(said.error))

    def kill(self, why: str) -> None:
        """End it, also while it starts. `serve` returns then."""
        self.why_ended = self.why_ended or why
        if self._starting is not None and not self._starting.expired():
            self._starting.reschedule(0)
        if self._running is not None:
            self._running.kill(why)
        if self._writer is not None:
            self._writer.close()

    def fail(self, why: str) -> None:
        """Say that it could not even be started."""
        self.why_ended = self.why_ended or why
        self._is_listed.set()

    async def _started(
        self, spec: Spec, order: dict[str, Any]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Start the sandbox and meet the bridge. INVARIANT: `kill` ends this at once, also before
        it begins: a session's end waits for it."""
        if self.why_ended:
            raise RefusedError(self.why_ended)
        try:
            async with asyncio.timeout(None) as self._starting:
                self._running = await self._sandbox.start(
                    spec, on_output=lambda _: None, on_listeners=self._lend
                )
                return await self._met(order)
        finally:
            self._starting = None

    async def _lend(self, listeners: Any) -> None:
        self._door = listeners[self._bridge_port]
        self._door.setblocking(False)
        with listeners[self._proxy_port] as proxy:
            self._give_back = await self._lend_proxy(proxy)

    async def _met(
        self, order: dict[str, Any]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams to the bridge. It starts the server later, so nobody else is there."""
        assert self._door is not None
        with self._door as door:
            peer, _ = await asyncio.get_running_loop().sock_accept(door)
        reader, writer = await asyncio.open_connection(sock=peer, limit=LINE_BYTES)
        writer.write(msgspec.json.encode(order) + b"\n")
        return reader, writer

    async def _read(self, reader: asyncio.StreamReader, is_there: Callable[[], None]) -> None:
        """Read lines; `is_there` is called when it listed its tools. INVARIANT (law 14): lines that
        came already don't suspend `readline`, so others get their turn here."""
        began, unasked, lines = asyncio.get_running_loop().time(), 0, 0
        while line := await reader.readline():
            lines += 1
            if lines % LINES_AT_ONCE == 0:
                await asyncio.sleep(0)
            if len(line) < LONG_LINE_BYTES:
                said, tools = self._understood(line)
            else:
                said, tools = await asyncio.to_thread(self._understood, line)
            answer = self._waiting.get(said.id)
            if said.ended is not None:
                printed = f"; it printed: {said.printed}" if said.printed else ""
                self.why_ended = self.why_ended or self._plain(f"{said.ended}{printed}")
                return
            if tools is None and answer is not None and not answer.done():
                answer.set_result(said)
                continue
            unasked += 1
            if unasked > MOST_UNASKED + asyncio.get_running_loop().time() - began:
                raise RefusedError("it says too much that nobody asked for")
            if tools is not None:
                self.listed = tools
                self._is_listed.set()
                is_there()

    async def _end(self) -> None:
        running = self._running
        try:
            if running is not None:
                running.kill("its connection ended")
                await running.wait()
                self.why_ended = self.why_ended or running.killed_why
        finally:
            self.why_ended = self.why_ended or "it ended by itself"
            if self._writer is not None:
                self._writer.close()
            if self._door is not None:
                self._door.close()
            self._is_listed.set()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_result(_FromBridge(error=self.why_ended))
            if self._give_back is not None:
                await self._give_back()

    def _understood(self, line: bytes) -> tuple[_FromBridge, ToolList | None]:
        said = msgspec.json.decode(line, type=_FromBridge)
        return said, None if said.tools is None else tool_list(said.tools, self._clean, said.more)

    def _plain(self, text: str) -> str:
        """Return a stranger's words as they may be told and kept."""
        return visible(self._clean(text[:LONG_LINE_BYTES])[:MOST_WHY_CHARS], one_line=True)
