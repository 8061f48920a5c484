"""kill -9 at each step of an effect, in a real process, and what the next start makes of it."""

import asyncio
import os
from pathlib import Path

import pytest

from supervisor.core.approvals import status
from supervisor.workspace.trees.journal import decode_name
from tests.fakes.own_process import KILLED, KilledAt, exit_code
from tests.workspace.conftest import Desk

STEPS = {
    "write": ["kept", "intended", "created", "written", "checked", "placed"],
    "create": ["kept", "intended", "created", "written", "checked", "placed"],
    "private": ["kept", "intended", "created", "written", "checked", "placed"],
    "delete": ["kept", "intended", "placed"],
    "mkdir": ["kept", "intended", "placed"],
    "chmod": ["kept", "intended", "checked", "placed"],
    "rename": ["kept", "intended", "both intended", "checked", "placed"],
}


def act(kind: str, desk: Desk) -> str:
    """What the agent does; the path that it is about."""
    match kind:
        case "write":
            (desk.copy / "src/app.py").write_text("new\n")
            return "src/app.py"
        case "create":
            (desk.copy / "fresh/new.py").parent.mkdir()
            (desk.copy / "fresh/new.py").write_text("new\n")
            return "fresh/new.py"
        case "private":
            os.umask(0)
            (desk.copy / "keys/in").mkdir(parents=True)
            (desk.copy / "keys").chmod(0o700)
            (desk.copy / "keys/in/x").write_text("new\n")
            return "keys/in/x"
        case "delete":
            (desk.copy / "src/app.py").unlink()
            return "src/app.py"
        case "rename":
            (desk.copy / "src/app.py").rename(desk.copy / "new.py")
            return "src/app.py"
        case "chmod":
            (desk.copy / "src").chmod(0o700)
            return "src"
        case _:
            (desk.copy / "folder").mkdir()
            return "folder"


async def run_and_die(tmp_path: Path, host: Path, kind: str, step: str) -> None:
    """In a process of its own: ask, approve, carry out, and be killed at the step."""
    desk = Desk(tmp_path / "data", host)
    desk.new_channel(KilledAt(step))
    async with desk.running():
        path = act(kind, desk)
        desk.approve(await desk.asked(path))
        await asyncio.sleep(60)  # killed long before


@pytest.mark.parametrize(
    ("kind", "step"), [(kind, step) for kind, steps in STEPS.items() for step in steps]
)
def test_kill_at_each_step(tmp_path: Path, host: Path, kind: str, step: str) -> None:
    old = (host / "src/app.py").read_text()
    assert exit_code(run_and_die, tmp_path, host, kind, step) == KILLED
    # Whatever the step: the old content or the new, never a part.
    now = (host / "src/app.py").read_text() if (host / "src/app.py").exists() else None
    assert now in (old, {"write": "new\n", "delete": None, "rename": None}.get(kind, old))
    keys = host / "keys"
    assert not keys.exists() or keys.stat().st_mode & 0o777 == 0o700

    async def next_start() -> None:
        desk = Desk(tmp_path / "data", host)
        async with desk.running(copy=False):
            (request,) = desk.requests()
            done = await desk.settled(request)
            assert status(done) == "used"
            assert done.outcome["ok"], done.outcome
            await desk.compared()
            assert len(desk.requests()) == 1
            # Whatever the step: what was there before is on the disk, once.
            history = (await desk.channel._open()).sides.history
            lines = {decode_name(line.name): line for line in history.done}
            assert len(lines) == len(history.done)
            assert kind != "rename" or lines.pop("new.py").before is None
            ((_, line),) = lines.items()
            assert line.request == request.id
            assert (
                line.before is None
                if kind in ("create", "private", "mkdir")
                else line.before is not None
            )
            if line.before is not None and line.before.kind == "file":
                assert history.kept.read(line.before.digest or "", 1 << 20) == old.encode()
        desk.close()

    asyncio.run(next_start())
    expected = {
        "write": lambda: (host / "src/app.py").read_text() == "new\n",
        "create": lambda: (host / "fresh/new.py").read_text() == "new\n",
        "private": lambda: (
            (keys / "in/x").read_text() == "new\n" and keys.stat().st_mode & 0o777 == 0o700
        ),
        "delete": lambda: not (host / "src/app.py").exists(),
        "mkdir": lambda: (host / "folder").is_dir(),
        "chmod": lambda: (host / "src").stat().st_mode & 0o777 == 0o700,
        "rename": lambda: (
            (host / "new.py").read_text() == old and not (host / "src/app.py").exists()
        ),
    }
    assert expected[kind]()
    assert not list(host.rglob(".gatehouse-*"))


def test_an_approval_that_was_not_yet_begun_is_carried_out_later(
    tmp_path: Path, host: Path
) -> None:
    """Approved, and the supervisor dies before its channel hears of it."""

    async def first() -> None:
        desk = Desk(tmp_path / "data", host)
        async with desk.running():
            (desk.copy / "src/app.py").write_text("new\n")
            request = await desk.asked("src/app.py")
            await desk.channel.stop()
            desk.gate.handlers._tasks = None
            desk.approve(request)
        desk.close()

    async def second() -> None:
        desk = Desk(tmp_path / "data", host)
        async with desk.running(copy=False, start=False):
            desk.gate.answers.offer_ready()
            (request,) = desk.requests()
            assert (await desk.settled(request)).outcome["ok"]
        desk.close()

    asyncio.run(first())
    assert (host / "src/app.py").read_text() != "new\n"
    asyncio.run(second())
    assert (host / "src/app.py").read_text() == "new\n"


def test_after_a_crash_the_hosts_edits_are_still_told_from_the_agents(
    tmp_path: Path, host: Path
) -> None:
    async def first() -> None:
        desk = Desk(tmp_path / "data", host)
        async with desk.running():
            (desk.copy / "free/a.txt").write_text("applied\n")
            await desk.until(lambda: (desk.host / "free/a.txt").read_text() == "applied\n")
            await desk.until(lambda: all(r.settled_at for r in desk.requests()))
            await desk.channel.stop()
            (desk.copy / "src/app.py").write_text("agent\n")
            (desk.copy / "free/late.txt").write_text("late\n")
        desk.close()

    async def second() -> None:
        (host / "free/a.txt").write_text("person\n")
        (host / "src/util.py").write_text("person\n")
        desk = Desk(tmp_path / "data", host)
        async with desk.running(copy=False, start=False):
            await desk.channel.final_pass("the supervisor died")
            assert list(desk.pending()) == ["src/app.py"]
        desk.close()

    asyncio.run(first())
    asyncio.run(second())
    assert (host / "free/a.txt").read_text() == "person\n"
    assert (host / "src/util.py").read_text() == "person\n"
    assert (host / "free/late.txt").read_text() == "late\n"


def test_a_copy_that_was_never_finished_is_passed_over(tmp_path: Path, host: Path) -> None:
    async def live() -> None:
        desk = Desk(tmp_path / "data", host)
        desk.copy.mkdir(parents=True)
        async with desk.running(copy=False, start=False):
            await desk.channel.final_pass("the supervisor died")
            assert desk.requests() == []
        desk.close()

    asyncio.run(live())
