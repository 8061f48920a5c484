"""What is around a session: which folders it never sees, whatever workspace it is given."""

import asyncio
from pathlib import Path

import pytest

from supervisor.settings import CopyMode
from supervisor.workspace.copy import copy_pool
from tests.fakes.supervised import git, make_repository, settings_in, supervised
from tests.fakes.waiting import PATIENCE_S

POLICY = "version: 1\nallow: [filesystem(**)]\n"
PROBE = """
cat /workspace/lower/data/operator.token data/operator.token 2>&1
mkdir -p data && echo changed > data/operator.token && echo beside > beside
"""


async def test_the_default_data_folder_is_hidden_also_where_another_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = make_repository(tmp_path / "checkout")
    (workspace / "data").mkdir()
    (workspace / "data" / "operator.token").write_text("the other supervisor's token")
    monkeypatch.setattr("supervisor.sessions.surroundings.DEFAULT_DATA", workspace / "data")
    async with supervised(settings_in(tmp_path, POLICY)) as running:
        _, output = await running.run(workspace, "sh", "-c", PROBE)
    assert "the other supervisor's token" not in output
    assert (workspace / "data" / "operator.token").read_text() == "the other supervisor's token"
    assert (workspace / "beside").read_text() == "beside\n"


async def test_a_password_in_a_remotes_url_is_stored_nowhere(tmp_path: Path) -> None:
    workspace = make_repository(tmp_path / "checkout")
    git(workspace, "remote", "add", "origin", "https://me:the-password@git.example.org/project")
    async with supervised(settings_in(tmp_path, POLICY)) as running:
        session, output = await running.run(workspace, "sh", "-c", "git remote -v")
        assert set(running.parts.sessions.get(session.id).remotes) == {
            "origin",
            "https://git.example.org/project",
        }
        data = running.parts.settings.data_dir
    assert "the-password" not in output
    for path in data.rglob("*"):
        if path.is_file():
            assert b"the-password" not in path.read_bytes(), path


@pytest.mark.many
@pytest.mark.parametrize(
    ("setting", "wanted", "expected"),
    [(False, True, True), (True, None, True), (True, False, False)],
)
@pytest.mark.parametrize("copy", ["copy", "overlay"])
async def test_what_git_ignores_is_in_the_copy_only_where_it_is_wanted(
    tmp_path: Path, setting: bool, wanted: bool | None, expected: bool, copy: CopyMode
) -> None:
    workspace = make_repository(tmp_path / "checkout")
    (workspace / ".gitignore").write_text(".venv/\n")
    (workspace / ".venv").mkdir()
    (workspace / ".venv/tool").write_text("from the host")
    settings = settings_in(tmp_path, POLICY)._replace(include_ignored=setting)
    async with supervised(settings) as running:
        _, output = await running.run(
            workspace, "cat", ".venv/tool", include_ignored=wanted, copy=copy
        )
    assert ("from the host" in output) == expected


@pytest.mark.many
async def test_a_session_that_is_stopped_while_its_copy_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_pool, "FEW_FILES", 0)
    monkeypatch.setattr(copy_pool, "PIECE_FILES", 1)
    workspace = make_repository(
        tmp_path / "checkout", {f"{number}/{number}.txt": "x" for number in range(1500)}
    )
    async with supervised(settings_in(tmp_path, POLICY)) as running:
        session = await running.start(workspace, "sh", "-c", "echo ran")
        sessions = running.parts.sessions
        async with asyncio.timeout(PATIENCE_S):
            while not (sessions.progress(session.id) or {}).get("done"):
                await asyncio.sleep(0.005)
        await sessions.stop(session.id, reason="enough", by="tester")
        ended = await running.ended(session)
        assert ended.started_at is None
        assert not (running.parts.settings.sessions_dir / session.id / "merged").exists()
        assert "ran" not in running.output(session)
