"""Port to what conducts a review's conversation, and what its implementations share.

`loop` is our own; `cli_runtime` and `sdk_runtime` let Claude Code conduct it. All of them have the
same order, texts, tools and bounds, and come to the same outcome.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from agent_image.reviewer import prompts
from agent_image.reviewer.findings import Review, TracedCall, TracedTurn, Usage
from agent_image.reviewer.gatehouse import ApiError
from agent_image.reviewer.settings import Limits
from agent_image.reviewer.text import plain

KEPT_TURNS = 2
# A model that makes the same calls this often makes no progress.
_MOST_SAME = 3
# Kept length of each text of a turn.
TRACED_CHARS = 1_500


class NoReviewError(Exception):
    """The conversation ended without a usable review. Its text is one line with a remedy."""


class Outcome(msgspec.Struct, frozen=True):
    """A review and its usage. `partial`: why it was concluded early."""

    review: Review
    usage: Usage
    turns: tuple[TracedTurn, ...] = ()
    partial: str = ""


class Runtime(Protocol):
    """What conducts one review."""

    def run(self, opening: str) -> Outcome:
        """Talk until there is a review. Raise `NoReviewError`, or the model's `ModelError`."""
        ...


class Course:
    """The course of one conversation: what it used, and why it must conclude. `must_conclude` is
    asked after each turn with tool calls, and may raise `ApiError`."""

    def __init__(
        self, limits: Limits, say: Callable[[str], None], must_conclude: Callable[[], bool]
    ) -> None:
        self._limits = limits
        self._say = say
        self._must_conclude = must_conclude
        self.turns = self.input_tokens = self.output_tokens = 0
        # A key of `prompts.CONCLUDING`; "" while the conversation continues.
        self.concluding = ""
        self._last_calls, self._same_calls = "", 0
        # The last review in a reply that also had calls.
        self.draft: Review | None = None

    def next_turn(self) -> None:
        """Count a turn that begins."""
        self.turns += 1
        self._say(f"turn {self.turns} of at most {self._limits.turns}")

    def why_conclude(self, calls: Sequence[tuple[str, Any]]) -> str:
        """Return why the next turn is the last one, as a key of `prompts.CONCLUDING`; "" where the
        model may continue. `calls`: names and inputs of this turn's."""
        said = json.dumps(calls)
        self._same_calls = self._same_calls + 1 if said == self._last_calls else 1
        self._last_calls = said
        if self.turns >= self._limits.turns - KEPT_TURNS:
            return "turns"
        if self.input_tokens + self.output_tokens >= self._limits.total_tokens:
            return "tokens"
        if calls and self._same_calls >= _MOST_SAME:
            return "loop"
        try:
            return "money" if self._must_conclude() else ""
        except ApiError as error:
            self._say(f"what is left of the budget isn't known: {plain(str(error))}")
            return ""

    def outcome(self, review: Review, turns: Sequence[TracedTurn]) -> Outcome:
        """Return the outcome with this review."""
        usage = Usage(
            turns=self.turns, input_tokens=self.input_tokens, output_tokens=self.output_tokens
        )
        partial = prompts.CONCLUDING[self.concluding][1] if self.concluding else ""
        return Outcome(review, usage, tuple(turns), partial)


def traced_call(tool: str, given: Any, result: str, *, is_error: bool) -> TracedCall:
    """Return a call as a turn shows it."""
    return TracedCall(
        tool=tool[:100],
        input=json.dumps(given)[:TRACED_CHARS],
        result=result[:TRACED_CHARS],
        is_error=is_error,
    )


def say_words(text: str, say: Callable[[str], None]) -> None:
    """Tell the person what a model says before its review."""
    if words := text.partition("<review>")[0].strip():
        say(f"model: {plain(words)}")


def check_stop(stop_reason: str) -> None:
    """Raise `NoReviewError` if the model can't continue."""
    if stop_reason == "refusal":
        raise NoReviewError(
            "the model declined to review this change; read its last words above, or use another"
            " model"
        )
    if stop_reason == "model_context_window_exceeded":
        raise NoReviewError(
            "the review no longer fits the model's context; review a smaller change with --base"
        )
