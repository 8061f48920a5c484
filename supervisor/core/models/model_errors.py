"""Denials of model calls in the provider's own error format.

So an agent stops cleanly, or uses the alternative, instead of trying again. It decides only the
form: how Anthropic, OpenAI and Bedrock answer an account without money, and what tells an OpenAI
client that WebSockets are not available. The response contains the reason and the alternative, like
every refusal (law 5).
"""

from typing import NamedTuple

import msgspec

from supervisor.core.models.model_calls import Api, is_anthropic, is_bedrock

NO_WEBSOCKET = "calls of a model over a WebSocket can't be metered"
PLAIN_REQUESTS = "send each call as a request of its own"


class ModelError(NamedTuple):
    """A response, and its reason."""

    status: int
    headers: dict[str, str]
    body: bytes
    why: str = ""


def plain_requests_only() -> ModelError:
    """Return the response to a client that asks for a WebSocket to send model calls over.

    426 (RFC 9110 15.5.22) makes Codex switch to plain requests at once; after any other status it
    retries for some seconds.
    """
    error = {
        "message": f"{NO_WEBSOCKET}; {PLAIN_REQUESTS}",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
    ours = {"why": NO_WEBSOCKET, "remedy": PLAIN_REQUESTS, "rule": None, "request_id": None}
    body = msgspec.json.encode({"error": error, "gatehouse": ours})
    return ModelError(
        426, {"Upgrade": "HTTP/1.1", "Connection": "upgrade, close"}, body, NO_WEBSOCKET
    )


def budget_error(
    api: Api, why: str, remedy: str, request_id: str | None = None, *, host: str, path: str
) -> ModelError:
    """Return the response to a call that the budget doesn't allow."""
    form = api if api != "unmetered" else _form(host, path)
    message = f"{why}; {remedy}" if remedy else why
    ours = {"why": why, "remedy": remedy, "rule": None, "request_id": request_id}
    # Both vendors' own libraries look at this header before anything else.
    headers = {"x-should-retry": "false"}
    if form in ("chat", "embeddings", "responses"):
        error = {
            "message": message,
            "type": "insufficient_quota",
            "param": None,
            "code": "insufficient_quota",
        }
        return ModelError(
            429, headers, msgspec.json.encode({"error": error, "gatehouse": ours}), why
        )
    if form in ("invoke", "converse"):
        headers["x-amzn-ErrorType"] = "ServiceQuotaExceededException"
        return ModelError(
            400, headers, msgspec.json.encode({"message": message, "gatehouse": ours}), why
        )
    billing = {"type": "billing_error", "message": message}
    return ModelError(
        402,
        headers,
        msgspec.json.encode({"type": "error", "error": billing, "gatehouse": ours}),
        why,
    )


def _form(host: str, path: str) -> Api:
    """Return the API whose errors a host uses, if the call itself doesn't tell; most use
    OpenAI's."""
    if is_anthropic(host) or "/messages" in path:
        return "messages"
    return "invoke" if is_bedrock(host) else "chat"
