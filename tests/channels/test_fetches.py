"""Fetches and pulls that an agent asks for: the person's git reads the remote, the copy's git joins
what came; over a path and over HTTP with a password that no sandbox sees."""

import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from supervisor.channels.fetches import MOST_AT_ONCE
from supervisor.core.actions import Exec, Git
from supervisor.core.approvals import Answer, Request, is_settled
from tests.fakes.git_server import PASSWORD, GitBackend, GitServer
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import (
    OPERATOR,
    Supervised,
    git,
    make_repository,
    settings_in,
    supervised,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMED = "git config user.name agent && git config user.email agent@example.org"
COMMIT = "git -c user.name=agent -c user.email=agent@example.org"


@pytest.fixture(scope="module")
def server() -> Iterator[GitServer]:
    with GitServer(("127.0.0.1", 0), GitBackend) as made:
        threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
        yield made
        made.shutdown()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, server: GitServer
) -> AsyncIterator[Supervised]:
    policy = f"""
version: 1
allow:
  - git(pull origin main)
  - git(ls-remote origin)
  - network(127.0.0.1:{server.server_address[1]})
deny: [network(denied.test)]
"""
    async with supervised(settings_in(tmp_path_factory.mktemp("fetch"), policy)) as running:
        yield running


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    made = tmp_path / "served" / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(made)], check=True)
    git(made, "config", "http.receivepack", "true")
    return made


@pytest.fixture
def workspace(tmp_path: Path, remote: Path) -> Path:
    made = make_repository(tmp_path / "project")
    git(made, "branch", "-M", "main")
    git(made, "remote", "add", "origin", str(remote))
    git(made, "push", "-q", "origin", "main")
    return made


def theirs(remote: Path, folder: Path, branch: str = "main") -> str:
    """Another person's commit at the remote."""
    subprocess.run(["git", "clone", "-q", str(remote), str(folder)], check=True)
    git(folder, "checkout", "-q", "-B", branch)
    (folder / "theirs.txt").write_text("theirs\n")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=o", "-c", "user.email=o@example.org", "commit", "-qm", "Theirs")
    git(folder, "push", "-q", "origin", branch)
    return git(folder, "rev-parse", "HEAD")


async def ask(
    running: Supervised, workspace: Path, *commands: str, answer: Answer = "approved"
) -> list[dict[str, Any]]:
    at_a_remote = ("git fetch", "git pull", "git push", "git ls-remote")
    calls = [
        ("/v1/git" if line.startswith(at_a_remote) else "/v1/exec", {"command": line})
        for line in commands
    ]

    def answered(one: Request) -> Answer:
        if isinstance(one.action, Git):
            return answer
        return "approved" if isinstance(one.action, Exec) else "denied"

    with running.answering(answered):
        _, output = await running.run(workspace, *agent_command(*calls))
    return answers(output)


async def test_a_fetch_brings_what_is_new_and_touches_nothing_else(
    running: Supervised, workspace: Path, remote: Path, tmp_path: Path
) -> None:
    new = theirs(remote, tmp_path / "other", "feature")
    fetched, seen, host = await ask(
        running,
        workspace,
        "git fetch origin",
        "git show origin/feature:theirs.txt && git rev-parse origin/feature && git fsck",
        "git status --porcelain",
    )
    assert fetched["outcome"]["ok"], fetched
    assert f"{new[:12]} refs/remotes/origin/feature" in fetched["outcome"]["said"]
    assert seen["outcome"]["stdout"].splitlines()[:2] == ["theirs", new]
    assert host["outcome"]["stdout"] == ""
    assert git(workspace, "branch", "-r").strip() == "origin/main"


async def test_a_pull_joins_what_came_by_the_copy_s_own_git(
    running: Supervised, workspace: Path, remote: Path, tmp_path: Path
) -> None:
    new = theirs(remote, tmp_path / "other")
    # A rule allows it: nobody is asked.
    pulled, head = await ask(
        running, workspace, "git pull origin main", "git rev-parse HEAD", answer="denied"
    )
    assert "Fast-forward" in pulled["outcome"]["said"]
    assert head["outcome"]["stdout"].strip() == new
    mine = f"{COMMIT} commit -q --allow-empty -m Mine && {NAMED}"
    _, pulled, log = await ask(
        running, workspace, mine, "git pull --rebase", "git log --format=%s -2"
    )
    assert pulled["outcome"]["ok"], pulled["outcome"]
    assert log["outcome"]["stdout"].split() == ["Mine", "Theirs"]
    _, pulled = await ask(running, workspace, mine, "git pull origin main")
    assert "fetched, but not merged" in pulled["outcome"]["error"]
    assert "divergent" in pulled["outcome"]["error"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("git fetch --depth=1 origin", "`--depth=1` is not carried out"),
        ("git fetch origin nothere", "the remote has no branch or tag `nothere`"),
        ("git fetch away", "denied by network(denied.test)"),
        ("git push away main", "denied by network(denied.test)"),
    ],
)
async def test_what_can_not_be_fetched_is_refused_with_a_reason(
    running: Supervised, workspace: Path, command: str, why: str
) -> None:
    git(workspace, "remote", "add", "away", "https://denied.test/a.git")
    (found,) = await ask(running, workspace, command)
    said = found.get("why", "") + str((found.get("outcome") or {}).get("error", ""))
    assert why in said, found


async def test_a_folder_that_leads_out_of_the_workspace_is_no_repository_of_it(
    running: Supervised, workspace: Path, remote: Path, tmp_path: Path
) -> None:
    other = make_repository(tmp_path / "other")
    git(other, "remote", "add", "origin", str(remote))
    (workspace / "link").symlink_to(other)
    calls = [
        ("/v1/git", {"command": f"git {operation} origin", "cwd": "link"})
        for operation in ("ls-remote", "fetch", "push")
    ]
    with running.answering(lambda one: "approved"):
        _, output = await running.run(workspace, *agent_command(*calls))
    assert {one["why"] for one in answers(output)} == {"`link` leads out of the workspace"}


@pytest.fixture
def served(server: GitServer, remote: Path) -> str:
    server.root = remote.parent
    return f"http://127.0.0.1:{server.server_address[1]}/remote.git"


async def test_over_http_the_person_s_credential_helper_is_used_and_stays_outside(
    running: Supervised,
    workspace: Path,
    remote: Path,
    served: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = tmp_path / "gitconfig"
    helper = f'!f() {{ echo username=ada; echo "password={PASSWORD}"; }}; f'
    git(workspace, "config", "--file", str(own), "credential.helper", helper)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    new = theirs(remote, tmp_path / "other", "feature")
    git(workspace, "remote", "set-url", "origin", served)
    work = f"git checkout -q -b mine origin/feature && {COMMIT} commit -q --allow-empty -m Mine"
    fetched, worked, pushed, seen = await ask(
        running,
        workspace,
        "git fetch origin",
        work,
        "git push origin mine",
        "git config --list; env; cat ~/.gitconfig; grep -rs correct-horse ~ /workspace /opt /etc",
    )
    assert fetched["outcome"]["ok"], fetched
    assert worked["outcome"]["ok"], worked
    assert pushed["outcome"]["ok"], pushed
    assert git(remote, "rev-parse", "mine^") == new
    assert PASSWORD not in str(seen["outcome"])
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    (refused,) = await ask(running, workspace, "git fetch origin")
    assert "could not read Username" in refused["outcome"]["error"], refused


@pytest.mark.many
async def test_programs_that_ask_and_leave_have_few_connections_made(
    running: Supervised,
    workspace: Path,
    server: GitServer,
    served: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each made one more connection with the person's credentials, and left it."""
    open_now: set[object] = set()
    release, numbers = threading.Event(), list[int]()

    class Slow(GitBackend):
        def do_GET(self) -> None:
            open_now.add(self)
            numbers.append(len(open_now))
            release.wait(60)
            open_now.discard(self)
            self.send_error(404)

    monkeypatch.setattr(server, "RequestHandlerClass", Slow)
    git(workspace, "remote", "set-url", "origin", served)
    script = """
for i in $(seq 20); do timeout 4 git ls-remote origin b$i & done 2> /tmp/said; wait
head -3 /tmp/said; echo ALL LEFT; sleep 100
"""
    session = await running.start(workspace, "bash", "-c", script)
    await running.printed(session, "ALL LEFT")
    await running.until_soon(lambda: len(numbers) >= MOST_AT_ONCE or None, "connections")
    release.set()
    queue = running.parts.queue

    def settled() -> bool | None:
        return all(is_settled(one) for one in queue.of_session(session.id, 100, 0)) or None

    await running.until(settled, "the end of each")
    errors = [(one.outcome or {}).get("error") for one in queue.of_session(session.id, 100, 0)]
    await running.parts.sessions.stop(session.id, reason="over", by=OPERATOR)
    await running.ended(session)
    assert max(numbers) == len(numbers) == MOST_AT_ONCE
    assert set(errors[:-MOST_AT_ONCE]) <= {"the program that asked has gone; ask again, and wait"}


@pytest.mark.many
async def test_thousands_of_refs_are_fetched_at_once(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    head = git(remote, "rev-parse", "main")
    names = "".join(f"create refs/tags/release-{number:05} {head}\n" for number in range(3000))
    words = ["git", "-C", str(remote), "update-ref", "--stdin"]
    subprocess.run(words, input=names, text=True, check=True)
    fetched, seen = await ask(
        running, workspace, "git fetch --tags origin", "git tag --list 'release-*' | wc -l"
    )
    assert fetched["outcome"]["ok"], fetched
    assert seen["outcome"]["stdout"].strip() == "3000"


@pytest.mark.many
async def test_a_remote_with_a_ref_for_each_of_very_many_requests_is_spoken_to(
    running: Supervised, workspace: Path, remote: Path, tmp_path: Path
) -> None:
    new = theirs(remote, tmp_path / "other", "feature")
    head = git(remote, "rev-parse", "main")
    lines = [f"{head} refs/pull/{number}/head" for number in range(100, 100_200)]
    lines += [f"{head} refs/heads/main", f"{new} refs/heads/feature", f"{new} refs/pull/9/head"]
    lines.sort(key=lambda line: line.split()[1])
    header = "# pack-refs with: peeled fully-peeled sorted"
    (remote / "packed-refs").write_text("\n".join([header, *lines, ""]))
    for branch in ("main", "feature"):
        (remote / "refs/heads" / branch).unlink()
    fetched, pulled, listed, matched, _, pushed = await ask(
        running,
        workspace,
        "git fetch origin",
        "git fetch origin refs/pull/9/head",
        "git ls-remote origin feature",
        "git ls-remote origin 'refs/pull/1001*'",
        f"git checkout -q -b mine && {COMMIT} commit -q --allow-empty -m Mine",
        "git push origin mine",
    )
    assert f"{new[:12]} refs/remotes/origin/feature" in fetched["outcome"]["said"], fetched
    assert pulled["outcome"]["said"] == f"{new[:12]} refs/pull/9/head\n"
    assert listed["outcome"]["said"] == f"{new}\trefs/heads/feature"
    assert len(matched["outcome"]["said"].splitlines()) == 111
    assert pushed["outcome"]["ok"], pushed
    assert git(remote, "log", "-1", "--format=%s", "mine") == "Mine"
