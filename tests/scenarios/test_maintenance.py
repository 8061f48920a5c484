"""Maintenance on a folder: a prompt and a scope in, one change set or a branch out.

Without a model's key the recorded model plays the built-in agent; the real Claude Code does one job
in `test_named_agents`.
"""

from pathlib import Path

import pytest

from supervisor.core.approvals import status
from supervisor.core.jobs import Job
from supervisor.core.sessions import Session
from supervisor.core.verdicts import OUT_OF_SCOPE
from supervisor.errors import UserError
from supervisor.sessions.session_plans import RECORDED_JOB_NOTICE
from tests.fakes.supervised import StartSupervisor, Supervised, git

NOTE = "RECORDED_MAINTENANCE.md"
CONTAINED = "version: 1\nmodes: {exec: contained}\n"


async def maintained(running: Supervised, workspace: Path, **job: object) -> Session:
    wanted = Job(prompt="Keep the docs in order.", **job)  # type: ignore[arg-type]
    return await running.start(workspace, kind="maintenance", job=wanted)


async def result_known(running: Supervised, session: Session) -> Session:
    def found() -> Session | None:
        now = running.parts.sessions.get(session.id)
        return now if now.job_result is not None or now.ended_at is not None else None

    return await running.until(found, "the job's result")


async def test_the_recorded_model_writes_a_note_within_the_scope_for_a_person_to_review(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    async with start_supervisor(CONTAINED, anthropic_api_key="") as running:
        session = await maintained(
            running, workspace, scope=("docs/**",), tests=f"cat docs/{NOTE} && ls src"
        )
        session = await result_known(running, session)
        assert RECORDED_JOB_NOTICE in session.notices
        assert session.job_result is not None, running.story()
        assert (session.job_result.proof.inside, session.job_result.proof.outside) == (1, ())
        assert session.job_result.tests == "passed", running.story()
        card = await running.asked("filesystem")
        assert card.action.path == f"docs/{NOTE}"  # type: ignore[union-attr]
        assert card.why != OUT_OF_SCOPE
        running.approve(card)
        session = await running.ended(session)
        assert (workspace / "docs" / NOTE).is_file()
        assert session.review is not None
        assert "No model read the prompt" in session.review["summary"]


async def test_a_branch_is_one_commit_that_can_be_taken_and_nothing_is_asked(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    async with start_supervisor(CONTAINED, anthropic_api_key="") as running:
        session = await maintained(
            running, workspace, scope=("docs/**",), tests="false", branch=True
        )
        session = await running.ended(session)
        result = session.job_result
        assert result is not None, running.story()
        assert result.tests == "failed"
        assert "exit code 1" in result.tests_why
        assert result.branch == f"gatehouse/maintenance-{session.id[:8]}"
        assert [one.action for one in running.requests(session) if one.origin == "workspace"] == []
        taken = await running.parts.branches.take(session.id, "", by="the test")
        assert taken.branch == result.branch
        assert git(workspace, "show", "--name-only", "--format=%s", taken.branch).split() == [
            *["Keep", "the", "docs", "in", "order."],
            f"docs/{NOTE}",
        ]
        assert "1 file, all within docs/**" in git(
            workspace, "log", "-1", "--format=%b", taken.branch
        )
        assert not (workspace / "docs").exists()


async def test_what_the_person_has_not_committed_is_not_the_job_s(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    (workspace / "mine.txt").write_text("mine\n")
    (workspace / "README.md").write_text("mine, too\n")
    (workspace / "src/app.py").unlink()
    async with start_supervisor(CONTAINED, anthropic_api_key="") as running:
        session = await maintained(running, workspace, scope=("docs/**",), branch=True)
        result = (await running.ended(session)).job_result
        assert result is not None, running.story()
        assert (result.proof.inside, result.proof.outside) == (1, ())


async def test_nothing_to_change_ends_quietly(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    (workspace / "docs").mkdir()
    (workspace / "docs" / NOTE).write_text(
        "Written by Gatehouse's recorded model, to show what comes of a job. Delete it.\n"
    )
    git(workspace, "add", ".")
    git(workspace, "commit", "-qm", "noted")
    async with start_supervisor(CONTAINED, anthropic_api_key="") as running:
        for branch in (False, True):
            session = await maintained(
                running, workspace, scope=("docs/**",), tests="false", branch=branch
            )
            session = await running.ended(session)
            assert session.job_result is not None
            assert session.job_result.is_empty
            assert session.job_result.tests == "none"
            assert running.requests(session) == []


async def test_what_is_outside_the_scope_refuses_all_of_it(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    """Whatever the rules allow; the scope here excludes where the recorded model writes. Nothing of
    the rest is asked or applied either."""
    policy = f"{CONTAINED}allow: ['filesystem(**)']\n"
    async with start_supervisor(policy, anthropic_api_key="") as running:
        for branch in (False, True):
            session = await maintained(
                running,
                workspace,
                scope=("docs/**", "!docs/REC*"),
                tests="echo within > docs/fine.md",
                branch=branch,
            )
            session = await running.ended(session)
            assert session.job_result is not None
            assert session.job_result.branch == ""
            assert session.job_result.refused == f"outside docs/** !docs/REC*: docs/{NOTE}"
            assert [one for one in running.requests(session) if one.origin == "workspace"] == []
            assert not (workspace / "docs").exists()


async def test_changes_are_asked_once_they_are_judged_without_leftovers(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    policy = f"{CONTAINED}allow: ['filesystem(docs/**)']\n"
    async with start_supervisor(policy, anthropic_api_key="") as running:
        tests = "mkdir -p .pytest_cache && touch .pytest_cache/x && echo ok > docs/by-tests.md"
        session = await maintained(running, workspace, scope=("docs/**",), tests=tests)
        session = await running.ended(session)
        assert session.job_result is not None
        assert session.job_result.proof.inside == 2, running.story()
        asked = {one.action.path for one in running.requests(session) if one.origin == "workspace"}  # type: ignore[union-attr]
        assert asked == {f"docs/{NOTE}", "docs/by-tests.md"}
        assert {one.name for one in (workspace / "docs").iterdir()} == {NOTE, "by-tests.md"}
        assert not (workspace / ".pytest_cache").exists()


async def test_a_branch_is_offered_to_be_pushed_with_the_proof_on_its_card(
    start_supervisor: StartSupervisor, workspace: Path, tmp_path: Path
) -> None:
    remote = tmp_path / "remote.git"
    git(tmp_path, "init", "-q", "--bare", str(remote))
    git(workspace, "remote", "add", "origin", str(remote))
    async with start_supervisor(CONTAINED, anthropic_api_key="") as running:
        session = await maintained(
            running, workspace, name="docs", scope=("docs/**",), tests="true", branch=True
        )
        session = await running.ended(session)
        (push,) = [one for one in running.requests(session) if status(one) == "pending"]
        assert push.reason.startswith("1 file, all within docs/**; tests passed; committed on")
        assert push.reason.endswith("$0.00")
        running.approve(push)
        assert (await running.done(push))["ok"]
        assert session.job_result is not None
        assert git(remote, "log", "-1", "--format=%s", session.job_result.branch) == (
            "Keep the docs in order."
        )


async def test_bad_jobs_are_refused_before_anything_runs(
    start_supervisor: StartSupervisor, workspace: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    async with start_supervisor(CONTAINED) as running:
        with pytest.raises(UserError, match="no path below the workspace"):
            await maintained(running, workspace, scope=("/etc/**",))
        with pytest.raises(UserError, match="no branch"):
            await maintained(running, plain, branch=True)
        with pytest.raises(UserError, match="no prompt"):
            await running.start(workspace, kind="maintenance")
        assert running.parts.sessions.recent() == []
