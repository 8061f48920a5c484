"""The runtime `sdk`: claude-agent-sdk conducts the review, with our tools in process.

https://code.claude.com/docs/en/agent-sdk/python. The package is optional, and holds a CLI of its
own.
"""

import asyncio
import contextlib
import dataclasses
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agent_image.reviewer.claude_code import (
    SERVER,
    ClaudeCode,
    Message,
    effort,
    environment,
    fallback,
)
from agent_image.reviewer.model import ModelError
from agent_image.reviewer.runtime import Outcome
from agent_image.reviewer.settings import Settings, UsageError
from agent_image.reviewer.text import plain
from agent_image.reviewer.tools import Tools

_NOT_HERE = (
    "the runtime `sdk` needs claude-agent-sdk, which isn't installed; run `scripts/setup sdk` where"
    " Gatehouse runs, or choose the runtime `loop`"
)


class SdkRuntime:
    """A `Runtime` over the SDK. The further arguments are those of `ClaudeCode`."""

    def __init__(self, settings: Settings, tools: Tools, *, system: str, **how: Any) -> None:
        self._settings = settings
        self._tools = tools
        self._system = system
        self._how = how

    def run(self, opening: str) -> Outcome:
        """Talk until there is a review. Raise `NoReviewError`, `ModelError` or `UsageError`."""
        try:
            import claude_agent_sdk as sdk
        except ImportError as error:
            raise UsageError(_NOT_HERE) from error
        try:
            return asyncio.run(self._run(sdk, opening))
        except sdk.CLINotFoundError as error:
            raise UsageError(
                f"claude-agent-sdk has no CLI for this machine; {_NOT_HERE}"
            ) from error
        except sdk.ClaudeSDKError as error:
            raise ModelError(
                f"Claude Code ended before the review was done: {plain(str(error))}"
            ) from error

    async def _run(self, sdk: Any, opening: str) -> Outcome:
        from agent_image.reviewer.tool_server import LINE_BYTES, tool_server

        settings = self._settings
        following = ClaudeCode(settings, self._tools, **self._how)
        server = tool_server(self._tools, following.answer)
        with tempfile.TemporaryDirectory(prefix="review-") as name:
            folder = Path(name)
            (folder / "work").mkdir()
            (folder / "system").write_text(self._system)
            options = sdk.ClaudeAgentOptions(
                tools=[],
                allowed_tools=following.allowed,
                permission_mode="dontAsk",
                mcp_servers={SERVER: {"type": "sdk", "name": SERVER, "instance": server}},
                strict_mcp_config=True,
                setting_sources=[],
                system_prompt={"type": "file", "path": str(folder / "system")},
                model=settings.models[0].name,
                fallback_model=fallback(settings) or None,
                effort=effort(settings) or None,
                max_turns=settings.limits.turns,
                include_partial_messages=True,
                max_buffer_size=LINE_BYTES,
                cwd=folder / "work",
                env=environment(settings, folder),
                extra_args={"no-session-persistence": None, "disable-slash-commands": None},
                stderr=lambda line: None,
            )
            client = sdk.ClaudeSDKClient(options)
            try:
                await client.connect()
                return await following.conduct(opening, client.query, _messages(sdk, client))
            finally:
                with contextlib.suppress(sdk.ClaudeSDKError):
                    await client.disconnect()


async def _messages(sdk: Any, client: Any) -> AsyncIterator[Message]:
    """Yield what it says, as the CLI writes it."""
    async for one in client.receive_messages():
        if isinstance(one, sdk.SystemMessage):
            yield {"type": "system", **one.data, "subtype": one.subtype}
        elif isinstance(one, sdk.ResultMessage):
            yield {"type": "result", **_fields(one)}
        elif isinstance(one, sdk.StreamEvent):
            yield {"type": "stream_event", **_fields(one)}
        elif isinstance(one, sdk.AssistantMessage | sdk.UserMessage):
            kind = "user" if isinstance(one, sdk.UserMessage) else "assistant"
            content = one.content if isinstance(one.content, list) else []
            inner = {
                "id": getattr(one, "message_id", None),
                "model": getattr(one, "model", None),
                "content": [_block(sdk, block) for block in content],
            }
            parent = one.parent_tool_use_id
            yield {"type": kind, "message": inner, "parent_tool_use_id": parent}


def _block(sdk: Any, block: Any) -> dict[str, Any]:
    kinds = {
        sdk.TextBlock: "text",
        sdk.ToolUseBlock: "tool_use",
        sdk.ToolResultBlock: "tool_result",
    }
    return {"type": kinds.get(type(block), ""), **_fields(block)}


def _fields(one: Any) -> dict[str, Any]:
    return {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
