"""Two agents in one workspace: each has a copy of its own, and they meet at the host like two
people."""

import asyncio
from pathlib import Path

import pytest

from supervisor.core.approvals import Request, status
from supervisor.core.sessions import Session
from supervisor.errors import GatehouseError
from supervisor.server.operator.pages import undo_api
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised

POLICY = """\
version: 1
allow: ["filesystem(free/**)"]
"""
# Waits for a file of its own, so that each step begins when the test says so.
AGENT = """
until [ -e go-$1 ]; do sleep 0.05; done
echo "of $1" > free/$1.txt
echo "of $1" > asked-$1.txt
printf 'first\\nby %s\\n' $1 > shared.txt
until [ -e end-$1 ]; do sleep 0.05; done
"""


async def request_for(running: Supervised, session: Session, path: str) -> Request:
    return await running.asked(
        "filesystem", where=lambda one: (one.session_id, one.action.path) == (session.id, path)
    )  # type: ignore[union-attr]


def in_copy(running: Supervised, session: Session, name: str) -> Path:
    return running.parts.settings.sessions_dir / session.id / "merged" / name


async def test_they_meet_at_the_host_like_two_people(tmp_path: Path) -> None:
    host = make_repository(tmp_path / "host", {"shared.txt": "first\n", "free/x.txt": "x\n"})
    async with supervised(settings_in(tmp_path, POLICY)) as running:
        one = await running.start(host, "bash", "-c", AGENT, "agent", "one")
        two = await running.start(host, "bash", "-c", AGENT, "agent", "two")
        for session in (one, two):
            await running.until(
                lambda session=session: running.parts.sessions.get(session.id).started_at
            )  # type: ignore[misc]

        # What is different: both are there in the end, and each sees the other's.
        (host / "go-one").touch()
        first = await request_for(running, one, "shared.txt")
        running.approve(await request_for(running, one, "asked-one.txt"))
        (host / "go-two").touch()
        second = await request_for(running, two, "shared.txt")
        running.approve(await request_for(running, two, "asked-two.txt"))
        await running.until(lambda: (host / "asked-two.txt").exists() or None)
        for session, other in ((one, "two"), (two, "one")):
            for name in (f"free/{other}.txt", f"asked-{other}.txt"):
                copied = in_copy(running, session, name)
                await reached(running, copied, f"of {other}\n")

        # What is the same: the second to be let in is a conflict, with the first's text as theirs.
        assert "conflict" not in first.action.hazards  # type: ignore[union-attr]
        assert "conflict" not in second.action.hazards  # type: ignore[union-attr]
        running.approve(first)
        await running.done(first)
        conflict = await running.asked(
            "filesystem",
            where=lambda request: (
                request.session_id == two.id and "conflict" in request.action.hazards
            ),  # type: ignore[union-attr]
        )
        assert status(running.parts.queue.get(second.id)) == "superseded"
        assert (host / "shared.txt").read_text() == "first\nby one\n"
        assert in_copy(running, two, "shared.txt").read_text() == "first\nby two\n"
        workspace = running.parts.workspace_of(two.id)
        assert workspace is not None
        card = await workspace.conflict_card(conflict)
        assert card is not None
        running.approve(conflict)
        await running.done(conflict)
        assert (host / "shared.txt").read_text() == "first\nby two\n"
        await reached(running, in_copy(running, one, "shared.txt"), "first\nby two\n")

        for name in ("one", "two"):
            (host / f"end-{name}").touch()
        for session in (one, two):
            assert (await running.ended(session)).exit_code == 0
    assert {path.name for path in host.iterdir() if path.suffix == ".txt"} == {
        "shared.txt",
        "asked-one.txt",
        "asked-two.txt",
    }


async def reached(running: Supervised, path: Path, text: str) -> None:
    """The file in the copy holds this, once it was brought there."""
    async with asyncio.timeout(90):
        while not (path.exists() and path.read_text() == text):
            await asyncio.sleep(0.02)


async def test_each_is_taken_back_by_itself_and_never_the_others_work(tmp_path: Path) -> None:
    host = make_repository(tmp_path / "host", {"free/both.txt": "first\n", "free/x.txt": "x\n"})
    before = {path.name: path.read_text() for path in (host / "free").iterdir()}
    async with supervised(settings_in(tmp_path, POLICY)) as running:
        one, _ = await running.run(
            host, "sh", "-c", "echo one >> free/both.txt; echo one > free/one.txt"
        )
        two, _ = await running.run(
            host, "sh", "-c", "echo two >> free/both.txt; echo two > free/x.txt"
        )
        both = "first\none\ntwo\n"
        assert (host / "free/both.txt").read_text() == both

        # What the other wrote on top of it is as much in the way as what the person wrote.
        with pytest.raises(
            GatehouseError, match=r"`free/both\.txt`: changed since by you or another session"
        ):
            await take_back(running, one)
        assert (host / "free/both.txt").read_text() == both
        assert (host / "free/one.txt").read_text() == "one\n"
        assert (host / "free/x.txt").read_text() == "two\n"

        await take_back(running, two)
        assert (host / "free/both.txt").read_text() == "first\none\n"
        assert (host / "free/one.txt").read_text() == "one\n"
        await take_back(running, one)
        assert {path.name: path.read_text() for path in (host / "free").iterdir()} == before


async def take_back(running: Supervised, session: Session) -> None:
    """All that a session applied, as it is shown."""
    plan = await undo_api.preview(running.parts, undo_api.UndoBody(session=session.id))
    await undo_api.carry_out(
        running.parts, undo_api.UndoNowBody(session=session.id, token=plan.token), by="tester"
    )
