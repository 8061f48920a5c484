"""`gatehouse show` and `gatehouse approve --hunks`, beside a running agent: the numbers that are
printed are the ones that count."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.process import Gatehouse

pytestmark = pytest.mark.timeout(300)

POLICY = "version: 1\nmodes: {filesystem: ask, exec: ask, network: ask}\n"
LINES = [f"line {number}\n" for number in range(40)]
WORK = r"sed -i 's/line 5$/LINE 5/; s/line 30$/LINE \x1b[31m30/' a.txt; sleep 60"


@pytest.fixture
def product(gatehouse: Path, tmp_path: Path) -> Iterator[Gatehouse]:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace/a.txt").write_text("".join(LINES))
    made = Gatehouse(gatehouse, tmp_path, POLICY)
    yield made
    made.end()


def test_some_changes_by_their_numbers(product: Gatehouse, tmp_path: Path) -> None:
    file = tmp_path / "workspace/a.txt"
    product.launch(
        "run",
        "--workspace",
        str(tmp_path / "workspace"),
        "--",
        "sh",
        "-c",
        WORK,
        log=tmp_path / "run.log",
    )
    product.until_event("request_asked")
    request_id = product.ok("approvals").split()[0]
    shown = product.ok("show", request_id)
    assert "  1  @@ -3,7 +3,7 @@" in shown
    assert "  2  @@ -28,7 +28,7 @@" in shown
    assert "-line 5\n     +LINE 5\n" in shown
    assert "+LINE \\u{1b}[31m30\n" in shown
    assert "warning: has characters that don't show, in line 31" in shown
    assert f"gatehouse approve {request_id} --hunks" in shown
    for numbers in ("3", "0", "1,x", "", "-1"):
        refused = product.run("approve", request_id, f"--hunks={numbers}")
        assert refused.returncode == 1
        assert "not one of its 2 changes" in refused.stderr
    assert "say which" in product.run("approve", request_id, "--drop-rest").stderr
    assert file.read_text() == "".join(LINES)
    done = product.ok("approve", request_id, "--hunks", "1", "--drop-rest")
    assert done.endswith("\napproved; applied: 1 of 2 changes of a.txt; the rest is denied\n")
    assert file.read_text() == "".join([*LINES[:5], "LINE 5\n", *LINES[6:]])
    assert "nothing waits" in product.ok("approvals")
    assert "already superseded" in product.run("approve", request_id, "--hunks", "1").stderr


def test_what_runs_with_a_build_says_so_in_a_word_that_asks_nothing(
    product: Gatehouse, tmp_path: Path
) -> None:
    work = "printf 'all:\\n\\techo hi\\n' > Makefile; sleep 60"
    product.launch(
        "run",
        "--workspace",
        str(tmp_path / "workspace"),
        "--",
        "sh",
        "-c",
        work,
        log=tmp_path / "run.log",
    )
    product.until_event("request_asked")
    shown = product.ok("show", product.ok("approvals").split()[0])
    assert "asked because: no rule matches; filesystem asks" in shown
    assert "    runs when you run tests or a build\n" in shown
