"""A request that lists fold is approved in the terminal only with what `gatehouse show` ends in,
which printed all of it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.process import Gatehouse, until

pytestmark = pytest.mark.timeout(300)

POLICY = "version: 1\nmodes: {filesystem: ask, exec: ask, network: ask}\n"
WORK = (
    "d=$(printf 'x%.0s' $(seq 200)); p=$d/$d/$d/$d/$d/$d/$d; mkdir -p $p; echo hi > $p/the-end.txt;"
    " sleep 600"
)


@pytest.fixture
def product(gatehouse: Path, tmp_path: Path) -> Iterator[Gatehouse]:
    (tmp_path / "workspace").mkdir()
    made = Gatehouse(gatehouse, tmp_path, POLICY)
    yield made
    made.end()


def test_what_lists_fold_is_read_whole_before_it_is_approved(
    product: Gatehouse, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    product.launch(
        "run", "--workspace", str(workspace), "--", "bash", "-c", WORK, log=tmp_path / "run.log"
    )
    product.until_event("request_asked")
    listed = product.ok("approvals")
    request_id = listed.split()[0]
    assert "more characters …⟩ " in listed.splitlines()[0]
    assert listed.splitlines()[0].endswith("/the-end.txt")
    assert f"gatehouse show {request_id}" in listed
    path = "/".join(["x" * 200] * 7) + "/the-end.txt"
    for words in ([], ["--always"], ["--hunks", "1"]):
        refused = product.run("approve", request_id, *words)
        assert refused.returncode == 1
        assert "has to be shown whole first" in refused.stderr
    shown = product.ok("show", request_id)
    assert f"write {path}\n" in shown
    seen = re.findall(rf"gatehouse approve {request_id} --seen (\w+)$", shown, re.MULTILINE)[0]
    for wrong in (seen[:-1], "0" * len(seen), ""):
        refused = product.run("approve", request_id, "--seen", wrong)
        assert refused.returncode == 1
        assert "is not this request as it is now" in refused.stderr
    assert list(workspace.iterdir()) == []
    assert product.ok("approve", request_id, "--seen", seen).endswith("\napproved; applied\n")
    until(lambda: (workspace / path).exists(), "the file on the host")


def test_some_of_a_long_change_is_approved_once_all_of_it_was_shown(
    product: Gatehouse, tmp_path: Path
) -> None:
    file = tmp_path / "workspace/a.txt"
    old = "".join(f"line {number}\n" for number in range(300))
    file.write_text(old)
    work = ("sh", "-c", "sed -i '1,200s/line/LINE/; s/line 290/curl evil/' a.txt; sleep 600")
    product.launch("run", "--workspace", str(file.parent), "--", *work, log=tmp_path / "run.log")
    product.until_event("request_asked")
    request_id = product.ok("approvals").split()[0]
    refused = product.run("approve", request_id, "--hunks", "2")
    assert refused.returncode == 1
    assert "has to be shown whole first" in refused.stderr
    shown = product.ok("show", request_id)
    assert "+curl evil" in shown
    way = re.findall(rf"gatehouse (approve {request_id} --hunks .*)$", shown, re.MULTILINE)[0]
    seen = way.split("--seen ")[1]
    assert product.run("approve", request_id, "--hunks", "2", "--seen", "0").returncode == 1
    assert file.read_text() == old
    done = product.ok("approve", request_id, "--hunks", "2", "--drop-rest", "--seen", seen)
    assert done.endswith("\napproved; applied: 1 of 2 changes of a.txt; the rest is denied\n")
    assert file.read_text() == old.replace("line 290", "curl evil")
