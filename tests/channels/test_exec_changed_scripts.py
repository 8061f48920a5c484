"""A script that a command names is part of what a person approves: another one by then is asked
about again, and doesn't run."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from supervisor.core.actions import Exec
from supervisor.core.approvals import Request, status
from supervisor.core.sessions import Session
from supervisor.server.common import action_words
from tests.fakes.sandboxed_agent import agent_command
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised

pytestmark = pytest.mark.asyncio(loop_scope="module")
SCRIPTS = {
    "run.sh": "echo shown\n",
    "tools/x.py": "print('shown')\n",
    "tools/plain": "echo shown\n",
    "real": "echo shown\n",
}
# Each with the script that is another one when it is approved.
COMMANDS = {
    "bash run.sh": "run.sh",
    "python3 tools/x.py --fast": "tools/x.py",
    "cd tools && sh plain": "tools/plain",
    "timeout 20 bash < tools/plain": "tools/plain",
    "bash linked": "real",
    "./started": "started",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Supervised]:
    policy = "version: 1\nallow:\n  - exec(bash ruled.sh)\n"
    async with supervised(settings_in(tmp_path_factory.mktemp("scripts"), policy)) as found:
        yield found


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = make_repository(tmp_path / "project")
    for name, text in SCRIPTS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "started").write_text("#!/bin/sh\necho shown\n")
    (folder / "started").chmod(0o755)
    (folder / "linked").symlink_to("real")
    return folder


def copy_of(running: Supervised, session: Session) -> Path:
    return running.parts.settings.sessions_dir / session.id / "merged"


async def settled(running: Supervised, request: Request) -> Request:
    def found() -> Request | None:
        now = running.parts.queue.get(request.id)
        return now if now.settled_at is not None else None

    return await running.until(found, "the outcome of a command")


async def test_a_script_that_changed_since_it_was_shown_is_asked_again(
    running: Supervised, workspace: Path
) -> None:
    for command, name in COMMANDS.items():
        calls = [("/v1/exec", {"command": command}), ("/v1/exec", {"command": "sleep 0"})]
        session = await running.start(workspace, *agent_command(*calls))
        mine = lambda one, session=session, command=command: (  # noqa: E731
            one.session_id == session.id and one.action.command == command
        )
        request = await running.asked("exec", where=mine)
        script = copy_of(running, session) / name
        script.write_text(script.read_text().replace("shown", "another"))
        running.approve(request)
        first = (await settled(running, request)).outcome or {}
        assert not first["ok"], command
        assert "changed since the command was shown" in first["error"]
        assert "exit_code" not in first, "it didn't run"
        again = running.parts.queue.get(str(first["asked_again"]))
        assert status(again) == "pending"
        running.approve(again)
        second = (await settled(running, again)).outcome or {}
        assert second.get("stdout") == "another\n", (command, second)
        await running.parts.sessions.stop(session.id, reason="done", by="test")
        await running.ended(session)


async def test_one_that_is_as_it_was_shown_runs_and_the_card_says_what_is_covered(
    running: Supervised, workspace: Path
) -> None:
    session = await running.start(
        workspace, *agent_command(("/v1/exec", {"command": "bash run.sh"}))
    )
    request = await running.asked("exec", where=lambda one: one.session_id == session.id)
    assert isinstance(request.action, Exec)
    assert (
        "approving covers",
        "run.sh as it is now: asked again if it changes",
    ) in action_words.details(request.action)
    (copy_of(running, session) / "README.md").write_text("another file\n")
    running.approve(request)
    assert ((await settled(running, request)).outcome or {})["stdout"] == "shown\n"
    await running.parts.sessions.stop(session.id, reason="done", by="test")
    await running.ended(session)
