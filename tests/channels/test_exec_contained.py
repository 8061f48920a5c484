"""Commands under the mode `contained`, in real sandboxes: they run without a question and can
change nothing outside; where the check of a session fails, they are asked."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from supervisor.core.approvals import status
from supervisor.server.common.session_views import session_view
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised

pytestmark = pytest.mark.asyncio(loop_scope="module")

POLICY = "version: 1\nmodes: {exec: contained}\nask: [exec(git merge *)]\ndeny: [exec(rm -rf *)]\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Supervised]:
    async with supervised(settings_in(tmp_path_factory.mktemp("contained"), POLICY)) as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


@pytest.mark.parametrize("network", ["proxy", "transparent"])
@pytest.mark.parametrize("copy", ["copy", "overlay"])
async def test_a_contained_command_runs_and_its_change_is_asked(
    running: Supervised, workspace: Path, network: str, copy: str
) -> None:
    command = 'x=$(cat README.md); echo "$x, more" > README.md; cat README.md'
    session = await running.start(
        workspace, *agent_command(("/v1/exec", {"command": command})), network=network, copy=copy
    )
    change = await running.asked("filesystem", where=lambda one: one.session_id == session.id)
    # Nobody was asked about the command, and the person's file waits for them.
    assert (workspace / "README.md").read_text() == "# demo\n"
    page = await session_view(running.parts, session.id)
    assert "run contained, without a question" in page.commands
    running.deny(change)
    await running.ended(session)
    (answer,) = answers(running.output(session))
    assert (answer["status"], answer["why"]) == (
        "used", "runs contained: nothing outside can change"
    )  # fmt: skip
    assert answer["outcome"]["stdout"] == "# demo, more\n"
    (checked,) = running.audit("containment_checked", session=session.id)
    assert checked["problems"] == []
    assert (workspace / "README.md").read_text() == "# demo\n"


async def test_deny_and_ask_rules_hold(running: Supervised, workspace: Path) -> None:
    commands = ["echo $(rm -rf src)", "git merge main", "echo 'never closed"]
    with running.answering(lambda one: "denied"):
        session, output = await running.run(
            workspace, *agent_command(*(("/v1/exec", {"command": one}) for one in commands))
        )
    assert [one["status"] for one in answers(output)] == ["denied"] * 3
    assert [one.decision for one in running.requests(session)] == ["deny", "ask", "ask"]


async def test_a_hostile_command_changes_nothing_outside(
    running: Supervised, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine\n")
    script = f"""
    echo evil > {outside}; echo evil > /workspace/lower/README.md; echo evil > /usr/bin/ls
    echo evil > /etc/passwd; env | grep -c GATEHOUSE_TOKEN; ls {running.parts.settings.data_dir}
    (echo > /dev/tcp/127.0.0.1/{running.supervisor.port}) 2>&1
    (echo > /dev/tcp/127.0.0.1/3701) 2>&1; curl -sS -m 5 http://example.org; cat /proc/1/environ
    kill -9 -1; true
    """
    with running.answering(lambda one: "denied"):
        session, output = await running.run(
            workspace, *agent_command(("/v1/exec", {"command": script}))
        )
    (answer,) = answers(output)
    assert answer["allowed"], answer
    assert outside.read_text() == "mine\n"
    assert (workspace / "README.md").read_text() == "# demo\n"
    asked = {status(one) for one in running.requests(session) if one.origin == "egress"}
    assert asked <= {"denied"}
    # The supervisor lives, and so does the next session.
    _, output = await running.run(workspace, *agent_command(("/v1/exec", {"command": "echo ok"})))
    assert answers(output)[0]["outcome"]["stdout"] == "ok\n"


async def test_where_the_check_fails_commands_are_asked(
    running: Supervised, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "supervisor.sandbox.containment.problems_in", lambda *_: ("`/srv` can be written to",)
    )
    session = await running.start(
        workspace, *agent_command(("/v1/exec", {"command": "echo hello"}))
    )
    request = await running.asked("exec", where=lambda one: one.session_id == session.id)
    assert request.why.endswith("commands don't run contained here, so exec asks")
    page = await session_view(running.parts, session.id)
    assert "`/srv` can be written to" in page.commands
    (checked,) = running.audit("containment_checked", session=session.id)
    assert checked["problems"] == ["`/srv` can be written to"]
    running.deny(request)
    await running.ended(session)
