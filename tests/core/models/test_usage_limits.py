"""Responses that are too large, broken, or none at all."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.models import event_streams
from supervisor.core.models import usage as module
from supervisor.core.models.call_bodies import MOST_MARKS
from supervisor.core.models.model_calls import Api, Tokens
from supervisor.core.models.usage import UsageReader
from tests.core.models.test_event_streams import aws
from tests.core.models.test_usage import ANTHROPIC, AWS, LAST, SSE, START, read, stream


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BODY_BYTES", 100)
    reader = UsageReader("messages", 200, "application/json")
    for _ in range(50):
        reader.feed(b"x" * 30)
        assert len(reader._body) <= 100
    found = reader.end(complete=True)
    assert (found.has_input, found.content_bytes) == (False, 1500)


MANY = '"many": [' + "[]," * (MOST_MARKS // 2) + "1]"


def test_of_an_answer_of_too_many_values_nothing_is_read() -> None:
    """8 MB of these take hundreds of megabytes, and seconds in which egress does nothing else:
    as one that is too long, it says nothing."""
    used = '{"usage": {"input_tokens": 3, "output_tokens": 4}'
    assert read("messages", "application/json", f'{used}, "many": [1]}}'.encode()).has_output
    large = f"{used}, {MANY}}}".encode()
    found = read("messages", "application/json", large)
    assert (found.tokens, found.has_input, found.has_output) == (Tokens(), False, False)
    # What the head said of it is still so.
    counted = read("invoke", "application/json", large, counted=(5, 6))
    assert (counted.tokens, counted.has_input, counted.has_output) == (
        Tokens(input=5, output=6),
        True,
        True,
    )


@pytest.mark.parametrize(
    ("odd", "output", "has_output"),
    [
        ('"text": "\\ud800"', 100, True),
        ('"text": NaN', 100, True),
        ('"text": ', 1, False),
        ('"text": ' + "[" * 100_000, 1, False),
    ],
    ids=["surrogate", "nan", "broken", "deep"],
)
def test_a_count_in_an_event_that_is_no_strict_json_isnt_passed_over(
    odd: str, output: int, has_output: bool
) -> None:
    """Some say the count so far with each piece (vLLM's `continuous_usage_stats`): the one
    before would be taken for the last."""
    first, last = (
        json.dumps({"usage": {"prompt_tokens": 5, "completion_tokens": count}})
        for count in (1, 100)
    )
    data = stream(first, f"{last[:-1]}, {odd}}}")
    found = read("chat", "text/event-stream", data)
    assert (found.tokens.output, found.has_output) == (output, has_output)


def test_after_an_event_that_wasnt_read_no_count_is_known_to_be_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = f'{{"usage": {{"input_tokens": 900, "output_tokens": 900}}, {MANY}}}'
    inner = json.dumps({"bytes": base64.b64encode(large.encode()).decode()}).encode()
    for data in (
        stream(START, large, LAST),
        stream(START, LAST, large),
        stream(LAST, inner.decode(), START),
    ):
        found = read("messages", SSE, data)
        assert (found.has_input, found.has_output) == (False, False)
        assert found.tokens == ANTHROPIC
    unasked = large.replace("usage", "text")
    assert read("messages", SSE, stream(START, unasked, LAST)).has_output
    last = aws(
        "chunk",
        json.dumps({"bytes": base64.b64encode(json.dumps(LAST).encode()).decode()}).encode(),
    )
    assert not read("invoke", AWS, aws("chunk", inner) + last).has_output
    monkeypatch.setattr(event_streams, "MOST_EVENT_BYTES", 1000)
    assert not read("messages", SSE, stream(START, LAST, large)).has_output
    assert not read("invoke", AWS, last + aws("chunk", b"x" * 1000)).has_output
    # What broke off in the midst of an event only misses what came no more.
    assert read("invoke", AWS, last + last[:-1], complete=False).has_output


@pytest.mark.parametrize(
    "used",
    [
        '"many"',
        "[]",
        '{"input_tokens": -1, "output_tokens": 1e9}',
        '{"input_tokens": 99999999999, "output_tokens": true}',
        '{"prompt_tokens": -1}',
    ],
)
def test_counts_that_are_none(used: str) -> None:
    for api in ("messages", "chat", "converse"):
        found = read(
            api,
            "application/json",
            f'{{"usage": {used}, "model": 3, "amazon-bedrock-invocationMetrics": 1}}'.encode(),
        )  # type: ignore[arg-type]
        assert (found.tokens, found.has_input, found.model) == (Tokens(), False, "")


@pytest.mark.parametrize("body", [b"", b"[]", b'"usage"', b"{", b"\xff"])
def test_bodies_that_are_no_answer(body: bytes) -> None:
    assert not read("messages", "application/json", body).has_input


@given(
    st.sampled_from(["messages", "chat", "responses", "invoke", "converse"]),
    st.sampled_from([SSE, AWS, "application/json", ""]),
    st.binary(max_size=300),
)
def test_any_response(api: Api, kind: str, data: bytes) -> None:
    found = read(api, kind, data)
    assert found.content_bytes == len(data)
