"""The subject of `egress`: the whole supervisor with egress, and three sessions' sockets.

    python -m bench._egress_ours ORIGINS      {session: port of its origin}, as JSON; settings are
                                              read from the environment

It runs in a process of its own, prints one line of JSON (`Ours`) when it serves, and ends with its
standard input. The sessions have no sandbox: a client of a session's socket is that session.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path

import msgspec

from supervisor.app.app import Supervisor
from supervisor.core.sessions import Session, SessionId
from supervisor.settings import ROOT, from_environment
from supervisor.store import sessions

HOST = "127.0.0.1"


class Ours(msgspec.Struct, frozen=True):
    """Where everything is. `ports` are the sessions' sockets; the clients inside trust the
    certificate."""

    ports: dict[str, int]
    certificate: str
    supervisor_pid: int
    egress_pid: int
    started_s: float
    idle_mb: float
    operator_port: int
    token: str


def policies(origins: dict[str, int]) -> dict[str, str]:
    """Return the rules of each session, by its name."""
    rule = {name: f"network({HOST}:{port})" for name, port in origins.items()}
    return {
        "unread": f"version: 1\nallow:\n  - {rule['unread']}\n",
        # A rule that speaks of requests: everything at this address is looked into.
        "looked into": (
            f"version: 1\nallow:\n  - {rule['looked into']}\ndeny:\n  - network(*"
            f" https://{HOST}/never/**)\n"
        ),
        # Both: an address that isn't public is reached only where a rule allows it by name, and the
        # stricter one wins.
        "asked": f"version: 1\nallow:\n  - {rule['asked']}\nask:\n  - {rule['asked']}\n",
    }


def memory_mb(pid: int | None, field: str) -> float:
    """Return a field of a process's status, such as `VmRSS`."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(
        int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(field)
    )


async def serve(origins: dict[str, int]) -> None:
    """Serve until nobody needs us."""
    began = time.perf_counter()
    async with Supervisor(from_environment()) as supervisor:
        started_s = time.perf_counter() - began
        parts = supervisor.parts
        assert parts.network.pid is not None
        idle_mb = memory_mb(parts.network.pid, "VmRSS")
        now = parts.clock.now()
        ports = {}
        with contextlib.ExitStack() as listeners:
            for name, text in policies(origins).items():
                session = Session(
                    id=SessionId(name), kind="agent", workspace=str(ROOT), command=("sh",),
                    token_hash="", policy_text=text,
                    created_at=now, deadline_at=now + 3600,
                )  # fmt: skip
                with parts.engine.begin() as connection:  # the page names it
                    sessions.add(connection, session)
                parts.gate.rulings.open_session(session)
                listener = listeners.enter_context(socket.create_server((HOST, 0), backlog=256))
                await parts.network.open_session(name, listener)
                ports[name] = listener.getsockname()[1]
            ours = Ours(
                ports=ports,
                certificate=str(parts.network.ca_certificate_path),
                supervisor_pid=os.getpid(),
                egress_pid=parts.network.pid,
                started_s=started_s,
                idle_mb=idle_mb,
                operator_port=supervisor.port,
                token=supervisor.auth.cli_token,
            )
            print(msgspec.json.encode(ours).decode(), flush=True)
            await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """See the module's text."""
    with asyncio.Runner() as runner:
        runner.run(serve(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
