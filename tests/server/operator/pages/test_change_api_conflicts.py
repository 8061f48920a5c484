"""Conflicts at both doors, over a real workspace: the card, the merge, the host's version given;
and what the agent hears."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request, status
from supervisor.workspace.channel import WorkspaceChannel
from supervisor.workspace.copy.snapshot import make_copy
from tests.fakes.parts import SECRET, FakeParts
from tests.fakes.waiting import settled
from tests.server.conftest import PATIENCE_S
from tests.workspace.conftest import make_repository

TEXT = "".join(f"line {n}\n" for n in range(30))


class World:
    """Session `one` over a real host folder and copy."""

    def __init__(self, parts: FakeParts, channel: WorkspaceChannel, host: Path, copy: Path) -> None:
        self.parts, self.channel, self.host, self.copy = parts, channel, host, copy

    def pending(self, path: str) -> Request | None:
        found = [
            one for one in self.parts.queue.pending("one") if isinstance(one.action, FileChange)
        ]
        return next((one for one in found if one.action.path == path), None)  # type: ignore[union-attr]

    async def look(self) -> None:
        """Both directions once, in turn, until nothing moves: as the loops would."""
        opened = self.channel._now
        for _ in range(2):
            async with self.channel._turn:
                await opened.incoming.run(None)
                await opened.comparison.run(None)

    async def conflict(self) -> Request:
        """The agent edits the end of a file, the person its beginning."""
        (self.copy / "a.txt").write_text(TEXT.replace("line 29", "agent 29"))
        await self.look()
        (self.host / "a.txt").write_text(TEXT.replace("line 0\n", f"person {SECRET}\n"))
        await self.look()
        request = self.pending("a.txt")
        assert request is not None
        assert "conflict" in request.action.hazards  # type: ignore[union-attr]
        return request


@pytest.fixture
async def world(
    running: FakeParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    host = make_repository(tmp_path / "host", {"a.txt": TEXT, "b.txt": TEXT})
    folder = tmp_path / "sessions/one"
    await make_copy(host, folder / "merged")
    channel = WorkspaceChannel(session_id="one", workspace=host, folder=folder, gate=running.gate)
    real = running.workspace_of
    monkeypatch.setattr(running, "workspace_of", lambda one: channel if one == "one" else real(one))
    running.gate.handlers.on_ready("filesystem", "workspace", channel.carry_out)
    async with contextlib.AsyncExitStack() as stack:
        await channel.start()
        stack.push_async_callback(channel.stop)
        yield World(running, channel, host, folder / "merged")


async def test_the_conflict_as_json_and_the_merge(world: World, cli: httpx.AsyncClient) -> None:
    request = await world.conflict()
    answer = await cli.get(f"/api/requests/{request.id}/conflict")
    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["host_did"], shown["agent_did"], shown["is_stale"]) == ("edited", "edited", False)
    assert SECRET not in answer.text
    body = {"merged": shown["merged"], "fingerprint": request.fingerprint}
    for wrong in ({"merged": "0" * 64}, {"fingerprint": "0" * 64}, {"fingerprint": ""}):
        assert (
            await cli.post(f"/api/requests/{request.id}/merge", json=body | wrong)
        ).status_code == 409
    answer = await cli.post(f"/api/requests/{request.id}/merge", json=body)
    assert answer.status_code == 200, answer.text
    made = await settled(world.parts.queue, answer.json()["id"], PATIENCE_S)
    assert made.outcome is not None
    assert made.outcome["ok"]
    both = TEXT.replace("line 0\n", f"person {SECRET}\n").replace("line 29", "agent 29")
    assert (world.host / "a.txt").read_text() == both
    assert (world.copy / "a.txt").read_text() == both
    assert (await cli.post(f"/api/requests/{request.id}/merge", json=body)).status_code == 409


async def test_the_hosts_version_by_json(world: World, cli: httpx.AsyncClient) -> None:
    request = await world.conflict()
    for body in ({}, {"fingerprint": "0" * 64}):
        assert (
            await cli.post(f"/api/requests/{request.id}/give-host", json=body)
        ).status_code == 409
    answer = await cli.post(
        f"/api/requests/{request.id}/give-host", json={"fingerprint": request.fingerprint}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "denied"
    assert (world.copy / "a.txt").read_text() == (world.host / "a.txt").read_text()


async def test_the_page_shows_three_sides_and_both_buttons(
    world: World, browser: httpx.AsyncClient
) -> None:
    request = await world.conflict()
    inbox = (await browser.get("/")).text
    assert f'hx-get="/parts/conflict/{request.id}"' in inbox
    part = (await browser.get(f"/parts/conflict/{request.id}")).text
    assert 'data-role="merge"' in part
    assert 'data-role="give-host"' in part
    assert "Your change on the host" in part
    assert "<ins>agent</ins>" in part
    assert SECRET not in part
    # Nothing is answered where what was shown isn't named.
    done = await browser.post(f"/requests/{request.id}/conflict/host", data={})
    assert done.status_code == 409
    assert "say what was shown" in done.text
    assert status(world.parts.queue.get(request.id)) == "pending"
    shown = await world.channel.conflict_card(request)
    form = {"fingerprint": request.fingerprint, "merged": shown.merged or ""}
    done = await browser.post(f"/requests/{request.id}/conflict/merge", data=form)
    assert done.status_code == 200
    assert status(world.parts.queue.get(request.id)) == "superseded"


async def test_what_is_no_conflict_has_no_such_answers(
    world: World, cli: httpx.AsyncClient
) -> None:
    (world.copy / "b.txt").write_text("agent\n")
    await world.look()
    request = world.pending("b.txt")
    assert request is not None
    for answer in (
        await cli.get(f"/api/requests/{request.id}/conflict"),
        await cli.post(
            f"/api/requests/{request.id}/merge",
            json={"fingerprint": request.fingerprint, "merged": "0" * 64},
        ),
        await cli.post(
            f"/api/requests/{request.id}/give-host", json={"fingerprint": request.fingerprint}
        ),
    ):
        assert answer.status_code == 400, answer.text
    assert status(world.parts.queue.get(request.id)) == "pending"


async def test_the_agent_hears_of_it_and_can_answer_nothing(
    world: World, agent: httpx.AsyncClient
) -> None:
    request = await world.conflict()
    (world.host / "b.txt").write_text("person\n")
    await world.look()
    told: dict[str, Any] = (await agent.get("/v1/changes")).json()
    assert told["conflicts"] == ["a.txt"]
    assert [(one["path"], one["what"]) for one in told["changes"]] == [
        ("b.txt", "changed"),
        ("a.txt", "conflict"),
    ]
    assert all(len(one["hash"]) == 64 for one in told["changes"])
    for path in (f"/api/requests/{request.id}/merge", f"/api/requests/{request.id}/give-host"):
        assert (await agent.post(path, json={"merged": "0" * 64})).status_code in (401, 403, 404)
    assert status(world.parts.queue.get(request.id)) == "pending"


async def test_the_sessions_page_says_what_is_not_synced(
    world: World, browser: httpx.AsyncClient
) -> None:
    (world.host / "link").symlink_to("a.txt")
    (world.host / "b.txt").unlink()
    (world.host / "b.txt").mkdir()
    world.channel._now.incoming._note("odd", "a fifo is never copied")
    page = (await browser.get("/sessions/one")).text
    assert "not brought into the copy: `odd` (a fifo is never copied)" in page
