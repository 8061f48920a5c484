"""What a call's tools may cost: a tool that the provider runs is never taken for the caller's
own."""

from typing import Any

import pytest

from supervisor.core.models.call_tools import MOST_LIMIT, MOST_SEARCHES
from supervisor.core.models.model_calls import Api
from tests.core.models.test_call_bodies import CLEARING, read
from tests.tables import each_row


def test_a_model_that_is_asked_beside_is_named() -> None:
    advisor = {"type": "advisor_20260301", "name": "advisor", "model": "claude-opus-5"}
    assert read("messages", {"model": "m", "tools": [advisor, {"name": "own"}]}).advisors == (
        "claude-opus-5",
    )
    assert read("messages", {"model": "m", "tools": [advisor | {"model": 3}]}).advisors == ("",)


def test_searches_are_reserved_and_what_costs_more_than_tokens_is_said() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    assert (
        read(
            "messages", {"model": "m", "tools": [search | {"max_uses": 3}, {"name": "own"}]}
        ).searches
        == 3
    )
    assert (
        read("responses", {"model": "m", "tools": [search, {"type": "file_search"}]}).searches
        == 2 * MOST_SEARCHES
    )
    assert read("responses", {"model": "m", "tools": {"type": "web_search"}}).searches == 0
    for body in ({"tools": [{"type": "image_generation"}]},
    {"tools": [{"type": "code_interpreter"}]}, {"web_search_options": {"a": 1}}):  # fmt: skip
        assert read("chat", {"model": "m", **body}).bills_more
        assert not read(
            "chat", {"model": "m", "messages": [], **body}, at_model_host=False
        ).bills_more
    assert not read("chat", {"model": "m", "tools": [search]}).bills_more


@each_row(
    "body",
    [
        {"web_search_options": {}},
        {"search_parameters": {"mode": "auto"}},
        {"plugins": [{"id": "web"}]},
        {"model": "openai/gpt-5-nano:online"},
        {"model": "gpt-4o-mini-search-preview-2025-03-11"},
        {"model": "gpt-5-search-api"},
        {"model": "perplexity/sonar-pro"},
        {"model": "openai/o4-mini-deep-research"},
        {"models": ["m", "n:online"]},
        {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
        {"tools": [{"type": "shell"}]},
        {"tools": [{"type": "openrouter:web_search"}]},
        {"tools": [{"type": "programmatic_tool_calling"}]},
        {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "image_generation"}]}]},
        {"tools": [{"type": 1, "name": "own"}]},
        {"tools": [{"googleSearch": {}}]},
        {"toolConfig": {"tools": [{"systemTool": {"name": "nova_grounding"}}]}},
    ],
)
def test_what_the_provider_bills_by_a_measure_of_its_own_is_said(body: dict[str, Any]) -> None:
    found = read("responses", {"model": "m", **body})
    assert found.bills_more
    assert found.beyond_body is not ("web_search_options" in body or "search_parameters" in body)
    assert not read(
        "responses", {"model": "m", "input": "x", **body}, at_model_host=False
    ).bills_more


@each_row(
    "tool",
    [
        {"name": "own", "input_schema": {}},
        {"type": None, "name": "own"},
        {"type": "custom", "name": "own"},
        {"type": "function", "function": {"name": "own"}},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728"},
        {"type": "computer_20251124"},
        {"type": "computer_toolset_20260801"},
        {"type": "browser_toolset_20260801"},
        {"type": "memory_20250818"},
        {"type": "computer_use_preview"},
        {"type": "computer"},
        {"type": "local_shell"},
        {"type": "apply_patch"},
        {"type": "shell", "environment": {"type": "local"}},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "own"}]},
    ],
)
def test_a_tool_that_the_caller_runs_costs_its_words(tool: dict[str, Any]) -> None:
    found = read(
        "messages", {"model": "m", "tools": [tool], "plugins": [], "web_search_options": None}
    )
    assert (found.beyond_body, found.bills_more) == (False, False)
    called = read(
        "converse", {"toolConfig": {"tools": [{"toolSpec": {"name": "own"}}, {"cachePoint": {}}]}}
    )
    assert (called.beyond_body, called.bills_more) == (False, False)


@pytest.mark.parametrize("kind", ["web_search_20260318", "web_fetch_20250910",
"code_execution_20260521", "tool_search_tool_regex_20251119", "mcp_toolset", "advisor_20260301",
"file_search"])  # fmt: skip
def test_a_tool_that_is_billed_by_tokens_and_searches_reaches_beyond_the_body(kind: str) -> None:
    found = read("messages", {"model": "m", "tools": [{"type": kind, "name": "n"}]})
    assert (found.beyond_body, found.bills_more) == (True, False)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"model": "@preset/gpt-5-nano"}, "/v1/x"),
        ({"model": "openai/gpt-5-nano@Preset/gpt-5-nano"}, "/v1/x"),
        ({"model": "gpt-5-nano", "models": ["@preset/gpt-5-nano"]}, "/v1/x"),
        ({"model": "gpt-5-nano", "preset": "gpt-5-nano"}, "/v1/x"),
        ({"model": "gpt-5-nano", "prompt": {"id": "pmpt_1"}}, "/v1/x"),
        ({}, "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aprompt%2Fclaude-3-haiku/converse"),
    ],
)
def test_what_is_kept_at_the_provider_may_be_any_model_with_any_text_and_tools(
    body: dict[str, Any], path: str
) -> None:
    """OpenRouter's presets can be written with the key that calls models, under a name of any
    model: POST /api/v1/presets/{slug}/chat/completions."""
    found = read("responses" if "model" in body else "converse", body, path)
    assert (found.beyond_body, found.bills_more, found.steps) == (True, True, MOST_LIMIT)
    assert "" in found.others


def test_openrouter_runs_every_shell_itself() -> None:
    local = {"model": "m", "tools": [{"type": "shell", "environment": {"type": "local"}}]}
    assert not read("responses", local, host="api.openai.com").bills_more
    for host in ("openrouter.ai", "eu.openrouter.ai"):
        assert read("responses", local, host=host).bills_more


@pytest.mark.parametrize(
    ("limit", "most"),
    [(1, 1), (128, 128), (129, 129), (10**9, MOST_LIMIT), (0, MOST_SEARCHES), (None, MOST_SEARCHES),
     ("9", MOST_SEARCHES), (True, MOST_SEARCHES)],
)  # fmt: skip
def test_a_larger_limit_of_searches_never_reserves_less(limit: object, most: int) -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    assert (
        read("messages", {"model": "m", "tools": [search | {"max_uses": limit}]}).searches == most
    )
    assert (
        read(
            "responses", {"model": "m", "tools": [{"type": "web_search"}], "max_tool_calls": limit}
        ).searches
        == most
    )


def test_a_limit_counts_only_where_its_api_reads_it() -> None:
    search = {"type": "web_search", "max_uses": 1}
    assert read("responses", {"model": "m", "tools": [search]}).searches == MOST_SEARCHES
    assert read("messages", {"model": "m", "tools": [{"type": "web_search"}],
    "max_tool_calls": 1}).searches == MOST_SEARCHES  # fmt: skip


@each_row(
    ("api", "body", "most"),
    [
        ("messages", {"tools": [{"name": "own"}]}, 1),
        ("messages", {"tools": [{"type": "web_search_20250305", "max_uses": 1}]}, MOST_LIMIT),
        ("messages", {"mcp_servers": [{"url": "https://x"}]}, MOST_LIMIT),
        ("messages", {"context_management": {"edits": [CLEARING]}}, 1),
        ("messages", {"context_management": {"edits": [{"type": "compact_20260112"}]}}, 2),
        ("responses", {"tools": [{"type": "web_search"}]}, MOST_LIMIT),
        ("responses", {"tools": [{"type": "mcp"}], "max_tool_calls": 3}, 4),
        ("responses", {"tools": [{"type": "mcp"}], "max_tool_calls": "3"}, MOST_LIMIT),
        ("chat", {"tools": [{"type": "openrouter:fusion"}], "max_tool_calls": 3}, MOST_LIMIT),
        ("responses", {"tools": [{"type": "tool_search", "execution": "client"}]}, 1),
        ("responses", {"tools": [{"type": "tool_search", "execution": "server"}]}, MOST_LIMIT),
        ("responses", {"previous_response_id": "r"}, 1),
    ],
)
def test_a_provider_reads_everything_again_after_each_of_its_own_tools(
    api: Api, body: dict[str, Any], most: int
) -> None:
    found = read(api, {"model": "m", **body})
    assert found.steps == most
    assert found.beyond_body or most == 1


def test_openais_older_web_search_is_told_apart() -> None:
    assert read(
        "responses", {"model": "m", "tools": [{"type": "web_search_preview_2025_03_11"}]}
    ).previews
    assert not read("responses", {"model": "m", "tools": [{"type": "web_search"}]}).previews
