"""`--exec-rules enforce`: deny and ask rules for whatever a session's sandboxes start."""

from pathlib import Path

import pytest

from supervisor.core.actions import Exec, title
from supervisor.core.approvals import Request
from supervisor.errors import UserError
from supervisor.sessions import session_plans
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import Answer, StartSupervisor

POLICY = """
version: 1
modes: {exec: contained}
deny:
  - {rule: exec(rm -rf *), why: too wide}
  - exec(./tool.sh *)
  - filesystem(**)
ask: [exec(touch *), exec(make *)]
"""


def approve_commands(request: Request) -> Answer | None:
    return "approved" if isinstance(request.action, Exec) else None


async def test_what_the_agent_starts_meets_deny_rules_and_the_record(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    (workspace / "Makefile").write_text("all:\n\tmkdir d\n\t-rm -fr d\n\trm -f d/x\n\techo made\n")
    (workspace / "tool.sh").write_text("#!/bin/sh\necho ran\n")
    (workspace / "tool.sh").chmod(0o755)
    script = "env make all; python3 -c \"import os; os.execv('./tool.sh', ['x', 'y'])\"; ls"
    policy = POLICY.replace(", exec(make *)", "")
    async with start_supervisor(policy, exec_rules="enforce") as running:
        session, output = await running.run(workspace, "sh", "-c", script)
        assert "made\n" in output, "`rm -f` isn't `rm -rf`"
        assert "rm: Permission denied" in output or "rm: Operation not permitted" in output
        assert "ran\n" not in output
        assert any("every program that starts here" in one for one in session.notices)
        denied = running.audit("verdict_given", session=session.id, verdict="deny")
        assert [one["action"]["command"] for one in denied] == ["rm -fr d", "./tool.sh y"]
        assert "too wide" in denied[0]["why"]


async def test_without_it_only_what_is_asked_for_is_judged(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    async with start_supervisor(POLICY) as running:
        session, output = await running.run(workspace, "sh", "-c", "mkdir d; rm -rf d; ls -d d")
        assert "cannot access 'd'" in output
        assert running.requests(session) == []


async def test_what_is_asked_waits_and_the_same_is_asked_once(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    script = "bash -c 'env touch a && echo one'; touch a; env touch a; bash -c 'touch a'; ls a"
    async with start_supervisor(POLICY, exec_rules="enforce", hold_s=30.0) as running:
        with running.answering(approve_commands):
            session, output = await running.run(workspace, "sh", "-c", script)
        assert output.endswith("one\na\n")
        asked = [one for one in running.requests(session) if isinstance(one.action, Exec)]
        assert [title(one.action) for one in asked] == ["bash -c 'env touch a && echo one'"]
        assert asked[0].outcome == {"ok": True, "run_by": "the program that started it"}


async def test_other_words_or_another_folder_are_another_question(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    script = "touch a; touch b; mkdir d; cd d; touch a; ls"
    async with start_supervisor(POLICY, exec_rules="enforce", hold_s=30.0) as running:
        with running.answering(approve_commands):
            session, _ = await running.run(workspace, "sh", "-c", script)
        asked = [one.action for one in running.requests(session)]
        assert [(one.command, one.cwd) for one in asked if isinstance(one, Exec)] == [
            ("touch a", "."),
            ("touch b", "."),
            ("touch a", "d"),
        ]


@pytest.mark.many
async def test_a_denial_and_no_answer_are_a_no(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    script = "touch a; touch a; touch unanswered; ls"
    async with start_supervisor(POLICY, exec_rules="enforce", hold_s=1.0) as running:
        with running.answering(
            lambda one: "denied" if title(one.action) == "touch a" else None
        ) as answered:
            _, output = await running.run(workspace, "sh", "-c", script)
        assert output.count("Permission denied") == 3
        assert len(answered) == 1


async def test_what_a_command_of_the_exec_channel_starts_too(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    (workspace / "Makefile").write_text("all:\n\tmkdir d\n\trm -rf d\n")
    async with start_supervisor(POLICY, exec_rules="enforce") as running:
        with running.answering(approve_commands):
            command = agent_command(("/v1/exec", {"command": "make all"}))
            session, output = await running.run(workspace, *command)
        (answer,) = answers(output)
        assert answer["outcome"]["exit_code"] == 2
        assert "Permission denied" in answer["outcome"]["stderr"]
        asked = [one for one in running.requests(session) if isinstance(one.action, Exec)]
        assert len(asked) == 1, "`make all` was approved, and `make` starts by that"


async def test_stopped_means_that_nothing_starts(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    script = "echo ready; while :; do env true || exit 9; done"
    async with start_supervisor(POLICY, exec_rules="enforce") as running:
        session = await running.start(workspace, "sh", "-c", script)
        await running.printed(session, "ready")
        running.parts.kill_switch.stop("by the test")
        assert (await running.agent_exited(session)).exit_code == 9


async def test_compose_says_that_it_can_not(
    start_supervisor: StartSupervisor, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_plans, "WORKSPACE_IN_COMPOSE", workspace)
    for side in ("agent", "tools"):
        (workspace.parent / "control" / side).mkdir(parents=True)
    control = workspace.parent / "control"
    async with start_supervisor(POLICY, backend="compose", control_dir=control) as running:
        with pytest.raises(UserError, match="compose can't enforce"):
            await running.start(workspace, "sh", exec_rules="enforce")
