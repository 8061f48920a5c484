"""The review agent's tools as an MCP server, for a conversation that Claude Code conducts.

https://modelcontextprotocol.io/specification. The server runs in this process, beside what the
tools need. For the SDK it is in process; the CLI starts `tool_bridge`, which passes bytes on.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage

from agent_image.reviewer.claude_code import SERVER, in_thread
from agent_image.reviewer.tool_inputs import definitions
from agent_image.reviewer.tools import Result, Tools

LINE_BYTES = 32 * 1024 * 1024
# Longer than any result of ours: a longer one is put into a file, which nobody could read.
_RESULT_CHARS = 400_000
# Claude Code's name of the call, by which the result is known in its messages.
_CALL = "claudecode/toolUseId"

type Answer = Callable[[str, str, object], Awaitable[Result]]


def tool_server(tools: Tools, answer: Answer) -> Server[Any]:
    """Return the server of these tools. `answer` makes a call, by its id."""
    # All of them are said to read: those that don't are asked by the gate, which judges that, and
    # so the calls of one turn are made at the same time.
    offered = [
        types.Tool(
            name=one["name"],
            description=one["description"],
            input_schema=one["input_schema"],
            annotations=types.ToolAnnotations(read_only_hint=True),
            _meta={"anthropic/maxResultSizeChars": _RESULT_CHARS},
        )
        for one in definitions(tools.offered)
    ]

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=offered)

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        known: Any = params.meta or context.meta or {}
        result = await answer(str(known.get(_CALL)), params.name, params.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=result.text or "(empty)")],
            is_error=result.is_error,
        )

    return Server(SERVER, on_list_tools=list_tools, on_call_tool=call_tool)


@contextlib.asynccontextmanager
async def at_pipes(server: Server[Any], folder: Path) -> AsyncIterator[tuple[Path, Path]]:
    """Serve at two named pipes in the folder, a message a line, until the block ends; yield what
    goes to it and what comes of it. A sandbox has no Unix sockets."""
    places = folder / "to-tools", folder / "from-tools"
    for place in places:
        os.mkfifo(place, 0o600)
    # Open for both, so that nobody waits for the other side, and neither ends.
    entry = os.fdopen(os.open(places[0], os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0)
    out = os.open(places[1], os.O_RDWR)
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), entry
    )
    serving = asyncio.ensure_future(_serve(server, reader, out))
    try:
        yield places
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        transport.close()


async def _serve(server: Server[Any], reader: asyncio.StreamReader, out: int) -> None:
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](16)

    async def take() -> None:
        while line := await reader.readline():
            try:
                message = types.jsonrpc_message_adapter.validate_json(line)
            except ValueError as error:
                await incoming.send(error)
            else:
                await incoming.send(SessionMessage(message))

    async def give() -> None:
        async for one in outgoing:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            left = text.encode() + b"\n"
            while left:
                left = left[await in_thread(partial(os.write, out, left)) :]

    async with incoming, read, write, outgoing, anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        tasks.start_soon(give)
        await server.run(read, write, server.create_initialization_options())
