"""Conversation with the model: at most `limits.turns` replies, then a review.

The last two turns are kept: one for the review itself, one to mend it. So a model that never stops
calling tools still gets the chance to conclude, and the bound always holds.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec

from agent_image.reviewer import prompts
from agent_image.reviewer.findings import (
    InvalidReviewError,
    Review,
    TracedCall,
    TracedTurn,
    Usage,
    extract,
)
from agent_image.reviewer.model import Block, Model, Reply, Request
from agent_image.reviewer.settings import Limits
from agent_image.reviewer.text import plain
from agent_image.reviewer.tool_inputs import definitions
from agent_image.reviewer.tools import Tools

_KEPT_TURNS = 2
# What is kept of each text of a turn.
TRACED_CHARS = 1_500


class NoReviewError(Exception):
    """The conversation ended without a usable review; one line with a remedy."""


class Outcome(msgspec.Struct, frozen=True):
    """A review and its usage."""

    review: Review
    usage: Usage
    turns: tuple[TracedTurn, ...] = ()


class Conversation:
    """One review. `say` prints one progress line for the person; `read` finds the review in a
    reply, or raises `InvalidReviewError`."""

    def __init__(
        self,
        model: Model,
        tools: Tools,
        *,
        limits: Limits,
        system: str,
        say: Callable[[str], None],
        read: Callable[[str], Review] = extract,
    ) -> None:
        self._model = model
        self._tools = tools
        self._limits = limits
        self._system = system
        self._say = say
        self._read = read
        self._definitions = definitions(tools.offered)
        self._messages: list[dict[str, Any]] = []
        self._turns = self._input_tokens = self._output_tokens = 0
        self._repaired = self._offers_tools = False
        self._trace: list[TracedTurn] = []

    def run(self, opening: str) -> Outcome:
        """Talk until there is a review. Raises `NoReviewError`, and `ModelError` from the model."""
        self._messages = [{"role": "user", "content": [_words(opening)]}]
        while self._turns < self._limits.turns:
            reply = self._next_reply()
            if reply.stop_reason == "refusal":
                raise NoReviewError(
                    "the model declined to review this change; read its last words above, or use"
                    " another model"
                )
            if reply.stop_reason == "model_context_window_exceeded":
                raise NoReviewError(
                    "the review no longer fits the model's context; review a smaller change with"
                    " --base"
                )
            begun = time.monotonic()
            content = self._continuation(reply)
            self._note(reply, content, time.monotonic() - begun)
            if isinstance(content, Review):
                return Outcome(content, self._usage(), tuple(self._trace))
            self._messages.append({"role": "assistant", "content": _history(reply.content)})
            if content:
                self._messages.append({"role": "user", "content": content})
        raise NoReviewError(f"no usable review after {self._turns} turns; start the review again")

    def _next_reply(self) -> Reply:
        self._offers_tools = self._may_call()
        request = Request(
            system=self._system,
            messages=self._messages,
            tools=self._definitions,
            max_tokens=self._limits.reply_tokens,
            may_call=self._offers_tools,
        )
        self._turns += 1
        self._say(f"turn {self._turns} of at most {self._limits.turns}")
        begun = time.monotonic()
        reply = self._model.reply(request, self._say)
        self._took_s = time.monotonic() - begun
        self._input_tokens += reply.input_tokens
        self._output_tokens += reply.output_tokens
        if not reply.content:
            raise NoReviewError("the model gave an empty reply; start the review again")
        if words := reply.text.partition("<review>")[0].strip():
            self._say(f"model: {plain(words)}")
        return reply

    def _may_call(self) -> bool:
        return (
            self._turns < self._limits.turns - _KEPT_TURNS
            and not self._is_spent()
            and not self._repaired
        )

    def _is_spent(self) -> bool:
        return self._input_tokens + self._output_tokens >= self._limits.total_tokens

    def _continuation(self, reply: Reply) -> Review | list[Block]:
        """Return the next step after a reply: the review in it, or the user's blocks (none: go on
        as it is)."""
        if reply.calls:
            return self._tool_results(reply)
        if reply.stop_reason == "pause_turn":
            return []
        if reply.stop_reason == "max_tokens":
            return [_words(prompts.CONTINUE)]
        try:
            return self._read(reply.text)
        except InvalidReviewError as error:
            if self._repaired:
                raise NoReviewError(
                    f"the review was not usable, also after a repair: {error}"
                ) from error
            self._repaired = True
            self._say(f"the review was not usable, one more try: {plain(str(error))}")
            return [_words(prompts.repair(str(error)))]

    def _tool_results(self, reply: Reply) -> list[Block]:
        if reply.stop_reason == "max_tokens":
            # The last call may be cut off, and can still be valid JSON: make none of them.
            return [_result(call, prompts.CUT_CALL, is_error=True) for call in reply.calls]
        if not self._offers_tools:
            return [_result(call, prompts.NO_TOOLS, is_error=True) for call in reply.calls]
        results = self._tools.run(reply.calls)
        blocks = [
            _result(call, result.text, is_error=result.is_error)
            for call, result in zip(reply.calls, results, strict=True)
        ]
        if not self._may_call():
            blocks.append(_words(prompts.BUDGET_SPENT if self._is_spent() else prompts.LAST_CALL))
        return blocks

    def _note(self, reply: Reply, content: Review | list[Block], calls_s: float) -> None:
        """Keep what a turn was, for whoever wants to see how the review came about."""
        results = {
            block["tool_use_id"]: block
            for block in (content if isinstance(content, list) else ())
            if block["type"] == "tool_result"
        }
        calls = [
            TracedCall(
                tool=str(call["name"])[:100],
                input=json.dumps(call["input"])[:TRACED_CHARS],
                result=str(results.get(call["id"], {}).get("content", ""))[:TRACED_CHARS],
                is_error=bool(results.get(call["id"], {}).get("is_error")),
            )
            for call in reply.calls
        ]
        self._trace.append(
            TracedTurn(
                said=reply.text[:TRACED_CHARS],
                seconds=round(self._took_s, 3),
                calls_s=round(calls_s, 3) if calls else 0.0,
                input_tokens=reply.input_tokens,
                output_tokens=reply.output_tokens,
                calls=tuple(calls),
            )
        )

    def _usage(self) -> Usage:
        return Usage(
            turns=self._turns, input_tokens=self._input_tokens, output_tokens=self._output_tokens
        )


def _words(text: str) -> Block:
    return {"type": "text", "text": text}


def _result(call: Block, text: str, *, is_error: bool) -> Block:
    return {
        "type": "tool_result",
        "tool_use_id": call["id"],
        "content": text or "(empty)",
        "is_error": is_error,
    }


def _history(content: tuple[Block, ...]) -> list[Block]:
    """A reply as it goes back: the API takes no empty text blocks, though it sends them."""
    kept = [block for block in content if block["type"] != "text" or block["text"].strip()]
    return kept or [_words("(no words)")]
