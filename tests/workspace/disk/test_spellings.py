"""A host, or a copy, whose file system takes several spellings of a name for one: case and Unicode
forms.

On FUSE (`tests.fakes.folding_files`), and on what else this machine can mount. Nothing of the
person's may be lost because a name is another's in disguise, and no rule may be got round by
one.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.approvals import explanation
from supervisor.core.files.undo_steps import Selection
from supervisor.errors import GatehouseError, SandboxError
from supervisor.workspace.copy.snapshot import make_copy
from tests.fakes import folding_files
from tests.fakes.gated import answer_all
from tests.workspace import test_channel_hard_cases
from tests.workspace.conftest import POLICY, Desk, make_repository
from tests.workspace.test_channel_hard_cases import change, leaves_of

ANYTHING = POLICY.replace("filesystem(free/**)", "filesystem(**)")


@contextlib.contextmanager
def mounted(kind: str, folder: Path) -> Iterator[Path]:
    made = folding_files.mounted if kind in folding_files.KINDS else test_channel_hard_cases.mounted
    with made(kind, folder) as place:
        yield place


FOLDING = ["case", "apfs", "ext4-casefold", "tmpfs-casefold", "xfs", "vfat"]


@pytest.fixture(params=FOLDING)
def folding(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder whose names are the same in upper and lower case."""
    with mounted(request.param, tmp_path) as place:
        folder = place / "work"
        folder.mkdir()
        if "casefold" in request.param:
            subprocess.run(["chattr", "+F", str(folder)], check=True)
        (folder / "Probe").write_text("")
        assert (folder / "pROBE").exists()
        (folder / "Probe").unlink()
        yield folder


async def test_twins_of_a_name_on_a_host_that_folds_case(folding: Path, tmp_path: Path) -> None:
    """Foo and foo are two files in the copy and one on the host: neither may silently take the
    other's place."""
    (folding / "Foo").write_text("the person's\n")
    (folding / "keep.txt").write_text("keep\n")
    desk = Desk(tmp_path / "data", folding)
    async with desk.running(start=False):
        (desk.copy / "foo").write_text("the twin\n")
        await desk.compared()
        waiting = desk.pending()
        # On the host `foo` is the person's `Foo`: it is there, and nobody began with it.
        assert "conflict" in change(waiting["foo"]).hazards
        desk.deny(waiting["foo"])
        assert (folding / "Foo").read_text() == "the person's\n"
        (desk.copy / "New").write_text("one\n")
        (desk.copy / "new").write_text("other\n")
        await desk.compared()
        ids = [desk.pending()[name].id for name in ("New", "new")]
        done = [
            await desk.settled(one) for one in answer_all(desk.gate, ids, "approved", by="tester")
        ]
        # Together they can't be what was approved: nothing of it is there.
        assert not any(one.outcome["ok"] for one in done), [one.outcome for one in done]
        assert leaves_of(folding) == ["Foo", "keep.txt"]
    desk.close()


async def test_a_name_whose_case_changes_on_a_host_that_folds(
    folding: Path, tmp_path: Path
) -> None:
    """`git mv Readme README`: a deletion and a new file, which is the same file there."""
    (folding / "Readme").write_text("text\n")
    desk = Desk(tmp_path / "data", folding)
    async with desk.running(start=False):
        (desk.copy / "Readme").rename(desk.copy / "README")
        for _ in range(6):
            await desk.compared()
            for request in desk.pending().values():
                desk.approve(request)
                await desk.settled(request)
        # Whatever the order of the answers: the text is there, under one of the two names.
        names = [name for name in leaves_of(folding) if name.casefold() == "readme"]
        assert len(names) == 1
        assert (folding / names[0]).read_text() == "text\n"
        assert not [name for name in leaves_of(folding) if name.startswith(".gatehouse-")]
    desk.close()


async def test_protected_names_in_another_case_on_a_host_that_folds(
    folding: Path, tmp_path: Path
) -> None:
    """`.GIT/hooks/x` is git's own folder there."""
    (folding / ".git").mkdir()
    (folding / ".git/config").write_text("[core]\n")
    desk = Desk(
        tmp_path / "data", folding, policy=POLICY.replace("filesystem(free/**)", "filesystem(**)")
    )
    async with desk.running(start=False):
        (desk.copy / ".GIT/hooks").mkdir(parents=True)
        (desk.copy / ".GIT/hooks/post-checkout").write_text("#!/bin/sh\n")
        (desk.copy / "ordinary.txt").write_text("allowed by a rule\n")
        await desk.compared()
        for request in desk.requests():
            await desk.settled(request)
        assert (folding / "ordinary.txt").exists()
        assert leaves_of(folding / ".git") == ["config"]
    desk.close()


async def test_two_unicode_forms_of_one_name(folding: Path, tmp_path: Path) -> None:
    """Where the host takes composed and decomposed letters for the same, the second is a
    conflict with the first."""
    composed, decomposed = "caf\u00e9.txt", "cafe\u0301.txt"
    (folding / composed).write_text("the person's\n")
    if not (folding / decomposed).exists():
        pytest.skip("this file system folds case and keeps Unicode forms apart")
    desk = Desk(tmp_path / "data", folding)
    async with desk.running(start=False):
        (desk.copy / decomposed).write_text("the twin\n")
        await desk.compared()
        (request,) = desk.pending().values()
        assert "conflict" in change(request).hazards
        assert (folding / composed).read_text() == "the person's\n"
    desk.close()


# -- nothing is lost ------------------------------------------------------------------------------


@pytest.fixture(params=folding_files.KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    """Two spellings of a name that the file system takes for one, and a folder on it."""
    first, second = (
        ("Read.me", "rEAD.ME") if request.param == "case" else ("caf\u00e9", "cafe\u0301")
    )
    with mounted(request.param, tmp_path) as place:
        (place / "work").mkdir()
        yield first, second, place / "work"


async def test_a_rule_that_allows_all_never_overwrites_the_twin(
    disk: tuple[str, str, Path], tmp_path: Path
) -> None:
    first, second, host = disk
    (host / first).write_text("the person's\n")
    desk = Desk(tmp_path / "data", host, policy=ANYTHING)
    async with desk.running(start=False):
        (desk.copy / (second if first in leaves_of(desk.copy) else first)).write_text("the twin\n")
        await desk.compared()
        (request,) = desk.pending().values()
        assert "conflict" in change(request).hazards
        assert (host / first).read_text() == "the person's\n"
        desk.approve(request)  # though it says so
        await desk.settled(request)
        assert (host / first).read_text() == "the twin\n"
        assert len(leaves_of(host)) == 1
        async with desk.channel.undoing() as undo:
            plan = await undo.plan(Selection())
            await undo.carry_out(Selection(), token=plan.token, by="tester")
        assert (host / first).read_text() == "the person's\n"
    desk.close()


@pytest.mark.parametrize("with_text", [False, True])
@pytest.mark.parametrize("is_folder", [False, True])
async def test_only_the_spelling_changes(
    disk: tuple[str, str, Path], tmp_path: Path, with_text: bool, is_folder: bool
) -> None:
    """A rename that the host's file system takes for none: what the copy has in the new spelling
    is no deletion."""
    first, second, host = disk
    name = f"{first}/in/text" if is_folder else first
    (host / name).parent.mkdir(parents=True, exist_ok=True)
    (host / name).write_text("text\n")
    desk = Desk(tmp_path / "data", host, policy=ANYTHING)
    async with desk.running(start=False):
        (old,) = (one for one in leaves_of(desk.copy) if not one.startswith("."))
        new = second if old != second else first
        (desk.copy / old).rename(desk.copy / new)
        after = "text\n"
        if with_text:
            after = "more text\n"
            (desk.copy / new / "in/text" if is_folder else desk.copy / new).write_text(after)
        for _ in range(4):
            await pass_over(desk)
            for request in desk.pending().values():
                assert change(request).operation != "delete"
                desk.approve(request)
                await desk.settled(request)
        assert len(leaves_of(host)) == 1
        assert (host / name).read_text() == after
        assert leaves_of(desk.copy) == [new]
        assert desk.pending() == {}
        # The person goes on in the old spelling, and the agent has it.
        (host / name).write_text("the person's\n")
        await pass_over(desk)
        await pass_over(desk)
        assert (
            desk.copy / new / "in/text" if is_folder else desk.copy / new
        ).read_text() == "the person's\n"
        assert leaves_of(desk.copy) == [new]
        # And what the agent really deletes is asked about.
        (desk.copy / new / "in/text" if is_folder else desk.copy / new).unlink()
        await pass_over(desk)
        assert {change(one).operation for one in desk.requests()[-1:]} == {"delete"}
    desk.close()


async def test_what_the_host_keeps_in_another_form_doesnt_come_back_as_a_twin(
    disk: tuple[str, str, Path], tmp_path: Path
) -> None:
    first, second, host = disk
    desk = Desk(tmp_path / "data", host, policy=ANYTHING)
    async with desk.running(start=False):
        for name in (first, f"{first}-folder/inner"):
            (desk.copy / name).parent.mkdir(exist_ok=True)
            (desk.copy / name).write_text("agent\n")
        for _ in range(3):
            await pass_over(desk)
        assert (host / first).read_text() == (host / second).read_text() == "agent\n"
        assert leaves_of(desk.copy) == sorted([first, f"{first}-folder"])
        (host / second).write_text("the person's\n")
        for _ in range(2):
            await pass_over(desk)
        assert (desk.copy / first).read_text() == "the person's\n"
        assert desk.pending() == {}
        (host / second).unlink()
        for _ in range(2):
            await pass_over(desk)
        assert leaves_of(desk.copy) == [f"{first}-folder"]
    desk.close()


async def pass_over(desk: Desk) -> None:
    """The host's side and the copy's, once each."""
    async with desk.channel._turn:
        opened = await desk.channel._open()
        opened.ignores.forget()
        await opened.incoming.run(None)
        await opened.comparison.run(None)
        opened.incoming.copy_changed(None)
    for request in desk.requests():
        if request.decision == "allow":
            await desk.settled(request)


# -- no rule is got round -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [".GIT/config", ".Git/hooks/x", "sub/.gIt/config", ".g\u200cit/config", ".git./config"]
)
async def test_gits_own_folder_in_any_spelling(folding: Path, tmp_path: Path, name: str) -> None:
    make_repository(folding, {"sub/a": "a"})
    make_repository(folding / "sub", {"b": "b"})
    before = {place: (folding / place).read_text() for place in (".git/config", "sub/.git/config")}
    desk = Desk(tmp_path / "data", folding, policy=ANYTHING)
    async with desk.running(start=False):
        (desk.copy / name).parent.mkdir(parents=True, exist_ok=True)
        (desk.copy / name).write_text("[core]\n\tfsmonitor = /evil\n")
        await pass_over(desk)
        for request in desk.pending().values():
            with contextlib.suppress(GatehouseError):
                desk.approve(request)
                await desk.settled(request)
        with contextlib.suppress(GatehouseError):
            await desk.channel.write(name, b"evil", "please")
        await pass_over(desk)
        assert {place: (folding / place).read_text() for place in before} == before
        assert not (folding / ".git/hooks/x").exists()
    desk.close()


@pytest.mark.parametrize("rule", ["deny", "ask"])
async def test_a_rule_counts_for_every_spelling(folding: Path, tmp_path: Path, rule: str) -> None:
    policy = (
        f'version: 1\nallow: ["filesystem(**)"]\n{rule}: ["filesystem(secret/**)",'
        ' "filesystem(caf\u00e9.txt)"]\n'
    )
    (folding / "secret").mkdir()
    (folding / "secret/key").write_text("old\n")
    desk = Desk(tmp_path / "data", folding, policy=policy)
    names = ("SECRET/key", "Secret/new", "CAF\u00c9.TXT", "cafe\u0301.txt")
    async with desk.running(start=False):
        for name in names:
            (desk.copy / name).parent.mkdir(exist_ok=True)
            (desk.copy / name).write_text("agent\n")
            await pass_over(desk)
            with contextlib.suppress(GatehouseError):
                await desk.channel.write(name, b"agent\n", "please")
        assert (folding / "secret/key").read_text() == "old\n"
        assert leaves_of(folding / "secret") == ["key"]
        assert leaves_of(folding) == ["secret"]
    desk.close()


@pytest.mark.parametrize("name", [".ENV", ".GitHub/workflows/x.yml", "CLAUDE.MD", ".Npmrc"])
async def test_protected_names_are_asked_about_in_every_spelling(
    folding: Path, tmp_path: Path, name: str
) -> None:
    desk = Desk(tmp_path / "data", folding, policy=ANYTHING)
    async with desk.running(start=False):
        (desk.copy / name).parent.mkdir(parents=True, exist_ok=True)
        (desk.copy / name).write_text("agent\n")
        await pass_over(desk)
        assert name in desk.pending()
    desk.close()


async def test_what_is_left_out_is_left_out_in_every_spelling(
    folding: Path, tmp_path: Path
) -> None:
    (folding / ".gatehouseignore").write_text("secrets/\n*.PEM\ncaf\u00e9\n")
    (folding / "Secrets").mkdir()
    for name in ("Secrets/key", "server.pem", "cafe\u0301"):
        (folding / name).write_text("SECRET")
    for number, is_overlay in enumerate((False, True)):
        desk = Desk(tmp_path / f"data{number}", folding, policy=ANYTHING, is_overlay=is_overlay)
        try:
            async with desk.running(start=False):
                assert leaves_of(desk.copy) == [".gatehouseignore"]
                await pass_over(desk)
                (folding / "new.pem").write_text("SECRET")
                await pass_over(desk)
                assert leaves_of(desk.copy) == [".gatehouseignore"]
                (folding / "new.pem").unlink()
        except* (
            SandboxError
        ):  # such a host can't be the lower folder of an overlay: a copy is made instead
            if not is_overlay:
                raise
        finally:
            desk.close()


# -- a copy there ---------------------------------------------------------------------------------


async def test_two_names_that_the_copys_file_system_takes_for_one(
    folding: Path, tmp_path: Path
) -> None:
    host = tmp_path / "plain"
    host.mkdir()
    (host / "Readme").write_text("upper\n")
    (host / "readme").write_text("lower\n")
    (host / "other").write_text("x\n")
    report = await make_copy(host, folding / "s/merged")
    assert report.skipped == (
        ("readme", "the copy's file system takes its name for one that is there already"),
    )
    assert (folding / "s/merged/Readme").read_text() == "upper\n"
    assert "readme" not in report.baseline


async def test_the_one_of_two_names_that_isnt_in_the_copy_is_never_deleted_for_it(
    folding: Path, tmp_path: Path
) -> None:
    """Nor overwritten by what the agent writes to the other."""
    host = tmp_path / "plain"
    host.mkdir()
    (host / "Readme").write_text("upper\n")
    (host / "readme").write_text("lower\n")
    desk = Desk(folding / "data", host, policy=ANYTHING)
    async with desk.running(start=False):
        for _ in range(2):
            await pass_over(desk)
        (desk.copy / "readme").write_text("agent\n")
        for _ in range(3):
            await pass_over(desk)
        assert (host / "Readme").read_text() == "agent\n"
        assert (host / "readme").read_text() == "lower\n"
        (desk.copy / "Readme").unlink()
        for _ in range(3):
            await pass_over(desk)
        assert (host / "readme").read_text() == "lower\n"
    desk.close()


async def test_no_spelling_of_heads_name_makes_a_repository_on_a_host_that_folds(
    folding: Path, tmp_path: Path
) -> None:
    (folding / "a/Refs").mkdir(parents=True)
    (folding / "a/Refs/x").write_text("x\n")
    desk = Desk(tmp_path / "data", folding, policy=ANYTHING)
    async with desk.running(start=False):
        for name, text in (("a/OBJECTS/x", "x\n"), ("a/head", "ref: refs/heads/main\n")):
            (desk.copy / name).parent.mkdir(exist_ok=True)
            (desk.copy / name).write_text(text)
            await desk.compared()
        assert (folding / "a/objects/x").exists()
        assert not (folding / "a/HEAD").exists()
        (denied,) = desk.requests("a/head")
        assert "git takes this folder for a repository's own" in explanation(denied)
    desk.close()
