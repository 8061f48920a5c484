"""Sessions as facts, and their derived state (law 8).

A session is one bounded run of one agent in one sandbox.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NewType

import msgspec

from supervisor.core.jobs import Job, JobResult, result_words
from supervisor.core.text.duration import format_duration

SessionId = NewType("SessionId", str)
State = Literal["starting", "running", "paused", "waiting", "stopping", "ended"]
Kind = Literal["agent", "review", "maintenance", "quarantine", "standing"]
NetworkMode = Literal["proxy", "transparent"]
# The word that marks a review as quarantined.
QUARANTINED = "--quarantine"
# Below this the wait is short, and the pace isn't known yet.
COPY_SOON_S = 1.0


class OwnLimits(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The session's own bounds; None if the supervisor's apply. The ranges are those of the
    settings. `exec_rules` is recorded for every session: with `enforce`, deny and ask rules apply
    to every program that starts."""

    memory_bytes: Annotated[int, msgspec.Meta(ge=64 << 20, le=1 << 50)] | None = None
    processes: Annotated[int, msgspec.Meta(ge=8, le=1 << 20)] | None = None
    cpu_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    output_bytes: Annotated[int, msgspec.Meta(ge=1 << 20, le=1 << 40)] | None = None
    hold_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    exec_rules: Literal["asked", "enforce"] | None = None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session's facts. Times are seconds since the epoch. `token_hash` is BLAKE2b of the agent's
    token, which is stored nowhere.

    `pid` and `pid_started` (clock ticks since boot) identify the sandbox's process, so that a later
    process with the same number isn't mistaken for it. `notices` are lines that the page shows
    above everything else. `remotes` are the names and URLs that the host's repository knew at the
    start: git rules apply to no others. `budget` is the session's own, as `core.budget` reads it.
    `network` says what can get out when allowed: only traffic through the proxy, or every TCP
    connection. `keep_bodies`: the Network tab shows the beginnings of decrypted bodies.

    `agent` is the name of an agent that Gatehouse knows (`core.agents`), "" for any command;
    `command` then begins with that name. `job` is the task of a session of kind `maintenance`.
    `policy_file` is the policy that judges it, and `saved_rules_file` is where rules made from its
    requests are saved; "" means the installation's. `policy_text` are rules that only this session
    has. `order` is what the reader of a pull request is told besides its command (`core.orders`,
    JSON), "" for any other session. `name` is the one that a person gave, or that the review of a
    pull request has; "" for the usual one (`core.session_names`).
    """

    id: SessionId
    kind: Kind
    workspace: str
    command: tuple[str, ...]
    token_hash: str
    created_at: float
    deadline_at: float
    policy_text: str = ""
    base: str | None = None
    remotes: tuple[str, ...] = ()
    model: str | None = None
    started_at: float | None = None
    pid: int | None = None
    pid_started: int | None = None
    agent_exited_at: float | None = None
    exit_code: int | None = None
    stopping_at: float | None = None
    ended_at: float | None = None
    end_reason: str = ""
    notices: tuple[str, ...] = ()
    review: dict[str, Any] | None = None
    budget: str = ""
    network: NetworkMode = "proxy"
    keep_bodies: bool = False
    policy_file: str = ""
    saved_rules_file: str = ""
    limits: OwnLimits = OwnLimits()
    paused_at: float | None = None
    agent: str = ""
    job: Job | None = None
    job_result: JobResult | None = None
    order: str = ""
    name: str = ""


def is_quarantined(kind: Kind, command: Sequence[str]) -> bool:
    """Return whether a session only reads what it is shown: a session of kind `quarantine`, or a
    review of a pull request whose author may not write."""
    return kind == "quarantine" or (kind == "review" and QUARANTINED in command)


def own_limits(limits: OwnLimits) -> list[tuple[str, str]]:
    """Return a session's own limits, as names and values for a person."""
    shown = (
        ("memory", limits.memory_bytes and f"{limits.memory_bytes >> 20:,} MB"),
        ("processes", limits.processes and f"{limits.processes:,}"),
        ("processor time", limits.cpu_s and format_duration(limits.cpu_s)),
        ("output", limits.output_bytes and f"{limits.output_bytes >> 20:,} MB"),
        ("asked connections held for", limits.hold_s and format_duration(limits.hold_s)),
    )
    return [(name, value) for name, value in shown if value]


def keeps_changes(session: Session) -> bool:
    """Return whether the files that a session changes stay in its copy: those of a job until it was
    judged, and also then where they are to be a commit, or were refused."""
    job, result = session.job, session.job_result
    return job is not None and (job.branch or result is None or bool(result.refused))


def job_words(session: Session) -> str:
    """Return the result of a session's job in one line; empty if it has none, or still runs."""
    if session.job is None or session.job_result is None:
        return ""
    return result_words(session.job, session.job_result)


def as_started(session: Session) -> dict[str, Any]:
    """Return the record's fields at a session's start."""
    return {
        "session": session.id,
        "kind": session.kind,
        "name": session.name,
        "workspace": session.workspace,
        "command": session.command,
        "agent": session.agent,
        "deadline_at": session.deadline_at,
        "budget": session.budget,
        "remotes": session.remotes,
        "own_rules": session.policy_text,
        "network": session.network,
        "keep_bodies": session.keep_bodies,
        "limits": msgspec.to_builtins(session.limits),
        "job": msgspec.to_builtins(session.job),
    }


def state(session: Session) -> State:
    """Return the state. `waiting`: the agent is done, and some of its changes still wait for an
    answer."""
    if session.ended_at is not None:
        return "ended"
    if session.stopping_at is not None:
        return "stopping"
    if session.agent_exited_at is not None:
        return "waiting"
    if session.paused_at is not None:
        return "paused"
    return "running" if session.started_at is not None else "starting"


def remaining_s(session: Session, now: float) -> float:
    """Return the seconds until MAX_UPTIME ends the session, never below zero; the clock stands
    still while it is paused."""
    return max(0.0, session.deadline_at - (now if session.paused_at is None else session.paused_at))


def copy_progress(done: int, total: int, size: int, elapsed_s: float) -> dict[str, int]:
    """Return the progress of the private copy, as the API gives it; `left_s` if an estimate makes
    sense, in whole seconds, at least one."""
    facts = {"done": done, "total": total, "bytes": size}
    if elapsed_s < COPY_SOON_S or done <= 0 or total <= done:
        return facts
    return {**facts, "left_s": max(1, round(elapsed_s * (total - done) / done))}


def copy_left(facts: dict[str, int]) -> str:
    """Return `, about 12s left`, to be appended to the progress; empty if no estimate is
    possible."""
    return f", about {format_duration(facts['left_s'])} left" if "left_s" in facts else ""
