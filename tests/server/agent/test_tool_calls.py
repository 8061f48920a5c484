"""What an agent's hook hears before a tool runs: from rules at once, from a person when there is an
answer, and a no for everything else."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.core.actions import Exec
from supervisor.core.approvals import Request, status
from supervisor.server.app import build_agent_app
from tests.fakes.parts import FakeParts
from tests.server.conftest import client_of


async def asked(agent: httpx.AsyncClient, **tool: Any) -> Any:
    answer = await agent.post("/v1/tool-calls", json=tool)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def waiting(parts: FakeParts) -> Request:
    while not parts.queue.pending():
        await asyncio.sleep(0)
    return parts.queue.pending()[0]


async def test_rules_answer_at_once(agent: httpx.AsyncClient, parts: FakeParts) -> None:
    allowed = await asked(agent, tool="command", command="git status", cwd="/workspace/merged/src")
    assert allowed["allowed"]
    denied = await asked(agent, tool="command", command="rm -rf x")
    assert not denied["allowed"]
    assert "rm -rf" in denied["why"]
    assert parts.queue.pending() == []


async def test_a_person_answers_and_the_tool_runs_by_one_grant(
    agent: httpx.AsyncClient, parts: FakeParts
) -> None:
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(asked(agent, tool="command", command="make", reason="to build"))
        request = await waiting(parts)
        assert (request.origin, request.reason) == ("agent_tool", "to build")
        parts.gate.resolve(request.id, "approved", by="operator (cli)")
    answer = call.result()
    assert (answer["allowed"], answer["request_id"]) == (True, request.id)
    assert status(parts.queue.get(request.id)) == "used"
    assert (parts.queue.get(request.id).outcome or {})["run_by"] == "the agent's own tool"
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(asked(agent, tool="command", command="make"))
        request = await waiting(parts)
        parts.gate.resolve(request.id, "denied", by="operator (cli)", reason="use make test")
    assert not call.result()["allowed"]
    assert "use make test" in call.result()["why"]


async def test_a_tool_in_another_folder_is_another_action(
    agent: httpx.AsyncClient, parts: FakeParts
) -> None:
    async with asyncio.TaskGroup() as tasks:
        calls = [
            tasks.create_task(asked(agent, tool="command", command="make", cwd=folder))
            for folder in ("/workspace/merged", "src", "/tmp")
        ]
        while len(parts.queue.pending()) < 3:
            await asyncio.sleep(0)
        folders = {one.action.cwd for one in parts.queue.pending()}  # type: ignore[union-attr]
        assert folders == {".", "src", "/tmp"}
        for one in parts.queue.pending():
            parts.gate.resolve(one.id, "denied", by="operator (cli)")
    assert not any(call.result()["allowed"] for call in calls)


async def test_an_install_alone_starts_since_it_asks_by_itself_unless_it_is_denied(
    agent: httpx.AsyncClient, parts: FakeParts
) -> None:
    for command in ("npm install x", "cd sub && pip install -r requirements.txt", "yarn"):
        assert (await asked(agent, tool="command", command=command))["allowed"], command
    denied = await asked(agent, tool="command", command="git push https://example.org/x main")
    assert not denied["allowed"]
    assert parts.queue.pending() == []


@pytest.mark.parametrize(
    "command",
    [
        "git push origin main", "git push --rec=./evil origin main",
        "git fetch --upload-pac=./evil origin",
        "npm install --offline x", "npm install evil --cache -h", "/usr/bin/npm install x",
        "/usr/bin/cargo install --path .", "python3 -m pip install x",
        "npm install --prefix evil x",
        "bash e.sh; git fetch origin", "cat .env; npm install x", "grep -r S .; npm install x",
        "bash --rcfile e -i; git fetch origin", "sh e.sh; npm install x",
        "timeout 60 npm install x", "npm install x | tail -3", "PATH=. npm install x",
        "npm() { ./evil; }; npm install x",
    ],
)  # fmt: skip
async def test_whatever_else_a_line_does_is_judged_as_a_command(
    agent: httpx.AsyncClient, parts: FakeParts, command: str
) -> None:
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(asked(agent, tool="command", command=command))
        request = await waiting(parts)
        assert isinstance(request.action, Exec)
        parts.gate.resolve(request.id, "denied", by="operator (cli)")
    assert not call.result()["allowed"]


@pytest.mark.parametrize(
    "command",
    [
        "cat .env; npm install x",
        "sh e.sh; git fetch origin",
        "cd secret && npm ci",
        "npm install y",
    ],
)
async def test_deny_rules_hold_for_each_command_of_a_line_with_an_install(
    tmp_path: Path, command: str
) -> None:
    rules = "[exec(cat *), exec(sh *), exec(cd secret), exec(npm install y)]"
    parts = FakeParts(tmp_path, f"version: 1\ndeny: {rules}\n")
    app = build_agent_app(parts, "one")
    async with client_of(app, authorization="Bearer token-of-one") as agent:
        answer = await asked(agent, tool="command", command=command)
    assert not answer["allowed"]
    assert "denied by exec(" in answer["why"]
    parts.close()


@pytest.mark.parametrize(
    ("path", "is_allowed"),
    [
        ("/workspace/merged/src/a.py", True),
        ("a.py", True),
        ("/tmp/x", True),
        ("/workspace/merged/../lower/x", True),
        ("/workspace/merged/.git/config", False),
    ],
)
async def test_an_edit_meets_deny_rules_only(
    agent: httpx.AsyncClient, path: str, is_allowed: bool
) -> None:
    assert (await asked(agent, tool="edit", path=path))["allowed"] is is_allowed


async def test_what_is_not_understood_is_an_error_which_a_hook_takes_for_a_no(
    agent: httpx.AsyncClient, parts: FakeParts
) -> None:
    bad: list[dict[str, Any]] = [
        {},
        {"tool": "other"},
        {"tool": "command"},
        {"tool": "command", "command": "ls", "allowed": True},
        {"tool": "fetch", "url": "file:///etc/passwd"},
        {"tool": "fetch", "url": "https://:x/"},
        {"tool": "edit", "path": "a\0b"},
    ]
    for body in bad:
        answer = await agent.post("/v1/tool-calls", json=body)
        assert answer.status_code == 400, body
        assert answer.json()["error"]
    assert parts.queue.pending() == []


async def test_a_tool_that_our_server_has_not_is_judged_whatever_its_server_is_called(
    agent: httpx.AsyncClient, parts: FakeParts
) -> None:
    for server, name in (("gatehouse", "wipe"), ("gatehouse", "evil__run_command")):
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(asked(agent, tool="mcp", server=server, name=name))
            request = await waiting(parts)
            parts.gate.resolve(request.id, "denied", by="operator (cli)")
        assert not call.result()["allowed"]


async def test_our_own_servers_tools_ask_by_themselves(agent: httpx.AsyncClient) -> None:
    own = await asked(agent, tool="mcp", server="gatehouse", name="run_command")
    assert own["allowed"]
    fetched = await asked(agent, tool="fetch", url="https://example.org/page?x=1")
    assert fetched["allowed"], "egress asks for the connection"


async def test_an_agents_own_server_can_not_have_the_name_of_an_operators(
    agent: httpx.AsyncClient, parts: FakeParts
) -> None:
    parts.mcp_servers.names = frozenset({"notes"})
    for server, name in (("notes", "add"), ("notes__add", "x")):
        tool = {"tool": "mcp", "server": server, "name": name}
        answer = await agent.post("/v1/tool-calls", json=tool)
        assert answer.status_code == 403
        assert "of the operator's" in answer.json()["why"]
    assert parts.queue.pending() == []
