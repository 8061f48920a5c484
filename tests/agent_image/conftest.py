"""A real repository with a change, and the two servers that a review talks to."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.agent_api import AgentApi

GIT_ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "t"), ("EMAIL", "t@t"))
    },
}


def git(folder: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=GIT_ENV, check=check, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Two commits, one uncommitted change in `src/app.py` (line 2) and one untracked file."""
    root = tmp_path / "merged"
    (root / "src").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "src" / "app.py").write_text("def add(a, b):\n    return a + b\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    (root / "README.md").write_text("# demo\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "second")
    (root / "src" / "app.py").write_text("def add(a, b):\n    return a - b  # TODO\n")
    (root / "new.txt").write_text("untracked\n")
    return root


@pytest.fixture
def api() -> Iterator[AgentApi]:
    with AgentApi() as running:
        yield running
