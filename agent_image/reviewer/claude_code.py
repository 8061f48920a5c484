"""Follows a review that Claude Code conducts: its turns, our tools in it, and its end.

`cli_runtime` and `sdk_runtime` start it; both hear the same messages
(https://code.claude.com/docs/en/agent-sdk/typescript, "Message types") and answer calls of our
tools here. What it says is a stranger's: it is checked, and it must end in time.

INVARIANT: it has our tools and no other, works in an empty folder, reads no settings, and has no
token of the agent API.
"""

import asyncio
import contextlib
import json
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from agent_image.reviewer import prompts
from agent_image.reviewer.egress import refusal_at
from agent_image.reviewer.findings import OPENING, InvalidReviewError, Review, TracedTurn
from agent_image.reviewer.gatehouse import refusal_text
from agent_image.reviewer.model import ModelError
from agent_image.reviewer.runtime import (
    TRACED_CHARS,
    Course,
    NoReviewError,
    Outcome,
    check_stop,
    say_words,
    traced_call,
)
from agent_image.reviewer.settings import Limits, Settings
from agent_image.reviewer.text import plain
from agent_image.reviewer.tools import Result, Tools

SERVER = "gatehouse"
_PREFIX = f"mcp__{SERVER}__"
_DEFAULT_URL = "https://api.anthropic.com"
# A message and a call of our tools come on two ways: so long a call waits for its message.
_TOLD_S = 10.0
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "max"}

type Message = Mapping[str, Any]
# The oldest one that is known to heed what keeps it from reading files that a prompt names.
_OLDEST = [2, 1, 197]
_VERSION = "claude_code_version"


class _Call:
    def __init__(self, name: str, given: Any) -> None:
        self.name, self.given = name.removeprefix(_PREFIX), given
        self.result, self.is_error, self.is_over = "", False, False


class _Turn:
    def __init__(self, since: float) -> None:
        self.since = self.until = self.calls_until = since
        self.text = self.stop_reason = ""
        self.input_tokens = self.output_tokens = 0
        self.calls: dict[str, _Call] = {}
        self.is_judged = False

    def named(self) -> list[tuple[str, Any]]:
        return [(one.name, one.given) for one in self.calls.values()]

    def traced(self) -> TracedTurn:
        calls_s = self.calls_until - self.until
        return TracedTurn(
            said=self.text[:TRACED_CHARS],
            seconds=round(self.until - self.since, 3),
            calls_s=round(max(0.0, calls_s), 3) if self.calls else 0.0,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            calls=tuple(
                traced_call(one.name, one.given, one.result, is_error=one.is_error)
                for one in self.calls.values()
            ),
        )


class ClaudeCode:
    """One review that Claude Code conducts. `send` gives it a prompt, and `messages` are what it
    says."""

    def __init__(
        self,
        settings: Settings,
        tools: Tools,
        *,
        say: Callable[[str], None],
        read: Callable[[str], Review],
        must_conclude: Callable[[], bool],
    ) -> None:
        self._limits: Limits = settings.limits
        self._url = settings.models[0].url or _DEFAULT_URL
        self._tools = tools
        self._say = say
        self._read = read
        self._course = Course(settings.limits, say, must_conclude)
        self._turns: dict[str, _Turn] = {}
        self._told = asyncio.Condition()
        self._since = time.monotonic()
        self._answering = 0
        self._repaired = False
        self._result: Message | None = None
        if settings.order.temperature is not None:
            say("Claude Code takes no temperature; the model is asked without one")

    @property
    def allowed(self) -> list[str]:
        """Return the names that it knows our tools by."""
        return [f"{_PREFIX}{name}" for name in self._tools.offered]

    async def conduct(
        self,
        opening: str,
        send: Callable[[str], Awaitable[None]],
        messages: AsyncIterator[Message],
    ) -> Outcome:
        """Give it the opening, and follow it until there is a review. Raise `NoReviewError` or
        `ModelError`."""
        try:
            review = await self._in_time(self._talk(opening, send, messages))
        except (NoReviewError, ModelError) as error:
            is_over = isinstance(error, NoReviewError) or error.is_over_budget
            if self._course.draft is None or not is_over:
                raise
            self._course.concluding = self._course.concluding or "broken"
            review = self._course.draft
        return self._course.outcome(review, [one.traced() for one in self._turns.values()])

    async def answer(self, call_id: str, name: str, given: object) -> Result:
        """Make a call of one of our tools."""
        self._answering += 1
        try:
            turn = await self._turn_of(call_id)
            if turn is None:
                return Result("not done: nobody said that it is called", is_error=True)
            if self._repaired or (self._course.concluding and not turn.is_judged):
                return Result(prompts.NO_TOOLS, is_error=True)
            if list(turn.calls).index(call_id) >= self._limits.calls_per_turn:
                most = self._limits.calls_per_turn
                return Result(f"not done: at most {most} calls per turn", is_error=True)
            call = {"name": name, "input": given}
            (result,) = await in_thread(lambda: self._tools.run([call]))
            if not turn.is_judged:
                turn.is_judged = True
                why = await in_thread(lambda: self._course.why_conclude(turn.named()))
                self._course.concluding = why
                if why:
                    text = f"{result.text}\n\n{prompts.conclude(why)}"
                    return Result(text, is_error=result.is_error)
            return result
        finally:
            self._answering -= 1
            self._since = time.monotonic()

    async def _turn_of(self, call_id: str) -> _Turn | None:
        def found() -> _Turn | None:
            return next((one for one in self._turns.values() if call_id in one.calls), None)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TOLD_S), self._told:
                return await self._told.wait_for(found)
        return None

    async def _in_time(self, talk: Awaitable[Review]) -> Review:
        """Return what comes of it, unless a turn takes too long. Answers to our tools may."""
        talking = asyncio.ensure_future(talk)
        try:
            while not talking.done():
                left = self._since + self._limits.turn_s - time.monotonic()
                if left <= 0 and not self._answering:
                    raise ModelError(
                        f"Claude Code ended no turn in {self._limits.turn_s:.0f} s; start the"
                        " review again"
                    )
                await asyncio.wait([talking], timeout=max(left, 0.2))
            return talking.result()
        finally:
            if not talking.done():
                talking.cancel()
                await asyncio.wait([talking], timeout=10)

    async def _talk(
        self,
        opening: str,
        send: Callable[[str], Awaitable[None]],
        messages: AsyncIterator[Message],
    ) -> Review:
        prompt = opening
        while True:
            self._result = None
            self._since = time.monotonic()
            await send(prompt)
            async for message in messages:
                await self._hear(message)
                if self._result is not None:
                    break
            if self._result is None:
                raise ModelError("Claude Code ended in the middle; start the review again")
            answer = self._concluded(self._result)
            if isinstance(answer, Review):
                return answer
            prompt = answer

    async def _hear(self, message: Message) -> None:
        kind, inner = message.get("type"), message.get("message")
        if message.get("parent_tool_use_id"):
            raise ModelError("Claude Code started an agent of its own; start the review again")
        if kind == "result":
            self._result = message
        elif kind == "system":
            self._hear_system(message)
        elif kind == "stream_event" and isinstance(message.get("event"), dict):
            self._hear_event(message["event"])
        elif kind == "assistant" and isinstance(inner, dict):
            # What it says in a model's place, when that can't be asked, is in its result, too.
            if inner.get("model") != "<synthetic>":
                await self._hear_reply(inner)
        elif kind == "user" and isinstance(inner, dict):
            self._hear_results(inner)

    def _hear_system(self, message: Message) -> None:
        if message.get("subtype") == "init":
            foreign = sorted(set(map(str, message.get("tools") or ())) - set(self.allowed))
            servers = {one.get("name"): one.get("status") for one in message.get("mcp_servers", ())}
            if foreign or servers != {SERVER: "connected"}:
                what = f"it has `{plain(foreign[0], 60)}`" if foreign else f"servers: {servers}"
                raise ModelError(
                    "Claude Code doesn't have exactly the tools that it was given"
                    f" ({plain(what)}); use another version of it, or the runtime `loop`"
                )
            version = [int(one) for one in re.findall("[0-9]{1,6}", str(message.get(_VERSION)))]
            if version[:3] < _OLDEST:
                raise ModelError(
                    "Claude Code is older than 2.1.197, and may read what a text names; take a"
                    " newer one, or the runtime `loop`"
                )
        elif message.get("subtype") == "api_retry":
            self._since = time.monotonic()
            status = message.get("error_status") or "nothing"
            self._say(f"the model answers {plain(str(status), 60)}; it is asked again")

    def _hear_event(self, event: Mapping[str, Any]) -> None:
        usage = event.get("usage") or {}
        if event.get("type") == "message_start":
            inner = event.get("message") or {}
            self._open(str(inner.get("id")))
            usage = inner.get("usage") or {}
            tokens = sum(
                int(usage.get(name) or 0)
                for name in (
                    "input_tokens",
                    "cache_creation_input_tokens",
                    "cache_read_input_tokens",
                )
            )
            self._last.input_tokens = tokens
            self._course.input_tokens += tokens
        elif event.get("type") == "message_delta" and self._turns:
            tokens = int(usage.get("output_tokens") or 0)
            self._course.output_tokens += tokens - self._last.output_tokens
            self._last.output_tokens = tokens
            self._last.until = time.monotonic()
            self._last.stop_reason = str((event.get("delta") or {}).get("stop_reason") or "")

    @property
    def _last(self) -> _Turn:
        return next(reversed(self._turns.values()))

    def _open(self, message_id: str) -> _Turn:
        if message_id not in self._turns:
            if self._course.turns >= self._limits.turns:
                raise NoReviewError(
                    f"no usable review after {self._course.turns} turns; start the review again"
                )
            self._course.next_turn()
            self._turns[message_id] = _Turn(self._since)
            self._since = time.monotonic()
        return self._turns[message_id]

    async def _hear_reply(self, inner: Mapping[str, Any]) -> None:
        """Take over a block of a reply: each comes in a message of its own."""
        turn = self._open(str(inner.get("id")))
        turn.until = time.monotonic()
        async with self._told:
            for block in inner.get("content") or ():
                if block.get("type") == "text":
                    turn.text += str(block.get("text"))
                    say_words(str(block.get("text")), self._say)
                elif block.get("type") == "tool_use":
                    call = _Call(str(block.get("name")), block.get("input"))
                    turn.calls[str(block.get("id"))] = call
            self._told.notify_all()
        if turn.calls and OPENING in turn.text:
            with contextlib.suppress(InvalidReviewError):
                self._course.draft = self._read(turn.text)

    def _hear_results(self, inner: Mapping[str, Any]) -> None:
        content = inner.get("content")
        self._since = time.monotonic()
        for block in content if isinstance(content, list) else ():
            for turn in self._turns.values():
                if call := turn.calls.get(str(block.get("tool_use_id"))):
                    call.result = _text(block.get("content"))
                    call.is_error = bool(block.get("is_error"))
                    turn.calls_until = time.monotonic()

    def _concluded(self, result: Message) -> Review | str:
        """Return the review at the end of a prompt, or the prompt that has it mended."""
        if result.get("terminal_reason") == "prompt_too_long":
            check_stop("model_context_window_exceeded")
        if result.get("subtype") == "error_max_turns":
            raise NoReviewError(
                f"no usable review after {self._course.turns} turns; start the review again"
            )
        if result.get("is_error") or result.get("subtype") != "success":
            raise self._trouble(result)
        if not self._turns or not (self._last.text or self._last.calls):
            raise NoReviewError("the model gave an empty reply; start the review again")
        check_stop(self._last.stop_reason)
        try:
            return self._read(self._last.text)
        except InvalidReviewError as error:
            if self._repaired:
                raise NoReviewError(
                    f"the review was not usable, also after a repair: {error}"
                ) from error
            self._repaired = True
            self._say(f"the review was not usable, one more try: {plain(str(error))}")
            return prompts.repair(str(error))

    def _trouble(self, result: Message) -> ModelError:
        status = result.get("api_error_status")
        errors = result.get("errors")
        said = str(result.get("result") or (errors[0] if errors else result.get("subtype")))
        if status == 401:
            return ModelError(
                "the API key was not accepted; set ANTHROPIC_API_KEY where Gatehouse runs"
            )
        refusal = _refusal(said) if status == 403 else None if status else refusal_at(self._url)
        if refusal is not None:
            why = f"the model can't be reached, {refusal_text(refusal)}"
            return ModelError(why, is_refusal=True)
        return ModelError(
            f"Claude Code gave up: {plain(said)}; try again later", is_over_budget=status == 402
        )


def environment(settings: Settings, folder: Path) -> dict[str, str]:
    """Return the environment of Claude Code: the sandbox's, without what is ours, and with what
    keeps it to itself. https://code.claude.com/docs/en/env-vars"""
    ours = ("GATEHOUSE_", "ANTHROPIC_", "CLAUDE_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    limits = settings.limits
    env |= {
        "HOME": str(folder),
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "ANTHROPIC_API_KEY": settings.models[0].key,
        "ANTHROPIC_BASE_URL": settings.models[0].url or _DEFAULT_URL,
        "IS_SANDBOX": "1",
        # No hooks, plugins, memory, CLAUDE.md or background work.
        "CLAUDE_CODE_SIMPLE": "1",
        # Otherwise `@PATH` anywhere in a diff has it read that file into the prompt.
        "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
        "CLAUDE_AGENT_SDK_SKIP_VERSION_CHECK": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(limits.reply_tokens),
        "CLAUDE_CODE_MAX_RETRIES": str(limits.retries),
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_COMPACT": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "ENABLE_TOOL_SEARCH": "false",
        # Our tools bound what they say, and people take their time to answer.
        "MAX_MCP_OUTPUT_TOKENS": "200000",
        "MCP_TOOL_TIMEOUT": str(int((limits.answer_wait_s + 4000) * 1000)),
        "MCP_CONNECTION_NONBLOCKING": "0",
    }
    if settings.order.reasoning == "off":
        env["MAX_THINKING_TOKENS"] = "0"
    return env


def fallback(settings: Settings) -> str:
    """Return the models that are asked where the first is away; "" for none."""
    return ",".join(one.name for one in settings.models[1:])


def effort(settings: Settings) -> str:
    """Return how much it is to think, in its own words; "" where nobody said."""
    return _EFFORTS.get(settings.order.reasoning, "")


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(one.get("text", "")) for one in content if isinstance(one, dict))
    return str(content or "")


def _refusal(said: str) -> dict[str, Any] | None:
    """Return the refusal of egress that an error repeats; None where a 403 is the server's own."""
    with contextlib.suppress(ValueError):
        known = json.loads(said[said.index("{") :])
        if isinstance(known, dict) and "why" in known:
            return known
    return None


async def in_thread[Result](work: Callable[[], Result]) -> Result:
    """Run it in a thread that nobody waits for at the end: an answer may never come."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(found: Result | None, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(found)  # type: ignore[arg-type]

    def body() -> None:
        found, error = None, None
        try:
            found = work()
        except Exception as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, found, error)

    threading.Thread(target=body, daemon=True).start()
    return await done
