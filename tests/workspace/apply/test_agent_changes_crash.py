"""kill -9 at each step of a deletion and a move that the agent's API asked for, in a real
process, and the next start."""

import asyncio
import os
from pathlib import Path

import pytest

from supervisor.core.approvals import status
from supervisor.core.files.undo_steps import Selection
from supervisor.workspace.disk import swap
from tests.fakes.own_process import KILLED, KilledAt, exit_code
from tests.workspace.conftest import Desk

APP, NEW = "src/app.py", "lib/new/app.py"
STEPS = {
    "delete": ["kept", "intended", "placed"],
    "move": ["kept", "intended", "both intended", "checked", "placed"],
    "move in two steps": ["both intended", "between", "placed"],
}


async def run_and_die(tmp_path: Path, host: Path, kind: str, step: str) -> None:
    """In a process of its own: ask, approve, carry out, and be killed at the step."""
    at = KilledAt(step)
    if kind == "move in two steps":
        swap.move_new.__globals__["_rename"] = _not_here
        unlink = os.unlink

        def unlink_late(*args: object, **named: object) -> None:
            if (host / NEW).exists():
                at("between")
            unlink(*args, **named)  # type: ignore[arg-type]

        os.unlink = unlink_late  # type: ignore[assignment]
    desk = Desk(tmp_path / "data", host)
    desk.new_channel(at)
    async with desk.running():
        ask = desk.channel.delete(APP, "") if kind == "delete" else desk.channel.move(APP, NEW, "")
        desk.approve(await ask)
        await asyncio.sleep(60)  # killed long before


def _not_here(*_: object) -> None:
    raise OSError(22, "not here")


@pytest.mark.parametrize(
    ("kind", "step"), [(kind, step) for kind, steps in STEPS.items() for step in steps]
)
def test_kill_at_each_step(tmp_path: Path, host: Path, kind: str, step: str) -> None:
    old = (host / APP).read_text()
    assert exit_code(run_and_die, tmp_path, host, kind, step) == KILLED
    held = [(host / name).read_text() for name in (APP, NEW) if (host / name).exists()]
    assert held == (
        [] if kind == "delete" and step == "placed" else [old] * (2 if step == "between" else 1)
    )

    async def next_start() -> None:
        desk = Desk(tmp_path / "data", host)
        async with desk.running(copy=False):
            (request,) = desk.requests()
            done = await desk.settled(request)
            assert status(done) == "used"
            assert done.outcome["ok"], done.outcome
            for side in (desk.host, desk.copy):
                assert not (side / APP).exists()
                assert kind == "delete" or (side / NEW).read_text() == old
            await desk.compared()
            assert len(desk.requests()) == 1
            async with desk.channel.undoing() as undo:
                plan = await undo.plan(Selection(ids=(request.id,)))
                await undo.carry_out(Selection(ids=(request.id,)), token=plan.token, by="tester")
            assert (host / APP).read_text() == old
            assert not (host / "lib").exists()
        desk.close()

    asyncio.run(next_start())
    assert not list(host.rglob(".gatehouse-*"))
