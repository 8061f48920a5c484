"""What the bodies of calls say of their size and price: never taken for less than a provider may
read in them."""

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.models.call_bodies import (
    MOST_CHOICES,
    MOST_FIELDS,
    MOST_FORM_BYTES,
    MOST_MARKS,
    MOST_OBJECTS,
    read_call,
)
from supervisor.core.models.call_tools import MOST_LIMIT
from supervisor.core.models.model_calls import MOST_NAME_CHARS, ModelCall
from tests.tables import each_row

# What Claude Code sends with every call.
CLEARING = {"type": "clear_thinking_20251015", "keep": "all"}
BEDROCK = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0"


def path_of_parts(*parts: str) -> st.SearchStrategy[str]:
    """Paths of the parts that are looked for."""
    every = ("/model", "/model/", "/Model/", "/", "x", "\n", "%0a", "%2F", "?", *parts)
    return st.lists(st.sampled_from(every), max_size=9).map("".join)


def call(api: Any, body: object, path: str = "/v1/messages", **extra: Any) -> ModelCall | None:
    return read_call(api, path, json.dumps(body).encode(), **extra)


def read(api: Any, body: object, path: str = "/v1/x", **extra: Any) -> ModelCall:
    found = call(api, body, path, **extra)
    assert found is not None
    return found


def largest(api: Any, body: bytes, *, bills_more: bool = True) -> ModelCall:
    choices = MOST_CHOICES if api == "chat" else 1
    return ModelCall(
        api=api,
        body_bytes=len(body),
        beyond_body=True,
        steps=MOST_LIMIT,
        choices=choices,
        tier="unknown",
        regional=True,
        bills_more=bills_more,
    )


@given(
    path_of_parts(
        "/x",
        "/invoke",
        "/converse",
        "/Converse-stream",
        "/CONVER\u017fE",
        "/\u0130nvo\u212ae",
        "\r",
        "\u2028",
    )
)
def test_a_model_is_read_in_one_pass_as_it_was_by_trying_every_place(path: str) -> None:
    old = re.search(
        r"/model/(.+)/(?:converse|invoke)", unquote(path.partition("?")[0]), re.IGNORECASE
    )
    assert read("converse", {}, path).model == (old[1] if old else "")


@each_row("piece", ["/model/a", "/Model/a%0a", "/model/", "/models/a", "/models/",
"/deployments/", "/deployments/%0a", "/model/a/invoke/models/", "/engines/a", "/models/a:",
"/model/a/invok"])  # fmt: skip
def test_a_path_is_read_in_one_pass_however_often_it_begins_anew(piece: str) -> None:
    """Read again from each of its segments, these take minutes, in which egress does nothing
    else: the suite's time-out tells."""
    assert len(read("converse", {}, piece * 100_000).model) <= MOST_NAME_CHARS


def test_a_plain_call() -> None:
    found = call(
        "messages",
        {"model": "m", "max_tokens": 9, "messages": [], "thinking": {"type": "disabled"}},
    )
    assert found == ModelCall(
        api="messages", model="m", body_bytes=81, max_output_tokens=9, writes_cache=False,
        writes_long_cache=False, shows_output=True
    )  # fmt: skip
    cached = call(
        "messages",
        {"model": "m", "system": [{"cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
    )
    assert cached is not None
    assert (cached.writes_cache, cached.writes_long_cache, cached.max_output_tokens) == (
        True,
        True,
        None,
    )


def test_models_in_paths() -> None:
    arn = "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.x/invoke"
    for path, name in [
        (f"{BEDROCK}/converse", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        (arn, "arn:aws:bedrock:us-east-1:1:inference-profile/us.x"),
    ]:
        found = call("converse", {"model": "a lie", "inferenceConfig": {"maxTokens": 7}}, path)
        assert found is not None
        assert (found.model, found.max_output_tokens) == (name, 7)
    vertex = call(
        "messages", {"max_tokens": 1}, "/v1/projects/p/models/claude-opus-5@default:rawPredict"
    )
    assert vertex is not None
    assert vertex.model == "claude-opus-5@default"
    none = call("converse", {"inferenceConfig": 1}, "/x")
    assert none is not None
    assert none.model == ""


@each_row(
    "body",
    [
        {"previous_response_id": "r"},
        {"prompt": {"id": "p"}},
        {"mcp_servers": [{}]},
        {
            "messages": [
                {"content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}]}
            ]
        },
        {"input": [{"type": "input_file", "file_id": "f"}]},
        {"tools": [{"type": "web_search_20250305"}]},
        {"tools": [{"type": "code_interpreter"}]},
        {"input": [{"content": [{"type": "input_image", "image_url": "https://x/y.png"}]}]},
        {"input": [{"content": [{"type": "input_image", "file_id": "f"}]}]},
        {
            "input": [
                {
                    "content": [
                        {
                            "type": "input_image",
                            "image_url": "data:image/png;base64,AA",
                            "file_id": "f",
                        }
                    ]
                }
            ]
        },
        {
            "input": [
                {"content": [{"type": "input_image", "image_url": "data:image/svg+xml;base64,AA"}]}
            ]
        },
        {"input": [{"output": {"type": "computer_screenshot", "image_url": "https://x"}}]},
        {
            "messages": [
                {
                    "content": [
                        {
                            "type": "image_url",
                            "image_url": {"url": "data:application/pdf;base64,AA"},
                        }
                    ]
                }
            ]
        },
        {"messages": [{"content": [{"type": "image_url", "image_url": {"url": 1}}]}]},
        {"context_management": {"edits": [CLEARING, {"type": "compact_20260112"}]}},
        {
            "messages": [
                {"content": [{"document": {"source": {"s3Location": {"uri": "s3://b/x.pdf"}}}}]}
            ]
        },
        {
            "messages": [
                {
                    "content": [
                        {
                            "image": {
                                "format": "png",
                                "source": {"s3Location": {"uri": "s3://b/x.png"}},
                            }
                        }
                    ]
                }
            ]
        },
        {"messages": [{"content": [{"video": {"format": "mp4", "source": {"bytes": "AA"}}}]}]},
        {"messages": [{"content": [{"audio": {"format": "wav", "source": {"bytes": "AA"}}}]}]},
        {"messages": [{"content": [{"type": "video_url", "video_url": {"url": "https://x"}}]}]},
        {"input": [{"role": "user", "content": "x"}, {"id": "msg_1"}]},
        {"input": [{"id": "rs_1", "type": None, "role": None}]},
        {"context_management": {"edits": "x"}},
        {"context_management": {"edits": ["x"]}},
        {"context_management": [{"type": "compaction", "compact_threshold": 9}]},
    ],
)
def test_input_that_isnt_in_the_body(body: dict[str, Any]) -> None:
    found = call("responses", {"model": "m", **body})
    assert found is not None
    assert found.beyond_body


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "text"},
        {"tools": [{"name": "own", "input_schema": {"properties": {"url": {"type": "string"}}}}]},
        {"type": 1},
        {
            "input": [
                {"content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]}
            ]
        },
        {
            "messages": [
                {
                    "content": [
                        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AA"}}
                    ]
                }
            ]
        },
        {"context_management": {"edits": [CLEARING, {"type": "clear_tool_uses_20250919"}]}},
        {"context_management": None},
        {
            "input": [
                {"role": "assistant", "id": "msg_1", "content": "x"},
                "text",
                {"type": "reasoning", "id": "rs_1"},
            ]
        },
    ],
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
    dear = call(
        "messages",
        {"model": "m", "speed": "fast", "inference_geo": "us", "thinking": {"type": "disabled"}},
    )
    assert dear is not None
    assert dear.tier == "fast"
    assert dear.regional
    assert dear.shows_output
    plain = call(
        "messages",
        {
            "model": "m",
            "service_tier": ["priority"],
            "inference_geo": "global",
            "thinking": {"type": "adaptive"},
        },
    )
    assert plain is not None
    assert plain.tier == "plain"
    assert not plain.regional
    assert not plain.shows_output


@each_row(
    ("said", "tier"),
    [
        *(
            (word, "plain")
            for word in (
                "auto",
                "default",
                "standard",
                "standard_only",
                "flex",
                "scale",
                "batch",
                None,
            )
        ),
        ("priority", "fast"),
        ("fast", "fast"),
        ("ultrafast", "ultrafast"),
        ("instant", "unknown"),
        ("Priority", "unknown"),
    ],
)
def test_what_a_tier_is_called(said: str | None, tier: str) -> None:
    assert read("chat", {"model": "m", "service_tier": said}).tier == tier
    assert read("messages", {"model": "m", "speed": said}).tier == tier


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"\xff\xff", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"]
)
def test_what_cant_be_read_is_as_large_as_can_be(body: bytes) -> None:
    found = read_call("messages", "/v1/messages", body)
    assert found == largest("messages", body)
    assert read_call("messages", "/v1/messages", body, at_model_host=False) is None


def test_an_encoded_body_and_one_that_says_a_key_twice() -> None:
    body = b'{"model": "m", "max_tokens": 1, "max_tokens": 2}'
    assert read_call("messages", "/", body) == largest("messages", body)
    encoded = read_call("messages", "/", b'{"model": "m"}', is_encoded=True)
    assert encoded is not None
    assert encoded.beyond_body
    assert encoded.model == ""


FORM = b'{"model":"m","max_tokens":1,"prompt":"&model=dear&max_tokens=64000&prompt=x&a="}'


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (FORM, "application/x-www-form-urlencoded"),
        (b'{"model":"m","prompt":"&+M%6fdel=dear"}', "Application/X-WWW-Form-Urlencoded"),
        (b'{"model":"m","prompt":"&tools[0][type]=x"}', "application/x-www-form-urlencoded"),
        (b'{"model":"m","prompt":"&[model]=dear"}', "application/x-www-form-urlencoded"),
        (
            b'{"model":"m","prompt":"' + b"&a=b" * MOST_FIELDS + b'"}',
            "application/x-www-form-urlencoded",
        ),
        (FORM, "application/json; charset=utf-7"),
        ('{"model":"m","prompt":"\u00e9"}'.encode(), "application/json; charset=iso-8859-1"),
        (FORM, "application/json; x=y; CHARSET = 'cp037'"),
    ],
    ids=["form", "escaped", "list", "bracket", "fields", "utf-7", "latin-1", "cp037"],
)
def test_a_body_that_its_head_lets_others_read_otherwise_is_as_large_as_can_be(
    body: bytes, kind: str
) -> None:
    headers = (("Content-Type", kind), ("accept", "x"))
    assert read_call("chat", "/v1/completions", body, headers=headers) == largest("chat", body)
    assert read_call(
        "chat", "/v1/completions", body, headers=headers, at_model_host=False
    ) == largest("chat", body, bills_more=False)


def test_in_another_unicode_a_word_has_as_many_bytes_as_in_utf_8() -> None:
    text = json.dumps({"model": "m", "messages": ["\u9fa5" * 500]}, ensure_ascii=False)
    for coding in ("utf-8", "utf-16", "utf-16-be", "utf-32"):
        found = read_call("chat", "/v1/chat/completions", text.encode(coding))
        assert found is not None
        assert found.body_bytes == max(len(text.encode(coding)), len(text.encode()))


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=UTF-8",
'text/plain;charset="utf8"', "", "application/x-www-form-urlencoded",
"multipart/form-data"])  # fmt: skip
def test_a_body_that_its_head_says_nothing_odd_of_is_read(kind: str) -> None:
    plain = FORM if "urlencoded" not in kind else FORM.replace(b"&", b"%26")
    for body in (plain, b"\xef\xbb\xbf" + plain):
        found = read_call("chat", "/v1/completions", body, headers=(("content-type", kind),))
        assert found is not None
        assert (found.model, found.max_output_tokens) == ("m", 1)


def test_what_is_all_ascii_reads_the_same_in_latin_1() -> None:
    headers = (("content-type", "text/plain; charset=ISO-8859-1"),)
    found = read_call("chat", "/v1/completions", FORM, headers=headers)
    assert found is not None
    assert found.model == "m"


def test_outside_of_its_place_only_what_has_the_shape_counts() -> None:
    assert call("messages", {"text": "hello"}, at_model_host=False) is None
    assert call("messages", {"model": "m"}, at_model_host=False) is None
    assert call("messages", {"model": "m", "messages": []}, at_model_host=False) is not None
    assert call("converse", {}, f"{BEDROCK}/converse", at_model_host=False) is not None
    assert call("messages", {"model": 1, "messages": []}, at_model_host=False) is None
    assert call("embeddings", {"model": "m", "input": "x"}, at_model_host=False) is not None
    assert call("embeddings", {"model": "m", "messages": []}, at_model_host=False) is None


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
    """32 KB of gzip are 32 MB of these: to read them takes a gigabyte, and seconds in which
    egress does nothing else."""
    marks = sum(map((value + b",").count, (b"{", b"[", b",", b":")))
    room = (MOST_OBJECTS if b"{" in value else MOST_MARKS) - 20
    marks = value.count(b"{") or marks

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


def test_a_form_that_is_too_long_to_tell_is_as_dear_as_a_call_can_be() -> None:
    headers = (("content-type", "application/x-www-form-urlencoded"),)
    for length, model in ((MOST_FORM_BYTES - 200, "m"), (MOST_FORM_BYTES, "")):
        body = json.dumps({"model": "m", "max_tokens": 1, "prompt": "x" * length}).encode()
        found = read_call("chat", "/v1/chat/completions", body, headers=headers)
        assert found is not None
        assert found.model == model
