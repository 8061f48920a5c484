"""Port to a model, implemented by `anthropic_model` and `recorded_model`.

Messages and content blocks are plain dictionaries in the shape of the Messages API
(https://docs.anthropic.com/en/api/messages). In this shape they also go back unchanged with the
next call.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

type Block = dict[str, Any]

_LONGEST_PAUSE_S = 60.0
_FIRST_PAUSE_S = 1.0


class ModelError(Exception):
    """The model can't answer. Its text is one line with a remedy. `is_refusal` marks a refusal of
    the gate (exit code 2), `is_over_budget` a call that the session has no money for, `is_away` a
    provider or a model that isn't there for anybody now, so that another may be asked."""

    def __init__(
        self,
        message: str,
        *,
        is_refusal: bool = False,
        is_over_budget: bool = False,
        is_away: bool = False,
    ) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal
        self.is_over_budget = is_over_budget
        self.is_away = is_away


class PassingError(Exception):
    """An error that another try may solve: what the model does, in a few words. `pause_s`: how long
    the server asks to wait, 0.0 where it doesn't."""

    def __init__(self, trouble: str, pause_s: float = 0.0) -> None:
        super().__init__(trouble)
        self.pause_s = pause_s


class Reply(msgspec.Struct, frozen=True):
    """One turn of the model. Token counts are the model's own for this turn."""

    content: tuple[Block, ...]
    stop_reason: str
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def text(self) -> str:
        """Return the words of the reply, without tool calls."""
        return "".join(block["text"] for block in self.content if block["type"] == "text")

    @property
    def calls(self) -> tuple[Block, ...]:
        """Return the tool calls of the reply, in order."""
        return tuple(block for block in self.content if block["type"] == "tool_use")


class Request(msgspec.Struct, frozen=True):
    """A request to a model. `may_call` is False where it must answer in words."""

    system: str
    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]]
    max_tokens: int
    may_call: bool = True


def tried(
    once: Callable[[], Reply],
    say: Callable[[str], None],
    *,
    retries: int,
    sleep: Callable[[float], None],
) -> Reply:
    """Return the reply of the first try that has one. Raise `ModelError` after this many
    `retries`."""
    for attempt in range(retries + 1):
        try:
            return once()
        except PassingError as error:
            if attempt == retries:
                raise ModelError(
                    f"the model {error}, also after {retries + 1} tries; try again later",
                    is_away=True,
                ) from error
            if error.pause_s > _LONGEST_PAUSE_S:
                raise ModelError(
                    f"the model {error} and asks to be left alone for {error.pause_s:.0f} s",
                    is_away=True,
                ) from error
            pause_s = error.pause_s or _pause(attempt)
            say(f"the model {error}; try {attempt + 2} of {retries + 1} in {pause_s:.0f} s")
            sleep(pause_s)
    raise AssertionError


def _pause(attempt: int) -> float:
    """Return the seconds until the next try: doubling, with some jitter."""
    return float(min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)) * random.uniform(0.75, 1.0)


class Model(Protocol):
    """A model that continues a conversation."""

    name: str

    def reply(self, request: Request, say: Callable[[str], None]) -> Reply:
        """Return the next turn. Call `say` with a line for the person while it takes long. Raise
        `ModelError`."""
        ...
