"""Request to start a session, as the operator's API, the form and `run` send it."""

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec

from supervisor.core.agents.agents import AgentName
from supervisor.core.jobs import Job
from supervisor.core.quarantine.quarantine import LIFE_S
from supervisor.core.secrets.loose_words import HIDDEN
from supervisor.core.sessions import Kind, NetworkMode, OwnLimits, Session, is_quarantined
from supervisor.core.text.utf8 import is_text
from supervisor.errors import UserError
from supervisor.settings import CopyMode, ExecRules, ReviewRuntime

_Name = Annotated[str, msgspec.Meta(max_length=64)]
_Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
_Value = Annotated[str, msgspec.Meta(max_length=4096)]


class StartSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """None means the supervisor's setting, and `command` is empty for a review. `agent`: one that
    Gatehouse knows; `command` is then its name and arguments. `job`: what is to be
    maintained; without `agent` the built-in one does it. `include_ignored`:
    what git ignores comes into the private copy, too; `copy`: how that is made; `network`: which
    of its programs can ask to get out; `keep_bodies`: the Network tab shows bodies; `policy`: the
    whole path of the file that judges it; `limits`: its own bounds.

    `resume`: the id of a session that has ended. This one goes on with its copy and, but for what
    is said here, as that one was: on the same folder, by the same agent, policy and limits.

    `order`: what the reader of a pull request is told besides (`core.orders`). `name`: what people
    call it, "" for the usual name (`core.session_names`).

    `host_ports`: servers of this machine that its sandboxes reach at 127.0.0.1.
    `binds`: tools of the person's home that its sandboxes show (`sandbox.toolchains`).
    `exec_rules`: `enforce` has deny and ask rules hold for every program that starts in them.

    Of the shell that it is started in: `search_path` is where its program is looked for, and
    `environment` what the sandbox takes over (`settings.TAKEN_OVER`). `expects` are settings
    that the person gave and that all sessions of a supervisor share, as
    `Settings.for_all_sessions` has them: where the supervisor has another, the session isn't
    started.
    """

    workspace: Path = Path()
    command: tuple[str, ...] = ()
    kind: Kind = "agent"
    agent: AgentName | None = None
    job: Job | None = None
    base: str | None = None
    max_uptime_s: float | None = None
    budget: str | None = None
    include_ignored: bool | None = None
    tty: bool = False
    copy: CopyMode | None = None
    resume: _Name | None = None
    network: NetworkMode | None = None
    keep_bodies: bool | None = None
    policy: Path | None = None
    limits: OwnLimits = OwnLimits()
    review_model: _Value | None = None
    review_runtime: ReviewRuntime | None = None
    exec_rules: ExecRules | None = None
    host_ports: Annotated[tuple[_Port, ...], msgspec.Meta(max_length=16)] | None = None
    binds: Annotated[tuple[_Value, ...], msgspec.Meta(max_length=20)] | None = None
    search_path: Annotated[str, msgspec.Meta(max_length=65536)] | None = None
    environment: dict[_Name, _Value] | None = None
    order: Annotated[str, msgspec.Meta(max_length=1_000_000)] = ""
    name: _Value = ""
    expects: dict[_Name, _Value] = {}

    def uptime_s(self, by_default: float) -> float:
        """Return how long the session may last."""
        wanted_s = self.max_uptime_s or by_default
        is_short = is_quarantined(self.kind, self.command)
        return min(wanted_s, LIFE_S) if is_short else wanted_s


def as_before(resumed: Session, wanted: StartSession) -> StartSession:
    """Return what goes on with a session, as that was where nothing else is said. `UserError`
    where it can't be gone on with."""
    if resumed.ended_at is None:
        raise UserError("this session hasn't ended", "stop it first, or wait for its end")
    if wanted.workspace not in (Path(), Path(resumed.workspace)):
        where = f"this session was on `{resumed.workspace}`"
        raise UserError(where, "resume it on the same folder")
    same: dict[str, Any] = {}
    if not wanted.command:
        # That of a review or a job is made anew.
        command = resumed.command if resumed.kind == "agent" else ()
        if any(HIDDEN.search(word) for word in command):
            raise UserError(
                "the command of this session held a secret, which isn't kept",
                "give the command again: gatehouse resume ID -- COMMAND",
            )
        same = {
            "kind": resumed.kind,
            "command": command,
            "agent": resumed.agent or None,
            "job": resumed.job,
            "base": resumed.base if resumed.kind == "review" else None,
        }
    limits = {
        name: getattr(wanted.limits, name) or getattr(resumed.limits, name)
        for name in OwnLimits.__struct_fields__
    }
    return msgspec.structs.replace(
        wanted,
        **same,
        workspace=Path(resumed.workspace),
        policy=wanted.policy or (Path(resumed.policy_file) if resumed.policy_file else None),
        budget=wanted.budget or resumed.budget or None,
        network=wanted.network or resumed.network,
        keep_bodies=resumed.keep_bodies if wanted.keep_bodies is None else wanted.keep_bodies,
        limits=OwnLimits(**limits),
    )


def checked_workspace(path: Path) -> Path:
    """Return the real folder, or raise one clear line about its fault."""
    try:
        real = path.expanduser().resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"workspace `{path}` does not exist",
            "give the folder of the project with --workspace DIR",
        ) from error
    if not real.is_dir():
        raise UserError(
            f"workspace `{path}` is not a folder",
            "give the folder of the project with --workspace DIR",
        )
    if not os.access(real, os.R_OK | os.X_OK):
        raise UserError(
            f"workspace `{path}` can't be read", "run Gatehouse as a user who may read it"
        )
    if not is_text(str(real)):
        raise UserError(f"workspace `{real}`: its name is not UTF-8 text", "give it another name")
    if real == Path("/"):
        raise UserError(
            "workspace `/` is the whole machine",
            "give the folder of one project with --workspace DIR",
        )
    return real
