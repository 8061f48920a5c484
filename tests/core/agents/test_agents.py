"""What an agent finds in its home: files that its program can read, without a secret in them."""

import json
import tomllib

import pytest

from supervisor.core.agents.agents import (
    AGENTS,
    MODEL_KEYS,
    NAMES,
    AgentName,
    agent_named,
    model_rules,
)
from supervisor.core.agents.claude import KEY_CHARS
from supervisor.core.agents.inside import Inside
from supervisor.core.policy.policy_text import parse_policy
from supervisor.errors import UserError
from supervisor.settings import ROOT

PLACEHOLDER = "gatehouse-placeholder-0123456789abcdef01234567"


def inside(**urls: str) -> Inside:
    return Inside(
        workspace="/workspace/merged",
        hook='/opt/a "b"/python hook.py',
        plugin="// the plugin",
        placeholders={"ANTHROPIC_API_KEY": PLACEHOLDER},
        urls=urls,
        page="http://127.0.0.1:3700",
    )


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_the_screen_says_where_to_answer_while_the_hook_waits(name: AgentName) -> None:
    whole = "\n".join(AGENTS[name].home(inside()).values())
    assert "asking Gatehouse; answer at http://127.0.0.1:3700 or by `gatehouse approve`" in whole


def test_every_agent_is_complete() -> None:
    assert set(AGENTS) == set(NAMES)
    known = {key.variable for key in MODEL_KEYS}
    assert [one.variable for one in MODEL_KEYS if one.is_of_claude_code] == [
        "CLAUDE_CODE_OAUTH_TOKEN"
    ]
    for name, agent in AGENTS.items():
        assert set(agent.keys) <= known
        locked = json.loads((ROOT / "agent_image/cli" / name / "package-lock.json").read_text())
        packages = [path for path in locked["packages"] if path]
        assert any(agent.installed.startswith(path.rpartition("-linux-")[0]) for path in packages)
        assert all("integrity" in locked["packages"][path] for path in packages)


@pytest.mark.parametrize("name", NAMES)
def test_its_home_names_the_door_and_the_hook_and_holds_no_token(name: AgentName) -> None:
    files = AGENTS[name].home(inside())
    whole = "\n".join(files.values())
    assert "http://127.0.0.1:3701/mcp" in whole
    assert "GATEHOUSE_TOKEN" in whole
    for path, text in files.items():
        assert not path.startswith(("/", ".."))
        if path.endswith(".json"):
            json.loads(text)
        if path.endswith(".toml"):
            tomllib.loads(text)


def test_claude_code_calls_the_hook_before_any_tool_and_takes_the_key_without_asking() -> None:
    files = AGENTS["claude"].home(inside())
    (matched,) = json.loads(files[".claude/settings.json"])["hooks"]["PreToolUse"]
    assert matched["matcher"] == "*"
    assert matched["hooks"][0]["command"] == '/opt/a "b"/python hook.py'
    state = json.loads(files[".claude/.claude.json"])
    assert state["customApiKeyResponses"]["approved"] == [PLACEHOLDER[-KEY_CHARS:]]
    assert state["projects"]["/workspace/merged"]["hasTrustDialogAccepted"]
    without = inside()._replace(placeholders={})
    state = json.loads(AGENTS["claude"].home(without)[".claude/.claude.json"])
    assert state["customApiKeyResponses"]["approved"] == []


def test_codex_calls_the_hook_and_another_address_is_told() -> None:
    text = AGENTS["codex"].home(inside(openai="https://models.example.org/v1"))
    config = tomllib.loads(text[".codex/config.toml"])
    assert config["hooks"]["PreToolUse"][0]["hooks"][0]["command"] == '/opt/a "b"/python hook.py'
    assert config["openai_base_url"] == "https://models.example.org/v1"
    plain = tomllib.loads(AGENTS["codex"].home(inside())[".codex/config.toml"])
    assert "openai_base_url" not in plain


def test_opencode_has_the_plugin_and_other_addresses_are_told() -> None:
    files = AGENTS["opencode"].home(
        inside(anthropic="https://a.example.org", openai="https://o.example.org/v1")
    )
    assert files[".config/opencode/plugins/gatehouse.js"] == "// the plugin"
    config = json.loads(files[".config/opencode/opencode.json"])
    assert {name: one["options"]["baseURL"] for name, one in config["provider"].items()} == {
        "anthropic": "https://a.example.org/v1",
        "openai": "https://o.example.org/v1",
    }
    plain = json.loads(AGENTS["opencode"].home(inside())[".config/opencode/opencode.json"])
    assert plain["provider"] == {}


def test_its_rules_open_its_models_calls_and_nothing_else() -> None:
    rules = model_rules({"anthropic": "https://a.test/", "openai": "https://o.test/v1"})
    assert rules == [
        "network(POST https://a.test/v1/messages)",
        "network(POST https://a.test/v1/messages/count_tokens)",
        "network(POST https://o.test/v1/responses)",
        "network(POST https://o.test/v1/chat/completions)",
    ]
    parse_policy(json.dumps({"version": 1, "allow": rules}), "test")


def test_what_it_calls_unasked_is_denied_by_rules_with_a_why() -> None:
    for agent in AGENTS.values():
        rules = [{"rule": rule, "why": why} for rule, why in agent.denied.items()]
        parse_policy(json.dumps({"version": 1, "deny": rules}), "test")
    assert "network(chatgpt.com)" in AGENTS["codex"].denied


def test_an_agent_is_found_by_its_name_alone() -> None:
    assert [agent_named(name) for name in NAMES] == list(NAMES)
    with pytest.raises(UserError, match="those known are claude, codex, opencode"):
        agent_named("Claude")
