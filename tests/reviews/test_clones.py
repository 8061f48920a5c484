"""Clones over real git and HTTP: what is fetched, what is kept warm, and that nothing of a
repository's runs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.demo.stage import NAME, Stage, staged
from supervisor.reviews.clones import CloneError, Clones, WantedCode


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
        assert await clones.text_at(second, "HEAD", "a.py") == "two\n"
        assert await clones.text_at(second, "HEAD", "../../HEAD") is None


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
