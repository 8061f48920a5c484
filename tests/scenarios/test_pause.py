"""A paused session: its processes stand still, and so does its uptime."""

import asyncio
from pathlib import Path

import pytest

from supervisor.core.sessions import remaining_s, state
from supervisor.errors import UserError
from supervisor.sandbox.cgroups import Cgroup
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import Supervised, settings_in, supervised

COUNTS = "n=0; while [ $n -lt 100000 ]; do n=$((n+1)); echo count $n; sleep 0.02; done"


@pytest.fixture(params=["as the machine can", "signals"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "signals":
        monkeypatch.setattr(Cgroup, "freeze", lambda self, *, is_frozen: False)
    return str(request.param)


async def stands_still(running: Supervised, session_id: str) -> bool:
    """Whether no output comes in a time in which much would."""
    await asyncio.sleep(0.2)  # what was written before arrives
    before = running.parts.sessions.output_size(session_id)
    await asyncio.sleep(0.4)
    return running.parts.sessions.output_size(session_id) == before


async def test_processes_and_uptime_stand_still_and_go_on(
    tmp_path: Path, workspace: Path, how: str
) -> None:
    async with supervised(settings_in(tmp_path)) as running:
        sessions = running.parts.sessions
        session = await running.start(workspace, "sh", "-c", COUNTS, max_uptime_s=300.0)
        await running.printed(session, "count 3")
        session = sessions.pause(session.id, by="the test")
        assert state(session) == "paused"
        assert await stands_still(running, session.id)
        left_s = remaining_s(session, running.parts.clock.now())
        assert remaining_s(session, running.parts.clock.now() + 1000) == left_s
        with pytest.raises(UserError, match="doesn't run"):
            sessions.pause(session.id, by="the test")
        paused_s = running.parts.clock.now() - (session.paused_at or 0.0)
        went_on = sessions.unpause(session.id, by="the test")
        assert state(went_on) == "running"
        assert went_on.deadline_at >= session.deadline_at + paused_s
        assert not await stands_still(running, session.id)
        with pytest.raises(UserError, match="isn't paused"):
            sessions.unpause(session.id, by="the test")
        (line,) = running.audit("session_paused", session=session.id)
        assert line["how"] in ("cgroup freezer", "signals")
        assert how != "signals" or line["how"] == "signals"
        sessions.pause(session.id, by="the test")
        await sessions.stop(session.id, reason="a person", by="the test")
        assert (await running.ended(session)).end_reason == "a person"


async def test_uptime_doesn_t_end_a_paused_session(tmp_path: Path, workspace: Path) -> None:
    async with supervised(settings_in(tmp_path)) as running:
        session = await running.start(workspace, "sh", "-c", COUNTS, max_uptime_s=1.5)
        await running.printed(session, "count 1")
        running.parts.sessions.pause(session.id, by="the test")
        await asyncio.sleep(2.0)
        assert running.parts.sessions.get(session.id).ended_at is None
        running.parts.sessions.unpause(session.id, by="the test")
        assert (await running.ended(session)).end_reason == "MAX_UPTIME was reached"


async def test_a_command_that_runs_is_paused_too_and_has_its_time(
    tmp_path: Path, workspace: Path
) -> None:
    policy = "version: 1\nmodes: {exec: contained}\nallow: [filesystem(**)]\n"
    async with supervised(settings_in(tmp_path, policy)) as running:
        line = "echo begun > begun.txt; sleep 1; echo done"
        call = ("/v1/exec", {"command": line, "timeout_s": 2.5})
        session = await running.start(workspace, *agent_command(call))
        while not (workspace / "begun.txt").exists():
            await asyncio.sleep(0.02)
        running.parts.sessions.pause(session.id, by="the test")
        await asyncio.sleep(3.0)
        running.parts.sessions.unpause(session.id, by="the test")
        session = await running.ended(session)
        (answer,) = answers(running.output(session))
        assert answer["outcome"]["stdout"] == "done\n", answer
