"""Clones over real git and HTTP: what is fetched, what is kept warm, and that nothing of a
repository's runs."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.reviews import clones as clones_module
from supervisor.reviews.clones import CloneError, Clones, WantedBranch, WantedCode
from supervisor.reviews.demo.stage import NAME, Stage, staged
from supervisor.reviews.demo.state import run_git


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path / "stage") as found:
        yield found


@pytest.fixture
def clones(tmp_path: Path) -> Clones:
    return Clones(tmp_path / "clones")


def wanted(stage: Stage, number: int, **more: str) -> WantedCode:
    forge = stage.forge
    pull = forge.repositories[NAME].pulls[number]
    token = forge.mint(forge.installation, ["shop"], {"contents": "read"}).value
    token = f"x-access-token:{token}"
    made = WantedCode(
        name=NAME,
        url=f"{forge.url}/{NAME}.git",
        token=token,
        number=number,
        base_ref="main",
        base_sha=forge.sha(NAME, "main"),
        head_sha=pull.head_sha,
    )
    return made._replace(**more)  # type: ignore[arg-type]


def opened(stage: Stage, files: dict[str, str | bytes | None], branch: str = "x") -> int:
    stage.forge.commit(NAME, branch, files, "A change", base="main")
    return stage.forge.open_pull(NAME, branch, title="X").number


async def test_the_second_run_moves_the_checkout_and_two_at_once_have_their_own(
    stage: Stage, clones: Clones
) -> None:
    number = opened(stage, {"a.py": "one\n"})
    async with clones.checkout(wanted(stage, number)) as first:
        assert not first.is_warm
        assert (first.folder / "a.py").read_text() == "one\n"
        assert [one.path for one in first.files] == ["a.py"]
        other = opened(stage, {"b.py": "other\n"}, "y")
        async with clones.checkout(wanted(stage, other)) as beside:
            assert beside.folder != first.folder
            assert not (beside.folder / "a.py").exists()
    (first.folder / "left behind").write_text("by a run")
    stage.forge.push(NAME, number, {"a.py": "two\n"}, "More")
    async with clones.checkout(wanted(stage, number)) as second:
        assert second.is_warm
        assert second.folder in (first.folder, beside.folder)
        assert (second.folder / "a.py").read_text() == "two\n"
        assert sorted(one.name for one in second.folder.iterdir() if one.name != ".git") == [
            "README.md",
            "a.py",
            "shop",
        ]
        assert await clones.text_at(second, second.head, "a.py") == "two\n"
        assert await clones.text_at(second, second.head, "../../HEAD") is None


async def test_nothing_of_the_repository_runs_and_the_token_is_nowhere(
    stage: Stage, clones: Clones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "evil"))
    (tmp_path / "evil").write_text(f'[filter "evil"]\n\tsmudge = touch {ran}\n\trequired = true\n')
    number = opened(
        stage,
        {
            ".gitattributes": "* filter=evil diff=evil\n",
            ".gitmodules": f'[submodule "s"]\n\tpath = s\n\turl = {stage.forge.url}/a/b.git\n',
            ".githooks/post-checkout": f"#!/bin/sh\ntouch {ran}\n",
            "a.py": "x\n",
        },
    )
    code = wanted(stage, number)
    async with clones.checkout(code) as checkout:
        assert (checkout.folder / "a.py").read_text() == "x\n"
    assert not ran.exists()
    for root, _, files in os.walk(tmp_path / "clones"):
        for name in files:
            path = Path(root, name)
            assert code.token.encode() not in path.read_bytes(), path


async def test_history_is_deepened_to_where_the_branch_parted(stage: Stage, clones: Clones) -> None:
    number = opened(stage, {"a.py": "x\n"})
    for count in range(60):
        stage.forge.commit(NAME, "main", {"README.md": f"{count}\n"}, "On")
    async with clones.checkout(wanted(stage, number)) as checkout:
        assert [one.path for one in checkout.files] == ["a.py"]


@pytest.mark.parametrize(
    "more",
    [
        {"head_sha": "--upload-pack=touch x"},
        {"base_sha": "HEAD"},
        {"base_ref": "--all"},
        {"url": "ext::sh -c touch"},
        {"url": "http://user:word@127.0.0.1/a.git"},
        {"url": "/etc"},
    ],
)
async def test_what_git_could_take_for_something_else_never_reaches_it(
    stage: Stage, clones: Clones, more: dict[str, str]
) -> None:
    number = opened(stage, {"a.py": "x\n"})
    with pytest.raises(CloneError) as failed:
        async with clones.checkout(wanted(stage, number, **more)):
            pass
    assert not failed.value.may_retry


async def test_a_token_that_is_over_and_a_commit_that_is_gone_may_go_better(
    stage: Stage, clones: Clones
) -> None:
    number = opened(stage, {"a.py": "x\n"})
    for more in ({"token": "ghs_of_yesterday"}, {"head_sha": "f" * 40}):
        with pytest.raises(CloneError) as failed:
            async with clones.checkout(wanted(stage, number, **more)):
                pass
        assert failed.value.may_retry
        assert "ghs_" not in str(failed.value)


ATTRIBUTES = """
[attr]hidden -diff -text filter=evil
*.py -diff
a.py binary
b.py working-tree-encoding=UTF-16
c.py eol=crlf ident linguist-generated
d.py hidden
e.py export-ignore diff=evil working-tree-encoding=UTF-7
"""


async def test_no_attribute_of_a_head_hides_code_or_changes_what_is_read(
    stage: Stage, clones: Clones
) -> None:
    code = "# $Id: evil() $\nevil() + 'é'\n"
    names = [f"{name}.py" for name in "abcde"]
    files: dict[str, str | bytes | None] = dict.fromkeys([*names, "deep/x.py"], code)
    hidden = {".gitattributes": ATTRIBUTES, "deep/.gitattributes": "* -diff ident\n"}
    number = opened(stage, files | hidden)
    async with clones.checkout(wanted(stage, number)) as checkout:
        seen = {one.path: one for one in checkout.files}
        assert set(seen) == {*files, *hidden}
        assert {one.skipped for one in seen.values()} == {""}
        assert {(seen[name].added, len(seen[name].hunks)) for name in files} == {(2, 1)}
        for name in files:
            assert (checkout.folder / name).read_bytes() == code.encode()
    # Nor where they come to files that are there already.
    stage.forge.push(NAME, number, dict.fromkeys(files, f"{code}more()\n"), "More")
    async with clones.checkout(wanted(stage, number)) as checkout:
        assert (checkout.folder / "b.py").read_bytes() == f"{code}more()\n".encode()
        since = await clones.since(checkout, "f" * 40)
        assert since is None


async def test_what_is_really_binary_or_without_an_end_is_named(
    stage: Stage, clones: Clones
) -> None:
    number = opened(stage, {"a.bin": b"x\0y", "big.txt": b"x" * (5 << 20), "b.py": "code\n"})
    async with clones.checkout(wanted(stage, number)) as checkout:
        skipped = {one.path: one.skipped for one in checkout.files}
    assert skipped == {"a.bin": "binary", "big.txt": "binary", "b.py": ""}


def hostile(ran: Path) -> dict[str, str | bytes | None]:
    """A tree that git takes for a repository, where it looks for one."""
    return {
        "HEAD": "ref: refs/heads/main\n",
        "config": f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n"
        f"\tfsmonitor = touch {ran}; false\n",
        "objects/x": "",
        "refs/heads/x": "",
        "a.py": "x\n",
    }


@pytest.mark.parametrize("gone", [".git", "admin", "both"])
async def test_a_tree_that_a_kill_left_half_removed_is_never_opened(
    stage: Stage, clones: Clones, tmp_path: Path, gone: str
) -> None:
    ran = tmp_path / "ran"
    number = opened(stage, hostile(ran))
    async with clones.checkout(wanted(stage, number)) as checkout:
        folder, clone = checkout.folder, checkout.clone
    # The evil works, or this shows nothing.
    (tmp_path / "copy").mkdir()
    shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True)
    (tmp_path / "copy" / ".git").unlink()
    subprocess.run(["git", "status"], cwd=tmp_path / "copy", capture_output=True, check=False)
    assert ran.exists()
    ran.unlink()
    if gone != "admin":
        (folder / ".git").unlink()
    if gone != ".git":
        shutil.rmtree(clone / "worktrees" / folder.name)
    stage.forge.push(NAME, number, {"a.py": "two\n"}, "More")
    after = Clones(tmp_path / "clones")
    async with after.checkout(wanted(stage, number)) as checkout:
        assert (checkout.folder / "a.py").read_text() == "two\n"
        assert (checkout.folder / ".git").is_file()
    assert not ran.exists()


def grown(stage: Stage, tree: str) -> int:
    """Open a pull request whose head has this tree, by git's own id."""
    folder = stage.forge.repositories[NAME].folder
    identity = {
        f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    commit = git(folder, "commit-tree", tree, "-p", "main", "-m", "x", env=os.environ | identity)
    git(folder, "update-ref", "refs/heads/grown", commit)
    return stage.forge.open_pull(NAME, "grown", title="X").number


def git(folder: Path, *words: str, data: bytes = b"", env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        ["git", f"--git-dir={folder}", *words], input=data, capture_output=True, check=True, env=env
    )
    return done.stdout.decode().strip()


def of_many(folder: Path, kind: str, object_id: str, count: int) -> str:
    mode = {"blob": "100644", "tree": "040000"}[kind]
    lines = "".join(f"{mode} {kind} {object_id}\tn{number}\n" for number in range(count))
    return git(folder, "mktree", data=lines.encode())


@pytest.mark.many
async def test_a_tree_is_measured_before_anything_of_it_is_written(
    stage: Stage, clones: Clones, tmp_path: Path
) -> None:
    folder = stage.forge.repositories[NAME].folder
    blob = git(folder, "hash-object", "-w", "--stdin", data=bytes(32 << 20))
    many = of_many(folder, "blob", blob, 200)
    unfolds = of_many(folder, "blob", git(folder, "hash-object", "-w", "--stdin"), 10)
    for _ in range(9):
        unfolds = of_many(folder, "tree", unfolds, 10)
    long = of_many(folder, "blob", blob, 1)
    for _ in range(20):
        long = git(folder, "mktree", data=f"040000 tree {long}\t{'n' * 200}\n".encode())
    for tree, why in ((many, "4 GB"), (unfolds, "files"), (long, "longer")):
        number = grown(stage, tree)
        with pytest.raises(CloneError, match=why) as failed:
            async with clones.checkout(wanted(stage, number)):
                pass
        assert not failed.value.may_retry
        stage.forge.close(NAME, number)
    trees = list((tmp_path / "clones").glob("*/trees/*"))
    assert trees == []


async def test_a_fetch_that_brings_too_much_is_ended(
    stage: Stage, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clones_module, "MOST_FETCH_BYTES", 1 << 20)
    monkeypatch.setattr(clones_module, "FETCH_LOOK_S", 0.001)
    number = opened(stage, {"a.bin": os.urandom(24 << 20)})
    with pytest.raises(CloneError, match="more than 0 GB"):
        async with clones.checkout(wanted(stage, number)):
            pass


async def test_a_change_of_more_names_than_can_be_kept_with_each_run_is_refused(
    stage: Stage, clones: Clones
) -> None:
    folder = stage.forge.repositories[NAME].folder
    deep = "/".join(["d" * 200] * 9)
    files = "".join(f"M 100644 inline {deep}/{n}\ndata 0\n" for n in range(1_200))
    head = "commit refs/heads/many\ncommitter A <a@b.c> 1 +0000\ndata 0\nfrom refs/heads/main^0\n"
    subprocess.run(
        ["git", "fast-import", "--quiet"], cwd=folder, input=(head + files).encode(), check=True
    )
    number = stage.forge.open_pull(NAME, "many", title="X").number
    with pytest.raises(CloneError, match="2 MB of names") as refused:
        async with clones.checkout(wanted(stage, number)):
            pass
    assert not refused.value.may_retry


async def test_the_change_of_a_pull_request_is_read_again_from_its_clone(
    stage: Stage, clones: Clones
) -> None:
    number = opened(stage, {"README.md": "Less\n", "a b.py": "one\n", "shop/cart.py": None})
    async with clones.checkout(wanted(stage, number)) as checkout:
        base, head = checkout.base, checkout.head
    stage.forge.push(NAME, number, {"README.md": "More\n"}, "More")
    async with clones.checkout(wanted(stage, number)):
        pass
    found = {one.facts.path: one for one in await clones.known_diff(NAME, base, head)}
    assert list(found) == ["README.md", "a b.py", "shop/cart.py"]
    assert b"\n+Less\n" in found["README.md"].patch
    assert found["a b.py"].patch.count(b"diff --git") == 1
    old, new = await clones.both_sides(NAME, base, head, found["README.md"].facts)
    assert (old.startswith(b"# Shop"), new) == (True, b"Less\n")
    assert await clones.both_sides(NAME, base, head, found["a b.py"].facts) == (b"", b"one\n")
    for name, commit in (("other", head), (NAME, "f" * 40), (NAME, "--help"), (NAME, "")):
        assert await clones.known_diff(name, base, commit) == []
    assert await clones.both_sides(NAME, "x", "", found["README.md"].facts) == (b"", b"")


async def test_a_change_that_is_too_long_to_be_shown_is_not(
    stage: Stage, clones: Clones, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = opened(stage, {"a.py": "one\n" * 100})
    async with clones.checkout(wanted(stage, number)) as checkout:
        base, head = checkout.base, checkout.head
    monkeypatch.setattr(clones_module, "MOST_SHOWN_BYTES", 300)
    assert await clones.known_diff(NAME, base, head) == []


async def test_commits_of_jobs_that_end_at_once_are_all_taken(
    stage: Stage, clones: Clones, tmp_path: Path
) -> None:
    """Who looks at a clone removes what a killed fetch left of a pack."""
    forge = stage.forge
    token = forge.mint(forge.installation, ["shop"], {"contents": "read"}).value
    git_token = f"x-access-token:{token}"
    branch = WantedBranch(NAME, f"{forge.url}/{NAME}.git", git_token, "main")
    folder = forge.repositories[NAME].folder
    packs = []
    for number in range(4):
        text = os.urandom(1_000_000).hex()
        commit = forge.commit(NAME, f"job-{number}", {"big.txt": text}, "Big", base="main")
        wanted = f"{commit}\n^{forge.sha(NAME, 'main')}\n".encode()
        words = ("git", "pack-objects", "--revs", "--stdout", "--quiet")
        made = subprocess.run(words, cwd=folder, input=wanted, capture_output=True, check=True)
        packs.append((commit, made.stdout))

    async with clones.branch_checkout(branch) as checkout:

        async def looks() -> None:
            while True:
                async with clones.branch_checkout(branch):
                    await asyncio.sleep(0)

        looking = asyncio.create_task(looks())
        done = await asyncio.gather(
            *(clones.squashed(branch, checkout, *one, "drift") for one in packs)
        )
        looking.cancel()
    assert len({one.commit for one in done}) == len(packs)
    said = run_git(checkout.clone, "show", "-s", "--format=%B", done[0].commit)
    tree = run_git(checkout.clone, "rev-parse", f"{done[0].commit}^{{tree}}")
    assert said == f"Big\n\nGatehouse-Job: drift {tree}"
