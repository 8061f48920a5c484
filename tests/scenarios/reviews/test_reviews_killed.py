"""kill -9 of a supervisor that reviews, at each step from webhook to check: nothing is lost, and
nothing is posted twice."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.reviews.core import posts
from supervisor.reviews.demo.forge import DemoPull
from supervisor.reviews.demo.stage import NAME, Stage
from supervisor.reviews.demo.state import Tongue
from supervisor.sessions.demo_project import FILES
from tests.fakes.reviewed import (
    CHANGE,
    CHECKING,
    EDITING,
    POSTING,
    STATES,
    forge_with_people,
    our_reviews,
)
from tests.scenarios.process import Gatehouse, start_reviews, until

pytestmark = [pytest.mark.xdist_group("reviews"), pytest.mark.timeout(300)]
POLICY = "version: 1\nallow: [review(* */*)]\n"
SECOND = {
    "shop/orders.py": FILES["shop/orders.py"]
    + "\n\ndef order(number):\n"
    + '    found = connection.execute(f"select * from orders where number = {number}")\n'
    + "    return found\n"
}


def kill(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


STEPS: dict[str, Callable[[Gatehouse, Stage], object]] = {
    "stored": lambda product, stage: stage.forge.until_sent() or True,
    "cloning": lambda product, stage: [
        one for one in stage.forge.calls if "git-upload-pack" in one[1]
    ],
    "reading": lambda product, stage: product.events("session_started"),
    "reported": lambda product, stage: product.events("review_recorded"),
}


# A short run tries these; `make test-many` tries each.
SHARE = ("reading", "posting")
EACH = (*STEPS, "posting", "checking")


@pytest.mark.parametrize("step", EACH if os.environ.get("EVERYTHING") else SHARE)
def test_killed_at_any_step_the_review_is_posted_once(
    gatehouse: Path, tmp_path: Path, forge: Tongue, free_tcp_port: int, step: str
) -> None:
    product = Gatehouse(gatehouse, tmp_path, POLICY)
    with forge_with_people(tmp_path / "stage", forge) as stage:
        process = start_reviews(product, stage, tmp_path, free_tcp_port)
        stage.tell(f"http://127.0.0.1:{free_tcp_port}")
        calls = {"posting": POSTING[forge], "checking": CHECKING[forge]}
        if step in calls:
            key = calls[step]

            def kill_once() -> None:
                stage.forge.after.pop(key, None)
                kill(process)

            stage.forge.after[key] = kill_once
        pull = opened(stage)
        if step in STEPS:
            until(lambda: STEPS[step](product, stage), step)
            kill(process)
        process.wait(60)
        process = start_reviews(product, stage, tmp_path, free_tcp_port)
        until(lambda: our_reviews(stage.forge, pull) or None, "the review")
        checks = stage.forge.repositories[NAME].checks
        until(
            lambda: (
                [one for one in checks if one["conclusion"] in ("neutral", STATES["neutral"])]
                or None
            ),
            "check",
        )
        product.until_told(
            lambda: "found" in product.ok("reviews", "list") or None, "a run that ended"
        )
        assert len(our_reviews(stage.forge, pull)) == 1, our_reviews(stage.forge, pull)
        product.end()


ROUND = {"noting": POSTING, "editing": EDITING}


@pytest.mark.parametrize("step", ROUND if os.environ.get("EVERYTHING") else ("noting",))
def test_killed_in_a_second_round_it_is_posted_once(
    gatehouse: Path, tmp_path: Path, forge: Tongue, free_tcp_port: int, step: str
) -> None:
    product = Gatehouse(gatehouse, tmp_path, POLICY)
    with forge_with_people(tmp_path / "stage", forge) as stage:
        process = start_reviews(product, stage, tmp_path, free_tcp_port)
        stage.tell(f"http://127.0.0.1:{free_tcp_port}")
        pull = opened(stage)
        until(lambda: our_reviews(stage.forge, pull) or None, "the first review")
        (first,) = (dict(one) for one in our_reviews(stage.forge, pull))
        product.until_told(
            lambda: "found" in product.ok("reviews", "list") or None, "the first run's end"
        )

        def kill_once() -> None:
            stage.forge.after.pop(ROUND[step][forge], None)
            kill(process)

        stage.forge.after[ROUND[step][forge]] = kill_once
        stage.forge.push(NAME, pull.number, SECOND, "More")
        process.wait(120)
        process = start_reviews(product, stage, tmp_path, free_tcp_port)
        until(
            lambda: our_reviews(stage.forge, pull)[0]["body"] != first["body"] or None,
            "the summary is edited",
        )
        product.until_told(
            lambda: product.ok("reviews", "list").count("found") == 2 or None, "its end"
        )
        summary, note = our_reviews(stage.forge, pull)
        assert posts.reviewed_by(note["body"]) == posts.run_of(summary["body"])
        assert posts.run_of(first["body"]) not in summary["body"]
        # On Bitbucket a comment beside the code is of no review.
        of_note = [one for one in pull.comments if one["review"] in (note["id"], None)]
        assert [one["path"] for one in of_note].count("shop/orders.py") == 1
        assert product.ok("reviews", "undo", f"{NAME}#{pull.number}").count("taken back") == 2
        assert pull.comments == []
        assert all("was taken back by" in one["body"] for one in our_reviews(stage.forge, pull))
        answered = [one for one in product.events() if '"undo"' in json.dumps(one)]
        assert answered, "it is on record"
        product.end()


def opened(stage: Stage) -> DemoPull:
    stage.forge.commit(NAME, "feature", CHANGE, "A change", base="main")
    return stage.forge.open_pull(NAME, "feature", title="Count")
