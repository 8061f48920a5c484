"""Which requests call a model, and what their bodies say."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.model_calls import MOST_MARKS, ModelCall, api_of, is_model_host, read_call

BEDROCK = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0"


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/messages", "messages"),
        ("/v1/messages?beta=true", "messages"),
        ("/anthropic/v1/messages", "messages"),
        ("//v1/./x/../MESSAGES/", "messages"),
        ("/v1/%6dessages", "messages"),
        ("/v1/%256dessages", "messages"),
        ("/v1/messages;a=b", "messages"),
        ("\\v1\\messages", "messages"),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus-5@default:streamRawPredict", "messages"),
        ("/v1/chat/completions", "chat"),
        ("/api/v1/chat/completions", "chat"),
        ("/openai/deployments/x/chat/completions?api-version=1", "chat"),
        ("/v1/completions", "chat"),
        ("/v1/embeddings", "chat"),
        ("/v1/responses", "responses"),
        ("/openai/responses?api-version=1", "responses"),
        (f"{BEDROCK}/invoke", "invoke"),
        (f"{BEDROCK}/invoke-with-response-stream", "invoke"),
        (f"{BEDROCK}/converse", "converse"),
        (f"{BEDROCK}/converse-stream", "converse"),
        ("/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.x/converse", "converse"),
        ("/v1/messages/count_tokens", None),
        ("/v1/messages/batches", None),
        ("/repos/x/messages", None),
        ("/", None),
    ],
)
def test_the_paths_of_model_apis(path: str, api: str | None) -> None:
    assert api_of("POST", path) == api
    assert api_of("GET", path) is None


def test_the_hosts_of_models() -> None:
    for host in ("api.anthropic.com", "bedrock-runtime.eu-west-1.amazonaws.com", "bedrock-mantle.us-east-1.api.aws"):
        assert is_model_host(host)
    assert is_model_host("gateway.example.org", frozenset({"gateway.example.org"}))
    assert not is_model_host("gateway.example.org")


def test_at_a_gateway_every_path_may_lead_to_a_model_but_the_free_ones() -> None:
    for path in ("/anything", "/smart-alias", "/v1/messages%3Fx"):
        assert api_of("POST", path, at_model_host=True, at_gateway=True) == "unmetered"
    assert api_of("GET", "/live", is_upgrade=True, at_model_host=True, at_gateway=True) == "unmetered"
    assert api_of("GET", "/anything", at_model_host=True, at_gateway=True) is None
    assert api_of("POST", "/v1/messages/count_tokens", at_model_host=True, at_gateway=True) is None
    assert api_of("POST", "/v1/messages", at_model_host=True, at_gateway=True) == "messages"


@pytest.mark.parametrize(
    ("method", "path", "is_upgrade", "api"),
    [
        ("POST", "/v1/messages/batches", False, "unmetered"),
        ("PUT", "/v1/threads/x/runs", False, "unmetered"),
        ("POST", "/v1/images/generations", False, "unmetered"),
        ("POST", "/model/x/async-invoke", False, "unmetered"),
        ("GET", "/v1/realtime?model=x", True, "unmetered"),
        ("POST", "/v1/messages/count_tokens", False, None),
        ("POST", "/v1/files", False, None),
        ("POST", "/api/event_logging/batch", False, None),
        ("GET", "/v1/models", False, None),
        ("GET", "/chat", True, None),
    ],
)
def test_at_a_host_of_models_what_isnt_read_and_isnt_free_is_unmetered(
    method: str, path: str, is_upgrade: bool, api: str | None
) -> None:
    assert api_of(method, path, is_upgrade=is_upgrade, at_model_host=True) == api
    assert api_of(method, path, is_upgrade=is_upgrade) is None


def test_whoever_offers_responses_over_a_websocket_offers_them_to_plain_requests() -> None:
    for path in ("/v1/responses", "/team-a/openai/responses?api-version=1", "/v1/%72esponses/"):
        assert api_of("GET", path, is_upgrade=True) == "responses"
        assert api_of("GET", path) is None
    assert api_of("GET", "/v1/responses/resp_1", is_upgrade=True) is None


def call(api: Any, body: object, path: str = "/v1/messages", **extra: bool) -> ModelCall | None:
    return read_call(api, path, json.dumps(body).encode(), **extra)


def test_a_plain_call() -> None:
    found = call("messages", {"model": "m", "max_tokens": 9, "messages": [], "thinking": {"type": "disabled"}})
    assert found == ModelCall(
        api="messages", model="m", body_bytes=81, max_output_tokens=9, writes_cache=False, writes_long_cache=False, shows_output=True
    )  # fmt: skip
    cached = call("messages", {"model": "m", "system": [{"cache_control": {"type": "ephemeral", "ttl": "1h"}}]})
    assert cached is not None
    assert (cached.writes_cache, cached.writes_long_cache, cached.max_output_tokens) == (True, True, None)


def test_models_in_paths() -> None:
    arn = "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.x/invoke"
    for path, name in [
        (f"{BEDROCK}/converse", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        (arn, "arn:aws:bedrock:us-east-1:1:inference-profile/us.x"),
    ]:
        found = call("converse", {"model": "a lie", "inferenceConfig": {"maxTokens": 7}}, path)
        assert found is not None
        assert (found.model, found.max_output_tokens) == (name, 7)
    vertex = call("messages", {"max_tokens": 1}, "/v1/projects/p/models/claude-opus-5@default:rawPredict")
    assert vertex is not None
    assert vertex.model == "claude-opus-5@default"
    none = call("converse", {"inferenceConfig": 1}, "/x")
    assert none is not None
    assert none.model == ""


@pytest.mark.parametrize(
    "body",
    [
        {"previous_response_id": "r"},
        {"prompt": {"id": "p"}},
        {"mcp_servers": [{}]},
        {"messages": [{"content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}]}]},
        {"input": [{"type": "input_file", "file_id": "f"}]},
        {"tools": [{"type": "web_search_20250305"}]},
        {"tools": [{"type": "code_interpreter"}]},
    ],
)
def test_input_that_isnt_in_the_body(body: dict[str, Any]) -> None:
    found = call("responses", {"model": "m", **body})
    assert found is not None
    assert found.beyond_body


@pytest.mark.parametrize(
    "body",
    [{"prompt": "text"}, {"tools": [{"input_schema": {"properties": {"url": {"type": "string"}}}}]}, {"type": 1}],
)
def test_input_that_is(body: dict[str, Any]) -> None:
    found = call("responses", {"model": "m", **body})
    assert found is not None
    assert not found.beyond_body


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"max_tokens": 1, "max_completion_tokens": 5}, (5, 1)),
        ({"max_tokens": True}, (None, 1)),
        ({"max_tokens": -3, "n": 4}, (None, 4)),
        ({"max_tokens": "9", "n": "many"}, (None, 128)),
        ({"n": 10**9}, (None, 128)),
        ({"n": 0}, (None, 1)),
    ],
)
def test_limits(body: dict[str, Any], wanted: tuple[int | None, int]) -> None:
    found = call("chat", {"model": "m", **body})
    assert found is not None
    assert (found.max_output_tokens, found.choices) == wanted


def test_tiers_and_thought() -> None:
    dear = call("messages", {"model": "m", "speed": "fast", "inference_geo": "us", "reasoning_effort": "none"})
    assert dear is not None
    assert dear.fast
    assert dear.regional
    assert dear.shows_output
    plain = call(
        "messages",
        {"model": "m", "service_tier": ["priority"], "inference_geo": "global", "thinking": {"type": "adaptive"}},
    )
    assert plain is not None
    assert not plain.fast
    assert not plain.regional
    assert not plain.shows_output
    tier = call("chat", {"model": "m", "service_tier": "priority"})
    assert tier is not None
    assert tier.fast


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff\xff", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"])
def test_what_cant_be_read_is_as_large_as_can_be(body: bytes) -> None:
    found = read_call("messages", "/v1/messages", body)
    assert found == ModelCall(api="messages", body_bytes=len(body), beyond_body=True)
    assert read_call("messages", "/v1/messages", body, at_model_host=False) is None


def test_an_encoded_body_and_one_that_says_a_key_twice() -> None:
    body = b'{"model": "m", "max_tokens": 1, "max_tokens": 2}'
    assert read_call("messages", "/", body) == ModelCall(api="messages", body_bytes=len(body), beyond_body=True)
    encoded = read_call("messages", "/", b'{"model": "m"}', is_encoded=True)
    assert encoded is not None
    assert encoded.beyond_body
    assert encoded.model == ""


def test_elsewhere_only_what_has_the_shape() -> None:
    assert call("messages", {"text": "hello"}, at_model_host=False) is None
    assert call("messages", {"model": "m"}, at_model_host=False) is None
    assert call("messages", {"model": "m", "messages": []}, at_model_host=False) is not None
    assert call("converse", {}, f"{BEDROCK}/converse", at_model_host=False) is not None
    assert call("messages", {"model": 1, "messages": []}, at_model_host=False) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_any_body_is_read(body: object) -> None:
    found = call("chat", body)
    assert found is not None
    assert found.choices >= 1


@pytest.mark.parametrize("value", [b"{}", b"1", b"[]", b'{"a":1}'])
def test_of_too_many_values_none_is_read_and_the_call_is_the_largest_there_is(value: bytes) -> None:
    """32 KB of gzip are 32 MB of these: to read them takes a gigabyte, and seconds in which egress does nothing else."""
    marks = sum(map((value + b",").count, (b"{", b"[", b",", b":")))
    room = MOST_MARKS - 20

    def call(count: int, *, at_model_host: bool) -> ModelCall | None:
        body = b'{"model":"m","max_tokens":5,"messages":[' + (value + b",") * count + b"1]}"
        return read_call("chat", "/v1/chat/completions", body, at_model_host=at_model_host)

    for at_model_host in (True, False):
        read = call(room // marks, at_model_host=at_model_host)
        assert read is not None
        assert (read.model, read.beyond_body) == ("m", False)
        large = call(room // marks + 20, at_model_host=at_model_host)
        assert large is not None
        assert (large.model, large.max_output_tokens, large.beyond_body) == ("", None, True)
