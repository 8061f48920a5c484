"""`run` and `review` beside a supervisor that runs already: what is asked of it, and what is shown
of the session here.

All that the person's settings and options say goes along: what a session can have of its own is
part of the call, and what a supervisor has for all its sessions is named, so that it refuses
where its own is another. Nothing is dropped in silence.
"""

import shutil
import time
from pathlib import Path
from typing import Any

import msgspec

from supervisor import settings as environment
from supervisor.base.clock import RealClock
from supervisor.cli.client import Client
from supervisor.cli.telling import CopyTeller, ShownOutput, print_answer, say, say_url
from supervisor.core.agents.agents import AgentName
from supervisor.errors import SandboxError, UserError
from supervisor.settings import Settings

FOLLOW_EVERY_S = 0.3
# A program that waits for its terminal shouldn't wait long.
SOON_S = 0.05
# By the setting's name: the field of the call that carries it, and the field of `Settings` that has
# it.
_OF_SESSION = {
    "MAX_UPTIME": ("max_uptime_s", "max_uptime_s"),
    "MAX_COST": ("budget", "max_cost"),
    "GATEHOUSE_INCLUDE_IGNORED": ("include_ignored", "include_ignored"),
    "GATEHOUSE_COPY": ("copy", "copy_mode"),
    "GATEHOUSE_NETWORK": ("network", "network_mode"),
    "GATEHOUSE_KEEP_BODIES": ("keep_bodies", "keep_bodies"),
    "GATEHOUSE_REVIEW_MODEL": ("review_model", "review_model"),
    "GATEHOUSE_POLICY": ("policy", "policy_file"),
    "GATEHOUSE_BIND": ("binds", "binds"),
    "GATEHOUSE_EXEC_RULES": ("exec_rules", "exec_rules"),
}
# The same for its `limits`.
_LIMITS = {
    "GATEHOUSE_MEMORY_MB": "memory_bytes",
    "GATEHOUSE_PROCESSES": "processes",
    "GATEHOUSE_CPU": "cpu_s",
    "GATEHOUSE_OUTPUT_MB": "output_bytes",
    "GATEHOUSE_HOLD": "hold_s",
}


def wanted(
    settings: Settings,
    client: Client,
    *,
    command: tuple[str, ...],
    agent: AgentName | None = None,
    **session: Any,
) -> dict[str, Any]:
    """The body that asks for the session, whose other facts are `session`'s. What the person didn't
    say isn't in it: the supervisor's own counts then, or those of the session that is resumed."""
    if "GATEHOUSE_PORT" in settings.given and settings.port not in (0, client.port):
        raise UserError(
            f"a Gatehouse runs on {settings.data_dir} already, at port {client.port}",
            "leave the other port out, or stop it first",
        )
    given = settings.given
    own = {
        field: getattr(settings, name)
        for said, (field, name) in _OF_SESSION.items()
        if said in given
    }
    return {
        **msgspec.to_builtins(session, enc_hook=str),
        "command": list(command) if agent else _program(command),
        "agent": agent,
        **{field: str(value) if isinstance(value, Path) else value for field, value in own.items()},
        "limits": {
            name: getattr(settings, name) for said, name in _LIMITS.items() if said in given
        },
        "expects": {
            name: value for name, value in settings.for_all_sessions().items() if name in given
        },
        "search_path": environment.search_path(),
        "environment": environment.of_the_caller(),
    }


def _program(command: tuple[str, ...]) -> list[str]:
    """A program that is named by where it lies from here, by its whole path: the supervisor's
    folder is another."""
    if command and "/" in command[0] and shutil.which(command[0]) is not None:
        return [str(Path(command[0]).absolute()), *command[1:]]
    return list(command)


def _output(client: Client, path: str, offset: int, *, is_shown: bool) -> dict[str, Any]:
    """Return what the agent printed from there on; nothing where the terminal is its own, and
    shows it as it comes."""
    nothing = {"text": "", "next_offset": offset}
    part: dict[str, Any] = client.get(f"{path}/output", offset=offset) if is_shown else nothing
    return part


def follow(client: Client, wanted: dict[str, Any], *, open_from: Path | None) -> int:
    """Start a session there, print its output here, end it at ^C."""
    from supervisor.cli import own_terminal

    if wanted["tty"]:
        own_terminal.must_be_one()
    session = client.post("/api/sessions", **wanted)
    path = f"/api/sessions/{session['id']}"
    say_url(client.post("/api/login-token")["url"], open_from)
    offset, told, copying, output = 0, set[str](), CopyTeller(RealClock()), ShownOutput()
    has_terminal = not wanted["tty"]
    is_quarantine = session["kind"] == "quarantine"
    try:
        while True:
            session = client.get(path)
            copying.tell(session["progress"])
            for notice in session["notices"]:
                if notice not in told:
                    told.add(notice)
                    say(notice)
            if not has_terminal and session["started_at"] is not None:
                own_terminal.give_to(client, session["id"])
                has_terminal = True
                continue
            part = _output(client, path, offset, is_shown=not wanted["tty"] and not is_quarantine)
            offset = part["next_offset"]
            output.write(part["text"])
            if session["state"] == "ended" and not part["text"]:
                break
            if not part["text"]:
                time.sleep(FOLLOW_EVERY_S if has_terminal else SOON_S)
    except KeyboardInterrupt:
        client.post(f"{path}/stop", reason="^C in the terminal that started it")
        say("stopping the session")
        return 0
    if session["job_result"]:
        say(f"the job: {session['job_words']}")
        if session["job_result"]["branch"]:
            say(f"take it with: gatehouse take {session['id']}")
    say(f"the session has ended: {session['end_reason']}")
    if session["started_at"] is None and session["agent_exited_at"] is None:
        raise SandboxError(session["end_reason"])
    code = int(session["exit_code"] or 0) if session["agent_exited_at"] is not None else 0
    return print_answer(session["review"], code) if is_quarantine else code
