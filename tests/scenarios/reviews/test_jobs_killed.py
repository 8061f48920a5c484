"""kill -9 of a supervisor at each step of a job, from due to its pull request: there is one, never
two, and its branch has one commit."""

import contextlib
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.reviews.core.job_posts import branch_of
from supervisor.reviews.demo.stage import NAME, Stage
from supervisor.reviews.demo.state import Tongue, run_git
from tests.fakes.reviewed import forge_with_people
from tests.scenarios.process import Gatehouse, start_reviews, until
from tests.scenarios.reviews.test_jobs import CONFIG

pytestmark = [pytest.mark.xdist_group("reviews-jobs"), pytest.mark.timeout(300)]
POLICY = "version: 1\nallow: [review(* */* --no-scope)]\n"


def kill(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


STEPS: dict[str, Callable[[Gatehouse, Stage], object]] = {
    "due": lambda product, stage: rows(product, "SELECT id FROM job_runs"),
    "begun": lambda product, stage: product.events("session_started"),
    "ended": lambda product, stage: product.events("session_ended"),
}
# Both forges' addresses of pull requests start with this.
CALLS = {"pushing": ("PUSH", "git-receive-pack"), "opening": ("POST", "/pull")}
SHARE = ("pushing", "opening")


@pytest.mark.parametrize("step", (*STEPS, *CALLS) if os.environ.get("EVERYTHING") else SHARE)
def test_killed_at_any_step_there_is_one_pull_request(
    gatehouse: Path, tmp_path: Path, forge: Tongue, free_tcp_port: int, step: str
) -> None:
    product = Gatehouse(gatehouse, tmp_path, POLICY)
    with forge_with_people(tmp_path / "stage", forge) as stage:
        stage.forge.permissions["contents"] = "write"
        stage.forge.commit(NAME, "main", {".reviewerc": CONFIG}, "Jobs")
        process = start_reviews(product, stage, tmp_path, free_tcp_port)
        if step in CALLS:
            key = CALLS[step]

            def kill_once() -> None:
                stage.forge.after.pop(key, None)
                kill(process)

            stage.forge.after[key] = kill_once
        until(lambda: rows(product, "SELECT id FROM jobs") or None, "the schedule")
        rows(product, "UPDATE jobs SET next_due_at = 0")
        if step in STEPS:
            until(lambda: STEPS[step](product, stage) or None, step)
            kill(process)
        process.wait(120)
        process = start_reviews(product, stage, tmp_path, free_tcp_port)
        pulls = stage.forge.repositories[NAME].pulls
        until(lambda: pulls or None, "the pull request")
        ended = "SELECT id FROM job_runs WHERE ended_at IS NOT NULL AND pack = x''"
        until(lambda: rows(product, ended) or None, "the run's end")
        assert not rows(product, "SELECT id FROM job_runs WHERE ended_at IS NULL")
        (pull,) = pulls.values()
        branch = branch_of(NAME, "docs-drift")
        folder = stage.forge.repositories[NAME].folder
        assert pull.head_sha == run_git(folder, "rev-parse", branch)
        assert run_git(folder, "rev-list", "--count", f"main..{branch}") == "1"
        product.end()


def rows(product: Gatehouse, statement: str) -> list[tuple[object, ...]]:
    """What the product's database answers; nothing while it is being made."""
    with contextlib.suppress(sqlite3.OperationalError):
        opened = contextlib.closing(sqlite3.connect(product.data / "reviews.db", timeout=20))
        with opened as database, database:
            return list(database.execute(statement))
    return []
