"""The branch of a job: its commit has what was within the scope before the tests ran, whatever the
agent or the tests do to the copy, its git or its refs; and that is what is taken and pushed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from supervisor.core.approvals import status
from supervisor.core.jobs import Job
from supervisor.core.sessions import Session
from tests.fakes.supervised import Supervised, git, make_repository, settings_in, supervised

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONTAINED = "version: 1\nmodes: {exec: contained}\n"
NOTE = "docs/RECORDED_MAINTENANCE.md"
COMMIT = "git -c user.name=t -c user.email=t@example.org commit -q"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Supervised]:
    settings = settings_in(tmp_path_factory.mktemp("jobs"), CONTAINED, anthropic_api_key="")
    async with supervised(settings) as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = make_repository(tmp_path / "project")
    git(tmp_path, "init", "-q", "--bare", str(tmp_path / "remote.git"))
    git(made, "remote", "add", "origin", str(tmp_path / "remote.git"))
    return made


async def maintained(running: Supervised, workspace: Path, tests: str, *scope: str) -> Session:
    """A job whose tests are a stranger's; the recorded model writes one note."""
    job = Job(prompt="Tidy.", scope=scope, tests=tests, branch=True)
    return await running.ended(await running.start(workspace, kind="maintenance", job=job))


def files_of(where: Path, revision: str) -> list[str]:
    return git(where, "diff", "--name-only", f"{revision}~1", revision).splitlines()


@pytest.mark.parametrize(
    "tests",
    [
        "mkdir -p src docs/__pycache__ && echo evil > src/evil.py && echo evil > docs/evil.md",
        f"echo evil > src.py && echo evil >> {NOTE} && git add -A && {COMMIT} -m evil",
        "git checkout -q -b evil && echo x > evil && git add evil"
        f" && {COMMIT} -m evil && git replace HEAD~1 HEAD",
        # A branch of the job's own name, and one that the checked-out branch is another name of.
        f"echo x > evil && git add evil && {COMMIT} -m evil"
        " && git for-each-ref --format='%(refname)' refs/heads"
        " && git symbolic-ref HEAD refs/heads/gatehouse/maintenance",
    ],
)
async def test_what_the_tests_write_is_neither_taken_nor_pushed(
    running: Supervised, workspace: Path, tmp_path: Path, tests: str
) -> None:
    session = await maintained(running, workspace, tests, "docs/**")
    result = session.job_result
    assert result is not None, running.story()
    assert (result.proof.inside, result.proof.outside) == (1, ())
    assert result.tests == "passed", result.tests_why
    (push,) = [one for one in running.requests(session) if status(one) == "pending"]
    running.approve(push)
    assert (await running.done(push))["ok"]
    taken = await running.parts.branches.take(session.id, "", by="the test")
    assert taken.branch == result.branch
    assert files_of(workspace, taken.branch) == [NOTE]
    assert "evil" not in git(workspace, "show", taken.branch)
    assert git(tmp_path / "remote.git", "rev-parse", result.branch) == taken.commit
    assert git(workspace, "rev-parse", f"{taken.branch}~1") == session.base


async def test_only_what_is_within_the_scope_is_committed(
    running: Supervised, workspace: Path
) -> None:
    """Names that git could take for patterns, links, caches, other repositories."""
    for name in ("docs/__pycache__/a.pyc", ":(exclude)docs", "docs/kept.md", "src/x.py", "docs/l"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("x\n")
    make_repository(workspace / "docs" / "other")
    session = await maintained(running, workspace, "true", "docs/**")
    assert session.job_result is not None, running.story()
    # The person's own, which weren't committed, but for what can't be compared.
    assert session.job_result.proof.outside == ("docs/other",)
    taken = await running.parts.branches.take(session.id, "", by="the test")
    assert files_of(workspace, taken.branch) == [NOTE, "docs/kept.md", "docs/l"]


async def test_a_file_that_takes_the_place_of_a_folder_outside_the_scope_commits_nothing(
    running: Supervised, workspace: Path
) -> None:
    (workspace / "a").mkdir()
    (workspace / "a" / "b.txt").write_text("x\n")
    git(workspace, "add", ".")
    git(workspace, "commit", "-qm", "a folder")
    (workspace / "a" / "b.txt").unlink()
    (workspace / "a").rmdir()
    (workspace / "a").write_text("now a file\n")
    session = await maintained(running, workspace, "true", "a", "docs/**")
    assert session.job_result is None or not session.job_result.branch
    assert "can't be committed by itself" in running.story()
