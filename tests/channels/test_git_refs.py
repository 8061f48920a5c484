"""Refs that have two names, in the copy or at the remote: rules judge what moves, the card shows
all of it, and nothing else moves."""

import contextlib
import random
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest
import pytest_asyncio

from supervisor.cli.card_verbs import push_lines
from supervisor.core.actions import Git, RefUpdate
from supervisor.core.approvals import Request, status
from supervisor.core.policy.git_refs import parse_command
from supervisor.errors import RefusedError
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import Supervised, git, make_repository, settings_in, supervised
from tests.tables import share

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMMIT = "git -c user.name=agent -c user.email=agent@example.org commit -q --allow-empty"
SEEDS, ROUNDS = 3, 30
DENIED = re.compile(r"refs/heads/(?:main\Z|secret/)", re.IGNORECASE)
POLICY = """version: 1
modes: {exec: contained}
allow:
- git(push origin feature/*)
- git(push --force origin feature/*)
- git(push --delete origin feature/*)
- git(push origin work)
- git(push --delete origin work)
- git(fetch origin)
deny: [git(push main), git(push secret/*), git(fetch origin secret/*)]
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Supervised]:
    async with supervised(settings_in(tmp_path_factory.mktemp("refs"), POLICY)) as running:
        yield running


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(tmp_path / "remote.git"))
    return tmp_path / "remote.git"


@pytest.fixture
def workspace(tmp_path: Path, remote: Path) -> Path:
    made = make_repository(tmp_path / "project")
    git(made, "branch", "-M", "main")
    git(made, "remote", "add", "origin", str(remote))
    git(made, "push", "-q", "origin", "main", "main:work")
    return made


async def pushed(
    running: Supervised, workspace: Path, work: str, push: str
) -> tuple[dict[str, object], Request | None]:
    """What an agent is answered to a push after some work, which nobody approves; and the push."""
    calls = [("/v1/exec", {"command": work}), ("/v1/git", {"command": push})]
    with running.answering(lambda one: "denied" if isinstance(one.action, Git) else "approved"):
        session, output = await running.run(workspace, *agent_command(*calls))
    asked = [one for one in running.requests(session) if isinstance(one.action, Git)]
    return answers(output)[-1], asked[-1] if asked else None


async def test_a_denied_branch_is_not_fetched_with_all_others_nor_by_another_name(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    tree = git(remote, "rev-parse", "main^{tree}")
    hidden = git(
        remote, "-c", "user.name=o", "-c", "user.email=o@x.org", "commit-tree", tree, "-m", "s"
    )
    git(remote, "update-ref", "refs/heads/secret/x", hidden)
    git(remote, "symbolic-ref", "refs/heads/public", "refs/heads/secret/x")
    git(remote, "update-ref", "refs/heads/HEAD", hidden)
    lines = ["git fetch origin", "git fetch origin public"]
    calls = [
        *(("/v1/git", {"command": line}) for line in lines),
        ("/v1/exec", {"command": "git for-each-ref && git cat-file -t " + hidden}),
    ]
    with running.answering(lambda one: "approved"):
        _, output = await running.run(workspace, *agent_command(*calls))
    every, named, found = answers(output)
    assert "left out: refs/heads/secret/x (denied by" in every["outcome"]["said"], every
    assert "left out: refs/heads/public" in every["outcome"]["said"]
    assert "denied by git(fetch origin secret/*)" in str(named["outcome"]["error"])
    assert hidden not in found["outcome"]["stdout"]
    assert "refs/remotes/origin/work" in found["outcome"]["stdout"]
    assert found["outcome"]["exit_code"] == 128


async def test_a_longer_name_at_the_remote_does_not_get_what_is_pushed(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    """Git takes `refs/heads/x` for `refs/heads/refs/heads/x`, where that is all that is there."""
    git(remote, "update-ref", "refs/heads/refs/heads/feature/x", "main")
    before = git(remote, "for-each-ref")
    work = f"git checkout -q -b feature/x && {COMMIT} -m x"
    answer, _ = await pushed(running, workspace, work, "git push origin feature/x")
    assert "would push to the remote's `refs/heads/refs/heads/feature/x`" in str(answer["why"])
    assert git(remote, "for-each-ref") == before


@pytest.mark.parametrize("seed", share(range(SEEDS), 0))
async def test_whatever_is_allowed_the_remote_has_what_the_plan_said_and_nothing_denied_moved(
    running: Supervised, workspace: Path, remote: Path, seed: int
) -> None:
    """Law 13 over odd refs, symbolic refs and words, here and there."""
    chance = random.Random(seed)
    commits = [git(workspace, "rev-parse", "HEAD")]
    tree = git(workspace, "rev-parse", "HEAD^{tree}")
    for number in range(5):
        parent = chance.choice(commits)
        commits.append(git(workspace, "commit-tree", tree, "-p", parent, "-m", str(number)))
    (remote / "objects/info/alternates").write_text(f"{workspace}/.git/objects\n")
    session = await running.start(workspace, "sh", "-c", "echo ready; sleep 600", copy="copy")
    copy = running.parts.settings.sessions_dir / session.id / "merged"
    await running.until(lambda: "ready" in running.output(session) or None)
    pushes, gate = running.parts.pushes, running.parts.gate
    carried_out = 0
    for _ in range(ROUNDS):
        made = mix_refs(chance, copy / ".git", commits, NAMES)
        mix_refs(chance, remote, commits, [one for one in NAMES if one not in BROKEN])
        before = refs_of(remote)
        wanted = parse_command(f"git push origin {' '.join(words(chance, made))}")
        if gate.rulings.verdict(wanted, session.id).decision == "deny":
            continue
        try:
            planned = await pushes.planned(session.id, wanted)
        except RefusedError:
            assert refs_of(remote) == before
            continue
        request = gate.ask(planned, session_id=session.id, reason="", origin="agent_api")
        if status(request) == "pending":  # a person's yes changes nothing of it
            running.approve(request)
        outcome = {} if status(request) == "denied" else await running.done(request)
        told = {one.ref: one.new for one in planned.updates}
        expected = before | told if outcome.get("ok") else before
        assert refs_of(remote) == {ref: oid for ref, oid in expected.items() if oid}, wanted
        assert not outcome.get("ok") or not any(map(DENIED.match, told)), wanted
        carried_out += bool(outcome.get("ok"))
    assert carried_out
    await running.parts.sessions.stop(session.id, reason="a person", by="the test")
    await running.ended(session)


NAMES = [
    *("feature/a", "feature/a", "feature/b", "feature/b", "feature/c/d", "main", "Main"),
    *("secret/x", "HEAD", "v1", "feature"),
    *("refs/heads/feature/a", "refs/heads/main", "heads/main", "tags/v1", "work", "feature/\u00e9"),
    *("feature/e\u0301", "feature/HEAD", "origin/main", "@", "feature/a.lock", "feature/x."),
]  # fmt: skip


BROKEN = ("feature/a.lock", "feature/x.", "@")


def refs_of(where: Path) -> dict[str, str]:
    """What each ref of a repository stands for, symbolic ones included."""
    listed = git(where, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.rsplit(" ", 1) for line in listed)


def mix_refs(
    chance: random.Random, folder: Path, commits: list[str], names: list[str]
) -> list[str]:
    """Give a repository other refs: plain, symbolic, odd and broken ones. Return their names."""
    for name in ("heads", "tags"):
        shutil.rmtree(folder / "refs" / name, ignore_errors=True)
        (folder / "refs" / name).mkdir()
    (folder / "packed-refs").unlink(missing_ok=True)
    (folder / "HEAD").write_text(f"ref: refs/heads/{chance.choice(names)}\n")
    made = [f"refs/heads/{name}" for name in ("feature/a", "feature/b") if chance.random() < 0.7]
    for ref in made:
        (folder / ref).parent.mkdir(exist_ok=True)
        (folder / ref).write_text(f"{chance.choice(commits)}\n")
    for _ in range(chance.randrange(3, 12)):
        ref = f"refs/{chance.choice(['heads', 'heads', 'tags'])}/{chance.choice(names)}"
        is_symbolic = made and chance.random() < 0.3
        says = f"ref: {chance.choice(made)}" if is_symbolic else chance.choice(commits)
        with contextlib.suppress(OSError):  # a name can be a folder, too
            (folder / ref).parent.mkdir(parents=True, exist_ok=True)
            (folder / ref).write_text(f"{says}\n")
            made.append(ref)
    return [ref.split("/", 2)[2] for ref in made]


def words(chance: random.Random, made: list[str]) -> list[str]:
    """Return refspecs as an agent might write them."""
    found = []
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        one = chance.choice(made if made and chance.random() < 0.8 else NAMES)
        other = chance.choice(NAMES)
        forms = [
            *(one,) * 6,
            f"{one}:{other}",
            f"HEAD:{other}",
            f":{one}",
            "HEAD",
            f"refs/tags/{one}",
        ]
        forms += [f"refs/heads/{one}", f"refs/heads/{one}:refs/heads/{other}"]
        found.append(chance.choice(["", "", "+"]) + chance.choice(forms))
    return found


@pytest.mark.parametrize(
    ("work", "push", "why"),
    [
        (
            f"{COMMIT} -m x && git symbolic-ref refs/heads/feature/x refs/heads/main",
            "git push origin feature/x",
            "`feature/x` is another name for `refs/heads/main` in your copy",
        ),
        (
            f"{COMMIT} -m x && git symbolic-ref refs/heads/feature/y refs/heads/main"
            " && git symbolic-ref HEAD refs/heads/feature/y",
            "git push",
            "denied by git(push main)",
        ),
        (
            f"{COMMIT} -m x && git update-ref refs/heads/HEAD HEAD",
            "git push origin refs/heads/HEAD",
            "is not a valid ref",
        ),
        (
            f"{COMMIT} -m x && git update-ref refs/heads/refs/heads/feature/x HEAD",
            "git push origin refs/heads/refs/heads/feature/x",
            "is not a valid ref",
        ),
        (
            f"{COMMIT} -m x && git update-ref refs/heads/refs/heads/feature/x HEAD",
            "git push origin refs/heads/feature/x",
            "no branch or tag is called feature/x",
        ),
        (
            f"{COMMIT} -m x && git update-ref refs/notes/x HEAD",
            "git push origin HEAD:refs/notes/x",
            "no branch or tag, and nothing else is pushed",
        ),
        (
            "git tag t $(git rev-parse HEAD^{tree})",
            "git push origin refs/tags/t",
            "is no commit",
        ),
        (
            "git branch feature/x && git tag feature/x",
            "git push origin feature/x",
            "is a branch and a tag",
        ),
    ],
)
async def test_what_has_two_names_in_the_copy_moves_nothing_else(
    running: Supervised, workspace: Path, remote: Path, work: str, push: str, why: str
) -> None:
    before = git(remote, "for-each-ref")
    answer, _ = await pushed(running, workspace, work, push)
    assert why in str(answer["why"]), answer
    assert git(remote, "for-each-ref") == before


async def test_another_name_at_the_remote_is_a_push_to_what_it_names(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    git(remote, "symbolic-ref", "refs/heads/feature/alias", "refs/heads/main")
    before = git(remote, "for-each-ref")
    work = f"git checkout -q -b feature/alias && {COMMIT} -m x"
    answer, push = await pushed(running, workspace, work, "git push origin feature/alias")
    assert "denied by git(push main)" in str(answer["why"]), answer
    assert git(remote, "for-each-ref") == before
    assert push is not None
    assert {one.ref for one in push.action.updates} == {  # type: ignore[union-attr]
        "refs/heads/feature/alias",
        "refs/heads/main",
    }


async def test_what_moves_along_is_asked_shown_and_pushed_with_it(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    git(remote, "symbolic-ref", "refs/heads/release", "refs/heads/work")
    old = git(remote, "rev-parse", "work")
    calls = [
        ("/v1/exec", {"command": f"git checkout -q -b work && {COMMIT} -m x"}),
        ("/v1/git", {"command": "git push origin work"}),
    ]
    session = await running.start(workspace, *agent_command(*calls))
    push = await running.asked("git", where=lambda one: one.session_id == session.id)
    assert isinstance(push.action, Git)
    new = push.action.updates[0].new
    assert push.action.updates == (
        RefUpdate("refs/heads/work", old, new),
        RefUpdate("refs/heads/release", old, new),
    )
    card = await running.parts.pushes.card(push)
    assert [one.ref for one in card.moves] == ["refs/heads/work", "refs/heads/release"]
    running.approve(push)
    await running.ended(session)
    assert answers(running.output(session))[-1]["outcome"]["ok"]
    assert git(remote, "rev-parse", "work", "release").split() == [new, new]


async def test_a_name_that_the_remote_gives_after_the_card_moves_nothing(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    calls = [
        ("/v1/exec", {"command": f"git checkout -q -b other && {COMMIT} -m x"}),
        ("/v1/git", {"command": "git push origin other"}),
    ]
    session = await running.start(workspace, *agent_command(*calls))
    push = await running.asked("git", where=lambda one: one.session_id == session.id)
    git(remote, "symbolic-ref", "refs/heads/other", "refs/heads/main")
    before = git(remote, "for-each-ref")
    with running.answering(lambda one: "approved" if one.id == push.id else "denied"):
        await running.ended(session)
    outcome = answers(running.output(session))[-1]["outcome"]
    assert "the remote would move refs/heads/main along" in outcome["error"]
    assert git(remote, "for-each-ref") == before


async def test_another_name_is_not_deleted(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    git(remote, "symbolic-ref", "refs/heads/release", "refs/heads/work")
    answer, _ = await pushed(running, workspace, "true", "git push origin :work")
    assert "the remote's `refs/heads/work` is the same as" in str(answer["why"])
    assert git(remote, "rev-parse", "--verify", "refs/heads/work")


async def test_the_card_has_what_passes_what_messages_say_and_a_tag_s_own_text(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    """What one commit adds and the next takes away is pushed, too."""
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    work = (
        f"git checkout -q -b other && printf 'key = {token}' > key.txt"
        " && mkdir -p .github/workflows && echo on > .github/workflows/x.yml"
        " && git add . && git -c user.name=a -c user.email=a@b.org commit -q -m Add"
        " && git rm -qrf key.txt .github"
        f" && {COMMIT} -m 'Subject' -m 'Body with the why'"
        " && git checkout -q -b side HEAD~2 && echo s > s.txt && git add . && "
        f"{COMMIT} -m Side && git checkout -q other && git -c user.name=a -c user.email=a@b.org"
        " merge -q --no-commit side && echo e > evil.txt && git add . && "
        f"{COMMIT} -m Merge && git rm -q evil.txt && {COMMIT} -m Gone"
        " && git -c user.name=a -c user.email=a@b.org tag -a v1 -m 'The tag says this'"
    )
    _, push = await pushed(running, workspace, work, "git push origin other v1")
    assert push is not None
    card = await running.parts.pushes.card(push)
    branch, tag = card.moves
    assert [one.path for one in branch.files] == ["s.txt"]
    assert {one.path for one in branch.passing} == {
        *("evil.txt", "key.txt", ".github/workflows/x.yml")
    }
    assert "Body with the why" in [one.body for one in branch.commits]
    assert "The tag says this" in tag.tag
    found = dict(card.flags)
    assert found["looks like a secret"] == "key.txt"
    assert ".github/workflows/x.yml" in found["runs or decides elsewhere"]
    assert "evil.txt" in found["only on the way"]
    assert card.size > len(token)
    told = "\n".join(push_lines(msgspec.to_builtins(card)))
    for said in ("Body with the why", "The tag says this", "key.txt", "only on the way, in"):
        assert said in told


async def test_a_name_that_the_remote_did_not_list_is_told_of(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    """One for a branch that isn't there yet: no list has it."""
    git(remote, "symbolic-ref", "refs/heads/feature/z", "refs/heads/not-there")
    calls = [
        ("/v1/exec", {"command": f"git checkout -q -b feature/z && {COMMIT} -m x"}),
        ("/v1/git", {"command": "git push origin feature/z"}),
    ]
    _, output = await running.run(workspace, *agent_command(*calls))
    outcome = answers(output)[-1]["outcome"]
    assert "moved refs/heads/not-there along" in outcome["error"]


async def test_every_file_of_a_push_is_named_and_searched_and_what_is_not_is_said(
    running: Supervised, workspace: Path, remote: Path
) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    commit = "git add . && git -c user.name=a -c user.email=a@b.org commit -q -m"
    work = (
        "git checkout -q -b other && mkdir d && for i in $(seq 100 340); do echo $i > d/$i; done"
        f" && printf 'key = {token}' > z-key && cp z-key d/way-330"
        f" && head -c 2000000 /dev/zero > z-large && {commit} Add && git rm -qrf d/way-330"
        " && for i in $(seq 100 340); do echo a$i > d/$i; done"
        f" && {commit} Gone"
    )
    _, push = await pushed(running, workspace, work, "git push origin other")
    assert push is not None
    card = await running.parts.pushes.card(push)
    (move,) = card.moves
    shown = [one.path for one in move.files] + [one.path for one in move.more_files]
    assert sorted(shown) == sorted([*(f"d/{i}" for i in range(100, 341)), "z-key", "z-large"])
    on_way = [one.path for one in move.passing] + [one.path for one in move.more_passing]
    assert sorted(on_way) == sorted([*(f"d/{i}" for i in range(100, 341)), "d/way-330"])
    found = dict(card.flags)
    assert found["looks like a secret"] == "z-key, d/way-330"
    assert found["not searched for secrets"] == "z-large"
    told = "\n".join(push_lines(msgspec.to_builtins(card)))
    assert "    and 143 more changed files, by name\n" in told
    assert "      z-large  new, not searched for secrets\n" in told
    token = (running.parts.settings.data_dir / "operator.token").read_text().strip()
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {token}"}) as web:
        origin = f"http://127.0.0.1:{running.supervisor.port}"
        part = (await web.get(f"{origin}/parts/push/{push.id}")).text
    assert "z-large  new, not searched for secrets" in part
    assert "d/way-330  new" in part
