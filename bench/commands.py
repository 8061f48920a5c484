"""Cost of an allowed command through the gate and its broker, compared with plain bubblewrap.

It is measured from the ask to the recorded outcome: verdict, records, tool sandbox with its two
sockets, output. The baseline runs the same command with our arguments and filter, and nothing else.
"""

import asyncio
import statistics
import tempfile
from pathlib import Path

from bench import Figure
from bench.sandbox import interleaved, plain_bwrap, spec_in
from supervisor.app.app import Supervisor
from supervisor.core.actions import Exec
from supervisor.core.approvals import is_settled
from supervisor.core.sessions import state
from supervisor.sandbox import host_paths
from supervisor.sandbox.arguments import arguments
from supervisor.sandbox.host import read_host
from supervisor.sessions.start_session import StartSession
from supervisor.settings import from_environment

MOST_MS = 15.0


def main() -> list[Figure]:
    """Return medians of the rounds, taken in turns."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    options = arguments(host_paths.resolved(spec_in(folder)), read_host(folder / "etc"))
    policy = folder / "policy.yaml"
    policy.write_text("version: 1\nallow: [exec(true)]\n")
    workspace = folder / "workspace"
    workspace.mkdir()
    settings = from_environment()._replace(data_dir=folder / "data", port=0, policy_file=policy)
    async with Supervisor(settings) as supervisor:
        parts = supervisor.parts
        started = StartSession(workspace=workspace, command=("sleep", "1000"))
        session = await parts.sessions.start(started)
        while state(parts.sessions.get(session.id)) != "running":
            await asyncio.sleep(0.01)

        async def ours() -> None:
            asked = parts.gate.ask(Exec(command="true"), session_id=session.id, origin="agent_api")
            while not is_settled(parts.queue.get(asked.id)):
                await parts.queue.next_change(asked.id, 10.0)

        async def plain() -> None:
            await plain_bwrap(options)

        times = await interleaved(plain, ours)
    bare, whole = (statistics.median(one) for one in times)
    plainly = "plain bwrap, same arguments and filter"
    return [
        Figure("an allowed command", whole, "ms", bare, plainly),
        Figure(
            "an allowed command, over plain bwrap", whole - bare, "ms", bare, plainly, limit=MOST_MS
        ),
    ]
