"""Many changed files of a session, over a real workspace: one card, one answer, all of it or
nothing; API, page, CLI's words."""

import contextlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.cli import terminal
from supervisor.core.actions import Exec
from supervisor.core.approvals import status
from supervisor.core.files.change_tree import FEW_CHANGES
from supervisor.server.operator.pages import change_set_api
from supervisor.workspace.channel import WorkspaceChannel
from supervisor.workspace.copy.snapshot import make_copy
from tests.fakes.parts import SECRET, FakeParts
from tests.fakes.waiting import settled
from tests.server.conftest import PATIENCE_S
from tests.workspace.conftest import git, make_repository

FILES = {
    f"{folder}/{number}.py": f"x={number}\n"
    for folder in ("src", "src/deep", "tests")
    for number in range(10)
}


class World:
    """Session `one` over a real host folder and copy."""

    def __init__(self, parts: FakeParts, channel: WorkspaceChannel, host: Path, copy: Path) -> None:
        self.parts, self.channel, self.host, self.copy = parts, channel, host, copy

    async def look(self) -> None:
        async with self.channel._turn:
            self.channel._now.ignores.forget()
            await self.channel._now.comparison.run(None)

    async def settled(self) -> None:
        """Until nothing is under way."""
        for one in self.parts.queue.of_session("one", 10_000):
            if status(one) in ("approved", "used"):
                await settled(self.parts.queue, one.id, PATIENCE_S)


@pytest.fixture
async def world(
    running: FakeParts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    host = make_repository(tmp_path / "host", FILES)
    folder = tmp_path / "sessions/one"
    await make_copy(host, folder / "merged")
    channel = WorkspaceChannel(session_id="one", workspace=host, folder=folder, gate=running.gate)
    real = running.workspace_of
    monkeypatch.setattr(running, "workspace_of", lambda one: channel if one == "one" else real(one))
    running.gate.handlers.on_ready("filesystem", "workspace", channel.carry_out)
    running.gate.handlers.on_ready_together("filesystem", "workspace", channel.carry_out_all)
    async with contextlib.AsyncExitStack() as stack:
        await channel.start()
        stack.push_async_callback(channel.stop)
        yield World(running, channel, host, folder / "merged")


def reformat(folder: Path) -> None:
    """What a formatter does."""
    for path in folder.rglob("*.py"):
        path.write_text(path.read_text().replace("=", " = "))


async def seen(browser: httpx.AsyncClient, below: str = "") -> dict[str, Any]:
    answer = await browser.get("/api/sessions/one/changes", params={"below": below})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def shown(view: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = view["level"]["folder"]["shown"]
    return found


async def test_a_formatters_work_is_one_card_and_one_answer(
    world: World, browser: httpx.AsyncClient
) -> None:
    reformat(world.copy)
    await world.look()
    (view,) = (await browser.get("/api/changes")).json()
    assert view["session_id"] == "one"
    assert view["waiting"] == 30
    assert view["level"]["folder"]["counts"] == {
        "created": 0,
        "changed": 30,
        "deleted": 0,
        "renamed": 0,
    }
    assert [(one["path"], one["files"]) for one in view["level"]["folders"]] == [
        ("src", 20),
        ("tests", 10),
    ]
    # One of them alone, then a folder, then the rest; each names what was shown.
    one = world.parts.queue.pending("one")[0]
    assert (
        await browser.post(f"/api/requests/{one.id}/deny", json={"fingerprint": one.fingerprint})
    ).status_code == 200
    world.parts.clock.advance(1)
    old = {"answer": "approved", "shown": shown(view)}
    refused = await browser.post("/api/sessions/one/changes", json=old)
    assert refused.status_code == 409
    assert "not what was shown" in refused.json()["why"]
    deep = await seen(browser, "src/deep")
    body = {"answer": "approved", "below": "src/deep", "shown": shown(deep)}
    answer = await browser.post("/api/sessions/one/changes", json=body)
    assert answer.json()["answered"] == sum(
        "src/deep/" in str(r.action)
        for r in world.parts.queue.of_session("one", 100)
        if r.id != one.id
    )
    world.parts.clock.advance(1)
    rest = await seen(browser)
    answer = await browser.post(
        "/api/sessions/one/changes", json={"answer": "approved", "shown": shown(rest)}
    )
    assert answer.json()["changes"]["waiting"] == 0
    await world.settled()
    denied = one.action.path  # type: ignore[union-attr]
    assert {name: (world.host / name).read_text() for name in FILES} == {
        name: text if name == denied else text.replace("=", " = ") for name, text in FILES.items()
    }
    last = (await seen(browser))["last"]
    assert (last["answer"], last["done"], last["problem"]) == ("approved", last["number"], "")


async def test_the_tree_says_how_many_lines_and_where_a_file_went(
    world: World, browser: httpx.AsyncClient
) -> None:
    names = sorted(FILES)
    for name in names[:11]:
        (world.copy / name).write_text(f"{FILES[name]}one more\n")
    (world.copy / names[11]).unlink()
    (world.copy / names[12]).rename(world.copy / "moved-\u202ehere.py")
    await world.look()
    view = await seen(browser)
    gone = FILES[names[11]].count("\n")
    assert (view["level"]["folder"]["added"], view["level"]["folder"]["removed"]) == (11, gone)
    assert view["level"]["folder"]["counts"] == {
        "created": 0,
        "changed": 11,
        "deleted": 1,
        "renamed": 1,
    }
    assert [leaf["path"] for leaf in view["careful"]] == [
        names[12]
    ]  # its new name can't be shown as it is
    page = (await browser.get("/parts/change_set/one")).text
    assert f"\u2212{gone}" in page
    assert "+11" in page
    assert "\u202e" not in page
    assert "moved-" in page


async def test_a_branch_switch_is_one_card(world: World, browser: httpx.AsyncClient) -> None:
    git(world.copy, "checkout", "-q", "-b", "other")
    for number in range(10):
        (world.copy / f"src/{number}.py").unlink()
        (world.copy / f"tests/{number}.py").write_text("changed\n")
        (world.copy / f"docs/{number}/page.md").parent.mkdir(parents=True)
        (world.copy / f"docs/{number}/page.md").write_text("new\n")
    git(world.copy, "add", "-A")
    git(world.copy, "commit", "-q", "-m", "other")
    git(world.copy, "checkout", "-q", "main")
    await world.look()
    assert world.parts.queue.pending("one") == []
    git(world.copy, "checkout", "-q", "other")
    await world.look()
    view = await seen(browser)
    assert view["level"]["folder"]["counts"] == {
        "created": 10,
        "changed": 10,
        "deleted": 10,
        "renamed": 0,
    }
    await browser.post(
        "/api/sessions/one/changes", json={"answer": "approved", "shown": shown(view)}
    )
    await world.settled()
    assert not (world.host / "src/1.py").exists()
    assert (world.host / "docs/3/page.md").read_text() == "new\n"
    assert (world.host / "tests/3.py").read_text() == "changed\n"
    await world.look()
    assert world.parts.queue.pending("one") == []


async def test_what_comes_later_is_not_approved_and_not_in_the_way(
    world: World, browser: httpx.AsyncClient
) -> None:
    reformat(world.copy)
    await world.look()
    view = await seen(browser)
    (world.copy / "src/later.py").write_text("later\n")
    world.parts.clock.advance(1)
    await world.look()
    answer = await browser.post(
        "/api/sessions/one/changes", json={"answer": "approved", "shown": shown(view)}
    )
    assert answer.json()["answered"] == 30
    await world.settled()
    assert not (world.host / "src/later.py").exists()
    assert [r.action.path for r in world.parts.queue.pending("one")] == ["src/later.py"]  # type: ignore[union-attr]


async def test_a_newer_version_of_a_file_is_never_approved_unseen(
    world: World, browser: httpx.AsyncClient
) -> None:
    reformat(world.copy)
    await world.look()
    view = await seen(browser)
    (world.copy / "src/3.py").write_text("evil\n")
    world.parts.clock.advance(1)
    await world.look()
    for answer in ("approved", "denied"):
        refused = await browser.post(
            "/api/sessions/one/changes", json={"answer": answer, "shown": shown(view)}
        )
        assert refused.status_code == 409
    assert len(world.parts.queue.pending("one")) == 30
    assert (world.host / "src/3.py").read_text() == FILES["src/3.py"]


async def test_what_needs_a_look_waits_unless_it_is_ticked(
    world: World, browser: httpx.AsyncClient
) -> None:
    reformat(world.copy)
    (world.copy / "src/leak.py").write_text(f"password = '{SECRET}'\n")
    (world.copy / "src/run.sh").write_text("#!/bin/sh\n")
    (world.copy / "src/run.sh").chmod(0o755)
    (world.copy / "src/link").symlink_to("0.py")
    await world.look()
    view = await seen(browser)
    careful = {leaf["path"]: leaf for leaf in view["careful"]}
    assert set(careful) == {"src/leak.py", "src/run.sh", "src/link"}
    assert "secret" in careful["src/leak.py"]["notes"][0]
    ticked = {careful["src/run.sh"]["id"]: careful["src/run.sh"]["fingerprint"]}
    body = {"answer": "approved", "shown": shown(view), "ticked": ticked}
    assert (await browser.post("/api/sessions/one/changes", json=body)).json()["answered"] == 31
    await world.settled()
    assert os.access(world.host / "src/run.sh", os.X_OK)
    assert not (world.host / "src/leak.py").exists()
    assert not (world.host / "src/link").is_symlink()
    assert {r.action.path for r in world.parts.queue.pending("one")} == {"src/leak.py", "src/link"}  # type: ignore[union-attr]


async def test_a_stale_file_leaves_all_of_it_and_the_card_says_which(
    world: World, browser: httpx.AsyncClient
) -> None:
    reformat(world.copy)
    await world.look()
    view = await seen(browser)
    async with world.channel._turn:
        (world.host / "src/3.py").write_text("the person's\n")
        await browser.post(
            "/api/sessions/one/changes", json={"answer": "approved", "shown": shown(view)}
        )
    await world.settled()
    assert [name for name in FILES if (world.host / name).read_text() != FILES[name]] == [
        "src/3.py"
    ]
    await world.look()
    page = await browser.get("/parts/change_set/one")
    assert "was not carried out" in page.text
    assert "`src/3.py` changed on the host" in page.text
    assert (await seen(browser))["waiting"] == 30


async def test_what_was_in_the_way_is_named_and_the_rest_goes_without_it(
    world: World, browser: httpx.AsyncClient
) -> None:
    reformat(world.copy)
    (world.copy / "new").mkdir()
    (world.copy / "new/late.py").write_text("x\n")
    await world.look()
    view = await seen(browser)
    async with world.channel._turn:
        (world.host / "new/late.py").mkdir(parents=True)
        await browser.post(
            "/api/sessions/one/changes", json={"answer": "approved", "shown": shown(view)}
        )
    await world.settled()
    assert all((world.host / name).read_text() == FILES[name] for name in FILES)
    await world.look()
    view = await seen(browser)
    assert view["waiting"] == 31
    (leaf,) = view["careful"]
    assert leaf["path"] == "new/late.py"
    assert any(
        "could not be carried out before: `new/late.py`" in note for note in leaf["notes"]
    ), leaf
    assert (
        "could not be carried out before: `new/late.py`"
        in (await browser.get("/parts/change_set/one")).text
    )
    await browser.post(
        "/api/sessions/one/changes", json={"answer": "approved", "shown": shown(view)}
    )
    await world.settled()
    assert all((world.host / name).read_text() != FILES[name] for name in FILES)
    (left,) = world.parts.queue.pending("one")
    page = (await browser.get("/")).text
    assert "not possible" in page
    assert "could not be carried out before" in page
    # With the way free it goes like any other, and nothing more is said.
    (world.host / "new/late.py").rmdir()
    await world.look()
    (left,) = world.parts.queue.pending("one")
    world.parts.gate.resolve(left.id, "approved", by="tester")
    await world.settled()
    assert (world.host / "new/late.py").read_text() == "x\n"


async def test_the_body_must_say_what_was_shown(world: World, browser: httpx.AsyncClient) -> None:
    reformat(world.copy)
    await world.look()
    for body in (
        {"answer": "approved"},
        {"answer": "approved", "shown": {"until": 1e12, "plain": "", "careful": ""}},
        {"answer": "approved", "shown": {"until": 0, "plain": "", "careful": ""}, "by": "me"},
    ):
        assert (await browser.post("/api/sessions/one/changes", json=body)).status_code in (
            400,
            409,
        )
    empty = await browser.post("/changes/one/approved", data={})
    assert "doesn&#39;t say what was shown" in empty.text
    assert (await browser.get("/api/sessions/nobody/changes")).status_code == 404
    assert len(world.parts.queue.pending("one")) == 30


async def test_changes_that_come_together_are_one_row_and_others_stay_rows(
    world: World, browser: httpx.AsyncClient
) -> None:
    world.parts.gate.ask(Exec(command="pytest"), session_id="one")
    for number in range(FEW_CHANGES):
        (world.copy / f"src/{number}.py").write_text("new\n")
    await world.look()
    assert (await browser.get("/api/changes")).json() == []
    page = (await browser.get("/")).text
    assert f">{FEW_CHANGES} changed files</a>" in page
    assert re.findall(r'data-row="([^"]+)"', page)[1:] == ["changes:one"]
    (world.copy / "tests/1.py").write_text("new\n")
    await world.look()
    assert len((await browser.get("/api/changes")).json()) == 1
    page = (await browser.get("/")).text
    assert f">{FEW_CHANGES + 1} changed files</a>" in page
    rows = re.findall(r'data-row="([^"]+)"', page)
    assert len(rows) == 2
    assert "changes:one" in rows
    listed = (await browser.get("/api/requests", params={"without_large_sets": "true"})).json()
    assert [one["category"] for one in listed] == ["exec"]
    assert len((await browser.get("/api/requests")).json()) == FEW_CHANGES + 2


HOSTILE = "<script>alert(1)</script>/\u202egpj.exe\"'><img src=x>.py"


async def test_hostile_names_are_text(world: World, browser: httpx.AsyncClient) -> None:
    (world.copy / HOSTILE).parent.mkdir(parents=True)
    (world.copy / HOSTILE).write_text("x\n")
    (world.copy / os.fsdecode(b"src/\xff\xfe<b>.py")).write_text("x\n")
    reformat(world.copy)
    await world.look()
    page = (await browser.get("/parts/change_set/one")).text
    assert "<script>" not in page
    key = change_set_api.encode(HOSTILE.rpartition("/")[0])
    inner = (await browser.get("/parts/changes/one/folder", params={"below": key})).text
    for text in (page, inner):
        assert "<img" not in text
        assert "\u202e" not in text
    view = await seen(browser, HOSTILE.rpartition("/")[0])
    # A name that deceives needs a look of its own.
    (leaf,) = [one for one in view["careful"] if one["path"] == HOSTILE]
    ticked = {leaf["id"]: leaf["fingerprint"]}
    body = {
        "answer": "approved",
        "below": HOSTILE.rpartition("/")[0],
        "shown": shown(view),
        "ticked": ticked,
    }
    answer = await browser.post("/api/sessions/one/changes", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["answered"] == 1
    await world.settled()
    assert (world.host / HOSTILE).read_text() == "x\n"


async def test_the_20_001st_change_follows_when_there_is_room(
    world: World, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.records.approval_queue.MOST_CHANGES_PER_SESSION", 29)
    reformat(world.copy)
    await world.look()
    view = await seen(browser)
    assert view["waiting"] == 29
    await browser.post(
        "/api/sessions/one/changes", json={"answer": "approved", "shown": shown(view)}
    )
    await world.settled()
    await world.look()
    assert len(world.parts.queue.pending("one")) == 1


async def test_what_the_terminal_prints(
    world: World, browser: httpx.AsyncClient, capsys: pytest.CaptureFixture[str]
) -> None:
    reformat(world.copy)
    (world.copy / "src/li\x1b[31mnk").symlink_to("x")
    await world.look()
    (summary,) = (await browser.get("/api/changes")).json()
    text = terminal.change_set_lines(summary)
    assert text.startswith(
        "one  filesystem  31 changed files (1 created, 30 changed, +30 -30 lines) in "
    )
    assert "\x1b" not in text
    assert "gatehouse approve one --changes" in text
    done = {"answered": 30}
    assert terminal.changes_answered_line(summary, done, "approved") == (
        "approved: 30 of 31 changed files (1 created, 30 changed, +30 -30 lines); "
        "1 need an answer of their own: see `gatehouse approvals`"
    )


async def test_all_but_some_are_approved_and_comments_go_back(
    world: World, browser: httpx.AsyncClient, agent: httpx.AsyncClient
) -> None:
    reformat(world.copy)
    await world.look()
    view = await seen(browser)
    waiting = {one.action.path: one for one in world.parts.queue.pending("one")}  # type: ignore[union-attr]
    said = waiting["src/3.py"]
    body = {
        "answer": "approved",
        "shown": shown(view),
        "without": [waiting["src/1.py"].id],
        "without_below": ["src/deep"],
        "comments": {said.id: [{"line": 1, "text": "rename this"}]},
    }
    refused = await browser.post("/api/sessions/one/changes", json=body)
    assert (refused.status_code, "commented on is ticked" in refused.text) == (400, True)
    body["without"] = [waiting["src/1.py"].id, said.id]
    done = (await browser.post("/api/sessions/one/changes", json=body)).json()
    assert (done["answered"], done["changes"]["waiting"]) == (19, 11)
    await world.settled()
    assert {one.action.path for one in world.parts.queue.pending("one")} == {  # type: ignore[union-attr]
        "src/1.py",
        *(f"src/deep/{number}.py" for number in range(10)),
    }
    assert (world.host / "src/3.py").read_text() == FILES["src/3.py"]
    told = {one["id"]: one for one in (await agent.get("/v1/requests")).json()}
    assert told[said.id]["status"] == "denied"
    assert "src/3.py:1: rename this" in told[said.id]["why"]
    # A denial of all takes each file's comments along.
    left = waiting["src/1.py"]
    body = {
        "answer": "denied",
        "shown": shown(await seen(browser)),
        "reason": "not now",
        "comments": {left.id: [{"line": 1, "text": "why?", "is_old": True}]},
    }
    assert (await browser.post("/api/sessions/one/changes", json=body)).json()["answered"] == 11
    told = {one["id"]: one for one in (await agent.get("/v1/requests")).json()}
    assert told[left.id]["why"].endswith("not now\nsrc/1.py:1 before: why?")
    assert told[waiting["src/deep/1.py"].id]["why"].endswith("not now")


async def test_the_page_has_every_file_once_in_its_tree_and_once_with_its_change(
    world: World, browser: httpx.AsyncClient
) -> None:
    reformat(world.copy)
    (world.copy / ".envrc").write_text("E=1\n")
    (world.copy / "uv.lock").write_text("x\n")
    await world.look()
    page = (await browser.get("/changes/one")).text
    for one in world.parts.queue.pending("one"):
        assert page.count(f'id="file-{one.id}"') == 1
        is_apart = one.action.path == ".envrc"  # type: ignore[union-attr]
        # In the tree at the side, in the fold of narrow pages, and at the file.
        assert page.count(f'data-take="{one.id}"') == (0 if is_apart else 3)
        assert page.count(f'data-tick="{one.id}:') == (1 if is_apart else 0)
        part = (await browser.get(f"/parts/change/{one.id}?among=set")).text
        assert "<td" in part
    assert "Show this lock file" in page
    assert (await browser.get("/changes/nobody")).status_code == 404
