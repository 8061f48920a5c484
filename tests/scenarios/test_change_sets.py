"""An agent that changes many files at once, and a person at the terminal: one line, answers by
folder and for all."""

from pathlib import Path

import pytest

from tests.scenarios.process import Gatehouse, until

pytestmark = pytest.mark.timeout(300)

POLICY = "version: 1\nmodes: {filesystem: ask, exec: ask, network: ask}\n"
AGENT = """\
mkdir -p src/deep docs
for n in 1 2 3 4 5 6 7 8; do echo $n > src/$n.txt; echo $n > src/deep/$n.txt; echo $n > docs/$n.md; done
ln -s 1.txt src/link
sleep 600
"""  # noqa: E501


def test_one_line_for_many_files(gatehouse: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    product = Gatehouse(gatehouse, tmp_path, POLICY)
    try:
        product.launch("up", log=tmp_path / "up.log")
        until(
            lambda: "open http://127.0.0.1:" in (tmp_path / "up.log").read_text(), "the page's URL"
        )
        product.launch(
            "run", "--workspace", str(workspace), "--", "sh", "-c", AGENT, log=tmp_path / "run.log"
        )
        product.until_told(
            lambda: (
                "25 changed files (25 created, +24 -0 lines)" in product.run("approvals").stdout
            ),
            "one line for all",
        )
        listed = product.ok("approvals")
        session = listed.split()[0]
        assert listed.count(" filesystem ") == 1
        assert "1 of them are not approved with the rest" in listed
        assert "src/link" in listed

        said = product.ok("approve", session, "--changes", "--below", "src/deep")
        assert "    created  src/deep/1.txt\n" in said
        assert "approved: 8 of 8 changed files" in said
        assert said.endswith("\napproved; applied: 8\n")
        until(lambda: len(list((workspace / "src/deep").glob("*.txt"))) == 8, "the folder's files")
        assert not (workspace / "docs").exists()
        said = product.ok("approve", session, "--changes", "--below", "src")
        assert (
            "approved: 8 of 9 changed files (9 created, +8 -0 lines); 1 need an answer of their own"
            in said
        )
        until(lambda: len(list((workspace / "src").glob("*.txt"))) == 8, "the other folder's files")
        assert (
            product.ok("deny", session, "--changes", "--reason", "no docs")
            .splitlines()[-1]
            .startswith("denied: 9 of 9")
        )
        assert "nothing waits" in product.ok("approvals")
        assert not (workspace / "docs").exists()
        assert not (workspace / "src/link").is_symlink()
        done = product.run("approve", session, "--changes")
        assert done.returncode == 1
        assert "nothing of this waits" in done.stderr
        done = product.run("approve", session, "--changes", "--always")
        assert done.returncode == 1
    finally:
        product.end()
