"""Talk to one MCP server for the supervisor, inside the sandbox of that server.

    python3.13 -I /opt/gatehouse/agent_image/mcp_bridge.py PORT

What a server says is a stranger's. So it is parsed in here, by the protocol's library, in a process
that is bounded and can be ended; the supervisor gets short lines of JSON on a loopback socket. In:
first what to connect to, then calls. Out: lists of tools, answers, and why the server is gone. A
server may do to this program what it likes: it can only say what it could have answered.
"""

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

if not sys.flags.isolated:
    sys.exit("gatehouse: the bridge must run isolated; start it with `python -I`")
sys.path.append(str(Path(__file__).resolve().parents[1] / "site-packages"))

import httpx2
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

LINE_BYTES = 1024 * 1024
MOST_CHARS = 64 * 1024
# The supervisor uses fewer of them; a line must hold them.
MOST_TOOLS = 1100
MOST_LIST_CHARS = 256 * 1024
MOST_PAGES = 200
RELIST_PAUSE_S = 1.0
KEPT_ERROR_BYTES = 400
NO_CALL = (types.INVALID_REQUEST, types.METHOD_NOT_FOUND, types.INVALID_PARAMS)
PR_SET_DUMPABLE = 4  # linux/prctl.h


class LastErrors:
    """The end of what a server writes to its standard error, however much that is."""

    def __init__(self) -> None:
        ours, self.descriptor = os.pipe()
        self._kept = b""
        threading.Thread(target=self._read, args=(ours,), daemon=True).start()

    def _read(self, descriptor: int) -> None:
        while block := os.read(descriptor, 65536):
            self._kept = (self._kept + block)[-KEPT_ERROR_BYTES:]

    @property
    def text(self) -> str:
        """Return it, as text. A cut word may be a part of a secret."""
        text = self._kept.decode(errors="replace").strip()
        return " ".join(text.split(None, 1)[len(self._kept) // KEPT_ERROR_BYTES :])


@contextlib.asynccontextmanager
async def transport_to(order: dict[str, Any], errors: LastErrors) -> AsyncIterator[Any]:
    """Yield the streams to and from the server."""
    if command := order.get("command"):
        server = StdioServerParameters(
            command=command[0], args=command[1:], env=dict(os.environ), cwd="/workspace/merged"
        )
        with os.fdopen(errors.descriptor, "w") as errlog:
            async with stdio_client(server, errlog=errlog) as streams:
                yield streams
    elif order["transport"] == "sse":
        async with sse_client(order["url"], headers=order["headers"]) as streams:
            yield streams
    else:
        timeout = httpx2.Timeout(30.0, read=300.0)
        async with (
            httpx2.AsyncClient(headers=order["headers"], timeout=timeout) as http,
            streamable_http_client(order["url"], http_client=http) as streams,
        ):
            yield streams


class Bridge:
    """One connection to a server, and the supervisor's socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()
        self._is_outdated = asyncio.Event()

    async def say(self, **said: Any) -> None:
        """Send one line."""
        async with self._sending:
            self._writer.write(json.dumps(said).encode() + b"\n")
            await self._writer.drain()

    async def run(self, order: dict[str, Any], errors: LastErrors) -> None:
        """Serve calls until the supervisor hangs up."""
        client = Client(
            transport_to(order, errors),
            message_handler=self._notified,
            cache=None,
            client_info=types.Implementation(name="gatehouse", version="1"),
        )
        async with client, asyncio.TaskGroup() as tasks:
            await self._list(client)
            relisting = tasks.create_task(self._relist(client))
            while line := await self._reader.readline():
                tasks.create_task(self._call(client, json.loads(line)))
            relisting.cancel()
            os._exit(0)  # whatever still runs ends with the sandbox

    async def _notified(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._is_outdated.set()

    async def _relist(self, client: Client) -> None:
        while True:
            await self._is_outdated.wait()
            await asyncio.sleep(RELIST_PAUSE_S)
            self._is_outdated.clear()
            await self._list(client)

    async def _list(self, client: Client) -> None:
        found: list[dict[str, Any]] = []
        cursor, chars, more = None, 0, 0
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            for one in page.tools:
                tool = {
                    "name": one.name[:200],
                    "description": one.description or "",
                    "schema": one.input_schema,
                }
                chars += len(json.dumps(tool))
                if chars <= MOST_LIST_CHARS and len(found) < MOST_TOOLS:
                    found.append(tool)
                else:
                    more += 1
            cursor = page.next_cursor
            if cursor is None:
                break
        await self.say(tools=found, more=more)

    async def _call(self, client: Client, order: dict[str, Any]) -> None:
        try:
            result = await client.call_tool(order["tool"], order["arguments"])
        except Exception as error:
            if isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
                raise
            # What a server refuses as no call of its tools was not done.
            is_refused = isinstance(error, MCPError) and error.code in NO_CALL
            await self.say(id=order["id"], error=_why(error), is_refused=is_refused)
            return
        text = _text(result)
        await self.say(
            id=order["id"],
            text=text[:MOST_CHARS],
            chars=len(text),
            is_error=bool(result.is_error),
        )


def _text(result: types.CallToolResult) -> str:
    parts = []
    for one in result.content:
        if isinstance(one, types.TextContent):
            parts.append(one.text)
        elif isinstance(one, types.EmbeddedResource) and isinstance(
            one.resource, types.TextResourceContents
        ):
            parts.append(one.resource.text)
        else:
            parts.append(f"[{one.type}: only text is passed on]")
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content))
    return "\n".join(parts)


def _why(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:1000]


async def main(port: int) -> None:
    """Connect to the supervisor, then to the server that it names."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LINE_BYTES)
    bridge, errors = Bridge(reader, writer), LastErrors()
    order = json.loads(await reader.readline())
    try:
        await bridge.run(order, errors)
    except BaseException as error:
        await bridge.say(ended=_why(error), printed=errors.text)
    os._exit(1)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    # The server has this user's number, too: it must not write this program's memory.
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        sys.exit("gatehouse: the bridge can't hide its memory from the server")
    asyncio.run(main(int(sys.argv[1])))
