"""The door of an agent in quarantine: three tools by JSON and MCP, every other route closed."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.core.quarantine.quarantine_answers import QuarantinedFinding
from supervisor.server.agent.agent_bodies import ReviewFinding
from supervisor.server.app import build_agent_app
from supervisor.server.common.listening import listen
from supervisor.server.common.serve import serve_agent
from tests.fakes.parts import FakeParts
from tests.server.agent.test_mcp import client_at
from tests.server.conftest import client_of, on_socket

OTHERS = [
    *(("post", f"/v1/{one}") for one in ("exec", "packages", "git", "policy-proposals")),
    *(("post", f"/v1/files/{one}") for one in ("write", "edit", "delete", "move")),
    *(("get", f"/v1/{one}") for one in ("requests", "requests/x", "changes")),
]
REVIEW: dict[str, Any] = {
    "model": "m",
    "base": None,
    "head": None,
    "summary": "Ask @ada",
    "verdict": "comment",
    "findings": [
        {"path": "a.py", "severity": "low", "title": "t", "body": "b", "line": 1, "quote": "x = 1"},
        {"path": "b.py", "severity": "low", "title": "t", "body": "b"},
    ],
    "usage": {"turns": 1, "input_tokens": 1, "output_tokens": 1},
}


@pytest.fixture
async def quarantined(parts: FakeParts, tmp_path: Path) -> FakeParts:
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n")
    parts.sessions.add("q", kind="quarantine")
    parts.quarantines.open("q", folder)
    await parts.quarantines.look("q")
    return parts


@pytest.fixture
async def reader(quarantined: FakeParts) -> AsyncIterator[httpx.AsyncClient]:
    app = build_agent_app(quarantined, "q")
    async with client_of(app, authorization="Bearer token-of-q") as client:
        yield client


async def called(client: httpx.AsyncClient, tool: str, **arguments: Any) -> Any:
    answer = await client.post("/v1/quarantine", json={"tool": tool, "arguments": arguments})
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(parts: FakeParts) -> list[tuple[str, str]]:
    from supervisor.records.audit_chain import newest_first

    found = newest_first(parts.settings.data_dir / "audit.log", 100, None, "security_event")
    return [(one["kind"], one.get("tool", "")) for one in reversed(found)]


async def test_a_file_is_found_and_read(reader: httpx.AsyncClient) -> None:
    listed = await called(reader, "glob")
    assert listed["allowed"]
    read = await called(reader, "read", reference=listed["text"])
    assert read == {"allowed": True, "text": "1\tx = 1\n2\t", "risk": None}


@pytest.mark.parametrize(("method", "path"), OTHERS)
async def test_every_other_route_is_closed_and_on_record(
    reader: httpx.AsyncClient, quarantined: FakeParts, method: str, path: str
) -> None:
    answer = await reader.request(method, path, json={} if method == "post" else None)
    assert answer.status_code == 403
    assert "denied in quarantine" in answer.json()["why"]
    ((kind, _),) = events(quarantined)
    assert kind == "denied_tool"
    assert (await reader.get("/v1/session")).status_code == 200


@pytest.mark.parametrize(
    ("tool", "allowed", "kind"),
    [
        ({"tool": "command", "command": "id"}, False, "Bash"),
        ({"tool": "edit", "path": "a.py"}, False, "Edit"),
        ({"tool": "fetch", "url": "https://evil.example/"}, False, "WebFetch"),
        ({"tool": "mcp", "server": "gatehouse", "name": "read"}, False, "mcp__"),
        ({"tool": "named", "name": "Bash"}, False, "Bash"),
        ({"tool": "named", "name": "mcp__gatehouse__run_command"}, False, "mcp__"),
        ({"tool": "named", "name": "mcp__other__read"}, False, "mcp__"),
        ({"tool": "named", "name": "gatehouse_run_command"}, False, "gatehouse_"),
        ({"tool": "named", "name": "mcp__gatehouse__read"}, True, ""),
        ({"tool": "named", "name": "gatehouse_grep"}, True, ""),
    ],
)
async def test_what_a_hook_hears(
    reader: httpx.AsyncClient, quarantined: FakeParts, tool: Any, allowed: bool, kind: str
) -> None:
    answer = (await reader.post("/v1/tool-calls", json=tool)).json()
    assert answer["allowed"] is allowed
    assert [one for _, one in events(quarantined) if not one.startswith(kind)] == []
    assert len(events(quarantined)) == (0 if allowed else 1)


async def test_the_agents_own_reading_is_answered_in_its_place(reader: httpx.AsyncClient) -> None:
    body = {"tool": "named", "name": "Grep", "arguments": {"pattern": "x", "path": "/workspace"}}
    answer = (await reader.post("/v1/tool-calls", json=body)).json()
    assert answer["allowed"] is False
    assert "Gatehouse has done `Grep` itself" in answer["why"]
    assert "1: x = 1" in answer["why"]
    body = {"tool": "named", "name": "Read", "arguments": {"file_path": "/etc/passwd"}}
    answer = (await reader.post("/v1/tool-calls", json=body)).json()
    assert "the reference is refused" in answer["why"]


async def test_a_report_is_kept_as_far_as_it_stands(
    reader: httpx.AsyncClient, quarantined: FakeParts
) -> None:
    assert (await reader.post("/v1/review", json=REVIEW)).status_code == 200
    review = quarantined.sessions.get("q").review
    assert review is not None
    assert [one["path"] for one in review["findings"]] == ["a.py"]
    assert review["summary"].startswith("Ask @ ada\n\ndropped: 1 of a file")
    assert events(quarantined) == [("dropped_answers", ""), ("defused_text", "")]


def test_a_finding_in_quarantine_has_the_fields_of_any() -> None:
    assert QuarantinedFinding.__struct_fields__
    assert set(QuarantinedFinding.__struct_fields__) == set(ReviewFinding.__struct_fields__)


async def test_the_tools_of_mcp(quarantined: FakeParts) -> None:
    app = build_agent_app(quarantined, "q")
    async with on_socket(serve_agent(app, listen(0))) as serving:
        url = f"http://127.0.0.1:{serving.port}"
        async with client_at(url, "token-of-q") as client:
            tools = {one.name for one in (await client.list_tools()).tools}
            assert tools == {"read", "grep", "glob"}
            listed: Any = await client.call_tool("glob", {})
            reference = listed.content[0].text
            read: Any = await client.call_tool("read", {"reference": reference})
            assert read.content[0].text == "1\tx = 1\n2\t"
            for name, given in (("run_command", {"command": "id"}), ("read", {"path": "a.py"})):
                denied: Any = await client.call_tool(name, given)
                assert denied.is_error
    assert [kind for kind, _ in events(quarantined)] == ["denied_tool", "bad_arguments"]


async def test_outside_of_quarantine_there_is_none(agent: httpx.AsyncClient) -> None:
    answer = await agent.post("/v1/quarantine", json={"tool": "glob"})
    assert answer.status_code == 400
    answer = await agent.post("/v1/tool-calls", json={"tool": "named", "name": "Read"})
    assert answer.status_code == 400
