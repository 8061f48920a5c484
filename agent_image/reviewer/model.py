"""Port to a model, implemented by `anthropic_model` and `recorded_model`.

Messages and content blocks are plain dictionaries in the shape of the Messages API
(https://docs.anthropic.com/en/api/messages). In this shape they also go back unchanged with the
next call.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

type Block = dict[str, Any]


class ModelError(Exception):
    """The model can't answer. Its text is one line with a remedy. `is_refusal` marks a refusal of
    the gate (exit code 2), `is_over_budget` a call that the session has no money for."""

    def __init__(
        self, message: str, *, is_refusal: bool = False, is_over_budget: bool = False
    ) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal
        self.is_over_budget = is_over_budget


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


class Model(Protocol):
    """A model that continues a conversation."""

    name: str

    def reply(self, request: Request, say: Callable[[str], None]) -> Reply:
        """Return the next turn. Call `say` with a line for the person while it takes long. Raise
        `ModelError`."""
        ...
