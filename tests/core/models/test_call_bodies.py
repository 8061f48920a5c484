"""What the bodies of calls say of their size and price: never taken for less than a provider may
read in them."""

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.models.call_bodies import MOST_CHOICES, MOST_FIELDS, MOST_MARKS, read_call
from supervisor.core.models.call_tools import MOST_LIMIT
from supervisor.core.models.model_calls import MOST_NAME_CHARS, ModelCall

# What Claude Code sends with every call.
CLEARING = {"type": "clear_thinking_20251015", "keep": "all"}
BEDROCK = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0"


def path_of_parts(*parts: str) -> st.SearchStrategy[str]:
    """Paths of the parts that are looked for."""
    every = ("/model", "/model/", "/Model/", "/", "x", "\n", "%0a", "%2F", "?", *parts)
    return st.lists(st.sampled_from(every), max_size=9).map("".join)


def call(api: Any, body: object, path: str = "/v1/messages", **extra: Any) -> ModelCall | None:
    return read_call(api, path, json.dumps(body).encode(), **extra)


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


@pytest.mark.parametrize("piece", ["/model/a", "/Model/a%0a", "/model/", "/models/a", "/models/",
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


def test_elsewhere_only_what_has_the_shape() -> None:
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


def read(api: Any, body: object, path: str = "/v1/x", **extra: Any) -> ModelCall:
    found = call(api, body, path, **extra)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "Model": "dear"},
        {"MODEL": "dear"},
        {"model": "m", "N": 128},
        {"model": "m", "max_tokens": 1, "Max_Tokens": 64000},
        {"model": "m", "max_to\u212aens": 64000},
        {"model": "m", "\u017fervice_tier": "priority"},
    ],
)
def test_a_key_that_some_readers_take_for_another_says_nothing(body: dict[str, Any]) -> None:
    assert read("chat", body) == largest("chat", json.dumps(body).encode())


def test_keys_of_any_case_are_no_matter_where_they_mean_nothing() -> None:
    found = read("messages", {"model": "m", "max_tokens": 1, "metadata": {"Model": 1},
    "tools": [{"input_schema": {"N": 1, "n": 2}}]})  # fmt: skip
    assert (found.model, found.max_output_tokens) == ("m", 1)


@pytest.mark.parametrize(
    ("api", "body", "wanted"),
    [
        ("responses", {"max_tokens": 1}, None),
        ("responses", {"max_output_tokens": 3, "max_tokens": 9}, 9),
        ("messages", {"max_output_tokens": 1}, None),
        ("chat", {"max_completion_tokens": 1, "max_tokens": "64000"}, None),
        ("chat", {"max_completion_tokens": 1, "max_tokens": 64000.0}, None),
        ("chat", {"max_completion_tokens": 7, "max_tokens": None}, 7),
        ("converse", {"max_tokens": 1}, None),
        (
            "converse",
            {
                "inferenceConfig": {"maxTokens": 1},
                "additionalModelRequestFields": {"max_tokens": 9},
            },
            9,
        ),
        ("invoke", {"inferenceConfig": {"maxTokens": 1}}, None),
        ("invoke", {"max_gen_len": 1}, None),
        ("invoke", {"max_tokens": 1, "max_gen_len": 8192}, 8192),
        ("invoke", {"max_tokens": 1, "Max_Gen_Len": 8192}, 8192),
        ("invoke", {"max_tokens": 1, "maxTokens": 8191}, 8191),
        ("invoke", {"max_tokens": 1, "max_tokens_to_sample": 4096}, 4096),
        ("invoke", {"max_tokens": 1, "max_completion_tokens": 4096}, 4096),
        ("invoke", {"max_tokens": 1, "textGenerationConfig": {"maxTokenCount": 3072}}, 3072),
        (
            "invoke",
            {"max_tokens": 1, "inferenceConfig": {"maxTokens": 5, "max_new_tokens": 5000}},
            5000,
        ),
        ("invoke", {"max_tokens": 1, "inferenceConfig": {"maxTokens": "5000"}}, None),
        ("invoke", {"max_tokens": 9, "max_gen_len": 1}, 9),
        ("invoke", {"max_tokens": 9, "max_gen_len": None, "inferenceConfig": []}, 9),
        (
            "converse",
            {
                "inferenceConfig": {"maxTokens": 1},
                "additionalModelRequestFields": {"max_gen_len": 9},
            },
            9,
        ),
        (
            "converse",
            {
                "inferenceConfig": {"maxTokens": 1},
                "additionalModelRequestFields": {"inferenceConfig": {"maxTokens": 9}},
            },
            9,
        ),
        ("chat", {"max_tokens": 1, "generationConfig": {"maxOutputTokens": 9}}, 9),
        (
            "messages",
            {"max_tokens": 1, "thinking": {"type": "enabled", "budget_tokens": 64000}},
            None,
        ),
        ("messages", {"max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 9}}, None),
        ("messages", {"max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 8}}, 9),
        ("messages", {"max_tokens": 9, "thinking": {"type": "disabled", "budget_tokens": 0}}, 9),
        (
            "messages",
            {"max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": "64000"}},
            None,
        ),
        ("messages", {"max_tokens": 9, "thinking": {"type": "adaptive"}}, 9),
        ("messages", {"thinking": {"type": "enabled", "budget_tokens": 8}}, None),
        ("chat", {"max_tokens": 1, "reasoning": {"max_tokens": 64000}}, None),
        (
            "converse",
            {
                "inferenceConfig": {"maxTokens": 1},
                "additionalModelRequestFields": {"thinking": {"budget_tokens": 9}},
            },
            None,
        ),
    ],
)
def test_only_what_the_api_reads_limits_what_comes_back(
    api: str, body: dict[str, Any], wanted: int | None
) -> None:
    assert read(api, {"model": "m", **body}).max_output_tokens == wanted


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"n": None}, 1),
        ({"n": 2.0}, MOST_CHOICES),
        ({"best_of": 20}, 20),
        ({"num_generations": 5}, 5),
        ({"n": 2, "numResults": 16}, 16),
        ({"n": 3, "best_of": 2}, 3),
        ({"prompt": ["a", "b", "c"], "n": 2}, 6),
        ({"prompt": [[1, 2], [3]]}, 2),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": []}, 1),
    ],
)
def test_every_answer_that_is_made_counts(body: dict[str, Any], wanted: int) -> None:
    assert read("chat", {"model": "m", **body}).choices == wanted


def test_what_is_written_to_a_cache_is_found_however_it_is_spelled() -> None:
    body = (
        b'{"model": "m", "system": [{"\\u0063ache_control": {"type": "ephemeral", "ttl":'
        b' "\\u0031h"}}]}'
    )
    found = read_call("messages", "/v1/messages", body)
    assert found is not None
    assert (found.writes_cache, found.writes_long_cache) == (True, True)
    short = read(
        "messages",
        {"model": "m", "system": [{"cache_control": {"ttl": "5m"}, "text": "cache for 1h"}]},
    )
    assert (short.writes_cache, short.writes_long_cache) == (True, False)
    assert read("converse", {"system": [{"cachePoint": {"type": "default"}}]}).writes_cache
    for ttl, is_long in (
        ("1h", True),
        ("24h", True),
        (3600, True),
        ("60m", True),
        ("59m", False),
        ("5m", False),
    ):
        body = {
            "model": "m",
            "system": [{"cache_control": {"ttl": ttl}}],
            "tools": [{"schema": {"ttl": "1h"}}],
        }
        assert read("chat", body).asks_long_cache is is_long


QUIET = {"thinking": {"type": "disabled"}}
LOUD = {"thinking": {"type": "enabled", "budget_tokens": 30000}}


@pytest.mark.parametrize(
    ("api", "host", "body", "is_believed"),
    [
        ("messages", "api.anthropic.com", QUIET, True),
        ("messages", "api.anthropic.com", LOUD, False),
        ("messages", "api.anthropic.com", {"thinking": "disabled"}, False),
        ("messages", "api.anthropic.com", {"reasoning_effort": "none"}, False),
        ("messages", "api.anthropic.com", {"additionalModelRequestFields": QUIET}, False),
        ("invoke", "bedrock-runtime.us-east-1.amazonaws.com", QUIET, True),
        ("invoke", "bedrock-runtime.us-east-1.amazonaws.com", {"reasoning_effort": "none"}, False),
        ("converse", "bedrock-runtime.us-east-1.amazonaws.com", QUIET, False),
        (
            "converse",
            "bedrock-runtime.us-east-1.amazonaws.com",
            {**QUIET, "additionalModelRequestFields": LOUD},
            False,
        ),
        (
            "converse",
            "bedrock-runtime.us-east-1.amazonaws.com",
            {**QUIET, "additionalModelRequestFields": []},
            False,
        ),
        (
            "converse",
            "bedrock-runtime.us-east-1.amazonaws.com",
            {"additionalModelRequestFields": QUIET},
            True,
        ),
        ("chat", "api.openai.com", {"reasoning_effort": "none"}, True),
        ("chat", "eu.api.openai.com", {"reasoning_effort": "none"}, True),
        ("chat", "api.openai.com", {"reasoning_effort": "low"}, False),
        ("chat", "api.openai.com", QUIET, False),
        ("chat", "openrouter.ai", QUIET, False),
        ("chat", "openrouter.ai", {"reasoning_effort": "none"}, False),
        ("chat", "gateway.example.org", {"reasoning_effort": "none"}, False),
        ("chat", "notapi.openai.com", {"reasoning_effort": "none"}, False),
        ("chat", "", {"reasoning_effort": "none"}, False),
        ("responses", "api.openai.com", {"reasoning_effort": "none", **QUIET}, False),
    ],
)
def test_that_a_model_shall_not_think_is_believed_only_where_its_api_reads_it(
    api: str, host: str, body: dict[str, Any], is_believed: bool
) -> None:
    assert read(api, {"model": "m", **body}, host=host).shows_output is is_believed


def test_what_a_model_prepares_unseen_isnt_bounded_by_what_is_seen() -> None:
    quiet = {"model": "m", "thinking": {"type": "disabled"}}
    assert read("messages", quiet).shows_output
    assert not read("messages", quiet | {"tools": [{"name": "write"}]}).shows_output


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"serviceTier": {"type": "priority"}}, ()),
        ({"performanceConfig": {"latency": "optimized"}}, ()),
        ({}, (("X-Amzn-Bedrock-Service-Tier", "priority"),)),
        ({}, (("x-amzn-bedrock-performanceconfig-latency", "Optimized "),)),
    ],
)
def test_bedrocks_dearer_tiers(body: dict[str, Any], headers: tuple[tuple[str, str], ...]) -> None:
    assert read("converse", body, f"{BEDROCK}/converse", headers=headers).tier == "fast"
    odd = read(
        "converse",
        {"serviceTier": "priority", "performanceConfig": []},
        headers=(("a", "priority"),),
    )
    assert odd.tier == "plain"
