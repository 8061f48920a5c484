"""The agent's tools at `/mcp`: the protocol's own client over a real socket, and what must not
be possible by them."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import httpx2
import msgspec
import pytest
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from supervisor.core.actions import Exec
from supervisor.core.approvals import status
from supervisor.core.mcp_calls import ServerTool
from supervisor.server.agent import mcp_server, mcp_tools
from supervisor.server.agent.agent_bodies import QuarantineBody, ToolBody
from supervisor.server.agent.agent_calls import ASKS_AT_ONCE, AgentCalls
from supervisor.server.agent.mcp import MOST_VALUES
from supervisor.server.agent.mcp_tools import WaitBody, tools
from supervisor.server.app import build_agent_app
from supervisor.server.common.request_guard import AGENT_CALLS_AT_ONCE
from tests.fakes.parts import SECRET, FakeParts
from tests.server.conftest import PATIENCE_S, OnSocket

CALLS: dict[str, dict[str, Any]] = {
    "run_command": {"command": "make test"},
    "write_file": {"path": "a.py", "content": "x"},
    "edit_file": {"path": "a.py", "old": "x", "new": "y"},
    "delete_file": {"path": "a.py"},
    "move_file": {"path": "a.py", "to": "b.py"},
    "run_package_manager": {"command": "npm install left-pad"},
    "run_git": {"command": "git push origin main"},
    "propose_rule": {"effect": "allow", "rule": "exec(ls)", "why": "often"},
}
# The protocol as it was with a handshake, and as it is with each request by itself.
ERAS = ("legacy", "auto")


@contextlib.asynccontextmanager
async def client_at(
    url: str, token: str = "token-of-one", mode: Any = "auto"
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tool waits for an answer."""
    monkeypatch.setattr(mcp_tools, "WAIT_S", 0.0)


def data_of(result: Any) -> dict[str, Any]:
    """The structured content, which the text repeats."""
    assert json.loads(result.content[0].text) == result.structured_content
    found: dict[str, Any] = result.structured_content
    return found


async def asked(parts: FakeParts) -> str:
    """The id of the first request that waits, as soon as there is one."""
    async with asyncio.timeout(PATIENCE_S):
        while not (waiting := parts.queue.pending()):
            await asyncio.sleep(0.01)
    return waiting[0].id


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_of_either_era_lists_the_tools_with_schemas_that_hold(
    agent_door: OnSocket, mode: str
) -> None:
    async with client_at(agent_door.url, mode=mode) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(CALLS) < set(listed)
    for name, tool in listed.items():
        assert tool.description, name
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["type"] == "object", name
        assert tool.input_schema["additionalProperties"] is False, name
    for name, arguments in CALLS.items():
        Draft202012Validator(listed[name].input_schema).validate(arguments)


@pytest.mark.parametrize("mode", ERAS)
async def test_an_allowed_command_runs_and_its_outcome_comes_back(
    agent_door: OnSocket, running: FakeParts, mode: str
) -> None:
    async with client_at(agent_door.url, mode=mode) as client:
        result = await client.call_tool("run_command", {"command": "git status"})
    shown = data_of(result)
    assert (result.is_error, shown["allowed"], shown["settled"]) == (False, True, True)
    assert shown["outcome"] == {"ok": True, "exit_code": 0, "stdout": "done"}
    assert running.carried_out == [shown["id"]]


@pytest.mark.parametrize(("name", "arguments"), CALLS.items())
async def test_what_asks_becomes_a_request_of_this_session(
    agent_door: OnSocket, running: FakeParts, impatient: None, name: str, arguments: dict[str, Any]
) -> None:
    async with client_at(agent_door.url) as client:
        shown = data_of(await client.call_tool(name, arguments))
    kept = running.gate.queue.get(shown["id"])
    assert (shown["status"], status(kept), kept.session_id, kept.origin) == (
        "pending",
        "pending",
        "one",
        "agent_api",
    )


@pytest.mark.parametrize(("name", "arguments"), CALLS.items())
@pytest.mark.parametrize("field", ["approved", "session_id", "by", "always"])
async def test_no_argument_decides_anything(
    agent_door: OnSocket, running: FakeParts, name: str, arguments: dict[str, Any], field: str
) -> None:
    async with client_at(agent_door.url) as client:
        result = await client.call_tool(name, arguments | {field: "operator"})
    assert (result.is_error, data_of(result)["error"]) == (True, "bad request")
    assert field in data_of(result)["why"]
    assert not running.queue.of_session("one", 10)


async def test_a_call_waits_for_the_person_and_brings_what_became_of_it(
    agent_door: OnSocket, running: FakeParts
) -> None:
    async with client_at(agent_door.url) as client:
        call = asyncio.create_task(client.call_tool("run_command", {"command": "make test"}))
        running.gate.resolve(await asked(running), "approved", by="tester")
        result = await call
    assert (result.is_error, data_of(result)["settled"], data_of(result)["outcome"]["stdout"]) == (
        False,
        True,
        "done",
    )


async def test_a_denial_is_an_error_that_says_why(agent_door: OnSocket, running: FakeParts) -> None:
    async with client_at(agent_door.url) as client:
        by_rule = await client.call_tool("run_command", {"command": "rm -rf x"})
        call = asyncio.create_task(client.call_tool("run_command", {"command": "make test"}))
        running.gate.resolve(await asked(running), "denied", by="tester", reason="not on Fridays")
        by_person = await call
    assert (by_rule.is_error, data_of(by_rule)["rule"]) == (True, "exec(rm -rf *)")
    assert (by_person.is_error, data_of(by_person)["settled"]) == (True, True)
    assert "not on Fridays" in data_of(by_person)["why"]


async def test_what_still_waits_is_fetched_later_and_only_by_its_own_session(
    agent_door: OnSocket, running: FakeParts, impatient: None
) -> None:
    other = running.gate.ask(Exec(command="make deploy"), session_id="two")
    async with client_at(agent_door.url) as client:
        mine = data_of(await client.call_tool("run_command", {"command": "make test"}))["id"]
        running.gate.resolve(mine, "approved", by="tester")
        found = data_of(
            await client.call_tool("wait_for_request", {"request_id": mine, "wait_s": 20})
        )
        assert found["allowed"]
        result = await client.call_tool("wait_for_request", {"request_id": other.id})
        assert (result.is_error, data_of(result)["error"]) == (True, "not found")
        listed = data_of(await client.call_tool("list_requests", {}))["requests"]
    assert [one["id"] for one in listed] == [mine]


async def test_facts_changes_and_the_report_are_this_sessions(
    agent_door: OnSocket, running: FakeParts
) -> None:
    review = {
        "model": "recorded", "base": None, "head": None, "summary": f"fine {SECRET}",
        "verdict": "comment", "findings": [],
        "usage": {"turns": 1, "input_tokens": 2, "output_tokens": 3},
    }  # fmt: skip
    async with client_at(agent_door.url) as client:
        assert data_of(await client.call_tool("session_facts", {}))["id"] == "one"
        assert data_of(await client.call_tool("host_changes", {})) == {
            "changes": [],
            "conflicts": [],
            "refused": {},
        }
        assert data_of(await client.call_tool("report_review", review)) == {"ok": True}
    kept = running.sessions.get("one").review
    assert kept is not None
    assert SECRET not in json.dumps(kept)


async def test_bad_calls_are_told_what_is_wrong_and_ask_nothing(
    agent_door: OnSocket, running: FakeParts
) -> None:
    async with client_at(agent_door.url) as client:
        unknown = await client.call_tool("approve", {"request_id": "x"})
        assert "no tool `approve`" in data_of(unknown)["why"]
        wrong = await client.call_tool("run_command", {"command": 7})
        assert "$.command" in data_of(wrong)["why"]
        outside = await client.call_tool("run_command", {"command": "ls", "cwd": "../.."})
        assert "outside the workspace" in data_of(outside)["why"]
        assert all(result.is_error for result in (unknown, wrong, outside))
    assert not running.queue.of_session("one", 10)


async def test_a_mistake_of_ours_allows_nothing_and_tells_nothing(
    agent_door: OnSocket, running: FakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(running.gate, "ask", fail)
    async with client_at(agent_door.url) as client:
        result = await client.call_tool("run_command", {"command": "git status"})
    assert (result.is_error, data_of(result)["error"]) == (True, "internal error")
    assert SECRET not in result.model_dump_json()
    assert not running.carried_out


@pytest.mark.parametrize("authorization", [None, "Bearer token-of-two", "Bearer wrong"])
async def test_nobody_else_comes_in(agent_door: OnSocket, authorization: str | None) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    async with httpx.AsyncClient(
        headers={"authorization": authorization} if authorization else {}, timeout=PATIENCE_S
    ) as client:
        answer = await client.post(f"{agent_door.url}/mcp", json=call)
    assert (answer.status_code, answer.json()["error"]) == (
        401,
        "no token" if authorization is None else "wrong token",
    )


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_no_stream_stays_open(agent: httpx.AsyncClient, method: str) -> None:
    answer = await agent.request(
        method, "/mcp", headers={"accept": "text/event-stream, application/json"}
    )
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.many
async def test_calls_by_either_protocol_share_one_budget(
    agent_door: OnSocket, running: FakeParts, impatient: None
) -> None:
    headers = {"authorization": "Bearer token-of-one"}
    async with (
        httpx.AsyncClient(headers=headers, base_url=agent_door.url, timeout=PATIENCE_S) as plain,
        client_at(agent_door.url) as client,
    ):
        for _ in range(ASKS_AT_ONCE):
            await plain.post("/v1/exec", json={"command": "rm -rf x"})
        result = await client.call_tool("run_command", {"command": "git status"})
        assert (result.is_error, data_of(result)["error"]) == (True, "too many requests")
        assert not (await client.call_tool("session_facts", {})).is_error
    assert not running.carried_out


async def test_a_body_that_is_too_long_is_refused(
    agent: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_server, "FILE_BODY_BYTES", 1000)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "x" * 2000}}
    answer = await agent.post(
        "/mcp", json=call, headers={"accept": "application/json, text/event-stream"}
    )
    assert answer.status_code == 413


def test_every_call_has_a_tool_and_every_wait_ends_before_clients_give_up(parts: FakeParts) -> None:
    routes = [
        one
        for route in build_agent_app(parts, "one").routes
        for one in getattr(route, "route_handlers", [])
    ]
    bodies = {
        one.parsed_data_field.annotation
        for one in routes
        if getattr(one, "parsed_data_field", None)
    }
    # A hook asks by one before a tool runs, a reader in quarantine by the other.
    bodies -= {ToolBody, QuarantineBody}
    assert bodies == {tool.body for tool in tools(AgentCalls(parts, "one")).values() if tool.asks}
    assert msgspec.convert({"request_id": "x"}, WaitBody).wait_s < 60


MB = 1 << 20


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b'{"jsonrpc":"2.0","id":1,"method":"ping"},' * 9000 + b"{}]",
        b" \n[{}]",
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[' + b"{}," * MB + b"{}]}}",
        b"",
    ],
)
async def test_a_batch_or_too_many_values_are_refused_before_they_are_taken_apart(
    agent: httpx.AsyncClient, body: bytes
) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    answer = await agent.post("/mcp", content=body, headers=headers)
    assert answer.status_code == 400
    assert "one JSON object" in answer.json()["why"]


@pytest.mark.parametrize(
    "arguments",
    [
        ",".join(f'"k{number}":0' for number in range(MOST_VALUES)),
        '"a":[' + "[]," * MOST_VALUES + "0]",
        '"a":[' + '"\\\\",' * MOST_VALUES + '"\\""]',
        '"a":"' + '"' * 100_000,
    ],
)
async def test_no_call_has_more_values_than_are_read_at_once(
    agent: httpx.AsyncClient, arguments: str
) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{'
    for coding in ("utf-8", "utf-16-le"):
        body = f"{call}{arguments}}}}}}}".encode(coding)
        answer = await agent.post("/mcp", content=body, headers=headers)
        assert answer.status_code == 400


async def test_a_file_of_many_brackets_is_one_value(agent_door: OnSocket, impatient: None) -> None:
    async with client_at(agent_door.url) as client:
        content = '{"a": [1, 2, "\\\\"]},' * 50_000
        result = await client.call_tool("write_file", {"path": "a.json", "content": content})
    assert data_of(result)["category"] == "filesystem"


@pytest.mark.many
async def test_refused_calls_count_too(agent: httpx.AsyncClient) -> None:
    codes = [
        (await agent.post("/mcp", content=b"[]")).status_code
        for _ in range(AGENT_CALLS_AT_ONCE + 200)
    ]
    assert codes.count(400) < AGENT_CALLS_AT_ONCE + 200
    assert codes[-1] == 429
    answer = await agent.get("/v1/session")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


async def test_lists_of_tools_count_as_asks_and_a_tool_is_described_once(
    agent_door: OnSocket, running: FakeParts
) -> None:
    tool = ServerTool(name="t", description="A tool.", schema="{}")
    running.mcp_servers.found = [(f"mcp__notes__t{at}", "notes", tool) for at in range(1000)]
    mcp_server._of_server.cache_clear()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accepts = {"Accept": "application/json, text/event-stream"}
    headers = {"Authorization": "Bearer token-of-one"} | accepts
    async with httpx.AsyncClient(base_url=agent_door.url, headers=headers) as agent:
        said = [(await agent.post("/mcp", json=call)).json() for _ in range(ASKS_AT_ONCE // 11 + 1)]
    assert all(len(one["result"]["tools"]) > 1000 for one in said[:-1])
    assert "this session asks too often" in said[-1]["error"]["message"]
    assert mcp_server._of_server.cache_info().misses == 1000
