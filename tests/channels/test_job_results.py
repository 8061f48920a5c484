"""The result of a job: one commit of what was judged after its tests ran, or a refusal with the
paths, whatever its agent and its tests do to the copy, its git or its refs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from supervisor.core.approvals import status
from supervisor.core.jobs import Job, JobResult
from supervisor.core.sessions import Session
from tests.fakes.supervised import Supervised, git, make_repository, settings_in, supervised

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONTAINED = "version: 1\nmodes: {exec: contained}\n"
NOTE = "docs/RECORDED_MAINTENANCE.md"
COMMIT = "git -c user.name=t -c user.email=t@example.org commit -q"
EVIL = "echo evil >> src/app.py"


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


async def maintained(
    running: Supervised, workspace: Path, tests: str, *scope: str, **job: object
) -> tuple[Session, JobResult]:
    """A job whose tests are a stranger's; the recorded model writes one note."""
    wanted = Job(**{"prompt": "Tidy.", "scope": scope, "tests": tests, "branch": True} | job)  # type: ignore[arg-type]
    session = await running.ended(await running.start(workspace, kind="maintenance", job=wanted))
    assert session.job_result is not None, running.story()
    return session, session.job_result


async def taken(running: Supervised, session: Session) -> str:
    """The branch of a job in the person's repository."""
    return (await running.parts.branches.take(session.id, "", by="the test")).branch


def files_of(where: Path, revision: str) -> list[str]:
    return git(where, "diff", "--name-only", f"{revision}~1", revision).splitlines()


HOSTILE = {
    "a workflow": (
        "mkdir -p .github/workflows && echo x > .github/workflows/ci.yml",
        ".github/wor",
    ),
    "in capitals": ("mkdir -p .GitHub/Workflows && echo x > .GitHub/Workflows/ci.yml", ".GitHub/"),
    "for windows": ("echo x > 'docs/.github\\workflows\\ci.yml'", "docs/.github\\workflows"),
    "for a mac": ("echo x > docs/.git$(printf '\\342\\200\\214')modules", "modules (.gitmodules:"),
    "a short name": ("echo x > docs/GITATT~1", "docs/GITATT~1 (a short name"),
    "of agents": ("echo x > docs/Claude.MD", "docs/Claude.MD (CLAUDE.md:"),
    "a symlink": ("ln -s ../src docs/l", "docs/l (a symlink)"),
    "a program": ("echo x > docs/run && chmod +x docs/run", "docs/run (a new executable)"),
    "a device": ("mkfifo docs/f", "docs/f (a fifo never leaves"),
    "a repository": ("git init -q docs/sub && echo x > docs/sub/x", "docs/sub/.git (a repository"),
    "a submodule": (
        "git clone -q . docs/sub && git -c protocol.file.allow=always submodule add -q ./docs/sub"
        " docs/sub; git add -A; rm -rf docs/sub/.git",
        ".gitmodules (.gitmodules:",
    ),
    "outside": (EVIL, "outside docs/**: src/app.py"),
    "removed": ("rm README.md", "outside docs/**: README.md"),
    "moved": ("git mv README.md docs/", "outside docs/**: README.md"),
    "committed": (f"{EVIL} && git add -A && {COMMIT} -m evil", "outside docs/**: src/app.py"),
    "replaced": (
        f"old=$(git rev-parse HEAD) && {EVIL} && {COMMIT} -am evil && git replace $old HEAD",
        "outside docs/**: src/app.py",
    ),
    "assumed unchanged": (
        f"{EVIL} && git update-index --assume-unchanged src/app.py",
        "outside docs/**: src/app.py",
    ),
    "skipped": (
        f"{EVIL} && git update-index --skip-worktree src/app.py",
        "outside docs/**: src/app.py",
    ),
    "filtered": (
        "mkdir -p .git/info && echo 'src/app.py filter=evil' >> .git/info/attributes"
        " && git config filter.evil.clean 'sed s/-/+/' && sed -i 's/+/-/' src/app.py"
        ' && test -z "$(git status -s src)"',
        "outside docs/**: src/app.py",
    ),
    "by an attribute": (
        "echo 'src/app.py eol=crlf' > .gitattributes && sed -i 's/$/\\r/' src/app.py",
        ".gitattributes (.gitattributes:",
    ),
    "excluded": (
        "mkdir -p .git/info && echo x > src/hidden.py && echo src/hidden.py >> .git/info/exclude",
        "outside docs/**: src/hidden.py",
    ),
    "ignored by itself": (
        "printf '*\\n' > src/.gitignore && echo x > src/hidden.py",
        "outside docs/**: src/.gitignore, src/hidden.py",
    ),
    "by a hook": (
        "mkdir .git/hooks && printf '#!/bin/sh\\necho x > src/hook.py\\n'"
        " > .git/hooks/post-index-change && chmod +x .git/hooks/* && git add -A",
        "outside docs/**: src/hook.py",
    ),
}


@pytest.mark.parametrize("how", HOSTILE)
async def test_what_is_not_a_job_s_to_change_refuses_all_of_it(
    running: Supervised, workspace: Path, how: str
) -> None:
    """Without a scope the protected ones, too."""
    tests, named = HOSTILE[how]
    session, result = await maintained(running, workspace, tests, "docs/**")
    assert named in result.refused, (result, running.story())
    assert result.tests == "passed", result
    assert (result.branch, result.commit, result.waits) == ("", "", False)
    assert [one for one in running.requests(session) if status(one) == "pending"] == []
    (said,) = running.audit("job_done", session=session.id)
    assert said["refused"] == result.refused
    assert git(workspace, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


async def test_nothing_of_the_copy_s_git_runs_or_counts(
    running: Supervised, workspace: Path
) -> None:
    """Hooks of every name, a program to watch files by, another index."""
    tests = """
mkdir .git/hooks
for one in post-index-change reference-transaction post-checkout pre-commit post-rewrite; do
  printf '#!/bin/sh\\necho x > /workspace/merged/src/hook.py\\n' > .git/hooks/$one
done
chmod +x .git/hooks/*
git config core.fsmonitor /workspace/merged/.git/hooks/pre-commit
git config core.worktree /
rm .git/index
echo 'ref: refs/heads/nowhere' > .git/HEAD
rm -rf .git/objects/??
"""
    session, result = await maintained(running, workspace, tests, "docs/**")
    assert result.refused == "", (result, running.story())
    branch = await taken(running, session)
    assert files_of(workspace, branch) == [NOTE]
    assert git(workspace, "rev-parse", branch) == result.commit
    assert git(workspace, "rev-parse", f"{branch}~1") == session.base


async def test_what_the_tests_write_within_the_scope_is_proven_taken_and_pushed(
    running: Supervised, workspace: Path, tmp_path: Path
) -> None:
    """The ones that write what a job may, and what every test runner leaves."""
    (workspace / ".gitignore").write_text("build/\n")
    git(workspace, "add", ".")
    git(workspace, "commit", "-qm", "what is ignored")
    tests = f"""
echo more >> {NOTE}; echo new > docs/new.md; echo '*.tmp' > docs/.gitignore; echo x > docs/a.tmp
mkdir -p build src/__pycache__ .pytest_cache && touch build/x src/__pycache__/a.pyc .pytest_cache/x
echo a; echo b
"""
    session, result = await maintained(running, workspace, tests, "docs/**")
    assert result.refused == "", (result, running.story())
    assert (result.proof.inside, result.proof.lines, result.tests) == (4, 5, "passed")
    assert result.tests_output == "a\nb"
    (push,) = [one for one in running.requests(session) if status(one) == "pending"]
    assert push.reason.startswith("4 files, all within docs/**; tests passed; committed on")
    running.approve(push)
    assert (await running.done(push))["ok"]
    branch = await taken(running, session)
    assert branch == result.branch
    expected = ["docs/.gitignore", NOTE, "docs/a.tmp", "docs/new.md"]
    assert files_of(workspace, branch) == expected
    assert git(workspace, "show", f"{branch}:docs/new.md") == "new"
    assert git(tmp_path / "remote.git", "rev-parse", branch) == result.commit


async def test_what_the_person_has_not_committed_is_not_the_job_s(
    running: Supervised, workspace: Path
) -> None:
    """Within the scope and outside: files, links, programs, a repository, names that are odd."""
    for name in (
        "docs/__pycache__/a.pyc",
        ":(exclude)docs",
        "docs/kept.md",
        "src/x.py",
        "CLAUDE.md",
    ):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("x\n")
    (workspace / "docs/link").symlink_to("kept.md")
    (workspace / "docs/run").write_text("x\n")
    (workspace / "docs/run").chmod(0o755)
    (workspace / "README.md").unlink()
    make_repository(workspace / "docs" / "other")
    session, result = await maintained(running, workspace, "true", "docs/**")
    assert result.refused == "", (result, running.story())
    assert files_of(workspace, await taken(running, session)) == [NOTE]


async def test_a_folder_and_a_file_take_each_other_s_place(
    running: Supervised, workspace: Path
) -> None:
    for name in ("docs/a/b.txt", "docs/c"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("x\n")
    git(workspace, "add", ".")
    git(workspace, "commit", "-qm", "a folder and a file")
    tests = "rm -r docs/a docs/c && echo now > docs/a && mkdir docs/c && echo now > docs/c/d"
    session, result = await maintained(running, workspace, tests, "docs/**")
    assert result.refused == "", (result, running.story())
    branch = await taken(running, session)
    assert files_of(workspace, branch) == [NOTE, "docs/a", "docs/a/b.txt", "docs/c", "docs/c/d"]
    assert git(workspace, "show", f"{branch}:docs/a", f"{branch}:docs/c/d") == "now\nnow"


async def test_branch_author_and_limits_are_the_job_s(running: Supervised, workspace: Path) -> None:
    job = {"branch_name": "gatehouse/docs-0a1b2c3d", "author": "Jo Doe <jo@example.org>"}
    session, result = await maintained(
        running, workspace, "", signed_off=True, max_files=1, max_diff_lines=1, **job
    )
    assert result.refused == "", (result, running.story())
    assert await taken(running, session) == result.branch == job["branch_name"]
    said = git(workspace, "log", "-1", "--format=%an <%ae>%n%cn%n%B", result.branch)
    assert said.splitlines()[:3] == [job["author"], "Jo Doe", "Tidy."]
    assert said.rstrip().endswith("\n\nSigned-off-by: Jo Doe <jo@example.org>")
    for limit, tests in (
        ({"max_files": 1}, "touch second"),
        ({"max_diff_lines": 20}, "seq 50 > many"),
        ({"max_diff_lines": 20}, "head -c 9000 /dev/urandom > bytes"),
    ):
        session, result = await maintained(running, workspace, tests, **limit)  # type: ignore[arg-type]
        assert "at most" in result.refused, (limit, running.story())
        assert result.branch == ""
