"""A denied model call in the provider's own words, so that an agent stops cleanly instead of trying again.

It decides only the form: what Anthropic, OpenAI and Bedrock answer where an account has no money left. The why and the way that is open are in it as
everywhere (law 5).
"""

from typing import NamedTuple

import msgspec

from supervisor.core.model_calls import Api


class ModelError(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes


def budget_error(api: Api, why: str, remedy: str, request_id: str | None = None) -> ModelError:
    """The response to a call that the budget doesn't allow."""
    message = f"{why}; {remedy}" if remedy else why
    ours = {"why": why, "remedy": remedy, "rule": None, "request_id": request_id}
    # Both vendors' own libraries look at this header before anything else.
    headers = {"x-should-retry": "false"}
    if api in ("chat", "responses"):
        error = {"message": message, "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}
        return ModelError(429, headers, msgspec.json.encode({"error": error, "gatehouse": ours}))
    if api in ("invoke", "converse"):
        headers["x-amzn-ErrorType"] = "ServiceQuotaExceededException"
        return ModelError(400, headers, msgspec.json.encode({"message": message, "gatehouse": ours}))
    billing = {"type": "billing_error", "message": message}
    return ModelError(402, headers, msgspec.json.encode({"type": "error", "error": billing, "gatehouse": ours}))
