"""Conversation with the model: at most `limits.turns` replies, then a review.

The last two turns are reserved: one for the review itself, one to repair it. So a model that never
stops calling tools still gets the chance to conclude, and the bound always holds. The model must
conclude earlier if money or tokens are nearly used up, or if it repeats itself; the review is
partial then.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

from agent_image.reviewer import prompts
from agent_image.reviewer.findings import (
    OPENING,
    InvalidReviewError,
    Review,
    TracedTurn,
    extract,
)
from agent_image.reviewer.model import Block, Model, ModelError, Reply, Request
from agent_image.reviewer.runtime import (
    KEPT_TURNS,
    TRACED_CHARS,
    Course,
    NoReviewError,
    Outcome,
    check_stop,
    say_words,
    traced_call,
)
from agent_image.reviewer.settings import Limits
from agent_image.reviewer.text import plain
from agent_image.reviewer.tool_inputs import definitions
from agent_image.reviewer.tools import Tools

# For the last attempt after a call was refused for lack of money.
_LAST_TOKENS = 4096


class Conversation:
    """One review. `say` prints a progress line for the person. `must_conclude` is called after each
    turn with tool calls, and may raise `ApiError`. `read` finds the review in a reply, or raises
    `InvalidReviewError`."""

    def __init__(
        self,
        model: Model,
        tools: Tools,
        *,
        limits: Limits,
        system: str,
        say: Callable[[str], None],
        read: Callable[[str], Review] = extract,
        must_conclude: Callable[[], bool] = lambda: False,
    ) -> None:
        self._model = model
        self._tools = tools
        self._limits = limits
        self._system = system
        self._say = say
        self._read = read
        self._definitions = definitions(tools.offered)
        self._messages: list[dict[str, Any]] = []
        self._repaired = self._offers_tools = self._is_shortened = False
        self._trace: list[TracedTurn] = []
        self._course = Course(limits, say, must_conclude)

    def run(self, opening: str) -> Outcome:
        """Talk until there is a review. Raise `NoReviewError`, or the model's `ModelError`."""
        self._messages = [{"role": "user", "content": [_words(opening)]}]
        try:
            return self._talk()
        except (NoReviewError, ModelError) as error:
            is_over = isinstance(error, NoReviewError) or error.is_over_budget
            if self._course.draft is None or not is_over:
                raise
            self._course.concluding = self._course.concluding or "broken"
            return self._course.outcome(self._course.draft, self._trace)

    def _talk(self) -> Outcome:
        while self._course.turns < self._limits.turns:
            try:
                reply = self._next_reply()
            except ModelError as error:
                if error.is_over_budget and self._shorten():
                    continue
                raise
            check_stop(reply.stop_reason)
            begun = time.monotonic()
            content = self._continuation(reply)
            self._note(reply, content, time.monotonic() - begun)
            if isinstance(content, Review):
                return self._course.outcome(content, self._trace)
            if (
                content
                and not self._course.concluding
                and reply.stop_reason in ("tool_use", "max_tokens")
            ):
                self._course.concluding = self._course.why_conclude(_named(reply))
                if self._course.concluding:
                    content.append(_words(prompts.conclude(self._course.concluding)))
            self._messages.append({"role": "assistant", "content": _history(reply.content)})
            if content:
                self._messages.append({"role": "user", "content": content})
        raise NoReviewError(
            f"no usable review after {self._course.turns} turns; start the review again"
        )

    def _shorten(self) -> bool:
        """After a call was refused for lack of money, leave out the results of the last tool calls,
        which make it dearer than the one before. Return whether to try once more."""
        if self._is_shortened or len(self._messages) < 2:
            return False
        self._is_shortened = True
        self._say("there is no money for another turn; the review is concluded")
        last = self._messages[-1]["content"]
        for block in last:
            if block["type"] == "tool_result":
                block["content"] = prompts.NO_MONEY
        if not self._course.concluding:
            last.append(_words(prompts.conclude("money")))
        self._course.concluding = "money"
        return True

    def _next_reply(self) -> Reply:
        self._offers_tools = self._may_call()
        request = Request(
            system=self._system,
            messages=self._messages,
            tools=self._definitions,
            max_tokens=(
                min(_LAST_TOKENS, self._limits.reply_tokens)
                if self._is_shortened
                else self._limits.reply_tokens
            ),
            may_call=self._offers_tools,
        )
        self._course.next_turn()
        begun = time.monotonic()
        reply = self._model.reply(request, self._say)
        self._took_s = time.monotonic() - begun
        self._course.input_tokens += reply.input_tokens
        self._course.output_tokens += reply.output_tokens
        if not reply.content:
            raise NoReviewError("the model gave an empty reply; start the review again")
        say_words(reply.text, self._say)
        return reply

    def _may_call(self) -> bool:
        is_early = self._course.turns < self._limits.turns - KEPT_TURNS
        return is_early and not self._course.concluding and not self._repaired

    def _continuation(self, reply: Reply) -> Review | list[Block]:
        """Return the next step after a reply: the review in it, or the user's blocks (none:
        continue as it is)."""
        if reply.calls:
            if OPENING in reply.text:
                with contextlib.suppress(InvalidReviewError):
                    self._course.draft = self._read(reply.text)
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
            # The last call may be cut off and still be valid JSON, so make none of them.
            return [_result(call, prompts.CUT_CALL, is_error=True) for call in reply.calls]
        if not self._offers_tools:
            return [_result(call, prompts.NO_TOOLS, is_error=True) for call in reply.calls]
        results = self._tools.run(reply.calls)
        return [
            _result(call, result.text, is_error=result.is_error)
            for call, result in zip(reply.calls, results, strict=True)
        ]

    def _note(self, reply: Reply, content: Review | list[Block], calls_s: float) -> None:
        """Record a turn, to show later how the review came about."""
        results = {
            block["tool_use_id"]: block
            for block in (content if isinstance(content, list) else ())
            if block["type"] == "tool_result"
        }
        calls = [
            traced_call(
                str(call["name"]),
                call["input"],
                str(results.get(call["id"], {}).get("content", "")),
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


def _named(reply: Reply) -> list[tuple[str, Any]]:
    return [(call["name"], call["input"]) for call in reply.calls]


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
    """Return a reply for the history: the API accepts no empty text blocks, though it sends
    them."""
    kept = [block for block in content if block["type"] != "text" or block["text"].strip()]
    return kept or [_words("(no words)")]
