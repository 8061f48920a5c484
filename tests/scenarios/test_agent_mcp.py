"""The real Claude Code CLI asks through the tools at `/mcp`, from inside the sandbox, as
docs/agents.md says."""

import json
import re
from pathlib import Path

import pytest

from tests.fakes.claude_code import FINAL_WORDS, claude_binary, claude_command
from tests.fakes.messages_server import MessagesServer, calls, text, tool_use
from tests.fakes.supervised import StartSupervisor

BINARY = claude_binary()
MODEL_HOST = "model.test"
PAGE = (Path(__file__).parents[2] / "docs/agents.md").read_text(encoding="utf-8")

pytestmark = [
    pytest.mark.skipif(BINARY is None, reason="claude-agent-sdk has no CLI for this platform"),
]


async def test_claude_code_asks_by_the_readmes_configuration(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    found = re.search(r"```json\n(\{\"mcpServers\".*?)```", PAGE, re.DOTALL)
    assert found
    (workspace / "mcp.json").write_text(found[1])
    script = [
        calls(
            tool_use("mcp__gatehouse__run_command", {"command": "echo by rule", "reason": "to see"})
        ),
        calls(
            tool_use("mcp__gatehouse__run_command", {"command": "make deploy", "reason": "to ship"})
        ),
        calls(
            tool_use(
                "mcp__gatehouse__write_file", {"path": "new.txt", "content": "from the tool\n"}
            )
        ),
        text(FINAL_WORDS),
    ]
    with MessagesServer(script, follow="conversation", api_key="sk-ant-test-77") as model:
        rules = f"""
version: 1
modes: {{network: deny}}
allow: ["network(POST http://{MODEL_HOST}:{model.port}/v1/messages)", "network(127.0.0.1:{model.port})", "exec(echo *)"]
deny: ["exec(make deploy)"]
"""  # noqa: E501
        async with start_supervisor(
            rules,
            names={MODEL_HOST: ("127.0.0.1",)},
            anthropic_api_key="sk-ant-test-77",
            anthropic_base_url=f"http://{MODEL_HOST}:{model.port}",
        ) as running:
            session = await running.start(
                workspace, *claude_command(str(BINARY)), "--mcp-config", "mcp.json"
            )
            card = await running.asked("filesystem")
            assert card.origin == "agent_api"
            running.approve(card)
            session = await running.ended(session)
            assert session.exit_code == 0, running.story()
        assert (workspace / "new.txt").read_text() == "from the tool\n"
        results = [
            block
            for message in model.conversations[-1]["messages"]
            if message["role"] == "user" and isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
    ran, denied, written = (
        (bool(one.get("is_error")), json.dumps(one["content"])) for one in results
    )
    assert not ran[0]
    assert "by rule" in ran[1]
    assert denied[0], "the model is told that it was refused"
    assert "exec(make deploy)" in denied[1]
    assert not written[0]
