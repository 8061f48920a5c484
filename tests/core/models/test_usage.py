"""What responses of model APIs say they used, however they are cut."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.models.model_calls import Api, Tokens
from supervisor.core.models.usage import Beside, Usage, UsageReader
from tests.core.models.test_event_streams import aws, cut
from tests.tables import each_row

SSE = "text/event-stream; charset=utf-8"
AWS = "application/vnd.amazon.eventstream"


def stream(*events: dict[str, Any] | str) -> bytes:
    lines = [f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n" for one in events]
    return "".join(lines).encode()


def read(
    api: Api,
    kind: str,
    data: bytes,
    places: list[int] | None = None,
    *,
    status: int = 200,
    complete: bool = True,
    counted: Any = (None, None),
) -> Usage:
    if places is None:
        places = []
    reader = UsageReader(api, status, kind, counted)
    for chunk in cut(data, places):
        reader.feed(chunk)
    return reader.end(complete=complete)


START = {
    "type": "message_start",
    "message": {
        "model": "claude-x",
        "usage": {
            "input_tokens": 11,
            "cache_read_input_tokens": 5,
            "cache_creation_input_tokens": 9,
            "cache_creation": {"ephemeral_5m_input_tokens": 7, "ephemeral_1h_input_tokens": 2},
            "output_tokens": 1,
        },
    },
}
TEXT = {
    "type": "content_block_delta",
    "delta": {"type": "text_delta", "text": 'it says "usage" and "error"'},
}
LAST = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn"},
    "usage": {"output_tokens": 42, "server_tool_use": {"web_search_requests": 3}},
}
ANTHROPIC = Tokens(input=11, output=42, cache_read=5, cache_write=7, cache_write_long=2, searches=3)


@given(st.lists(st.integers(0, 3000), max_size=20))
def test_a_streamed_message(places: list[int]) -> None:
    found = read(
        "messages",
        SSE,
        stream(START, {"type": "ping"}, TEXT, LAST, {"type": "message_stop"}),
        places,
    )
    assert found.tokens == ANTHROPIC
    assert (found.model, found.has_input, found.has_output, found.failed, found.cut_off) == (
        "claude-x",
        True,
        True,
        False,
        False,
    )


@given(st.lists(st.integers(0, 3000), max_size=20))
def test_a_message_that_isnt_streamed(places: list[int]) -> None:
    body = {
        "type": "message",
        "model": "claude-x",
        "content": [{"text": "x" * 99}],
        "usage": {"input_tokens": 3, "output_tokens": 4, "cache_creation_input_tokens": 8},
    }
    found = read("messages", "application/json", json.dumps(body).encode(), places)
    assert found.tokens == Tokens(input=3, output=4, cache_write=8)
    assert (found.has_input, found.has_output) == (True, True)


def test_a_later_sum_of_cache_writes_that_were_split_before_isnt_counted_twice() -> None:
    last = {
        **LAST,
        "usage": {**LAST["usage"], "input_tokens": 11, "cache_creation_input_tokens": 9},
    }  # type: ignore[dict-item]
    assert read("messages", SSE, stream(START, last)).tokens == ANTHROPIC
    more = {**LAST, "usage": {**LAST["usage"], "cache_creation_input_tokens": 20}}  # type: ignore[dict-item]
    assert read("messages", SSE, stream(START, more)).tokens.cache_write == 20 - 2
    # Bedrock's own sum comes last.
    metrics = {
        "type": "message_stop",
        "amazon-bedrock-invocationMetrics": {"cacheWriteInputTokenCount": 9},
    }
    assert read("messages", SSE, stream(START, LAST, metrics)).tokens == ANTHROPIC


def test_what_a_summary_or_an_advisor_took_is_beside_the_answer() -> None:
    iterations = [
        {"type": "compaction", "input_tokens": 180, "output_tokens": 35,
         "cache_creation_input_tokens": 3},
        {"type": "message", "input_tokens": 23, "output_tokens": 10},
        {"type": "advisor_message", "model": "claude-opus-5", "input_tokens": 8,
         "output_tokens": 16, "cache_creation": {"ephemeral_1h_input_tokens": 2},
         "iterations": [1]},
        "x",
    ]  # fmt: skip
    last = {**LAST, "usage": {**LAST["usage"], "iterations": iterations}}  # type: ignore[dict-item]
    found = read("messages", SSE, stream(START, last))
    assert found.tokens == ANTHROPIC
    assert found.beside == (
        Beside(model="", tokens=Tokens(input=180, output=35, cache_write=3)),
        Beside(model="claude-opus-5", tokens=Tokens(input=8, output=16, cache_write_long=2)),
    )


@pytest.mark.parametrize("status", [408, 499, 504, 524])
def test_an_answer_that_somebody_waited_for_no_longer_says_nothing(status: int) -> None:
    assert read("messages", "application/json", b"{}", status=status) == Usage(
        content_bytes=None, failed=True
    )


def test_bedrock_tells_writes_that_last_longer_apart() -> None:
    details = [{"ttl": "1h", "inputTokens": 6}, {"ttl": "5m", "inputTokens": 4}, "x"]
    used = {
        "inputTokens": 1,
        "outputTokens": 2,
        "cacheWriteInputTokens": 10,
        "cacheDetails": details,
    }
    found = read("converse", "application/json", json.dumps({"usage": used}).encode())
    assert (found.tokens.cache_write, found.tokens.cache_write_long, found.tells_writes) == (
        4,
        6,
        True,
    )
    del used["cacheDetails"]
    assert not read(
        "converse", "application/json", json.dumps({"usage": used}).encode()
    ).tells_writes
    assert read("messages", SSE, stream(START, LAST)).tells_writes


@each_row(
    ("said", "cost"),
    [
        (
            {"cost": 0.95, "cost_details": {"upstream_inference_cost": 19}, "is_byok": True},
            1995 * 10**10,
        ),
        (
            {"cost": 0.95, "cost_details": {"upstream_inference_cost": 19}, "is_byok": False},
            19 * 10**12,
        ),
        ({"cost": 0.95, "cost_details": {"upstream_inference_cost": 19}}, 19 * 10**12),
        (
            {"cost": 0.0135, "cost_details": {"upstream_inference_cost": 0.0135}, "is_byok": 1},
            135 * 10**8,
        ),
        ({"cost": 2}, 2 * 10**12),
        ({"cost": 10**9, "cost_details": 3}, 0),
        ({"cost": True}, 0),
        ({"cost": -1}, 0),
        ({"cost": "1"}, 0),
        ({"cost_details": {"upstream_inference_cost": None}}, 0),
    ],
)
def test_what_a_provider_says_that_it_bills(said: dict[str, Any], cost: int) -> None:
    body = {"usage": {"prompt_tokens": 1, "completion_tokens": 1, **said}}
    for data in (json.dumps(body).encode(), json.dumps(body).encode().replace(b"2}", b"2e400}")):
        found = read("chat", "application/json", data).cost_picousd
        assert cost <= found <= cost + 1000 or b"e400" in data


def test_what_came_bounds_what_was_made_only_where_all_of_it_was_seen() -> None:
    assert read("messages", SSE, stream(TEXT), complete=False).content_bytes == len(stream(TEXT))
    assert read("messages", "application/json", b"{}").content_bytes == 2
    # The whole was made before the first byte of it came.
    assert read("messages", "application/json", b"{", complete=False).content_bytes is None
    reader = UsageReader("messages", 200, SSE)
    reader.feed(stream(TEXT))
    assert reader.end(complete=True, was_read=False).content_bytes is None


def test_a_stream_that_breaks_off() -> None:
    data = stream(START, TEXT)
    found = read("messages", SSE, data, complete=False)
    assert (found.has_input, found.has_output, found.cut_off, found.tokens.output) == (
        True,
        False,
        True,
        1,
    )
    assert found.content_bytes == len(data)
    # After the last count nothing is missing, though the end never came.
    assert read("messages", SSE, stream(START, LAST), complete=False).has_output
    early = {**LAST, "delta": {"stop_reason": None}}
    assert not read("messages", SSE, stream(START, early), complete=False).has_output
    assert not read("messages", SSE, stream(TEXT), complete=True).has_input


def test_the_count_that_an_answer_begins_with_is_only_that_of_its_first_step() -> None:
    """Anthropic's page on streaming: counts of `message_delta` are cumulative, and with tools of
    the provider's own the input grows."""
    error = {"type": "error", "error": {"type": "overloaded_error"}}
    early = {**LAST, "delta": {"stop_reason": None}}
    for data, complete in (
        (stream(START, TEXT), False),
        (stream(START, TEXT, error), True),
        (stream(START, early), True),
    ):
        assert read("messages", SSE, data, complete=complete).only_began
    grown = {**LAST, "usage": {**LAST["usage"], "input_tokens": 400_000}}  # type: ignore[dict-item]
    found = read("messages", SSE, stream(START, TEXT, grown), complete=False)
    assert (found.only_began, found.tokens.input) == (False, 400_000)
    whole = json.dumps(
        {"type": "message", "usage": {"input_tokens": 3, "output_tokens": 4}}
    ).encode()
    assert not read("messages", "application/json", whole).only_began
    piece = stream({"choices": [{"delta": {}}], "usage": CHAT})
    assert read("chat", SSE, piece, complete=False).only_began
    assert not read("chat", SSE, piece).only_began


def test_an_error_in_the_midst() -> None:
    found = read(
        "messages",
        SSE,
        stream(START, TEXT, {"type": "error", "error": {"type": "overloaded_error"}}),
    )
    assert (found.failed, found.has_input, found.has_output) == (True, True, False)
    said = {"type": "response.failed", "response": {"error": {"code": "x"}, "usage": None}}
    assert read("responses", SSE, stream(said)).failed


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503, 529, 301, 304])
def test_what_wasnt_answered_used_nothing(status: int) -> None:
    body = b'{"type": "error", "error": {"type": "rate_limit_error"}, "usage": {"input_tokens": 5}}'
    assert read("messages", "application/json", body, status=status) == Usage(
        has_input=True, has_output=True, content_bytes=len(body), failed=True
    )


def test_a_prompt_that_was_filtered_was_read() -> None:
    """Azure bills it: what isn't said of the input counts as reserved."""
    body = (
        b'{"error": {"param": "prompt", "code": "content_filter", "status": 400, "message":'
        b' "filtered"}}'
    )
    assert read("chat", "application/json", body, [7, 50], status=400) == Usage(
        has_output=True, content_bytes=len(body), failed=True
    )
    assert read("chat", "application/json", body, status=403).has_input


CHAT = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 10},
}
OPENAI = Tokens(input=60, output=20, cache_read=30, cache_write=10)


@given(st.lists(st.integers(0, 3000), max_size=20))
def test_chat_completions(places: list[int]) -> None:
    whole = json.dumps({"model": "gpt-x", "choices": [{}], "usage": CHAT}).encode()
    piece = {"model": "gpt-x", "choices": [{"delta": {"content": "a"}}], "usage": None}
    streamed = stream(piece, {"model": "gpt-x", "choices": [], "usage": CHAT}, "[DONE]")
    for kind, data in (("application/json", whole), (SSE, streamed)):
        found = read("chat", kind, data, places)
        assert (found.tokens, found.model, found.has_input, found.has_output) == (
            OPENAI,
            "gpt-x",
            True,
            True,
        )
    assert read("chat", SSE, streamed[:-10], complete=False).has_output


def test_a_count_that_grew_with_each_piece_isnt_the_last_when_it_breaks_off() -> None:
    piece = {"choices": [{"delta": {}}], "usage": CHAT}
    assert not read("chat", SSE, stream(piece), complete=False).has_output
    assert read("chat", SSE, stream(piece), complete=True).has_output


def test_chat_without_usage_and_embeddings() -> None:
    found = read("chat", SSE, stream({"choices": [{"delta": {"content": "a"}}]}, "[DONE]"))
    assert (found.has_input, found.has_output) == (False, False)
    embedded = read(
        "chat",
        "application/json",
        b'{"model": "e", "usage": {"prompt_tokens": 8, "total_tokens": 8}}',
    )
    assert (embedded.tokens, embedded.has_output) == (Tokens(input=8), True)


@pytest.mark.parametrize(
    ("used", "output"),
    [
        (
            {
                "completion_tokens": 1499,
                "total_tokens": 14428,
                "completion_tokens_details": {"reasoning_tokens": 2809},
            },
            4308,
        ),
        ({"completion_tokens": 4308, "total_tokens": 14428}, 4308),
        ({"completion_tokens": 9, "total_tokens": 3}, 9),
        ({"completion_tokens": 9, "total_tokens": "x"}, 9),
        ({"total_tokens": 10121}, 1),
    ],
)
def test_what_was_thought_is_output_though_it_is_counted_beside_it(
    used: dict[str, Any], output: int
) -> None:
    """xAI's page on reasoning, and Google's on its compatible API."""
    body = {"model": "grok-4.6", "choices": [{}], "usage": {"prompt_tokens": 10120, **used}}
    found = read("chat", "application/json", json.dumps(body).encode())
    assert (found.tokens, found.has_output) == (Tokens(input=10120, output=output), True)


def test_responses() -> None:
    used = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 40},
        "output_tokens": 7,
        "total_tokens": 107,
    }
    body = {"model": "gpt-x", "status": "completed", "error": None, "usage": used}
    events = (
        {"type": "response.created", "response": {"model": "gpt-x", "usage": None}},
        {"type": "response.completed", "response": body},
    )
    for kind, data in (("application/json", json.dumps(body).encode()), (SSE, stream(*events))):
        found = read("responses", kind, data)
        assert (found.tokens, found.failed) == (Tokens(input=60, output=7, cache_read=40), False)
    background = read(
        "responses", "application/json", b'{"model": "m", "status": "queued", "usage": null}'
    )
    assert not background.has_input


def test_a_conversation_that_was_made_shorter() -> None:
    body = {
        "object": "response.compaction",
        "output": [{"type": "compaction"}],
        "usage": {"input_tokens": 9, "output_tokens": 4},
    }
    found = read("responses", "application/json", json.dumps(body).encode())
    assert (found.tokens, found.has_input, found.has_output) == (
        Tokens(input=9, output=4),
        True,
        True,
    )


def test_searches_and_a_dearer_tier_are_read_from_what_openai_answers() -> None:
    items = [{"type": "web_search_call"}, {"type": "message"}, {"type": "web_search_call"}, 3]
    body = {
        "model": "m",
        "service_tier": "priority",
        "output": items,
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    found = read("responses", SSE, stream({"type": "response.completed", "response": body}))
    assert (found.tokens.searches, found.tier) == (2, "fast")
    found = read(
        "responses",
        "application/json",
        json.dumps(body | {"service_tier": "default", "output": 3}).encode(),
    )
    assert (found.tokens.searches, found.tier) == (0, "plain")
    filed = read(
        "responses",
        "application/json",
        json.dumps(body | {"output": [{"type": "file_search_call"}]}).encode(),
    )
    assert filed.tokens.searches == 1


@pytest.mark.parametrize(
    ("said", "tier"),
    [
        ({"usage": {"speed": "fast"}}, "fast"),
        ({"usage": {"speed": "standard", "service_tier": "priority"}}, "plain"),
        ({"serviceTier": {"type": "priority"}, "usage": {}}, "fast"),
        ({"service_tier": "fast"}, "fast"),
        ({"service_tier": "ultrafast"}, "ultrafast"),
        ({"service_tier": "instant"}, "unknown"),
        ({"service_tier": None, "serviceTier": "x", "usage": None}, "plain"),
    ],
)
def test_the_tier_that_served_a_call(said: dict[str, Any], tier: str) -> None:
    assert read("messages", "application/json", json.dumps(said).encode()).tier == tier


def test_the_dearest_tier_of_a_stream_is_kept() -> None:
    events = [
        {"type": "response.created", "response": {"model": "m", "service_tier": one}}
        for one in ("fast", "auto")
    ]
    assert read("responses", SSE, stream(*events)).tier == "fast"


def test_bedrock_converse() -> None:
    used = {
        "inputTokens": 8,
        "outputTokens": 2,
        "totalTokens": 10,
        "cacheReadInputTokens": 4,
        "cacheWriteInputTokens": 1,
    }
    streamed = aws("messageStart", b'{"role":"assistant"}') + aws(
        "metadata", json.dumps({"usage": used}).encode()
    )
    for kind, data in (("application/json", json.dumps({"usage": used}).encode()), (AWS, streamed)):
        found = read("converse", kind, data)
        assert (found.tokens, found.has_output) == (
            Tokens(input=8, output=2, cache_read=4, cache_write=1),
            True,
        )


def test_bedrock_invoke() -> None:
    def wrapped(event: dict[str, Any]) -> bytes:
        return aws(
            "chunk",
            json.dumps({"bytes": base64.b64encode(json.dumps(event).encode()).decode()}).encode(),
        )

    metrics = {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 11,
    "outputTokenCount": 42, "cacheReadInputTokenCount": 5,
    "cacheWriteInputTokenCount": 7}}  # fmt: skip
    assert read("invoke", AWS, wrapped(START) + wrapped(LAST)).tokens == ANTHROPIC
    other = read("invoke", AWS, wrapped({"generation": "x"}) + wrapped(metrics), complete=False)
    assert (other.tokens, other.has_output) == (
        Tokens(input=11, output=42, cache_read=5, cache_write=7),
        True,
    )
    headers = read("invoke", "application/json", b'{"generation": "x"}', counted=(3, 4))
    assert (headers.tokens, headers.has_input, headers.has_output) == (
        Tokens(input=3, output=4),
        True,
        True,
    )
    assert not read("invoke", AWS, aws("chunk", b'{"bytes": "!"}')).has_input
