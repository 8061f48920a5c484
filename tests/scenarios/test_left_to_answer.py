"""Nothing waits in vain: what is unanswered when a session ends is answered later, also by the next
supervisor, and then it happens."""

import subprocess
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange, Packages, category_of, content_hash
from supervisor.core.approvals import Request, status
from supervisor.core.sessions import Session
from supervisor.errors import UserError
from supervisor.settings import Settings
from tests.fakes import registry
from tests.fakes.clock import FakeClock
from tests.fakes.sandboxed_agent import agent_command
from tests.fakes.supervised import Supervised, git, make_repository, settings_in, supervised

POLICY = "version: 1\nmodes: {exec: contained}\n"
COMMIT = "git -c user.name=agent -c user.email=agent@example.org commit -q"
WORK = (
    "for one in 1 2 3 4 5 6 7 8 9 10; do echo $one > new-$one.txt; done"
    f"; git checkout -q -b night && git add . && {COMMIT} -m 'Work at night'"
)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    made = tmp_path / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(made)], check=True)
    return made


@pytest.fixture
def workspace(tmp_path: Path, remote: Path) -> Path:
    made = make_repository(tmp_path / "project")
    git(made, "remote", "add", "origin", str(remote))
    return made


def pending(running: Supervised, session: Session) -> list[Request]:
    return running.parts.queue.pending(session.id)


async def settled(running: Supervised, requests: list[Request]) -> list[Request]:
    def found() -> list[Request] | None:
        now = running.parts.queue.get_all([one.id for one in requests])
        return now if all(one.settled_at is not None for one in now) else None

    return await running.until(found, "everything carried out")


@pytest.mark.parametrize("copy", ["copy", "overlay"])
async def test_an_overnight_run_is_answered_in_the_morning(
    tmp_path: Path, workspace: Path, remote: Path, copy: str
) -> None:
    settings = settings_in(tmp_path, POLICY)
    async with supervised(settings) as running:
        calls = (("/v1/exec", {"command": WORK}), ("/v1/git", {"command": "git push origin night"}))
        session = await running.start(
            workspace, *agent_command(*calls), max_uptime_s=8.0, copy=copy
        )
        await running.asked("git")
        session = await running.ended(session)
        assert session.end_reason == "MAX_UPTIME was reached"
        assert len(pending(running, session)) == 11
    async with supervised(settings) as running:
        (left,) = running.parts.surroundings.left.all()
        assert (left.session_id, left.counts) == (session.id, "1 push, 10 changes")
        waiting = pending(running, session)
        for request in waiting:
            running.approve(request)
        done = await settled(running, waiting)
        assert all(one.outcome and one.outcome["ok"] for one in done), done
        await running.parts.surroundings.tidy_left()
        assert running.parts.surroundings.left.all() == []
        assert running.parts.surroundings.channel(session.id) is None
    for number in range(1, 11):
        assert (workspace / f"new-{number}.txt").read_text() == f"{number}\n"
    assert git(remote, "log", "-1", "--format=%s", "night").strip() == "Work at night"


async def test_an_install_is_carried_out_after_the_end_and_its_files_are_asked(
    tmp_path: Path, workspace: Path
) -> None:
    (workspace / "package.json").write_text('{"name": "app", "version": "1.0.0"}\n')
    with registry.serving() as index:
        index.add_npm("tiny-one", "1.0.0")
        (workspace / ".npmrc").write_text(f"registry={index.url}/\n")
        policy = f"{POLICY}allow: [network(127.0.0.1:{index.port})]\n"
        async with supervised(settings_in(tmp_path, policy)) as running:
            calls = [
                ("/v1/packages", {"command": "npm install tiny-one"}),
            ]
            session = await running.start(workspace, *agent_command(*calls), copy="overlay")
            install = await running.asked("packages")
            await running.parts.sessions.stop(session.id, reason="a person", by="the test")
            await running.ended(session)
            assert isinstance(install.action, Packages)
            running.approve(install)
            (done,) = await settled(running, [install])
            assert (done.outcome or {})["ok"], done.outcome
            changes = await running.until(lambda: pending(running, session) or None, "its files")
            assert {one.action.path for one in changes if isinstance(one.action, FileChange)} == {
                "package.json",
                "package-lock.json",
            }
            for request in changes:
                running.approve(request)
            await settled(running, changes)
    assert "tiny-one" in (workspace / "package.json").read_text()


async def test_only_what_needs_no_agent_is_left(tmp_path: Path, workspace: Path) -> None:
    async with supervised(settings_in(tmp_path, "version: 1\n")) as running:
        calls = [
            ("/v1/exec", {"command": "make"}),
            ("/v1/proposals", {"effect": "allow", "rule": "exec(make)", "why": "to build"}),
        ]
        session = await running.start(workspace, *agent_command(*calls))
        command = await running.asked("exec")
        await running.parts.sessions.stop(session.id, reason="a person", by="the test")
        await running.ended(session)
        assert status(running.parts.queue.get(command.id)) == "expired"
        assert not [one for one in pending(running, session) if category_of(one.action) == "exec"]


async def test_what_nobody_answers_in_time_expires_with_the_reason(
    tmp_path: Path, workspace: Path
) -> None:
    clock = FakeClock(now=1_700_000_000.0)
    settings: Settings = settings_in(tmp_path, POLICY, keep_left_s=3600.0)
    async with supervised(settings, clock=clock) as running:
        call = ("/v1/exec", {"command": "echo agent > README.md"})
        session = await running.start(workspace, *agent_command(call))
        change = await running.asked("filesystem")
        await running.parts.sessions.stop(session.id, reason="a person", by="the test")
        await running.ended(session)
        clock.advance(3500)
        await running.parts.surroundings.tidy_left()
        assert status(running.parts.queue.get(change.id)) == "pending"
        clock.advance(200)
        await running.parts.surroundings.tidy_left()
        over = running.parts.queue.get(change.id)
        assert status(over) == "expired"
        assert over.closed_why == "nobody answered within 1h 00m of the session's end"
        assert not running.parts.gate.rulings.is_open(session.id)


@pytest.mark.parametrize("copy", ["copy", "overlay"])
async def test_a_session_is_resumed_on_the_copy_that_it_left(
    tmp_path: Path, workspace: Path, copy: str
) -> None:
    async with supervised(settings_in(tmp_path, POLICY)) as running:
        call = ("/v1/exec", {"command": "echo half > work.txt"})
        session = await running.start(workspace, *agent_command(call), copy=copy)
        change = await running.asked("filesystem")
        with pytest.raises(UserError, match="hasn't ended"):
            await running.start(workspace, "true", resume=session.id)
        await running.parts.sessions.stop(session.id, reason="a person", by="the test")
        await running.ended(session)
        call = ("/v1/exec", {"command": "echo done >> work.txt"})
        other = await running.start(workspace, *agent_command(call), resume=session.id)
        closed = await running.became(change, "expired")
        assert closed.closed_why == f"session {other.id} goes on with this copy"

        def whole() -> Request | None:
            return next(
                (
                    one
                    for one in pending(running, other)
                    if isinstance(one.action, FileChange)
                    and one.action.after == content_hash(b"half\ndone\n")
                ),
                None,
            )

        request = await running.until(whole, "the whole work")
        running.approve(request)
        await running.ended(other)
        assert (workspace / "work.txt").read_text() == "half\ndone\n"
        notices = running.parts.sessions.get(other.id).notices
        assert f"it goes on with the copy of session {session.id}" in notices
        assert running.parts.surroundings.left.all() == []
        with pytest.raises(UserError, match="the copy of this session is gone"):
            await running.start(workspace, "true", resume=session.id)


async def test_what_is_left_and_what_goes_on_with_it_keep_how_exec_rules_hold(
    tmp_path: Path, workspace: Path
) -> None:
    """It is the session's, whatever the settings of the next supervisor say."""
    settings = settings_in(tmp_path, POLICY)
    async with supervised(settings) as running:
        call = ("/v1/exec", {"command": "echo agent > README.md"})
        session = await running.start(workspace, *agent_command(call), exec_rules="enforce")
        await running.asked("filesystem")
        await running.parts.sessions.stop(session.id, reason="a person", by="the test")
        await running.ended(session)
        assert session.limits.exec_rules == "enforce"
    async with supervised(settings) as running:
        assert running.parts.surroundings._opened[session.id].enforces_exec_rules
        resumed = await running.start(workspace, "true", resume=session.id)
        assert resumed.limits.exec_rules == "enforce"
        assert running.parts.surroundings._opened[resumed.id].enforces_exec_rules
        await running.agent_exited(resumed)
        other = await running.start(workspace, "true")
        assert not running.parts.surroundings._opened[other.id].enforces_exec_rules
