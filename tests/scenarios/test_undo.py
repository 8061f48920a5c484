"""`gatehouse undo` as a person uses it: after `gatehouse run` without a supervisor, beside one,
and after a kill -9."""

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.process import PATIENCE_S, Gatehouse, until

pytestmark = pytest.mark.timeout(300)

POLICY = 'version: 1\nallow: ["filesystem(**)"]\n'
WORK = "echo agent > a.txt; rm b.txt; mkdir -p new/er; echo fresh > new/er/c.txt; sleep 1"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = tmp_path / "workspace"
    made.mkdir()
    (made / "a.txt").write_text("mine\n")
    (made / "b.txt").write_text("kept\n")
    (made / "b.txt").chmod(0o640)
    os.utime(made / "b.txt", ns=(1, 1_500_000_000_000_000_009))
    return made


@pytest.fixture
def product(gatehouse: Path, tmp_path: Path, workspace: Path) -> Iterator[Gatehouse]:
    made = Gatehouse(gatehouse, tmp_path, POLICY)
    yield made
    made.end()


def work(product: Gatehouse, workspace: Path) -> None:
    done = product.run("run", "--workspace", str(workspace), "--", "sh", "-c", WORK)
    assert done.returncode == 0, done.stderr
    assert (workspace / "new/er/c.txt").read_text() == "fresh\n"
    assert not (workspace / "b.txt").exists()


def is_as_before(workspace: Path) -> bool:
    assert (workspace / "a.txt").read_text() == "mine\n"
    status = (workspace / "b.txt").stat()
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o640, 1_500_000_000_000_000_009)
    return sorted(path.name for path in workspace.iterdir()) == ["a.txt", "b.txt"]


def undo_id(product: Gatehouse) -> str:
    return str(product.events("undo_settled")[-1]["undo"])


def test_after_a_run_everything_is_taken_back_without_a_supervisor(
    product: Gatehouse, workspace: Path
) -> None:
    work(product, workspace)
    asked = product.run("undo", "--all")
    assert asked.returncode == 2
    assert "removed             new/er/c.txt  +0 -1" in asked.stdout
    assert "-agent" in asked.stdout
    assert "--yes" in asked.stderr
    assert (workspace / "a.txt").read_text() == "agent\n"
    done = product.ok("undo", "--all", "--yes")
    assert "brought back        b.txt" in done
    assert is_as_before(workspace)
    assert undo_id(product) in done
    # An undo of the undo, and of that one again.
    product.ok("undo", undo_id(product), "--yes")
    assert (workspace / "a.txt").read_text() == "agent\n"
    product.ok("undo", undo_id(product), "--yes")
    assert is_as_before(workspace)
    assert " records, unbroken\n" in product.ok("audit", "--verify")
    assert {line["by"] for line in product.events("undo_started")} == {"operator (cli)"}


@pytest.mark.many
def test_a_file_that_was_edited_since_is_named(product: Gatehouse, workspace: Path) -> None:
    work(product, workspace)
    (workspace / "a.txt").write_text("edited since\n")
    done = product.run("undo", "--all", "--yes")
    assert done.returncode == 2
    assert "can't be undone     a.txt  (changed since by you or another session)" in done.stdout
    assert "--merge" in done.stderr
    assert not (workspace / "b.txt").exists()
    merged = product.run("undo", "--all", "--yes", "--merge")
    assert merged.returncode == 2
    assert "changed both ways" in merged.stdout
    assert (workspace / "a.txt").read_text() == "edited since\n"


def test_beside_a_supervisor_one_change_and_a_time(
    product: Gatehouse, workspace: Path, tmp_path: Path
) -> None:
    product.launch("up", log=tmp_path / "up.log")
    until(lambda: "open http://127.0.0.1:" in (tmp_path / "up.log").read_text(), "the page's URL")
    product.launch(
        "run",
        "--workspace",
        str(workspace),
        "--",
        "sh",
        "-c",
        f"{WORK}; sleep 60",
        log=tmp_path / "run.log",
    )
    until(
        lambda: (workspace / "new/er/c.txt").exists() and not (workspace / "b.txt").exists(),
        "the agent's work",
    )
    until(lambda: len(product.events("effect_settled")) >= 3, "the effects on record")
    (request,) = [
        line["request"]
        for line in product.events("request_asked")
        if line.get("action", {}).get("path") == "a.txt" and line["verdict"] == "allow"
    ]
    product.ok("undo", request, "--yes")
    assert (workspace / "a.txt").read_text() == "mine\n"
    assert (workspace / "new/er/c.txt").exists()
    # While the session runs nothing is applied again.
    session = product.events("session_started")[0]["session"]
    product.ok("undo", "--to", "1h", "--session", session, "--yes")
    assert is_as_before(workspace)
    product.ok("stop", session)
    until(lambda: product.events("session_ended"), "the session's end")
    assert is_as_before(workspace)
    assert "nothing would change" in product.ok("undo", session)


@pytest.mark.many
def test_a_person_at_a_terminal_is_asked(product: Gatehouse, workspace: Path) -> None:
    work(product, workspace)
    ours, theirs = pty.openpty()
    command = [str(product.program), "undo", "--all"]
    for answer, code in ((b"n\n", 2), (b"y\n", 0)):
        process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=product.environment(),
        )
        os.write(ours, answer)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code
        assert b"Undo 5 paths? [y/N]" in out
    os.close(ours)
    os.close(theirs)
    assert is_as_before(workspace)


@pytest.mark.many
def test_what_is_meant_must_be_said(product: Gatehouse, workspace: Path) -> None:
    for words, said in (
        ((), "nothing to undo was named"),
        (("--all", "--to", "5m"), "nothing to undo was named"),
        (("--to", "teatime"), "`teatime` is no time"),
        (("--all",), "no session applied anything"),
        (("0" * 32,), "no request, undo or session has the id"),
    ):
        done = product.run("undo", *words)
        assert done.returncode == 1, done
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.many
def test_a_session_that_a_crash_left_is_taken_up_first(
    product: Gatehouse, workspace: Path, tmp_path: Path
) -> None:
    """An older session is never undone in its place."""
    older = tmp_path / "older"
    older.mkdir()
    product.run("run", "--workspace", str(older), "--", "sh", "-c", "echo agent > old.txt")
    running = product.launch(
        "run",
        "--workspace",
        str(workspace),
        "--",
        "sh",
        "-c",
        f"{WORK}; sleep 60",
        log=tmp_path / "run.log",
    )
    until(lambda: len(product.events("effect_settled")) >= 4, "the effects on record")
    running.send_signal(signal.SIGKILL)
    running.wait()
    session = product.events("session_started")[1]["session"]
    for what in (str(session), "--all"):
        done = product.run("undo", what, "--yes")
        assert done.returncode == 1
        assert "gatehouse up" in done.stderr
    assert (older / "old.txt").read_text() == "agent\n"
    product.launch("up", log=tmp_path / "up.log")
    until(lambda: "open http://127.0.0.1:" in (tmp_path / "up.log").read_text(), "the page's URL")
    product.ok("undo", "--all", "--yes")
    assert is_as_before(workspace)
    assert (older / "old.txt").read_text() == "agent\n"
