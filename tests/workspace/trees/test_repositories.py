"""A folder that git would take for a repository's own: no way of making one in the workspace
lands, whatever comes first."""

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from supervisor.core.approvals import explanation, status
from supervisor.core.files.undo_steps import Selection
from supervisor.core.policy.file_rules import OF_REPOSITORY
from supervisor.core.policy.git_folders import FOLDER, RepositoryPiece
from supervisor.errors import RefusedError
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.trees.repositories import RepositoryGuard
from tests.workspace.conftest import Desk

EVERYTHING = 'version: 1\nallow: ["filesystem(**)"]\n'
ASKING = "version: 1\n"
REF = "ref: refs/heads/main\n"


@pytest.fixture(params=["copy", "overlay"])
def free(tmp_path: Path, host: Path, request: pytest.FixtureRequest) -> Desk:
    """All files are allowed."""
    return _desk(tmp_path, host, request, EVERYTHING)


@pytest.fixture
def asking(tmp_path: Path, host: Path, request: pytest.FixtureRequest) -> Desk:
    """All files are asked about."""
    return _desk(tmp_path, host, request, ASKING)


def _desk(tmp_path: Path, host: Path, request: pytest.FixtureRequest, policy: str) -> Desk:
    made = Desk(
        tmp_path / "data",
        host,
        policy=policy,
        is_overlay=getattr(request, "param", "") == "overlay",
    )
    request.addfinalizer(made.close)
    return made


def is_git_directory(folder: Path) -> bool:
    """Git's own answer."""
    command = ["git", "-C", "/", "rev-parse", "--resolve-git-dir", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def make_trap(folder: Path, marker: Path) -> None:
    """What `git status` in there runs a program by."""
    subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)
    shutil.rmtree(folder / "hooks")
    (folder / "objects/info/kept").write_text("so that it is no empty folder\n")
    (folder / "refs/heads/kept").write_text("0" * 40 + "\n")
    (folder / "config").write_text(
        '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ".."\n\tfsmonitor ='
        f' "touch {marker}; false"\n'
    )


def status_in(folder: Path) -> None:
    """What a person does there, or their shell's prompt."""
    subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False)


def denials(desk: Desk) -> list[str]:
    return [
        one.action.path
        for one in desk.requests()
        if status(one) == "denied" and OF_REPOSITORY in explanation(one)
    ]  # type: ignore[union-attr]


async def test_an_embedded_repository_stays_out_and_git_status_runs_nothing(
    free: Desk, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    async with free.running(start=False):
        make_trap(tmp_path / "trap", marker)
        status_in(tmp_path / "trap")
        assert marker.exists(), "where git sees it the trap works"
        marker.unlink()
        shutil.copytree(tmp_path / "trap", free.copy / "assets/cache")
        (free.copy / "assets/picture.svg").write_text("<svg/>\n")
        await free.compared()
        assert (free.host / "assets/picture.svg").exists()
        assert not (free.host / "assets/cache").exists()
        status_in(free.host / "assets")
        assert not marker.exists()
        denied = denials(free)
        assert {"assets/cache/HEAD", "assets/cache/config", "assets/cache/refs/heads/kept"} <= set(
            denied
        )
        assert explanation(free.requests("assets/cache/HEAD")[0]).startswith(
            "protected name assets/cache/**: git takes"
        )


async def test_pieces_land_one_by_one_until_they_would_be_one(free: Desk, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    async with free.running(start=False):
        make_trap(tmp_path / "trap", marker)
        for piece in ("config", "refs", "objects", "HEAD"):
            (free.copy / "assets").mkdir(exist_ok=True)
            source = tmp_path / "trap" / piece
            (shutil.copytree if source.is_dir() else shutil.copy)(
                source, free.copy / "assets" / piece
            )
            await free.compared()
        assert (free.host / "assets/config").exists()
        assert (free.host / "assets/refs/heads/kept").exists()
        assert not (free.host / "assets/HEAD").exists()
        status_in(free.host / "assets")
        assert not marker.exists()
        assert denials(free) == ["assets/HEAD"]


async def test_ordinary_folders_with_such_names_are_ordinary(free: Desk) -> None:
    async with free.running(start=False):
        for name in (
            "docs/HEAD",
            "game/objects/tree.obj",
            "paper/refs/one.bib",
            "web/HEAD",
            "web/objects/a",
            "web/refs/b",
        ):
            (free.copy / name).parent.mkdir(parents=True, exist_ok=True)
            (free.copy / name).write_text("<title>a page's head, no reference</title>\n")
        (free.copy / "docs/HEAD").write_text(REF)
        await free.compared()
        assert not denials(free)
        assert (free.host / "web/HEAD").exists()
        assert (free.host / "docs/HEAD").read_text() == REF


async def test_a_repository_that_the_person_keeps_is_closed_but_for_a_rule_that_spells_the_path(
    tmp_path: Path, host: Path, request: pytest.FixtureRequest
) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(host / "fixtures/repo")], check=True)
    policy = 'version: 1\nallow: ["filesystem(**)", "filesystem(fixtures/repo/description)"]\n'
    desk = _desk(tmp_path, host, request, policy)
    async with desk.running(start=False):
        (desk.copy / "fixtures/repo/config").write_text("[core]\n\tfsmonitor = false\n")
        (desk.copy / "fixtures/repo/description").write_text("a fixture\n")
        (desk.copy / "fixtures/repo/info/exclude").unlink()
        (desk.copy / "README.md").rename(desk.copy / "fixtures/repo/README.md")
        await desk.compared()
        assert (host / "fixtures/repo/description").read_text() == "a fixture\n"
        assert "fsmonitor" not in (host / "fixtures/repo/config").read_text()
        assert (host / "fixtures/repo/info/exclude").exists()
        assert not (host / "fixtures/repo/README.md").exists()
        description = desk.requests("fixtures/repo/description")[0]
        async with (
            desk.channel.undoing() as undo
        ):  # and what a rule allowed there can be taken back
            plan = await undo.plan(Selection(ids=(description.id,)))
            assert not plan.problems
            await undo.carry_out(Selection(ids=(description.id,)), token=plan.token, by="tester")
        assert (host / "fixtures/repo/description").read_text() != "a fixture\n"


async def test_what_is_approved_together_is_no_repository_either(asking: Desk) -> None:
    async with asking.running(start=False):
        for name in ("a/HEAD", "a/config", "a/objects/x", "a/refs/y"):
            request = await asking.channel.write(
                name, (REF if name.endswith("HEAD") else "x").encode(), ""
            )
        assert status(request) == "denied"
        assert OF_REPOSITORY in explanation(request)
        await asking.approve_all()
        assert (asking.host / "a/HEAD").exists()
        assert not (asking.host / "a/refs").exists()


async def test_what_came_to_the_host_after_the_approval_was_asked_for_is_looked_at_once_more(
    asking: Desk,
) -> None:
    async with asking.running(start=False):
        (asking.copy / "a").mkdir()
        (asking.copy / "a/HEAD").write_text(REF)
        await asking.compared()
        request = asking.pending()["a/HEAD"]
        for piece in ("objects", "refs"):
            (asking.host / "a" / piece).mkdir(parents=True)
        asking.approve(request)
        done = await asking.settled(request)
        assert done.outcome is not None
        assert "git would take `a` for a repository's own folder; nothing was changed" in str(
            done.outcome["error"]
        )
        assert not (asking.host / "a/HEAD").exists()
        await asking.compared()
        assert denials(asking) == ["a/HEAD"]


async def test_two_that_are_carried_out_at_once_cant_each_put_half_in_place(asking: Desk) -> None:
    """The other session's half comes at the last moment, when this one has looked already."""

    def at(step: str) -> None:
        if step == "checked" and not (asking.host / "a/refs").exists():
            (asking.host / "a/refs").mkdir(parents=True)
            (asking.host / "a/objects").mkdir()

    asking.new_channel(at)
    async with asking.running(start=False):
        (asking.copy / "a").mkdir()
        (asking.copy / "a/HEAD").write_text(REF)
        await asking.compared()
        request = asking.pending()["a/HEAD"]
        asking.approve(request)
        await asking.settled(request)
        assert (asking.host / "a/refs").exists()
        assert not (asking.host / "a/HEAD").exists()
        assert not list(asking.host.rglob(".gatehouse-*"))


async def test_a_folder_in_the_place_of_a_file_is_no_way_in(free: Desk) -> None:
    async with free.running(start=False):
        (free.copy / "README.md").unlink()
        for name in ("README.md/HEAD", "README.md/objects/x", "README.md/refs/y"):
            (free.copy / name).parent.mkdir(parents=True, exist_ok=True)
            (free.copy / name).write_text(REF)
        await free.compared()
        assert denials(free) == ["README.md"]
        assert (free.host / "README.md").is_file()


async def test_undo_doesnt_bring_back_the_missing_piece(free: Desk) -> None:
    async with free.running(start=False):
        (free.copy / "a").mkdir()
        (free.copy / "a/HEAD").write_text(REF)
        await free.compared()
        (free.copy / "a/HEAD").unlink()
        await free.compared()
        gone = next(one for one in free.requests("a/HEAD") if one.action.operation == "delete")  # type: ignore[union-attr]
        for name in ("a/objects/x", "a/refs/y"):
            (free.copy / name).parent.mkdir(parents=True)
            (free.copy / name).write_text("x\n")
        await free.compared()
        assert (free.host / "a/refs/y").exists()
        async with free.channel.undoing() as undo:
            plan = await undo.plan(Selection(ids=(gone.id,)))
            assert [file.problem for file in plan.problems] == [
                "git would take `a` for a repository's own folder"
            ]
        assert not (free.host / "a/HEAD").exists()


async def test_some_hunks_of_a_file_make_no_head_of_it(asking: Desk) -> None:
    """All of the change makes none: the first of its two parts would take away what the second
    needs."""
    for piece in ("objects/x", "refs/x"):
        (asking.host / "a" / piece).parent.mkdir(parents=True)
        (asking.host / "a" / piece).write_text("x\n")
    before = "ref:" + "\n" * 20 + "nothing\n"
    (asking.host / "a/HEAD").write_text(before)
    async with asking.running(start=False):
        (asking.copy / "a/HEAD").write_text("none" + "\n" * 20 + "refs/heads/main\n")
        await asking.compared()
        request = asking.pending()["a/HEAD"]
        hunks = (await asking.channel.card(request)).diff.hunks
        with pytest.raises(RefusedError, match="git takes this folder for a repository's own"):
            await asking.channel.answer_part(
                request.id, [hunks[1].id], "drop", by="tester", fingerprint=request.fingerprint
            )
        assert (asking.host / "a/HEAD").read_text() == before
        assert denials(asking) == ["a/HEAD"]


def test_two_sessions_never_look_at_the_same_moment(tmp_path: Path) -> None:
    """While the one gives its half a name, the other waits with its look, and sees that half
    then."""
    (tmp_path / "a/objects").mkdir(parents=True)
    root = Root(tmp_path)
    one, other = RepositoryGuard(root, lambda name: ()), RepositoryGuard(root, lambda name: ())
    looking, refused = threading.Event(), []

    def give_head() -> None:
        def piece() -> RepositoryPiece:
            looking.set()
            return RepositoryPiece("file", REF.encode())

        try:
            with other.naming("a/HEAD", piece, "a/HEAD"):
                (tmp_path / "a/HEAD").write_text(REF)
        except RefusedError as error:
            refused.append(error.message)

    thread = threading.Thread(target=give_head)
    with one.naming("a/refs", lambda: FOLDER, "a/refs"):
        thread.start()
        looking.wait(30)
        (tmp_path / "a/refs").mkdir()
    thread.join(30)
    root.close()
    assert refused == ["git would take `a` for a repository's own folder; nothing was changed"]
    assert not (tmp_path / "a/HEAD").exists()


async def test_other_systems_folders_are_closed_by_name(free: Desk) -> None:
    async with free.running(start=False):
        for name in (
            ".hg/hgrc",
            "sub/.hg/hgrc",
            ".jj/repo/config.toml",
            "x/.HG/hgrc",
            "hg/hgrc",
            "docs/jj.md",
        ):
            (free.copy / name).parent.mkdir(parents=True, exist_ok=True)
            (free.copy / name).write_text("[hooks]\nupdate = touch ran\n")
        await free.compared()
        assert {
            name for name in (".hg", "sub/.hg", ".jj", "x/.HG") if (free.host / name).exists()
        } == set()
        assert (free.host / "hg/hgrc").exists()
        assert all(status(one) == "denied" for one in free.requests(".hg/hgrc"))
