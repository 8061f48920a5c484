"""Cost of an agent's hook before each tool call, compared with a Python that does nothing.

It is measured from the hook's start to its exit, as an agent sees it: the program, the agent's
door, the recorded verdict. A stand-in for Claude Code reads the hook from its settings and calls
it.
"""

import asyncio
import statistics
import tempfile
from pathlib import Path

from bench import Figure
from supervisor.app.app import Supervisor
from supervisor.sessions.start_session import StartSession
from supervisor.settings import from_environment

MOST_MS = 60.0
CALLS = 30
# Prints the microseconds of each: of the hook, then of the same Python alone.
CLAUDE = f"""#!/bin/bash
hook=$(grep -o '"command": "[^"]*"' ~/.claude/settings.json | cut -d'"' -f4)
call='{{"tool_name": "Bash", "tool_input": {{"command": "true"}}, "cwd": "/workspace/merged"}}'
for round in $(seq {CALLS}); do
  begun=${{EPOCHREALTIME/./}}
  $hook <<< "$call" > /dev/null || exit 1
  between=${{EPOCHREALTIME/./}}
  ${{hook%% *}} -I -S -c pass
  echo "$((between - begun)) $((${{EPOCHREALTIME/./}} - between))"
done
"""


def main() -> list[Figure]:
    """Return medians of the calls, taken in turns."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    policy, workspace, programs = folder / "policy.yaml", folder / "workspace", folder / "bin"
    policy.write_text("version: 1\nmodes: {exec: contained}\n")
    workspace.mkdir()
    programs.mkdir()
    (programs / "claude").write_text(CLAUDE)
    (programs / "claude").chmod(0o755)
    settings = from_environment()._replace(
        data_dir=folder / "data", port=0, policy_file=policy, anthropic_api_key="sk-ant-of-a-bench"
    )
    async with Supervisor(settings) as supervisor:
        sessions = supervisor.parts.sessions
        wanted = StartSession(
            workspace=workspace, agent="claude", command=("claude",), search_path=str(programs)
        )
        session = await sessions.wait_ended((await sessions.start(wanted)).id)
        lines = sessions.output(session.id, 0)[0].decode().split("\n")
    times = [tuple(map(int, line.split())) for line in lines if line]
    if session.exit_code or len(times) != CALLS:
        raise RuntimeError(f"the hook failed: {lines}")
    # The first call waits for the check of the sandbox.
    hook, plain = (statistics.median(column) / 1000 for column in zip(*times[1:], strict=True))
    return [
        Figure("an agent's hook", hook, "ms", plain, "a Python that does nothing", limit=MOST_MS)
    ]
