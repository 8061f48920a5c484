"""Pushes that an agent asks for, carried out at real bare repositories: exactly what was shown,
with git's and the remote's own refusals."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from supervisor.cli.card_verbs import push_lines
from supervisor.core.actions import Exec, Git, RefUpdate
from supervisor.core.approvals import Request
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMMIT = "git -c user.name=agent -c user.email=agent@example.org commit -q"
BEGIN = (
    f"git checkout -q -b feature && echo new > new.txt && git add new.txt && {COMMIT} -m 'Add new'"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Supervised]:
    policy = "version: 1\ndeny: [git(push forbidden)]\n"
    async with supervised(settings_in(tmp_path_factory.mktemp("git"), policy)) as running:
        yield running


def git(where: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(where), *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    made = tmp_path / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(made)], check=True)
    return made


@pytest.fixture
def workspace(tmp_path: Path, remote: Path) -> Path:
    made = make_repository(tmp_path / "project")
    git(made, "branch", "-M", "main")
    git(made, "remote", "add", "origin", str(remote))
    git(made, "push", "-q", "origin", "main")
    return made


async def ask(
    running: Supervised, workspace: Path, *commands: str, answer: str = "approved"
) -> tuple[list[dict[str, Any]], list[Request]]:
    """What an agent is answered that runs these lines, `git push` ones by the git route; and the
    pushes as they were asked."""
    calls = [
        ("/v1/git" if line.startswith("git push") else "/v1/exec", {"command": line})
        for line in commands
    ]
    with running.answering(
        lambda one: answer if isinstance(one.action, Git) else "approved"  # type: ignore[arg-type, return-value]
    ):
        session, output = await running.run(workspace, *agent_command(*calls))
    pushes = [one for one in running.requests(session) if isinstance(one.action, Git)]
    return answers(output), pushes


async def test_an_approved_push_moves_the_branch_to_exactly_what_was_shown(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    found, (push,) = await ask(running, workspace, BEGIN, "git push -u origin feature")
    assert found[-1]["outcome"]["ok"], found
    assert isinstance(push.action, Git)
    assert push.action.url == str(remote)
    head = git(remote, "rev-parse", "refs/heads/feature")
    assert push.action.updates == (RefUpdate("refs/heads/feature", "", head),)
    assert git(remote, "show", f"{head}:new.txt") == "new"
    assert git(remote, "log", "-1", "--format=%an %s", head) == "agent Add new"
    # The host's repository is as it was.
    assert git(workspace, "branch", "--list") == "* main"
    assert git(workspace, "rev-parse", "main") == git(remote, "rev-parse", "main")


async def test_the_card_shows_commits_and_the_difference_at_the_remote(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    edit = (
        "echo more >> README.md && mkdir -p .github/workflows && echo a > .github/workflows/x.yml"
    )
    again = f"{edit} && git add . && {COMMIT} -m 'Edit <b>' && git tag v1"
    _, (push,) = await ask(
        running, workspace, BEGIN, again, "git push origin feature v1", answer="denied"
    )
    card = await running.parts.pushes.card(push)
    told = "\n".join(push_lines(msgspec.to_builtins(card)))
    assert f"    refs/heads/feature is new at {remote}: " in told
    assert "Add new (agent)\n" in told
    assert "    ! new branch: feature is not at the remote yet\n" in told
    assert "    new.txt  +1 -0\n      +new" in told
    branch, tag = card.moves
    assert [one.subject for one in branch.commits] == ["Edit <b>", "Add new"]
    assert {one.author for one in branch.commits} == {"agent"}
    assert (branch.how, branch.commit_count) == ("new", 2)
    assert {one.path: (one.diff.added, one.diff.removed) for one in branch.files} == {
        ".github/workflows/x.yml": (1, 0), "README.md": (1, 0), "new.txt": (1, 0),
    }  # fmt: skip
    assert (tag.ref, tag.how) == ("refs/tags/v1", "new")
    assert [name for name, _ in card.flags] == [
        "new branch", "new tag", "runs or decides elsewhere",
    ]  # fmt: skip
    _, (push,) = await ask(
        running, workspace, f"{COMMIT} --amend -m X", "git push -f origin main", answer="denied"
    )
    (moved,) = (await running.parts.pushes.card(push)).moves
    assert (moved.how, moved.lost_count, len(moved.lost), moved.files) == ("rewritten", 1, 1, ())
    _, (push,) = await ask(running, workspace, "git push origin :main", answer="denied")
    (gone,) = (await running.parts.pushes.card(push)).moves
    assert (gone.how, gone.commits, gone.files) == ("deleted", (), ())


async def test_what_is_denied_never_leaves(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    found, (push,) = await ask(running, workspace, BEGIN, "git push", answer="denied")
    assert found[-1]["status"] == "denied"
    assert isinstance(push.action, Git)
    assert [one.ref for one in push.action.updates] == ["refs/heads/feature"]
    assert git(remote, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    found, (push,) = await ask(running, workspace, BEGIN, "git push origin HEAD:forbidden")
    assert (found[-1]["status"], push.action.updates) == ("denied", ())  # type: ignore[union-attr]


async def test_force_delete_and_tags(running: Supervised, workspace: Path, remote: Path) -> None:
    old = git(remote, "rev-parse", "main")
    amend = f"{COMMIT} --amend -m 'Another history'"
    found, _ = await ask(running, workspace, amend, "git push origin main")
    assert found[-1]["http"] == 403
    assert "commits at the remote that yours lacks" in found[-1]["why"]
    found, (push,) = await ask(
        running, workspace, amend, "git tag v1", "git push --force origin main v1"
    )
    assert found[-1]["outcome"]["ok"], found
    new = git(remote, "rev-parse", "main")
    assert new != old
    assert push.action.updates == (  # type: ignore[union-attr]
        RefUpdate("refs/heads/main", old, new),
        RefUpdate("refs/tags/v1", "", new),
    )
    found, (push,) = await ask(running, workspace, "git push origin :refs/tags/v1")
    assert found[-1]["outcome"]["ok"], found
    assert push.action.updates == (RefUpdate("refs/tags/v1", new, ""),)  # type: ignore[union-attr]
    assert git(remote, "tag") == ""


async def test_a_refusal_by_the_remote_reaches_agent_and_record_whole(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    hook = remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'no pushes on Fridays' >&2\nexit 1\n")
    hook.chmod(0o755)
    found, (push,) = await ask(running, workspace, BEGIN, "git push origin feature")
    assert "no pushes on Fridays" in found[-1]["outcome"]["error"]
    (settled,) = running.audit("effect_settled", request=push.id)
    assert "no pushes on Fridays" in settled["detail"]["error"]


async def test_a_remote_that_moved_is_shown_anew(
    running: Supervised, workspace: Path, remote: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    subprocess.run(["git", "clone", "-q", str(remote), str(other)], check=True)
    (other / "theirs.txt").write_text("theirs\n")
    git(other, "add", ".")
    git(other, "-c", "user.name=o", "-c", "user.email=o@example.org", "commit", "-qm", "Theirs")
    begin = f"{COMMIT} --allow-empty -m x"
    calls = [("/v1/exec", {"command": begin}), ("/v1/git", {"command": "git push origin main"})]
    session = await running.start(workspace, *agent_command(*calls))
    running.approve(await running.asked("exec", where=lambda one: one.session_id == session.id))
    push = await running.asked("git", where=lambda one: one.session_id == session.id)
    git(other, "push", "-q", "origin", "main")
    running.approve(push)
    await running.ended(session)
    answer = answers(running.output(session))[-1]
    assert "the remote changed since the push was shown" in answer["outcome"]["error"]
    assert "commits at the remote that yours lacks" in answer["outcome"]["error"]
    assert git(remote, "log", "-1", "--format=%s", "main") == "Theirs"


async def test_nothing_of_the_copy_s_configuration_runs_outside(
    running: Supervised, workspace: Path, remote: Path, tmp_path: Path
) -> None:
    """Hooks, filters, fsmonitor, credential helpers, ssh commands and URL rewrites of the private
    copy's repository mean nothing outside."""
    ran = tmp_path / "ran"
    evil = "; ".join(
        f"git config {name} 'touch {ran}'"
        for name in (
            "core.fsmonitor",
            "core.sshCommand",
            "credential.helper",
            "core.pager",
            "filter.x.clean",
            "uploadpack.packObjectsHook",
        )
    )
    hook = (
        f"printf '#!/bin/sh\\ntouch {ran}\\n' > .git/hooks/pre-push; chmod +x .git/hooks/pre-push"
    )
    moved = f"git config url.{tmp_path}/elsewhere.insteadOf {remote}"
    found, _ = await ask(running, workspace, evil, hook, moved, BEGIN, "git push origin feature")
    assert found[-1]["outcome"]["ok"], found
    assert not ran.exists()
    assert git(remote, "rev-parse", "--verify", "refs/heads/feature")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("git push --all origin", "`--all` is not carried out"),
        ("git push elsewhere main", "`elsewhere` is not a remote that is configured"),
        ("git push origin nothere", "no branch or tag is called nothere"),
        ("git push origin main", "the remote has all of this already"),
        ("git push origin :gone", "no `refs/heads/gone` to delete"),
    ],
)
async def test_what_can_not_be_pushed_is_refused_with_a_reason(
    running: Supervised, workspace: Path, command: str, why: str
) -> None:
    found, pushes = await ask(running, workspace, command)
    assert why in found[-1]["why"], found
    assert not [one for one in pushes if one.used_at]
    session = running.parts.sessions.recent()[0].id
    events = ("verdict_given", "request_asked")
    (line,) = [one for event in events for one in running.audit(event, session=session)]
    assert (line["verdict"], line["category"]) == ("deny", "git")
    assert why in line["why"]


async def test_a_command_that_is_a_push_runs_by_git_and_a_longer_one_starts(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    lines = [BEGIN, "cd . && git push origin feature 2>&1 | tail -3", "git push origin x && ls"]
    calls = [("/v1/exec", {"command": line}) for line in lines]
    with running.answering(lambda one: "approved"):
        session, output = await running.run(workspace, *agent_command(*calls))
    _, pushed, longer = answers(output)
    assert pushed["outcome"]["ok"], pushed
    assert git(remote, "log", "-1", "--format=%s", "refs/heads/feature") == "Add new"
    assert longer["outcome"]["exit_code"], longer
    assert "src refspec x" in longer["outcome"]["stderr"]
    commands = [one.action for one in running.requests(session) if isinstance(one.action, Exec)]
    assert [one.command for one in commands] == [BEGIN, lines[-1]]


async def test_what_the_agent_commits_after_it_asked_is_not_pushed(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    calls = [
        ("/v1/exec", {"command": BEGIN}),
        ("/v1/git", {"command": "git push origin feature"}),
    ]
    session = await running.start(workspace, *agent_command(*calls))
    running.approve(await running.asked("exec", where=lambda one: one.session_id == session.id))
    push = await running.asked("git", where=lambda one: one.session_id == session.id)
    copy = running.parts.settings.sessions_dir / session.id / "merged"
    git(copy, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "--amend", "-m", "Evil")
    with running.answering(lambda one: "denied" if one.id != push.id else "approved"):
        await running.ended(session)
    assert git(remote, "log", "-1", "--format=%s", "feature") == "Add new"


async def test_a_broken_object_and_a_hostile_submodule_are_refused(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    tree = "tree=$(git write-tree); parent=$(git rev-parse HEAD)"
    bad = (
        f"{tree}; printf 'tree %s\\nparent %s\\nauthor nobody\\ncommitter nobody\\n\\nx\\n'"
        " $tree $parent > /tmp/c; git update-ref refs/heads/bad"
        " $(git hash-object -t commit -w --literally /tmp/c)"
    )
    found, pushes = await ask(running, workspace, bad, "git push origin bad")
    assert "didn't pass git's check" in found[-1]["why"], found
    modules = (
        "git checkout -q -b sub"
        " && printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = --upload-pack=sh\\n'"
        f" > .gitmodules && git add .gitmodules && {COMMIT} -m sub"
    )
    found, more = await ask(running, workspace, modules, "git push origin sub")
    assert "didn't pass git's check" in found[-1]["why"], found
    assert not [*pushes, *more]
    assert git(remote, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


async def test_submodules_and_lfs_pointers_are_named(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    work = (
        "git checkout -q -b big"
        " && git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub"
        " && printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:1\\nsize 9\\n'"
        " > big.bin"
        f" && git add big.bin && {COMMIT} -m Big"
    )
    _, (push,) = await ask(running, workspace, work, "git push origin big", answer="denied")
    card = await running.parts.pushes.card(push)
    notes = {one.path: one.notes for one in card.moves[0].files}
    assert "a submodule" in notes["sub"][0]
    assert "Git LFS" in notes["big.bin"][0]
    assert "submodules" in dict(card.flags)


@pytest.mark.parametrize("hashes", ["sha1", "sha256"])
async def test_other_hashes_and_shallow_clones(
    running: Supervised, tmp_path: Path, hashes: str
) -> None:
    origin, clone = tmp_path / "origin.git", tmp_path / "clone"
    source = tmp_path / "source"
    for words in (
        ("init", "-q", f"--object-format={hashes}", "-b", "main", str(source)),
        ("-C", str(source), "-c", "user.name=o", "-c", "user.email=o@x.org", "commit", "-q",
         "--allow-empty", "-m", "One"),
        ("-C", str(source), "-c", "user.name=o", "-c", "user.email=o@x.org", "commit", "-q",
         "--allow-empty", "-m", "Two"),
        ("clone", "-q", "--bare", str(source), str(origin)),
        ("clone", "-q", "--depth=1", f"file://{origin}", str(clone)),
        ("-C", str(clone), "remote", "set-url", "origin", str(origin)),
    ):  # fmt: skip
        subprocess.run(["git", *words], check=True)
    found, _ = await ask(running, clone, BEGIN, "git push origin feature")
    assert found[-1].get("outcome", {}).get("ok"), found
    assert git(origin, "log", "--format=%s", "feature").split("\n") == ["Add new", "Two", "One"]


@pytest.fixture
def public(tmp_path: Path, workspace: Path) -> Path:
    """Another remote, which has nothing."""
    made = tmp_path / "public.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(made)], check=True)
    git(workspace, "remote", "add", "public", str(made))
    return made


async def test_what_another_remote_has_is_new_at_this_one(
    running: Supervised, workspace: Path, remote: Path, public: Path
) -> None:
    _, (_, push) = await ask(
        running, workspace, BEGIN, "git push origin feature", "git push public main"
    )
    (move,) = (await running.parts.pushes.card(push)).moves
    assert (move.commit_count, len(move.files)) == (1, 2)
    assert git(public, "rev-list", "--count", "main") == "1"
    # Nor does what is read of another one afterwards change a card that waits.
    (workspace / "private.txt").write_text("private")
    git(workspace, "add", "private.txt")
    git(workspace, "-c", "user.name=a", "-c", "user.email=a@x", "commit", "-q", "-m", "Private")
    git(workspace, "push", "-q", "origin", "main")
    _, (push, _) = await ask(
        running, workspace, BEGIN.replace("feature", "other"), "git push public other",
        "git push origin other", answer="denied",
    )  # fmt: skip
    (move,) = (await running.parts.pushes.card(push)).moves
    assert [one.subject for one in move.commits] == ["Add new", "Private"]
    assert [one.path for one in move.files] == ["new.txt", "private.txt"]


async def test_what_a_remote_no_longer_has_is_new_there_again(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    push = "git push origin feature"
    again = "git push origin feature:again"
    _, (_, _, asked) = await ask(running, workspace, BEGIN, push, "git push origin :feature", again)
    (move,) = (await running.parts.pushes.card(asked)).moves
    assert [one.subject for one in move.commits] == ["Add new"]


async def test_a_commit_is_shown_whole_whatever_encoding_it_claims(
    running: Supervised, workspace: Path
) -> None:
    token = "ghp_" + "a1B2c3D4e5" * 4
    put = f"sed -e '/^committer/a encoding UTF-16LE' -e '/^committer/a x-data {token}'"
    make = (
        f"{BEGIN} && git cat-file commit HEAD | {put} > c"
        " && git reset -q --hard $(git hash-object -t commit -w c) && rm c"
    )
    _, (push,) = await ask(running, workspace, make, "git push origin feature", answer="denied")
    card = await running.parts.pushes.card(push)
    (commit,) = card.moves[0].commits
    assert (commit.subject, commit.author) == ("Add new", "agent")
    assert commit.body.startswith("encoding UTF-16LE\nx-data ")
    (said,) = (note for name, note in card.flags if name == "looks like a secret")
    assert said == f"the message of {commit.id[:12]}"


async def test_a_tag_of_a_tag_is_refused(running: Supervised, workspace: Path) -> None:
    me = "git -c user.name=a -c user.email=a@x tag -a -m"
    make = f"{me} hidden inner && {me} outer outer inner"
    found, pushes = await ask(running, workspace, make, "git push origin outer")
    assert "is a tag of a tag" in str(found[-1])
    assert not any(one.action.updates for one in pushes if isinstance(one.action, Git))
