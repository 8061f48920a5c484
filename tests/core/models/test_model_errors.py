"""A denied model call in the provider's own words."""

import json

import pytest

from supervisor.core.models.model_calls import Api, is_model_host
from supervisor.core.models.model_errors import budget_error, plain_requests_only


@pytest.mark.parametrize(
    ("api", "status", "where", "kind"),
    [
        ("messages", 402, ("error", "type"), "billing_error"),
        ("chat", 429, ("error", "code"), "insufficient_quota"),
        ("responses", 429, ("error", "code"), "insufficient_quota"),
        ("embeddings", 429, ("error", "code"), "insufficient_quota"),
    ],
)
def test_the_form(api: Api, status: int, where: tuple[str, str], kind: str) -> None:
    found = budget_error(api, "too much", "stop", "r-1", host="h", path="/")
    body = json.loads(found.body)
    assert (found.status, body[where[0]][where[1]]) == (status, kind)
    assert body["error"]["message"] == "too much; stop"
    assert body["gatehouse"] == {
        "why": "too much",
        "remedy": "stop",
        "rule": None,
        "request_id": "r-1",
    }
    assert found.headers == {"x-should-retry": "false"}
    assert found.why == "too much"


@pytest.mark.parametrize(
    ("host", "path", "status"),
    [
        ("api.openai.com", "/v1/images/generations", 429),
        ("openrouter.ai", "/api/v1/videos", 429),
        ("gateway.example.org", "/v1/audio/speech", 429),
        ("api.anthropic.com", "/v1/complete", 402),
        ("eu.api.anthropic.com", "/v1/agents", 402),
        ("gateway.example.org", "/anthropic/v1/messages/batches", 402),
        ("bedrock-runtime.us-east-1.amazonaws.com", "/model/x/async-invoke", 400),
    ],
)
def test_what_cant_be_metered_reads_the_error_of_its_host(
    host: str, path: str, status: int
) -> None:
    assert budget_error("unmetered", "too much", "stop", host=host, path=path).status == status


def test_who_asks_for_a_websocket_is_told_to_send_plain_requests() -> None:
    found = plain_requests_only()
    body = json.loads(found.body)
    assert found.status == 426
    assert (
        body["gatehouse"]["why"]
        == found.why
        == "calls of a model over a WebSocket can't be metered"
    )
    assert body["error"]["message"] == f"{found.why}; {body['gatehouse']['remedy']}"


@pytest.mark.parametrize("api", ["invoke", "converse"])
def test_bedrock_names_the_kind_in_a_header(api: Api) -> None:
    found = budget_error(api, "too much", "", host="h", path="/")
    assert (found.status, found.headers["x-amzn-ErrorType"]) == (
        400,
        "ServiceQuotaExceededException",
    )
    assert json.loads(found.body)["message"] == "too much"


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("api.anthropic.com", True),
        ("openrouter.ai", True),
        ("gateway.example.org", True),
        ("bedrock-runtime.us-east-1.amazonaws.com", True),
        ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", True),
        ("bedrock-runtime.us-east-1.amazonaws.com.evil.net", False),
        ("evil-openrouter.ai", False),
        ("example.org", False),
    ],
)
def test_hosts_of_models(host: str, is_one: bool) -> None:
    assert is_model_host(host, frozenset({"gateway.example.org"})) is is_one
