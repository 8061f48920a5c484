"""Undo through the operator's doors of a whole supervisor: JSON, the page's parts, an ended
session, and what the agent hears."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from supervisor.core.approvals import explanation
from tests.fakes.supervised import StartSupervisor, Supervised

POLICY = 'version: 1\nallow: ["filesystem(**)"]\n'


def client(running: Supervised) -> httpx.AsyncClient:
    token = (running.parts.settings.data_dir / "operator.token").read_text().strip()
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{running.supervisor.port}",
        headers={"authorization": f"Bearer {token}"},
        timeout=30,
    )


async def ask(web: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await web.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_an_ended_session_is_taken_back_and_the_agents_requests_say_so(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    before = (workspace / "README.md").read_text()
    async with start_supervisor(POLICY) as running, client(running) as web:
        session, _ = await running.run(
            workspace, "sh", "-c", "echo more >> README.md; echo x > new.txt; sleep 1"
        )
        seen = (await web.get(f"/api/sessions/{session.id}/timeline")).json()
        assert {path for row in seen["rows"] for path in row["paths"]} == {"README.md", "new.txt"}
        assert all(row["in_force"] for row in seen["rows"])
        preview = await ask(web, "/api/undo/preview", session=session.id)
        assert {file["path"]: file["doing"] for file in preview["files"]} == {
            "README.md": "restored",
            "new.txt": "removed",
        }
        assert "-more" in next(
            file["diff"] for file in preview["files"] if file["path"] == "README.md"
        )
        refused = await web.post(
            "/api/undo", json={"session": session.id, "token": "something else"}
        )
        assert refused.status_code == 409
        assert "no longer what was shown" in refused.json()["why"]
        done = await ask(web, "/api/undo", session=session.id, token=preview["token"])
        assert (workspace / "README.md").read_text() == before
        assert not (workspace / "new.txt").exists()
        requests = [one for one in running.parts.queue.of_session(session.id) if one.outcome]
        assert {explanation(one) for one in requests} == {
            "taken back by operator (cli); it is not applied again unless you change it again"
        }
        rows = (await web.get(f"/api/sessions/{session.id}/timeline")).json()["rows"]
        assert [row["operation"] == "undo" for row in rows] == [True, False, False]
        assert [row["in_force"] for row in rows] == [True, False, False]
        # By the id of the undo alone: it says whose it is.
        again = await ask(web, "/api/undo/preview", id=done["undo"])
        await ask(web, "/api/undo", id=done["undo"], token=again["token"])
        assert (workspace / "new.txt").read_text() == "x\n"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"id": "0" * 32}, 404, "has the id"),
        ({"id": "undo-nobody-1234"}, 404, "no session has the id"),
        ({"session": "nobody"}, 404, "no session has the id"),
        ({"id": "a", "since": 1.0}, 400, "more than one thing"),
        ({}, 400, "no session applied anything"),
        ({"by": "me"}, 400, "by"),
        ({"after": "one"}, 400, "after"),
    ],
)
async def test_what_can_not_be_meant_is_said(
    start_supervisor: StartSupervisor, body: dict[str, Any], status: int, said: str
) -> None:
    async with start_supervisor(POLICY) as running, client(running) as web:
        answer = await web.post("/api/undo/preview", json=body)
        assert answer.status_code == status, answer.text
        assert said in answer.text


async def test_a_session_without_changes_and_one_whose_folder_is_gone(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    import shutil

    async with start_supervisor(POLICY) as running, client(running) as web:
        session, _ = await running.run(workspace, "true")
        assert (await web.get(f"/api/sessions/{session.id}/timeline")).json()["rows"] == []
        answer = await web.post("/api/undo/preview", json={"id": session.id})
        assert "no change was applied" in answer.json()["why"]
        shutil.rmtree(running.parts.settings.sessions_dir / session.id)
        answer = await web.post("/api/undo/preview", json={"id": session.id})
        assert answer.status_code == 404
        assert "can't be undone any more" in answer.json()["why"]
        part = await web.get(f"/parts/timeline/{session.id}")
        assert part.status_code == 200
        assert "can&#39;t be undone any more" in part.text


async def test_the_agent_has_no_way_to_undo(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    async with start_supervisor(POLICY) as running:
        script = (
            "for path in /api/undo /api/undo/preview /v1/undo; do curl -s -o /dev/null -w"
            " '%{http_code} ' -H \"Authorization: Bearer $GATEHOUSE_TOKEN\" -X POST -d {}"
            " $GATEHOUSE_URL$path; done"
        )
        _, output = await running.run(workspace, "sh", "-c", script)
        assert output.split() == ["404", "404", "404"]
