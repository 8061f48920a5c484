"""The real model: Anthropic's Messages API, streamed through the sandbox's proxy.

The SDK is imported only here (it takes most of a second). Its own retries are off: it obeys any
`retry-after`, even weeks, and doesn't repeat a broken stream, so the bounded retry is here. The key
is a placeholder that egress replaces; it is useless outside the sandbox.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from agent_image.reviewer.egress import refusal_at
from agent_image.reviewer.gatehouse import refusal_text
from agent_image.reviewer.model import Block, ModelError, PassingError, Reply, Request, tried
from agent_image.reviewer.text import plain

if TYPE_CHECKING:
    import anthropic
    import httpx2

_DEFAULT_URL = "https://api.anthropic.com"


class BrokenStreamError(Exception):
    """The stream ended before the message did."""


class AnthropicModel:
    """A `Model` over the Messages API. `retries` is the number of further tries after the first.
    The key goes into `key_header`; with `sign`, which signs each request, there is none."""

    def __init__(
        self,
        name: str,
        api_key: str,
        base_url: str | None = None,
        *,
        retries: int = 5,
        reasoning: str = "",
        temperature: float | None = None,
        key_header: Literal["x-api-key", "authorization"] = "x-api-key",
        headers: Mapping[str, str] = {},
        sign: Callable[["httpx2.Request"], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        import anthropic

        self.name = name
        self._base_url = base_url or _DEFAULT_URL
        self._retries = retries
        self._asked = _asked(reasoning)
        self._temperature = temperature
        self._sleep = sleep
        # As the API's documentation shows it and Claude Code sends it: one header for egress to put
        # the real key into. By itself the SDK sends a bearer token.
        sent: dict[str, Any] = {"x-api-key": anthropic.Omit(), "Authorization": anthropic.Omit()}
        if key_header == "x-api-key" and sign is None:
            sent["x-api-key"] = api_key
        elif sign is None:
            sent["Authorization"] = f"Bearer {api_key}"
        hooks = {"request": [sign]} if sign else None
        self._client = anthropic.Anthropic(
            api_key=api_key,
            base_url=self._base_url,
            max_retries=0,
            timeout=300.0,
            default_headers=sent | dict(headers),
            http_client=anthropic.DefaultHttpxClient(event_hooks=hooks),
        )

    def reply(self, request: Request, say: Callable[[str], None]) -> Reply:
        """Return the model's next turn. Raise `ModelError` if the retries don't produce one."""
        import anthropic

        def once() -> Reply:
            while True:
                try:
                    return self._stream(request)
                except (anthropic.APIError, BrokenStreamError) as error:
                    if self._takes_no_temperature(error):
                        say("the model takes no temperature; it is asked without one")
                        self._temperature = None
                        continue
                    raise PassingError(self._passing_trouble(error), _asked_pause(error)) from error

        return tried(once, say, retries=self._retries, sleep=self._sleep)

    def _stream(self, request: Request) -> Reply:
        import anthropic

        choice: Any = {"type": "auto" if request.may_call else "none"}
        messages: Any = list(request.messages)
        tools: Any = list(request.tools)
        further: Any = dict(self._asked)
        if self._temperature is not None:
            further["extra_body"] = {"temperature": self._temperature}
        with self._client.messages.stream(
            model=self.name,
            max_tokens=request.max_tokens,
            system=request.system,
            messages=messages,
            tools=tools,
            tool_choice=choice,
            cache_control={"type": "ephemeral"},
            **further,
        ) as stream:
            ended = False
            try:
                for event in stream:
                    ended = ended or event.type == "message_stop"
            except anthropic.APIError:
                raise
            except Exception as error:
                # Once a stream has begun, the SDK passes on transport errors from another package.
                raise BrokenStreamError from error
            # The SDK takes a stream that just stops for a complete message, even with a tool call
            # cut in half.
            if not ended:
                raise BrokenStreamError
            message = stream.get_final_message()
        return Reply(
            content=tuple(_block(block) for block in message.content),
            stop_reason=message.stop_reason or "",
            input_tokens=_input_tokens(message.usage),
            output_tokens=message.usage.output_tokens,
        )

    def _takes_no_temperature(self, error: Exception) -> bool:
        """Return whether the model refused only because of the temperature: some accept none."""
        import anthropic

        return (
            self._temperature is not None
            and isinstance(error, anthropic.BadRequestError)
            and "temperature" in error.message
        )

    def _passing_trouble(self, error: Exception) -> str:
        """Return a transient error in a few words; raise `ModelError` for any other."""
        import anthropic

        if not isinstance(error, anthropic.APIError):
            cause = f" ({type(error.__cause__).__name__})" if error.__cause__ else ""
            return f"stopped in the middle of a reply{cause}"
        if isinstance(error, anthropic.APIStatusError):
            self._raise_if_final(error)
            # An error inside a stream has the stream's status, 200.
            return (
                "is overloaded"
                if error.status_code in (200, 529)
                else f"answers {error.status_code}"
            )
        if refusal := self._refusal_of_connect(error):
            raise ModelError(f"the model can't be reached, {refusal}", is_refusal=True) from error
        return f"can't be reached ({type(error.__cause__ or error).__name__})"

    def _raise_if_final(self, error: "anthropic.APIStatusError") -> None:
        body = error.body if isinstance(error.body, dict) else {}
        if error.status_code == 403 and "why" in body:
            raise ModelError(
                f"the model can't be reached, {refusal_text(body)}", is_refusal=True
            ) from error
        kind = (
            (body.get("error") or {}).get("type") if isinstance(body.get("error"), dict) else None
        )
        # An error inside a stream: only known transient ones are retried.
        passing = (
            kind in ("overloaded_error", "api_error", "rate_limit_error")
            if error.status_code == 200
            else (error.status_code in (408, 409, 429) or error.status_code >= 500)
        )
        if passing:
            return
        if error.status_code == 401:
            raise ModelError(
                "the API key was not accepted; set ANTHROPIC_API_KEY where Gatehouse runs",
                is_away=True,
            ) from error
        # Sent by egress in the provider's own words, to which it adds `gatehouse`.
        is_over_budget = error.status_code == 402 and "gatehouse" in body
        raise ModelError(
            f"the model refused the request ({error.status_code}): {plain(error.message)}",
            is_over_budget=is_over_budget,
            is_away=not is_over_budget and error.status_code in (402, 403, 404),
        ) from error

    def _refusal_of_connect(self, error: Exception) -> str | None:
        """Return the proxy's reason if it refused the connection. It is asked again without the
        SDK, which drops the reason."""
        cause = error.__cause__
        if cause is None or "403" not in str(cause):
            return None
        refusal = refusal_at(self._base_url)
        return refusal_text(refusal) if refusal else None


def _asked(reasoning: str) -> dict[str, Any]:
    """Return the requested amount of thinking in the API's form; empty where none was requested."""
    if not reasoning:
        return {}
    if reasoning == "off":
        return {"thinking": {"type": "disabled"}}
    effort = "low" if reasoning == "minimal" else reasoning
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}


def _asked_pause(error: Exception) -> float:
    """Return the seconds that the server asks to wait before the next try; 0.0 where it doesn't."""
    headers = getattr(getattr(error, "response", None), "headers", {})
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return 0.0


def _block(block: Any) -> Block:
    """Return a content block for the next call, without what the SDK added."""
    fields = block.to_dict()
    fields.pop("parsed_output", None)
    return dict(fields)


def _input_tokens(usage: Any) -> int:
    cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    return int(usage.input_tokens + cached)
