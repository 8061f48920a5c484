"""One session of a supervisor from its start to its end, and the signals that end a supervisor."""

import asyncio
import signal
from collections.abc import Callable

from supervisor.app.app import STOPPED, Supervisor
from supervisor.errors import SandboxError, StorageError
from supervisor.sessions.start_session import StartSession


async def run_session(
    supervisor: Supervisor, wanted: StartSession, started: Callable[[str], None]
) -> int:
    """Run one session to its end; the exit code of `gatehouse run`: the agent's own, 0 where
    MAX_UPTIME or a person ended it."""
    sessions = supervisor.parts.sessions
    session = await sessions.start(wanted)
    started(session.id)

    async def stop_with_supervisor() -> None:
        await supervisor.wait_for_stop()
        await sessions.stop(session.id, reason=STOPPED, by="operator")

    async with asyncio.TaskGroup() as tasks:
        stopping = tasks.create_task(stop_with_supervisor())
        final = await sessions.wait_ended(session.id)
        stopping.cancel()
    if final.ended_at is None:
        raise StorageError(
            "the session has ended, but its end couldn't be put on record",
            "see the lines above; `gatehouse audit` has what could be, and the next start the rest",
        )
    if final.started_at is None and not supervisor.stopping:
        raise SandboxError(final.end_reason)
    return final.exit_code or 0 if final.agent_exited_at is not None else 0


def handle_signals(supervisor: Supervisor) -> None:
    """SIGTERM, SIGINT and SIGHUP end the supervisor in order. SIGINT, or a second signal, waits
    for no review under way."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        supervisor.request_stop(is_hurried=number == signal.SIGINT or supervisor.stopping)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, stop, number)
