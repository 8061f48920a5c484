"""Law 12: whatever a repository configures, and wherever it lies, none of it runs with the person's
rights."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.git.run_git import run_git
from tests.git.hostile_repository import KEYS, LAYOUTS, Hostile

SLOW = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_nothing_that_a_repository_names_runs(tmp_path: Path, layout: str) -> None:
    hostile = Hostile(tmp_path, layout, tuple(KEYS))
    assert await hostile.ask_everything() > 0
    assert not hostile.ran_what()


@pytest.mark.parametrize("key", KEYS)
async def test_no_key_runs_anything_by_itself(tmp_path: Path, key: str) -> None:
    """Alone, so that none is hidden by what another breaks."""
    hostile = Hostile(tmp_path, "own", (key,))
    assert await hostile.ask_everything() > 4
    assert not hostile.ran_what()


async def test_all_of_it_works_at_an_ordinary_repository(tmp_path: Path) -> None:
    plain = Hostile(tmp_path, "own", ())
    assert await plain.ask_everything() == 7
    said = subprocess.run(
        ["git", f"--git-dir={plain.remote}", "for-each-ref", "--format=%(refname)"],
        capture_output=True, check=True,
    )  # fmt: skip
    assert b"refs/heads/new" in said.stdout
    assert (plain.workspace / ".git/refs/heads/taken-1").read_text().strip() == plain.first
    assert not plain.ran_what()


@SLOW
@given(st.sampled_from(LAYOUTS), st.sets(st.sampled_from(sorted(KEYS)), min_size=1))
async def test_no_set_of_keys_runs_anything(
    tmp_path_factory: pytest.TempPathFactory, layout: str, keys: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    hostile = Hostile(folder, layout, tuple(sorted(keys)))
    await hostile.ask_everything()
    ran = hostile.ran_what()
    shutil.rmtree(folder)
    assert not ran


def test_the_canary_sings_where_git_believes_the_repository(tmp_path: Path) -> None:
    """Else the tests above would show nothing."""
    for layout, words in {
        "own": ("status",),
        "embedded workspace": ("fetch", "evil"),
        "nested": ("-C", "fixtures/y", "fetch", "evil"),
        "around": ("status",),
    }.items():
        folder = tmp_path / layout.replace(" ", "-")
        folder.mkdir()
        hostile = Hostile(
            folder, layout, ("core.fsmonitor", "protocol.ext.allow", "remote.evil.url")
        )
        subprocess.run(["git", *words], cwd=hostile.workspace, capture_output=True, check=False)
        assert hostile.ran_what(), layout


async def test_without_a_repository_none_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = Hostile(tmp_path, "own", ("core.fsmonitor",))
    monkeypatch.setenv("GIT_DIR", str(hostile.workspace / ".git"))
    done = await run_git(None, "status", cwd=hostile.workspace)
    assert not done.ok
    assert not hostile.ran_what()
