"""Cost of an allowed command through the gate and its broker, beside the command alone, plain
bubblewrap and sandbox-runtime.

It is measured from the ask to the recorded outcome: verdict, records, output, and the command in
the sandbox that waits for it; the next one's is made between the rounds. Plain bubblewrap runs the
same command with our arguments and filter, and nothing else; sandbox-runtime by its library in a
program that keeps it loaded (no records), where npm can install it and socat is here.
"""

import asyncio
import contextlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from bench import Figure
from bench._egress_peers import SANDBOX_RUNTIME, installed
from bench.sandbox import interleaved, plain_bwrap, spec_in
from supervisor.app.app import Supervisor
from supervisor.base.process import spawn
from supervisor.core.actions import Exec
from supervisor.core.approvals import is_settled
from supervisor.core.sessions import state
from supervisor.sandbox import host_paths
from supervisor.sandbox.arguments import arguments
from supervisor.sandbox.host import read_host
from supervisor.sessions.start_session import StartSession
from supervisor.settings import from_environment

# Over the command's own run.
MOST_MS = 8.0


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
            began = time.perf_counter()
            asked = parts.gate.ask(Exec(command="true"), session_id=session.id, origin="agent_api")
            while not is_settled(parts.queue.get(asked.id)):
                await parts.queue.next_change(asked.id, 10.0)
            took.append((time.perf_counter() - began) * 1e3)
            # Else the sandbox for the next one would be made while the others are measured.
            while session.id not in parts.exec_broker._waiting:
                await asyncio.sleep(0.001)

        took: list[float] = []

        async def plain() -> None:
            await plain_bwrap(options)

        async def alone() -> None:
            assert await (await spawn(["/usr/bin/true"], env={})).wait() == 0

        with sandbox_runtime(folder) as theirs:
            own, bare, _, *peer = (
                statistics.median(one) for one in await interleaved(alone, plain, ours, *theirs)
            )
    whole = statistics.median(took[2:])
    plainly, command = "plain bwrap, same arguments and filter", "an allowed command"
    return [
        Figure(command, whole, "ms", bare, plainly),
        Figure(f"{command}, over its own run", whole - own, "ms", own, "`true`", limit=MOST_MS),
        *(Figure(command, whole, "ms", one, "sandbox-runtime's library") for one in peer),
    ]


@contextlib.contextmanager
def sandbox_runtime(folder: Path) -> Iterator[list[Callable[[], Awaitable[None]]]]:
    """Yield what runs `true` by sandbox-runtime; nothing where it can't run here."""
    package = installed(f"@anthropic-ai/sandbox-runtime@{SANDBOX_RUNTIME}")
    if package is None or shutil.which("socat") is None:
        print("sandbox-runtime is left out: it or socat is missing", file=sys.stderr)
        yield []
        return
    program = Path(__file__).with_name("_commands_srt.mjs")
    words = ["node", str(program), str(package), str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        given, said = child.stdin, child.stdout
        try:
            assert said.readline() == "ready\n"

            async def run() -> None:
                given.write("\n")
                given.flush()
                assert await asyncio.to_thread(said.readline) == "0\n"

            yield [run]
        finally:
            given.close()
            child.terminate()
