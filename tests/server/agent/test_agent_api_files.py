"""Files at the agent's door, over a real workspace: what it asks, hears and can read after."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.core.actions import content_hash
from supervisor.workspace.channel import WorkspaceChannel
from supervisor.workspace.copy.snapshot import make_copy
from tests.fakes.parts import FakeParts
from tests.workspace.conftest import make_repository

TEXT = "one = 1\ntwo = 2\n"


class World:
    """Session `one` over a real host folder and copy."""

    def __init__(self, parts: FakeParts, agent: httpx.AsyncClient, host: Path, copy: Path) -> None:
        self.parts, self.agent, self.host, self.copy = parts, agent, host, copy

    async def ask(self, verb: str, code: int, **body: Any) -> dict[str, Any]:
        answer = await self.agent.post(f"/v1/files/{verb}", json=body)
        assert answer.status_code == code, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    async def approve(self, shown: dict[str, Any]) -> dict[str, Any]:
        self.parts.gate.resolve(shown["id"], "approved", by="tester")
        answer = await self.agent.get(f"/v1/requests/{shown['id']}?wait=20")
        while not answer.json()["settled"]:
            answer = await self.agent.get(f"/v1/requests/{shown['id']}?wait=20")
        settled: dict[str, Any] = answer.json()
        return settled


@pytest.fixture
async def world(
    running: FakeParts, agent: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    host = make_repository(tmp_path / "host", {"a.py": TEXT, "b.py": TEXT})
    folder = tmp_path / "sessions/one"
    await make_copy(host, folder / "merged")
    channel = WorkspaceChannel(session_id="one", workspace=host, folder=folder, gate=running.gate)
    real = running.workspace_of
    monkeypatch.setattr(running, "workspace_of", lambda one: channel if one == "one" else real(one))
    running.gate.handlers.on_ready("filesystem", "agent_api", channel.carry_out)
    async with contextlib.AsyncExitStack() as stack:
        await channel.start()
        stack.push_async_callback(channel.stop)
        yield World(running, agent, host, folder / "merged")


async def test_a_deletion_and_a_move(world: World) -> None:
    waiting = await world.ask("delete", 202, path="/workspace/merged/a.py", reason="unused")
    assert (waiting["title"], waiting["reason"]) == ("delete a.py", "unused")
    settled = await world.approve(waiting)
    assert (settled["outcome"]["ok"], settled["outcome"]["copy"]) == (True, "changed too")
    waiting = await world.ask("move", 202, path="b.py", to="/workspace/merged/lib/b.py")
    assert waiting["title"] == "rename b.py -> lib/b.py"
    assert (await world.approve(waiting))["outcome"]["ok"]
    for side in (world.host, world.copy):
        assert not (side / "a.py").exists()
        assert (side / "lib/b.py").read_text() == TEXT
        assert not (side / "b.py").exists()


async def test_edits_compose_and_what_went_into_another_says_so(world: World) -> None:
    first = await world.ask("edit", 202, path="a.py", old="one", new="ONE")
    second = await world.ask("edit", 202, path="a.py", old="ONE = 1\ntwo", new="ONE = 1\nTWO")
    older = (await world.agent.get(f"/v1/requests/{first['id']}")).json()
    assert (older["status"], older["superseded_by"]) == ("superseded", second["id"])
    assert older["why"] == "contained in the newer request for this file"
    assert second["reason"] == "2 edits of this file"
    await world.approve(second)
    assert (world.host / "a.py").read_text() == "ONE = 1\nTWO = 2\n"


async def test_errors_are_one_line_that_says_what_to_do(world: World) -> None:
    (world.host / "way").symlink_to("/etc")
    for code, verb, body, said in (
        (400, "edit", {"path": "a.py", "old": "gone", "new": "x"}, content_hash(TEXT.encode())),
        (400, "edit", {"path": "none.py", "old": "gone", "new": "x"}, "no such file"),
        (400, "delete", {"path": "none.py"}, "no such file"),
        (400, "move", {"path": "a.py", "to": "b.py"}, "something at `b.py`"),
        (400, "move", {"path": "a.py", "to": "new\u202e.py"}, "can't be shown"),
        (403, "delete", {"path": "way/passwd"}, "symlink"),
        (403, "move", {"path": "a.py", "to": "way/new"}, "symlink"),
    ):
        shown = await world.ask(verb, code, **body)
        assert said in shown["why"], shown
        assert shown["remedy"]
        assert "\n" not in shown["why"] + shown["remedy"]
    assert (await world.agent.get("/v1/requests")).json() == []


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", ".git/config", "a/../../x"])
async def test_paths_that_leave_are_denied_on_record(world: World, path: str) -> None:
    for verb, body in (
        ("write", {"path": path, "content": "x"}),
        ("edit", {"path": path, "old": "x", "new": "y"}),
        ("delete", {"path": path}),
        ("move", {"path": path, "to": "c.py"}),
        ("move", {"path": "a.py", "to": path}),
    ):
        shown = await world.ask(verb, 200, **body)
        assert (shown["status"], shown["allowed"]) == ("denied", False)
    assert len((await world.agent.get("/v1/requests")).json()) == 5


async def test_names_that_are_no_text(world: World) -> None:
    for verb, field in (
        ("write", "path"),
        ("edit", "path"),
        ("delete", "path"),
        ("move", "path"),
        ("move", "to"),
    ):
        body = {"write": '"content":"x",', "edit": '"old":"x","new":"y",'}.get(verb, "")
        other = {"path": '"to":"c.py",' if verb == "move" else "", "to": '"path":"a.py",'}[field]
        raw = "{" + body + other + f'"{field}":"x\\ud800y"' + "}"
        answer = await world.agent.post(
            f"/v1/files/{verb}", content=raw, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400, (verb, field, answer.text)


async def test_a_call_that_is_sent_again_at_once_moves_once(world: World) -> None:
    call = {"json": {"path": "a.py", "to": "c.py"}, "headers": {"Idempotency-Key": "k"}}
    answers = await asyncio.gather(*(world.agent.post("/v1/files/move", **call) for _ in range(3)))  # type: ignore[arg-type]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len((await world.agent.get("/v1/requests")).json()) == 1
