"""MAX_UPTIME, SIGTERM and SIGINT: the same orderly end, in the order that users rely on, with
exit code 0."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.process import PATIENCE_S, Gatehouse, descendants, is_alive, until

pytestmark = pytest.mark.timeout(300)

POLICY = "version: 1\nmodes: {filesystem: ask, exec: ask}\nallow: [filesystem(notes.txt)]\n"
# It asks, then at SIGTERM writes what it knows and leaves: what it wrote last must not be lost.
POLITE = """
trap 'echo last words >> notes.txt; echo heard SIGTERM; exit 0' TERM
echo first words > notes.txt; echo x > asked.txt
echo ready
while true; do sleep 0.1; done
"""
STUBBORN = "trap '' TERM INT; echo ready; while true; do sleep 0.1; done"


@pytest.fixture
def product(gatehouse: Path, tmp_path: Path) -> Iterator[Gatehouse]:
    (tmp_path / "workspace").mkdir()
    made = Gatehouse(gatehouse, tmp_path, POLICY)
    yield made
    made.end()


def ended_reason(product: Gatehouse) -> str:
    return str(product.events("session_ended")[0]["reason"])


def test_max_uptime_ends_a_session_in_order(product: Gatehouse, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    process = product.launch(
        "run",
        "--workspace",
        str(tmp_path / "workspace"),
        "--",
        "sh",
        "-c",
        POLITE,
        log=log,
        MAX_UPTIME="12s",
    )
    assert process.wait(PATIENCE_S) == 0
    assert ended_reason(product) == "MAX_UPTIME was reached"
    (asked,) = (
        one for one in product.events("request_asked") if one["action"].get("path") == "asked.txt"
    )
    closed = [
        record["why"]
        for record in product.events("request_closed")
        if record["request"] == asked["request"]
    ]
    assert closed == []  # it stays answerable
    assert "heard SIGTERM" in log.read_text()
    assert (tmp_path / "workspace/notes.txt").read_text() == "first words\nlast words\n"
    assert not (tmp_path / "workspace/asked.txt").exists()
    (kept,) = (product.data / "sessions").glob("*/merged/asked.txt")
    assert kept.read_text() == "x\n"  # what wasn't approved is not lost either


@pytest.mark.many
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_the_same_way(
    product: Gatehouse, tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "run.log"
    process = product.launch(
        "run", "--workspace", str(tmp_path / "workspace"), "--", "sh", "-c", POLITE, log=log
    )
    product.until_all_wait("write asked.txt")
    below = descendants(process.pid)
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / "workspace/notes.txt").read_text() == "first words\nlast words\n"
    until(lambda: not any(is_alive(pid) for pid in below), "everything to be gone")
    assert product.events("supervisor_stopped")


@pytest.mark.many
def test_an_agent_that_ignores_sigterm_is_killed_after_ten_seconds(
    product: Gatehouse, tmp_path: Path
) -> None:
    log = tmp_path / "run.log"
    process = product.launch(
        "run", "--workspace", str(tmp_path / "workspace"), "--", "sh", "-c", STUBBORN, log=log
    )
    until(lambda: "ready" in log.read_text(), "the agent to be ready")
    below = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    until(lambda: not any(is_alive(pid) for pid in below), "everything to be gone")


@pytest.mark.many
def test_with_stay_the_page_stays_open_after_the_agent_until_a_signal(
    product: Gatehouse, tmp_path: Path
) -> None:
    log = tmp_path / "run.log"
    process = product.launch(
        "run", "--stay", "--workspace", str(tmp_path / "workspace"), "--", "true", log=log
    )
    product.until_event("session_ended")
    until(lambda: "the page stays open" in log.read_text(), "the word that it stays")
    assert "login?token=" in product.ok("url")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0


@pytest.mark.many
def test_with_stay_max_uptime_still_ends_it(product: Gatehouse, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    process = product.launch(
        "run",
        "--stay",
        "--max-uptime",
        "4s",
        "--workspace",
        str(tmp_path / "workspace"),
        "--",
        "true",
        log=log,
    )
    assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("text", ["4 hours", "1.5h", "", "-1s", "0"])
def test_garbage_shows_the_forms(product: Gatehouse, tmp_path: Path, text: str) -> None:
    done = product.run(
        "run",
        "--workspace",
        str(tmp_path / "workspace"),
        f"--max-uptime={text or ' '}",
        "--",
        "true",
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "7d, 4h, 30m, 1h30m, 2h15m30s or 500ms" in done.stderr
