"""Scheduled jobs, from due to a pull request on a forge: what is proposed, what is pushed, what
rests, and what is refused. The recorded model plays the sessions: it writes one note."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.base.clock import RealClock
from supervisor.core.approvals import Request, status
from supervisor.reviews.core.job_posts import branch_of
from supervisor.reviews.demo.forge import DemoPull
from supervisor.reviews.demo.stage import Stage
from supervisor.reviews.demo.state import run_git
from supervisor.reviews.store import jobs
from tests.fakes.reviewed import NAME, Reviewed, forge_with_people, reviewing_at

pytestmark = [pytest.mark.xdist_group("reviews-jobs"), pytest.mark.timeout(300)]
DAY_S = 86_400.0
JOB = "docs-drift"
BRANCH = branch_of(NAME, JOB)
NOTE = "docs/RECORDED_MAINTENANCE.md"
CONFIG = """
version: 1
tools: {allowlist: [filesystem, git.history, repo.write]}
schedule:
  cron: "0 3 * * *"
  timezone: Europe/Berlin
  jobs:
    - id: docs-drift
      prompt: Bring docs/ up to date with the code.
      output: {mode: pr_create, pr: {title: Bring the docs up to date}}
      writeScope: {include: ["docs/**"]}
"""


class MovedClock(RealClock):
    """The machine's clock, set forth or back."""

    def __init__(self) -> None:
        self.by = 0.0

    def now(self) -> float:  # type: ignore[override]
        return RealClock.now() + self.by


class Nights:
    """A supervisor, its forge, and a clock that goes from night to night."""

    def __init__(self, on: Reviewed, clock: MovedClock) -> None:
        self.on = on
        self.clock = clock
        self.forge = on.forge

    async def night(self) -> jobs.JobRun:
        """The next night's run, once it has ended."""
        before = len(self.runs())
        self.clock.by += DAY_S

        def ended() -> jobs.JobRun | None:
            runs = self.runs()
            return runs[0] if len(runs) > before and runs[0].ended_at is not None else None

        return await self.on.running.until_soon(ended, "a run that ended")

    def runs(self) -> list[jobs.JobRun]:
        """The job's runs, newest first."""
        repository = self.on.service.repository_named(NAME)
        with self.on.service.engine.connect() as connection:
            job = jobs.jobs_of(connection, repository.id).get(JOB)
            return jobs.runs_of(connection, job.id) if job else []

    def acts(self) -> list[Request]:
        """The requests for pull requests, oldest first."""
        return [one for one in self.on.acts() if one.action.operation in ("open-pr", "update-pr")]  # type: ignore[union-attr]

    async def done(self) -> dict[str, Any]:
        """Approve what waits, and return its outcome."""
        (waiting,) = [one for one in self.acts() if status(one) == "pending"]
        self.on.running.approve(waiting)
        return await self.on.running.done(waiting)

    @property
    def pulls(self) -> list[DemoPull]:
        """All pull requests of the repository."""
        return list(self.forge.repositories[NAME].pulls.values())

    def git(self, *words: str) -> str:
        """What git says in the forge's repository."""
        return run_git(self.forge.repositories[NAME].folder, *words)


@contextlib.asynccontextmanager
async def nights(
    folder: Path, config: str = CONFIG, stage: Stage | None = None, **changes: Any
) -> AsyncIterator[Nights]:
    clock = MovedClock()
    with contextlib.ExitStack() as opened:
        stage = stage or opened.enter_context(forge_with_people(folder / "stage"))
        stage.forge.permissions["contents"] = "write"
        stage.forge.commit(NAME, "main", {".reviewerc": config}, "Jobs")
        more: dict[str, Any] = {"anthropic_api_key": "", "clock": clock}
        async with reviewing_at(stage, folder, **more | changes) as on:
            found = Nights(on, clock)

            def is_scheduled() -> bool | None:
                known = on.service.reconcile.repository(NAME)
                if known is None:
                    return None
                with on.service.engine.connect() as connection:
                    return JOB in jobs.jobs_of(connection, known.id) or None

            await on.running.until_soon(is_scheduled, "the job's schedule")
            yield found


async def test_a_due_job_ends_in_a_pull_request_once_a_person_lets_it_out(tmp_path: Path) -> None:
    async with nights(tmp_path) as on:
        run = await on.night()
        assert (run.outcome, run.reason) == ("proposed", "")
        (asked,) = on.acts()
        act = asked.action
        assert (act.operation, act.branch, act.base) == ("open-pr", BRANCH, "main")  # type: ignore[union-attr]
        assert (act.head, act.scope) == (run.head_sha, ("docs/**",))  # type: ignore[union-attr]
        assert on.git("for-each-ref", "refs/heads/gatehouse") == ""
        assert on.pulls == []
        assert (await on.done())["ok"], on.on.running.story()
        (pull,) = on.pulls
        assert (pull.head_ref, pull.head_sha, pull.author) == (
            *(BRANCH, run.head_sha),
            "gatehouse[bot]",
        )
        assert pull.title == "Bring the docs up to date"
        for words in ("Bring docs/ up to date with the code.", "1 file, all within docs/**"):
            assert words in pull.body
        assert "A recorded model played this job" in pull.body
        assert on.git("diff", "--name-only", f"main..{BRANCH}") == NOTE
        assert on.git("rev-parse", f"{BRANCH}^") == on.git("rev-parse", "main")
