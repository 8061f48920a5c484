"""Bounds that the body of a call sets: answers, caches, thought and tiers, whatever its keys
look like."""

import json
from typing import Any

import pytest

from supervisor.core.models.call_bodies import MOST_CHOICES, read_call
from tests.core.models.test_call_bodies import BEDROCK, largest, read
from tests.tables import each_row


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


@each_row(
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


@each_row(
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


@each_row(
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
