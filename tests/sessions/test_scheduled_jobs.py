"""Named jobs: their file, when they are due, and that each is started once."""

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.core.jobs import Job, Updates
from supervisor.core.sessions import Session, SessionId
from supervisor.errors import UserError
from supervisor.sessions.scheduled_jobs import JobSchedule, read_jobs
from supervisor.sessions.start_session import StartSession
from tests.fakes.clock import FakeClock

DOCS = """
version: 1
jobs:
  docs:
    cron: "0 3 * * *"
    workspace: /src/project
    prompt: Keep the docs in order.
    scope: [docs/**, "!docs/old/**"]
    agent: claude
    tests: make docs
    branch: yes
    max_uptime: 1h
    budget: $2
"""


def at(text: str) -> float:
    return datetime.fromisoformat(text).astimezone().timestamp()


def test_a_job_says_all_that_its_session_is_started_with(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    assert read_jobs(file) == ({}, {})
    file.write_text(DOCS)
    job = read_jobs(file).jobs["docs"]
    assert job.wanted() == StartSession(
        workspace=Path("/src/project"),
        kind="maintenance",
        agent="claude",
        max_uptime_s=3600.0,
        budget="$2",
        job=Job(
            name="docs",
            prompt="Keep the docs in order.",
            scope=("docs/**", "!docs/old/**"),
            tests="make docs",
            branch=True,
        ),
    )
    assert job.next_after(at("2026-11-26T02:59")) == at("2026-11-26T03:00")
    assert job.next_after(at("2026-11-26T03:00")) == at("2026-11-27T03:00")


def test_a_job_of_updates_needs_no_prompt(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    prompt = "    prompt: Keep the docs in order.\n"
    file.write_text(DOCS.replace(prompt, "    updates: npm:left-pad\n    min_age: 7d\n"))
    job = read_jobs(file).jobs["docs"].job
    assert job.prompt == "Update dependencies"
    assert job.updates == Updates(managers=("npm",), names=("left-pad",), min_age_s=7 * 86_400.0)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"0 3 * * *"', '"0 0 30 2 *"', "no cron line"),
        ('"0 3 * * *"', '"0 25 * * *"', "no cron line"),
        ("    prompt: Keep the docs in order.\n", "", "has no `prompt`"),
        ("branch: yes", "branch: maybe", "neither `yes` nor `no`"),
        ("agent: claude", "agent: aider", "no agent `aider`"),
        ("tests:", "test:", "unknown key `test`"),
        ("max_uptime: 1h", "max_uptime: long", "max_uptime"),
        ("budget: $2", "budget: much", "budget"),
        ("docs/**,", "/docs/**,", "no path below the workspace"),
        ("tests: make docs", "tests: [make]", "not one text"),
        ("tests: make docs", "updates: gem", "no package manager whose updates are known"),
        ("tests: make docs", "updates: npm\n    min_age: soon", "min_age"),
    ],
)
def test_one_line_says_what_is_wrong(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = tmp_path / "jobs.yaml"
    assert old in DOCS
    file.write_text(DOCS.replace(old, new))
    assert list(read_jobs(file).faults) == ["docs"]
    assert said in read_jobs(file).faults["docs"]


def test_a_file_of_another_version_is_no_list_of_jobs(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(DOCS.replace("version: 1", "version: 2"))
    with pytest.raises(UserError, match="no list of jobs"):
        read_jobs(file)


class World:
    """A schedule, and the sessions that it started."""

    def __init__(self, tmp_path: Path) -> None:
        self.file = tmp_path / "jobs.yaml"
        self.file.write_text(DOCS)
        self.clock = FakeClock(at("2026-11-25T12:00"))
        os.utime(self.file, (self.clock.now(), self.clock.now()))
        self.sessions: list[Session] = []
        self.said: list[tuple[str, str]] = []
        self.refuses = ""
        self.schedule = self.made()

    def made(self) -> JobSchedule:
        return JobSchedule(
            self.file, self.clock, self.last_of, self.start, lambda *what: self.said.append(what)
        )

    def last_of(self, name: str) -> Session | None:
        return next(
            (one for one in reversed(self.sessions) if one.job and one.job.name == name), None
        )

    async def start(self, wanted: StartSession) -> Any:
        if self.refuses:
            raise UserError(self.refuses, "look")
        self.sessions.append(
            Session(
                id=SessionId(f"s{len(self.sessions)}"),
                kind="maintenance",
                workspace=str(wanted.workspace),
                command=(),
                token_hash="",
                created_at=self.clock.now(),
                deadline_at=self.clock.now() + 60,
                job=wanted.job,
            )
        )

    def end_all(self) -> None:
        self.sessions = [
            msgspec.structs.replace(one, ended_at=self.clock.now()) for one in self.sessions
        ]

    async def until(self, moment: str, *, ending: bool = True) -> int:
        """Look every ten minutes until then; how many sessions there are."""
        while self.clock.now() < at(moment):
            self.clock.advance(600)
            await self.schedule.look()
            if ending:
                self.end_all()
        return len(self.sessions)


async def test_each_night_has_one_session(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert await world.until("2026-11-26T02:50") == 0
    assert await world.until("2026-11-26T03:00") == 1
    assert await world.until("2026-11-26T23:00") == 1
    assert await world.until("2026-11-29T04:00") == 4


async def test_what_was_missed_is_made_up_for_once_also_by_the_next_supervisor(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    await world.until("2026-11-26T04:00")
    world.clock.advance(5 * 86_400)
    world.schedule = world.made()
    await world.schedule.look()
    assert len(world.sessions) == 2
    world.end_all()
    await world.schedule.look()
    assert len(world.sessions) == 2


async def test_one_that_still_runs_is_not_started_beside_itself(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert await world.until("2026-11-27T23:00", ending=False) == 1
    world.end_all()
    await world.schedule.look()
    assert len(world.sessions) == 2


async def test_what_can_not_be_started_is_said_once_for_each_time_that_it_is_due(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.refuses = "there is no key"
    await world.until("2026-11-27T02:00")
    assert world.said == [("docs", "there is no key; look")]
    await world.until("2026-11-27T04:00")
    assert len(world.said) == 2


async def test_a_file_that_can_not_be_read_is_said_once_and_starts_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.file.write_text("jobs: [")
    await world.until("2026-11-26T04:00")
    ((name, why),) = world.said
    assert name == ""
    assert str(world.file) in why
    assert world.sessions == []
