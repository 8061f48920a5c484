"""The runtime `cli`: `claude -p` conducts the review, by its stream of JSON messages.

https://code.claude.com/docs/en/cli-reference. It is the program that the supervisor shows in the
sandbox. It is started in an empty folder, so that nothing of the code under review is beside it.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
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

_BRIDGE = Path(__file__).with_name("tool_bridge.py")
_KEPT_BYTES = 4_000


class CliRuntime:
    """A `Runtime` over the CLI. The further arguments are those of `ClaudeCode`."""

    def __init__(self, settings: Settings, tools: Tools, *, system: str, **how: Any) -> None:
        self._settings = settings
        self._tools = tools
        self._system = system
        self._how = how

    def run(self, opening: str) -> Outcome:
        """Talk until there is a review. Raise `NoReviewError`, `ModelError` or `UsageError`."""
        return asyncio.run(self._run(opening))

    async def _run(self, opening: str) -> Outcome:
        from agent_image.reviewer.tool_server import LINE_BYTES, at_pipes, tool_server

        following = ClaudeCode(self._settings, self._tools, **self._how)
        server = tool_server(self._tools, following.answer)
        with tempfile.TemporaryDirectory(prefix="review-") as name:
            folder = Path(name)
            (folder / "work").mkdir()
            (folder / "system").write_text(self._system)
            async with at_pipes(server, folder) as pipes:
                try:
                    process = await asyncio.create_subprocess_exec(
                        *self._command(folder, pipes, following.allowed),
                        cwd=folder / "work",
                        env=environment(self._settings, folder),
                        stdin=asyncio.subprocess.PIPE,
                        stdout=asyncio.subprocess.PIPE,
                        stderr=asyncio.subprocess.PIPE,
                        start_new_session=True,
                        limit=LINE_BYTES,
                    )
                except OSError as error:
                    raise UsageError(
                        f"Claude Code `{self._settings.claude}` can't be started:"
                        f" {error.strerror}; run `gatehouse claude` once, which installs it, or"
                        " choose the runtime `loop`"
                    ) from error
                try:
                    return await self._conduct(following, process, opening)
                finally:
                    await _end(process)

    async def _conduct(
        self, following: ClaudeCode, process: asyncio.subprocess.Process, opening: str
    ) -> Outcome:
        assert process.stdin is not None
        entry = process.stdin
        complaints = asyncio.ensure_future(_last_words(process))

        async def send(prompt: str) -> None:
            message = {"role": "user", "content": [{"type": "text", "text": prompt}]}
            with contextlib.suppress(ConnectionError):  # what it said tells why
                entry.write(json.dumps({"type": "user", "message": message}).encode() + b"\n")
                await entry.drain()

        try:
            return await following.conduct(opening, send, _messages(process, complaints))
        finally:
            complaints.cancel()

    def _command(self, folder: Path, pipes: tuple[Path, Path], allowed: list[str]) -> list[str]:
        settings = self._settings
        words = ["-I", "-S", str(_BRIDGE), *map(str, pipes)]
        bridge = {"command": sys.executable, "args": words}
        servers = {"mcpServers": {SERVER: {"type": "stdio", **bridge, "env": {}}}}
        thinks, others = effort(settings), fallback(settings)
        return [
            settings.claude,
            "-p",
            *("--output-format", "stream-json", "--input-format", "stream-json", "--verbose"),
            "--include-partial-messages",
            *("--model", settings.models[0].name),
            *("--fallback-model", others) * bool(others),
            *("--effort", thinks) * bool(thinks),
            *("--max-turns", str(settings.limits.turns)),
            *("--system-prompt-file", str(folder / "system")),
            *("--tools", ""),
            *("--allowedTools", ",".join(allowed)),
            *("--permission-mode", "dontAsk"),
            *("--mcp-config", json.dumps(servers), "--strict-mcp-config"),
            "--setting-sources=",
            "--disable-slash-commands",
            "--no-session-persistence",
        ]


async def _messages(
    process: asyncio.subprocess.Process, complaints: asyncio.Future[str]
) -> AsyncIterator[Message]:
    """Yield what it says. Raise `ModelError` where that is no message, and when it ends."""
    assert process.stdout is not None
    while True:
        try:
            line = await process.stdout.readline()
        except ValueError as error:
            raise ModelError("Claude Code says more in a line than a message holds") from error
        if not line:
            break
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            said = plain(line.decode("utf-8", "replace"))
            raise ModelError(f"Claude Code said what is no message: {said}")
        yield message
    code = await process.wait()
    said = await complaints
    why = f": {plain(said)}" if said else ""
    raise ModelError(f"Claude Code ended with code {code} before the review was done{why}")


async def _last_words(process: asyncio.subprocess.Process) -> str:
    """Return the end of what it wrote to standard error."""
    assert process.stderr is not None
    kept = b""
    while piece := await process.stderr.read(65_536):
        kept = (kept + piece)[-_KEPT_BYTES:]
    lines = kept.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


async def _end(process: asyncio.subprocess.Process) -> None:
    """End it, and all that it started: it keeps nothing."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
