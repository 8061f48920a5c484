"""Named jobs of `data/jobs.yaml`: read, due, and started while `gatehouse up` runs.

    version: 1
    jobs:
      docs:
        cron: "0 3 * * 1-5"            # minute hour day month weekday, in this machine's time
        workspace: ~/src/project
        prompt: Bring docs/ up to date with the code.
        scope: [docs/**]
        agent: claude                  # default: the built-in agent
        tests: make docs
        branch: yes
        max_uptime: 1h
        budget: $2

A job's last run is the newest session of its name; nothing else is stored. Runs missed while
`gatehouse up` was down are made up for once. Source of the cron lines: crontab(5).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from cronsim import CronSim, CronSimError

from supervisor.base.clock import Clock
from supervisor.core.agents.agents import AgentName, agent_named
from supervisor.core.budget import parse_budget
from supervisor.core.files.write_scope import WriteScope
from supervisor.core.jobs import DEFAULT_MIN_AGE, UPDATES_PROMPT, Job
from supervisor.core.packages.updates import parse_updates
from supervisor.core.sessions import Session
from supervisor.core.text import strict_yaml
from supervisor.core.text.duration import parse_duration
from supervisor.core.text.mistyped import nearest
from supervisor.errors import GatehouseError, UserError
from supervisor.sessions.start_session import StartSession

LOOK_EVERY_S = 20.0
_KEYS = (
    *("cron", "workspace", "prompt", "scope", "agent"),
    *("tests", "branch", "max_uptime", "budget", "updates", "min_age"),
)


class ScheduledJob(NamedTuple):
    """A job: its cron line, and what its sessions are started with."""

    cron: str
    workspace: Path
    job: Job
    agent: AgentName | None
    max_uptime_s: float | None
    budget: str | None

    def wanted(self) -> StartSession:
        """Return what starts it."""
        return StartSession(
            workspace=self.workspace,
            kind="maintenance",
            job=self.job,
            agent=self.agent,
            max_uptime_s=self.max_uptime_s,
            budget=self.budget,
        )

    def next_after(self, moment: float) -> float:
        """Return when it is next due after a moment; both in seconds since the epoch."""
        found = next(CronSim(self.cron, datetime.fromtimestamp(moment).astimezone()))
        return found.timestamp()


class JobsFile(NamedTuple):
    """The usable jobs of a file by name, and why the others can't be used."""

    jobs: dict[str, ScheduledJob]
    faults: dict[str, str]


def read_jobs(file: Path) -> JobsFile:
    """Return the jobs of a file; none where there is no file. `UserError` where it isn't a list of
    jobs.
    """
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return JobsFile({}, {})
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {error}", "mend the file") from error
    root = strict_yaml.load(text, str(file))
    listed = root.get("jobs") if isinstance(root, strict_yaml.Fields) else None
    if not isinstance(listed, strict_yaml.Fields) or root.get("version") != "1":
        raise UserError(
            f"{file}: it is no list of jobs", "write `version: 1` and `jobs:` with names below it"
        )
    found = JobsFile({}, {})
    for key, fields in listed.items():
        name = str(key)
        try:
            found.jobs[name] = _job(f"{file}: the job `{name}`", name, fields)
        except UserError as error:
            found.faults[name] = str(error)
    return found


def _job(what: str, name: str, fields: Any) -> ScheduledJob:
    if not isinstance(fields, strict_yaml.Fields):
        raise UserError(
            f"{what} is no mapping", "write `cron:`, `workspace:` and `prompt:` below it"
        )
    for key in fields:
        if key not in _KEYS:
            raise UserError(f"{what}: unknown key `{key}`", nearest(str(key), _KEYS))
    if "updates" in fields:
        fields.setdefault("prompt", UPDATES_PROMPT)
    for key in ("cron", "workspace", "prompt"):
        if not isinstance(fields.get(key), str) or not fields[key].strip():
            raise UserError(f"{what} has no `{key}`", f"write `{key}:` and its value")
    given = {key: _text(what, key, fields[key]) for key in fields if key != "scope"}
    scope = fields.get("scope", ())
    words = tuple(
        map(str, scope if isinstance(scope, strict_yaml.Items) else [scope] if scope else [])
    )
    WriteScope(words)
    if given.get("branch", "no") not in ("yes", "no"):
        raise UserError(f"{what}: `branch` is neither `yes` nor `no`", "the default is no")
    budget = given.get("budget")
    parse_budget(budget or "", f"{what}: budget")
    uptime = given.get("max_uptime")
    updates = None
    if "updates" in given:
        age = given.get("min_age", DEFAULT_MIN_AGE)
        updates = parse_updates(given["updates"], parse_duration(age, f"{what}: min_age"))
    cron = given["cron"].strip()
    try:
        CronSim(cron, datetime.fromtimestamp(0).astimezone())
    except CronSimError as error:
        raise UserError(
            f"{what}: `{cron}` is no cron line: {error}", "write it like `0 3 * * 1-5`"
        ) from error
    try:
        job = msgspec.convert(
            {
                "name": name,
                "prompt": given["prompt"],
                "scope": words,
                "tests": given.get("tests", ""),
                "branch": given.get("branch") == "yes",
                "updates": updates and msgspec.to_builtins(updates),
            },
            Job,
        )
    except msgspec.ValidationError as error:
        raise UserError(f"{what}: {error}", "write less") from error
    return ScheduledJob(
        cron=cron,
        workspace=Path(given["workspace"]).expanduser(),
        job=job,
        agent=agent_named(given["agent"]) if "agent" in given else None,
        max_uptime_s=parse_duration(uptime, f"{what}: max_uptime") if uptime else None,
        budget=budget,
    )


def _text(what: str, key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UserError(f"{what}: `{key}` is not one text", f"write `{key}:` and one value")
    return str(value)


class JobSchedule:
    """Starts due jobs. `last_of(name)` is the newest session of a job; `start` starts one; `said`
    reports failures, for the terminal and the record.
    """

    def __init__(
        self,
        file: Path,
        clock: Clock,
        last_of: Callable[[str], Session | None],
        start: Callable[[StartSession], Awaitable[object]],
        said: Callable[[str, str], None],
    ) -> None:
        self._file = file
        self._clock = clock
        self._last_of = last_of
        self._start = start
        self._said = said
        self._complained = dict[str, str]()
        self._tried: dict[str, float] = {}

    async def run(self) -> None:
        """Start due jobs until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Start each due job once; a job that still runs waits for its end."""
        for name, job in self._jobs().items():
            last = self._last_of(name)
            if last is not None and last.ended_at is None:
                continue
            if self.due_at(name, job, last) > self._clock.now():
                continue
            self._tried[name] = self._clock.now()
            try:
                await self._start(job.wanted())
            except GatehouseError as error:
                self._said(name, str(error))

    def due_at(self, name: str, job: ScheduledJob, last: Session | None) -> float:
        """Return when a job is due, in seconds since the epoch. One that never ran counts from when
        it was written down.
        """
        since = self._file.stat().st_mtime if last is None else last.created_at
        return job.next_after(max(since, self._tried.get(name, 0.0)))

    def _jobs(self) -> Mapping[str, ScheduledJob]:
        try:
            found = read_jobs(self._file)
        except GatehouseError as error:
            found = JobsFile({}, {"": str(error)})
        for name, why in found.faults.items():
            if self._complained.get(name) != why:
                self._said(name, why)
        self._complained = found.faults
        return found.jobs
