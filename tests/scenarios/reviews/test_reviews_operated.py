"""What an operator does to a supervisor that reviews, at the command line: hold, release, and
SIGTERM."""

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.reviews.demo import server
from supervisor.reviews.demo.stage import NAME
from supervisor.reviews.demo.state import Tongue
from tests.fakes.reviewed import CHANGE, forge_with_people, our_reviews
from tests.scenarios.process import Gatehouse, start_reviews, until

pytestmark = [pytest.mark.xdist_group("reviews-held"), pytest.mark.timeout(300)]
POLICY = "version: 1\nallow: [review(* */*)]\n"


def test_hold_and_release_at_the_command_line(
    gatehouse: Path, tmp_path: Path, forge: Tongue, free_tcp_port: int
) -> None:
    product = Gatehouse(gatehouse, tmp_path, POLICY)
    with forge_with_people(tmp_path / "stage", forge) as stage:
        start_reviews(product, stage, tmp_path, free_tcp_port)
        stage.tell(f"http://127.0.0.1:{free_tcp_port}")
        assert product.ok("holds") == "nothing is held\n"
        assert product.ok("hold", "--all", "--why", "let me look") == (
            "everything  held by operator (cli): let me look\n"
        )
        product.until_told(lambda: NAME in product.ok("repos", "list") or None, "the repository")
        name = NAME if forge == "github" else f"bitbucket:{NAME}"
        assert f"{name}  held by operator (cli)\n" in product.ok("hold", "--repo", NAME)
        pull = opened(stage)
        checks = stage.forge.repositories[NAME].checks
        (check,) = until(lambda: list(checks) or None, "the check")
        assert check["conclusion"] in ("neutral", "STOPPED")
        assert "held by operator (cli): let me look" in check["output"]["summary"]
        assert product.ok("release", "--all") == f"{name}  held by operator (cli)\n"
        assert product.run("release", "--all").returncode == 1
        assert product.run("hold").returncode == 1
        assert product.run("hold", "--pr", "nonsense").returncode == 1
        assert product.ok("release", "--repo", NAME.upper()) == "nothing is held\n"
        until(lambda: our_reviews(stage.forge, pull) or None, "the review")
        product.end()


@pytest.mark.many
@pytest.mark.parametrize(
    ("number", "is_waited_for"), [(signal.SIGTERM, True), (signal.SIGINT, False)]
)
def test_sigterm_waits_for_a_review_under_way_and_ctrl_c_does_not(
    gatehouse: Path,
    tmp_path: Path,
    forge: Tongue,
    free_tcp_port: int,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    is_waited_for: bool,
) -> None:
    go = threading.Event()
    answer = server.answer

    def slow(*facts: Any) -> Any:
        go.wait(60)
        return answer(*facts)

    monkeypatch.setattr(server, "answer", slow)
    product = Gatehouse(gatehouse, tmp_path, POLICY)
    with forge_with_people(tmp_path / "stage", forge) as stage:
        process = start_reviews(product, stage, tmp_path, free_tcp_port)
        stage.tell(f"http://127.0.0.1:{free_tcp_port}")
        pull = opened(stage)
        product.until_told(lambda: "running" in product.ok("reviews", "list") or None, "its run")
        process.send_signal(number)
        if is_waited_for:
            time.sleep(2.0)
            assert process.poll() is None
            go.set()
            assert process.wait(60) == 0
            (run,) = product.events("review_recorded")
            assert run
        else:
            assert process.wait(15) == 0
            go.set()
            assert product.events("review_recorded") == []
        start_reviews(product, stage, tmp_path, free_tcp_port)
        until(lambda: our_reviews(stage.forge, pull) or None, "the review")
        product.until_told(
            lambda: "found" in product.ok("reviews", "list") or None, "a run that ended"
        )
        assert len(our_reviews(stage.forge, pull)) == 1
        assert ("stopped" in product.ok("reviews", "list")) is not is_waited_for
        product.end()


def opened(stage: Any) -> Any:
    stage.forge.commit(NAME, "feature", CHANGE, "A change", base="main")
    return stage.forge.open_pull(NAME, "feature", title="Count")
