"""What agents do with a whole tree, in the real sandbox of the real product: another branch
checked out, everything removed."""

import subprocess
from pathlib import Path

import pytest

from tests.scenarios.process import Gatehouse, until

pytestmark = pytest.mark.timeout(300)

POLICY = "version: 1\nmodes: {filesystem: ask, exec: ask, network: ask}\n"
FILES = 30
AGENT = """\
git checkout -q feature
while [ ! -e go.txt ]; do sleep 0.1; done
rm -rf ./*
sleep 600
"""


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Two branches that differ in many files."""
    folder = tmp_path / "workspace"
    (folder / "src").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for branch in ("main", "feature"):
        if branch == "feature":
            git(folder, "checkout", "-q", "-b", "feature")
        for number in range(FILES):
            (folder / f"src/{number}.py").write_text(f"on_{branch} = {number}\n")
        (folder / f"src/only_{branch}.py").write_text(f"branch = '{branch}'\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", branch)
    git(folder, "rm", "-q", "src/only_main.py")
    git(folder, "commit", "-q", "-m", "gone")
    git(folder, "checkout", "-q", "main")
    return folder


def test_a_checkout_is_one_answer_and_rm_rf_is_none(
    gatehouse: Path, tmp_path: Path, workspace: Path
) -> None:
    product = Gatehouse(gatehouse, tmp_path, POLICY)
    head = (workspace / ".git/HEAD").read_bytes()
    try:
        product.launch("up", log=tmp_path / "up.log")
        until(
            lambda: "open http://127.0.0.1:" in (tmp_path / "up.log").read_text(), "the page's URL"
        )
        product.launch(
            "run", "--workspace", str(workspace), "--", "sh", "-c", AGENT, log=tmp_path / "run.log"
        )
        changed = f"{FILES + 2} changed files (1 created, {FILES} changed, 1 deleted"
        product.until_told(lambda: changed in product.run("approvals").stdout, changed)
        session = product.ok("approvals").split()[0]
        assert (workspace / "src/7.py").read_text() == "on_main = 7\n"
        assert f"\napproved: {FILES + 2} of {FILES + 2} changed files" in product.ok(
            "approve", session, "--changes"
        )
        until(
            lambda: (workspace / "src/7.py").read_text() == "on_feature = 7\n",
            "the branch on the host",
        )
        product.until_told(
            lambda: "nothing waits" in product.run("approvals").stdout, "all of it to be done"
        )
        assert (workspace / "src/only_feature.py").exists()
        assert not (workspace / "src/only_main.py").exists()
        # Git's own folder is each side's own: the host's is where it was.
        assert (workspace / ".git/HEAD").read_bytes() == head

        # What the person makes on the host reaches the agent, which then removes all that it has.
        (workspace / "go.txt").write_text("go\n")
        deleted = f"{FILES + 2} changed files ({FILES + 2} deleted"
        product.until_told(lambda: deleted in product.run("approvals").stdout, deleted)
        assert len(list((workspace / "src").iterdir())) == FILES + 1
        assert "\ndenied: " in product.ok("deny", session, "--changes", "--reason", "keep them")
        assert "nothing waits" in product.ok("approvals")
        assert len(list((workspace / "src").iterdir())) == FILES + 1
        assert (workspace / "go.txt").read_text() == "go\n"
    finally:
        product.end()
