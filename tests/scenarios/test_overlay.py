"""A whole session whose private copy is an overlay: the agent, a command beside it, the way to
the host and back."""

import subprocess
from pathlib import Path

from supervisor.errors import GatehouseError
from supervisor.workspace.copy.private_copy import IS_OVERLAY
from tests.fakes.supervised import StartSupervisor

POLICY = 'version: 1\nallow: ["filesystem(**)", "exec(touch *)"]\n'
AGENT = """
ls -a; cat .env; git log --format=%s; git status --short
echo more >> README.md
curl -s -X POST -H "Authorization: Bearer $GATEHOUSE_TOKEN" -H 'Content-Type: application/json' \
     $GATEHOUSE_URL/v1/exec -d '{"command": "touch made-by-command", "reason": "to see"}'
timeout 20 sh -c 'until test -e made-by-command; do sleep 0.02; done' && echo SEEN
timeout 20 sh -c 'until grep -q person answer.txt 2>/dev/null; do sleep 0.02; done' && echo HEARD
"""


async def test_a_session_over_an_overlay(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    (workspace / ".gitignore").write_text(".env\n")
    (workspace / ".env").write_text("SECRET")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "the first"]):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "-C", str(workspace), *identity, *words], check=True)
    async with start_supervisor(POLICY) as running:
        session = await running.start(workspace, "sh", "-c", AGENT, copy="overlay")
        output = await running.printed(session, "SEEN")
        assert "SECRET" not in output
        assert "the first" in output
        (workspace / "answer.txt").write_text("person\n")
        await running.printed(session, "HEARD")
        session = await running.ended(session)
        assert session.exit_code == 0
        assert IS_OVERLAY in session.notices
        assert (workspace / "README.md").read_text().endswith("more\n")
        assert (workspace / "made-by-command").exists()
        assert (workspace / "answer.txt").read_text() == "person\n"
        assert (workspace / ".env").read_text() == "SECRET"
        folder = running.parts.settings.sessions_dir / session.id
        assert list((folder / "merged").iterdir()) == []
        assert (folder / "upper/README.md").exists()


async def test_a_small_workspace_is_copied_and_what_can_not_be_shown_is_said(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    async with start_supervisor(POLICY) as running:
        session, _ = await running.run(workspace, "true")
        assert IS_OVERLAY not in session.notices
        assert (running.parts.settings.sessions_dir / session.id / "merged/README.md").exists()
        data = running.parts.settings.data_dir / "sub"
        (data / "code").mkdir(parents=True)
        try:
            session, _ = await running.run(running.parts.settings.data_dir, "true", copy="overlay")
        except GatehouseError as error:
            why = str(error)
        else:
            why = session.end_reason
        assert "data" in why
