"""A model behind OpenAI's chat completions, which most other providers and gateways speak, too.

The conversation stays in the shape of the Messages API (`model`); this puts each request into the
other, and its answer back. Sources: https://platform.openai.com/docs/api-reference/chat and
https://platform.openai.com/docs/guides/function-calling.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from agent_image.reviewer.egress import refusal_at
from agent_image.reviewer.gatehouse import refusal_text
from agent_image.reviewer.model import Block, ModelError, PassingError, Reply, Request, tried
from agent_image.reviewer.text import plain

if TYPE_CHECKING:
    import httpx2

_OWN = "https://api.openai.com/v1"
_STOPS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class OpenAIModel:
    """A `Model` over chat completions. `base_url` ends in the API's version, as `OPENAI_BASE_URL`
    does."""

    def __init__(
        self,
        name: str,
        api_key: str,
        base_url: str | None = None,
        *,
        retries: int = 5,
        reasoning: str = "",
        temperature: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        import httpx2

        self.name = name
        self._base_url = (base_url or _OWN).rstrip("/")
        self._retries = retries
        self._sleep = sleep
        self._further: dict[str, Any] = {}
        if reasoning and reasoning != "off":
            self._further["reasoning_effort"] = reasoning
        if temperature is not None:
            self._further["temperature"] = temperature
        self._client = httpx2.Client(
            timeout=300.0, headers={"Authorization": f"Bearer {api_key}"}, follow_redirects=False
        )

    def reply(self, request: Request, say: Callable[[str], None]) -> Reply:
        """Return the model's next turn. Raise `ModelError` if the retries don't produce one."""
        return tried(
            lambda: self._once(request, say), say, retries=self._retries, sleep=self._sleep
        )

    def _once(self, request: Request, say: Callable[[str], None]) -> Reply:
        import httpx2

        while True:
            try:
                answer = self._client.post(
                    f"{self._base_url}/chat/completions", json=self._body(request)
                )
            except httpx2.TransportError as error:
                if "403" in str(error) and (refusal := refusal_at(self._base_url)):
                    raise ModelError(
                        f"the model can't be reached, {refusal_text(refusal)}", is_refusal=True
                    ) from error
                raise PassingError(f"can't be reached ({type(error).__name__})") from error
            if answer.status_code == 200:
                return _reply(answer)
            body = _object(answer)
            message = str(_fields(body.get("error")).get("message") or "")
            if (left := self._not_taken(answer.status_code, message)) is not None:
                say(f"the model takes no {left}; it is asked without one")
                del self._further[left]
                continue
            raise _trouble(answer, body, message)

    def _body(self, request: Request) -> dict[str, Any]:
        # OpenAI's own reasoning models know only the first, most other servers only the second.
        limit = "max_completion_tokens" if self._base_url == _OWN else "max_tokens"
        body: dict[str, Any] = {
            "model": self.name,
            limit: request.max_tokens,
            "messages": [{"role": "system", "content": request.system}, *_messages(request)],
            **self._further,
        }
        if request.tools:
            body["tools"] = [_tool(one) for one in request.tools]
            body["tool_choice"] = "auto" if request.may_call else "none"
        return body

    def _not_taken(self, status: int, message: str) -> str | None:
        """Return the optional parameter that the model refuses; None if it is something else."""
        if status != 400:
            return None
        return next((one for one in self._further if one in message), None)


def _trouble(answer: "httpx2.Response", body: dict[str, Any], message: str) -> Exception:
    status = answer.status_code
    ours = body if "why" in body else _fields(body.get("gatehouse"))
    if status == 403 and ours:
        return ModelError(f"the model can't be reached, {refusal_text(ours)}", is_refusal=True)
    if status == 429 and ours:
        return ModelError(
            f"the model refused the request ({status}): {plain(message)}", is_over_budget=True
        )
    # An account without money gets 429, too, which no waiting helps.
    is_out = _fields(body.get("error")).get("code") == "insufficient_quota"
    if (status in (408, 409, 429) and not is_out) or status >= 500:
        return PassingError(f"answers {status}", _asked_pause(answer))
    if status == 401:
        return ModelError(
            "the API key was not accepted; set OPENAI_API_KEY where Gatehouse runs", is_away=True
        )
    return ModelError(
        f"the model refused the request ({status}): {plain(message)}",
        is_away=status in (402, 403, 404) or is_out,
    )


def _asked_pause(answer: "httpx2.Response") -> float:
    try:
        return max(0.0, float(answer.headers.get("retry-after", "")))
    except ValueError:
        return 0.0


def _reply(answer: "httpx2.Response") -> Reply:
    body = _object(answer)
    choices = body.get("choices")
    choice = _fields(choices[0]) if isinstance(choices, list) and choices else {}
    message = _fields(choice.get("message"))
    if not message:
        raise PassingError("gave an answer without a message")
    content: list[Block] = []
    if isinstance(message.get("content"), str) and message["content"]:
        content.append({"type": "text", "text": message["content"]})
    calls = message.get("tool_calls")
    for at, one in enumerate(calls if isinstance(calls, list) else ()):
        function = _fields(_fields(one).get("function"))
        content.append(
            {
                "type": "tool_use",
                "id": str(_fields(one).get("id") or f"call_{at}"),
                "name": str(function.get("name", "")),
                "input": _arguments(function.get("arguments")),
            }
        )
    usage = _fields(body.get("usage"))
    stop = _STOPS.get(str(choice.get("finish_reason")), "end_turn")
    return Reply(
        content=tuple(content),
        # Some servers say `stop` though there are calls.
        stop_reason="tool_use" if calls and stop == "end_turn" else stop,
        input_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
    )


def _messages(request: Request) -> Iterator[dict[str, Any]]:
    for message in request.messages:
        blocks = message["content"]
        words = "\n\n".join(one["text"] for one in blocks if one["type"] == "text")
        if message["role"] == "assistant":
            calls = [_call(one) for one in blocks if one["type"] == "tool_use"]
            yield {
                "role": "assistant",
                "content": words or None,
                **({"tool_calls": calls} if calls else {}),
            }
            continue
        for one in blocks:
            if one["type"] == "tool_result":
                yield {
                    "role": "tool",
                    "tool_call_id": one["tool_use_id"],
                    "content": one["content"],
                }
        if words:
            yield {"role": "user", "content": words}


def _call(block: Block) -> dict[str, Any]:
    function = {"name": block["name"], "arguments": json.dumps(block["input"])}
    return {"id": block["id"], "type": "function", "function": function}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = {
        "name": tool["name"],
        "description": tool.get("description", ""),
        "parameters": tool["input_schema"],
    }
    return {"type": "function", "function": function}


def _arguments(text: object) -> dict[str, Any]:
    """Return the arguments of a call; none where they are no object, and the tool says what it
    lacks."""
    try:
        return _fields(json.loads(str(text)))
    except ValueError:
        return {}


def _object(answer: "httpx2.Response") -> dict[str, Any]:
    try:
        return _fields(answer.json())
    except ValueError:
        return {}


def _fields(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
