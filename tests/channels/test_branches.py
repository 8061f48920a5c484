"""An agent's branch in the host's repository: exactly its commits, under a name that takes nobody
else's place, and nothing else of the repository changes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from supervisor.core.sessions import Session
from supervisor.errors import RefusedError
from tests.fakes.sandboxed_agent import agent_command
from tests.fakes.supervised import Supervised, git, make_repository, settings_in, supervised

pytestmark = pytest.mark.asyncio(loop_scope="module")

BY = "operator (cli)"
COMMIT = "git -c user.name=agent -c user.email=agent@example.org commit -q"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Supervised]:
    async with supervised(settings_in(tmp_path_factory.mktemp("take"))) as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


async def worked(
    running: Supervised, workspace: Path, *commands: str, copy: str = "copy"
) -> Session:
    """A session that has ended, whose agent ran these commands and got no file out."""
    calls = [("/v1/exec", {"command": line}) for line in commands]
    with running.answering(lambda one: "approved" if hasattr(one.action, "command") else "denied"):
        session, output = await running.run(workspace, *agent_command(*calls), copy=copy)
    assert "ANSWER" in output
    return session


def everything_but_branches(workspace: Path) -> tuple[str, ...]:
    return (
        git(workspace, "status", "--porcelain"),
        git(workspace, "symbolic-ref", "HEAD"),
        git(workspace, "rev-parse", "HEAD"),
        git(workspace, "ls-files", "--stage"),
        git(workspace, "config", "--list", "--local"),
    )


@pytest.mark.parametrize("copy", ["copy", "overlay"])
async def test_a_branch_comes_home_and_nothing_else_changes(
    running: Supervised, workspace: Path, copy: str
) -> None:
    (workspace / "README.md").write_text("edited by the person\n")
    (workspace / "staged.txt").write_text("x\n")
    git(workspace, "add", "staged.txt")
    before = everything_but_branches(workspace)
    session = await worked(
        running,
        workspace,
        f"git checkout -q -b feature && {COMMIT} --allow-empty -m One",
        copy=copy,
    )
    taken = await running.parts.branches.take(session.id, "", by=BY)
    assert (taken.source, taken.branch, taken.commits) == ("feature", "feature", 1)
    assert (
        git(workspace, "log", "-1", "--format=%H %an %s", "feature") == f"{taken.commit} agent One"
    )
    assert everything_but_branches(workspace) == before
    (line,) = running.audit("branch_taken", session=session.id)
    assert (line["branch"], line["commit"], line["by"]) == ("feature", taken.commit, BY)


async def test_a_branch_of_the_person_s_keeps_its_place(
    running: Supervised, workspace: Path
) -> None:
    own = git(workspace, "rev-parse", "--abbrev-ref", "HEAD")
    head = git(workspace, "rev-parse", "HEAD")
    session = await worked(running, workspace, f"{COMMIT} --allow-empty -m One")
    taken = await running.parts.branches.take(session.id, "", by=BY)
    assert (taken.source, taken.branch) == (own, f"gatehouse/{own}")
    assert git(workspace, "rev-parse", "HEAD") == head
    # Another session's is another history: it takes nobody's place, either.
    second = await worked(running, workspace, f"{COMMIT} --allow-empty -m Two")
    other = await running.parts.branches.take(second.id, "", by=BY)
    assert other.branch == f"gatehouse/{own}-2"
    assert git(workspace, "log", "-1", "--format=%s", taken.branch) == "One"


async def test_a_taken_branch_moves_on(running: Supervised, workspace: Path) -> None:
    first = f"git checkout -q -b fix && {COMMIT} --allow-empty -m One"
    session = await running.start(
        workspace,
        *agent_command(
            ("/v1/exec", {"command": first}),
            ("/v1/exec", {"command": f"{COMMIT} --allow-empty -m Two"}),
        ),
    )
    running.approve(await running.asked("exec", where=lambda one: "checkout" in str(one.action)))
    second = await running.asked("exec", where=lambda one: "Two" in str(one.action))
    taken = await running.parts.branches.take(session.id, "", by=BY)
    assert (taken.branch, taken.commits) == ("fix", 1)
    with pytest.raises(RefusedError, match="has all commits of `fix` already"):
        await running.parts.branches.take(session.id, "fix", by=BY)
    running.approve(second)
    await running.ended(session)
    again = await running.parts.branches.take(session.id, "fix", by=BY)
    assert (again.branch, again.commits) == ("fix", 1)
    assert git(workspace, "log", "--format=%s", "-2", "fix") == "Two\nOne"


@pytest.mark.parametrize(
    ("branch", "why"),
    [
        ("nothere", "no branch or tag is called"),
        ("--all", "no branch or tag is called"),
        ("", "has all commits"),
    ],
)
async def test_what_is_not_there_is_refused(
    running: Supervised, workspace: Path, branch: str, why: str
) -> None:
    session = await worked(running, workspace, "git status")
    with pytest.raises(RefusedError, match=why):
        await running.parts.branches.take(session.id, branch, by=BY)
    assert git(workspace, "branch", "--list").count("\n") == 0


async def test_what_the_copy_configures_runs_nothing_outside(
    running: Supervised, workspace: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    evil = "; ".join(
        f"git config {name} 'touch {ran}'"
        for name in ("core.fsmonitor", "uploadpack.packObjectsHook", "core.sshCommand")
    )
    hooks = ".git/hooks/reference-transaction"
    hook = f"printf '#!/bin/sh\\ntouch {ran}\\n' > {hooks}; chmod +x {hooks}"
    session = await worked(
        running,
        workspace,
        f"git checkout -q -b x && {COMMIT} --allow-empty -m X",
        evil,
        hook,
    )
    await running.parts.branches.take(session.id, "", by=BY)
    assert not ran.exists()


async def test_no_name_of_the_person_s_is_taken_over(
    running: Supervised, workspace: Path, tmp_path: Path
) -> None:
    """A tag's, a remote branch's and `HEAD` would be read instead of theirs."""
    git(tmp_path, "init", "-q", "--bare", str(tmp_path / "remote.git"))
    git(workspace, "remote", "add", "origin", str(tmp_path / "remote.git"))
    git(workspace, "push", "-q", "origin", "HEAD:main")
    git(workspace, "fetch", "-q")
    git(workspace, "tag", "v1")
    names = ("origin/main", "origin/later", "v1", "Fix", "deadbeef", "FETCH_HEAD", "HEAD")
    git(workspace, "branch", "fix")
    make = " && ".join(f"git update-ref refs/heads/{one} HEAD" for one in names)
    session = await worked(running, workspace, f"{COMMIT} --allow-empty -m One && {make}")
    before = {one: git(workspace, "rev-parse", one) for one in ("origin/main", "v1", "HEAD", "fix")}
    taken = [(await running.parts.branches.take(session.id, names[0], by=BY)).branch]
    assert taken == ["gatehouse/origin/main"]
    for name in names[1:]:
        git(workspace, "update-ref", "-d", f"refs/heads/{taken[-1]}")
        taken.append((await running.parts.branches.take(session.id, name, by=BY)).branch)
    assert all(one.startswith(("gatehouse/", "detached-")) for one in taken), taken
    assert {one: git(workspace, "rev-parse", one) for one in before} == before


async def test_a_part_of_a_repository_says_where_commits_are_made(
    running: Supervised, workspace: Path
) -> None:
    session = await worked(running, workspace / "src", "true")
    with pytest.raises(RefusedError, match="is a part of a repository") as found:
        await running.parts.branches.take(session.id, "", by=BY)
    assert f"`{workspace}`" in found.value.remedy
