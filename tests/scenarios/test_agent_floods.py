"""An agent that floods each of its routes with what is longest to read: the operator's page answers
meanwhile, and stopping everything holds."""

import sys
from pathlib import Path

import httpx
import pytest

from tests.fakes.flooding_agent import FLOOD
from tests.fakes.supervised import PATIENCE_S, StartSupervisor

pytestmark = pytest.mark.timeout(300)

PAGES = 20


async def test_the_page_answers_and_everything_can_be_stopped(
    start_supervisor: StartSupervisor, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "a").write_text("x")
    async with start_supervisor("version: 1\n") as running:
        session = await running.start(workspace, sys.executable, "-c", FLOOD)
        await running.printed(session, "FLOODING")
        auth = {"authorization": f"Bearer {running.supervisor.auth.cli_token}"}
        base = f"http://127.0.0.1:{running.supervisor.port}"
        async with httpx.AsyncClient(base_url=base, headers=auth, timeout=PATIENCE_S) as person:
            for _ in range(PAGES):
                assert (await person.get("/")).status_code == 200
                assert (await person.get("/api/status")).status_code == 200
            stopped = await person.post("/api/stop-all", json={"reason": "enough"})
            assert stopped.status_code < 300, stopped.text
            assert running.parts.kill_switch.reason is not None
            ended = await person.post(f"/api/sessions/{session.id}/stop", json={})
            assert ended.status_code < 300, ended.text
        await running.ended(session)
