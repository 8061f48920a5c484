"""`run` and `review` beside a running supervisor: the request to it, and the session's output.

All of the person's settings and options are sent. Settings that a session can have are part of the
call. Settings that a supervisor has for all its sessions are named, so that it refuses if its own
differ. Nothing is dropped silently.
"""

import shutil
import signal
import time
from pathlib import Path
from typing import Any

import msgspec

from supervisor import settings as environment
from supervisor.base.clock import RealClock
from supervisor.cli.common.client import Client
from supervisor.cli.common.telling import CopyTeller, ShownOutput, print_answer, say, say_url
from supervisor.core.agents.agents import AgentName
from supervisor.core.text.duration import format_duration
from supervisor.core.text.utf8 import is_text
from supervisor.errors import RefusedError, SandboxError, UserError
from supervisor.settings import Settings

FOLLOW_EVERY_S = 0.3
# A program that waits for its terminal shouldn't wait long.
SOON_S = 0.05
_HERE = "it was ended in the terminal that started it"
# By the setting's name: the field of the call, and the field of `Settings`.
_OF_SESSION = {
    "MAX_UPTIME": ("max_uptime_s", "max_uptime_s"),
    "MAX_COST": ("budget", "max_cost"),
    "GATEHOUSE_INCLUDE_IGNORED": ("include_ignored", "include_ignored"),
    "GATEHOUSE_COPY": ("copy", "copy_mode"),
    "GATEHOUSE_NETWORK": ("network", "network_mode"),
    "GATEHOUSE_KEEP_BODIES": ("keep_bodies", "keep_bodies"),
    "GATEHOUSE_REVIEW_MODEL": ("review_model", "review_model"),
    "GATEHOUSE_REVIEW_RUNTIME": ("review_runtime", "review_runtime"),
    "GATEHOUSE_POLICY": ("policy", "policy_file"),
    "GATEHOUSE_BIND": ("binds", "binds"),
    "GATEHOUSE_HOST_PORTS": ("host_ports", "host_ports"),
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
    """Return the body that asks for the session; `session` has its other facts. Values that the
    person didn't give are left out: the supervisor's own count then, or those of the resumed
    session."""
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
        "search_path": ":".join(filter(is_text, environment.search_path().split(":"))),
        "environment": {
            name: value for name, value in environment.of_the_caller().items() if is_text(value)
        },
    }


def _program(command: tuple[str, ...]) -> list[str]:
    """Return the command, with a program given by relative path made absolute: the supervisor runs
    in another folder."""
    if command and "/" in command[0] and shutil.which(command[0]) is not None:
        return [str(Path(command[0]).absolute()), *command[1:]]
    return list(command)


def _output(client: Client, path: str, offset: int, *, is_shown: bool) -> dict[str, Any]:
    """Return the agent's output from there on; nothing where it has its own terminal, which shows
    it directly."""
    nothing = {"text": "", "next_offset": offset}
    part: dict[str, Any] = client.get(f"{path}/output", offset=offset) if is_shown else nothing
    return part


def follow(client: Client, wanted: dict[str, Any], *, open_from: Path | None) -> int:
    """Start a session there and print its output here. ^C, or the end of this program, ends it."""
    with _Interrupts() as interrupts:
        is_stopped = False
        session = client.post("/api/sessions", **wanted)
        path = f"/api/sessions/{session['id']}"
        try:
            interrupts.begin()
            interrupts.check()
            say_url(client.post("/api/login-token")["url"], open_from)
            session = _until_ended(client, path, wanted, interrupts)
        except KeyboardInterrupt:
            say("stopping the session")
            is_stopped = True
            session = stop(client, session["id"], reason=_HERE)
        except OSError:  # a terminal that hung up
            stop(client, session["id"], reason=_HERE)
            raise
        interrupts.end()
        return _told_end(client, session, wanted, is_stopped=is_stopped)


class _Interrupts:
    """Turns SIGINT, SIGTERM and SIGHUP into `KeyboardInterrupt`, but only after `begin`: by then
    the session to end is known."""

    def __init__(self) -> None:
        self._is_on = False
        self._came = False
        self._before: dict[signal.Signals, Any] = {}

    def begin(self) -> None:
        """Raise from now on."""
        self._is_on = True

    def check(self) -> None:
        """Raise if a signal came before `begin`, or while the interpreter ran code that drops every
        exception, such as a finalizer."""
        if self._came:
            raise KeyboardInterrupt

    def end(self) -> None:
        """Stop raising."""
        self._is_on = False

    def __enter__(self) -> "_Interrupts":
        for number in _end_signals():
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *failure: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _take(self, *_signal: object) -> None:
        self._came = True
        if self._is_on:
            raise KeyboardInterrupt


def _end_signals() -> list[signal.Signals]:
    """Return the signals that end this program; without SIGHUP under nohup."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


def _until_ended(
    client: Client, path: str, wanted: dict[str, Any], interrupts: _Interrupts
) -> dict[str, Any]:
    from supervisor.cli import own_terminal

    offset, told, copying, output = 0, set[str](), CopyTeller(RealClock()), ShownOutput()
    has_terminal = not wanted["tty"]
    while True:
        interrupts.check()
        session: dict[str, Any] = client.get(path)
        is_shown = not wanted["tty"] and session["kind"] != "quarantine"
        copying.tell(session["progress"])
        for notice in session["notices"]:
            if notice not in told:
                told.add(notice)
                say(notice)
        if not has_terminal and session["started_at"] is not None:
            own_terminal.give_to(client, session["id"])
            has_terminal = True
            continue
        part = _output(client, path, offset, is_shown=is_shown)
        offset = part["next_offset"]
        output.write(part["text"])
        if session["state"] == "ended" and not part["text"]:
            return session
        if not part["text"]:
            time.sleep(FOLLOW_EVERY_S if has_terminal else SOON_S)


def stop(client: Client, session_id: str, *, reason: str | None) -> dict[str, Any]:
    """End a session, and wait for its end; a second ^C stops the waiting."""
    path = f"/api/sessions/{session_id}"
    client.post(f"{path}/stop", reason=reason)
    while True:
        session: dict[str, Any] = client.get(path)
        if session["state"] == "ended":
            return session
        time.sleep(FOLLOW_EVERY_S)


def _told_end(
    client: Client, session: dict[str, Any], wanted: dict[str, Any], *, is_stopped: bool
) -> int:
    """Print the session's outcome. Return the exit code."""
    if session["job_result"]:
        say(f"the job: {session['job_words']}")
        if session["job_result"]["branch"]:
            say(f"take it with: gatehouse take {session['id']}")
    say(f"the session has ended: {session['end_reason']}")
    for left in client.get("/api/left"):
        if left["session_id"] == session["id"]:
            kept = format_duration(left["kept_until"] - RealClock().now())
            say(f"left to answer: {left['counts']}, kept for {kept}; see `gatehouse approvals`")
    has_exited = session["agent_exited_at"] is not None
    if session["started_at"] is None and not has_exited and not is_stopped:
        raise SandboxError(session["end_reason"])
    if session["job_result"] and session["job_result"]["refused"]:
        return RefusedError.exit_code
    code = int(session["exit_code"] or 0) if has_exited else 0
    return print_answer(session["review"], code) if session["kind"] == "quarantine" else code
