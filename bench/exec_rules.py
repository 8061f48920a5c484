"""Cost of `--exec-rules enforce` for a build: `make -j2` of a real C project, with and without.

The project is brotli, as in an npm package. Each file is compiled separately, with optimisation, as
in its own build. It is measured from `make`'s start to its end, inside of the sandbox.
"""

import asyncio
import statistics
import subprocess
import tempfile
from pathlib import Path

from bench import Figure
from supervisor.app.app import Supervisor
from supervisor.sessions.start_session import StartSession
from supervisor.settings import ExecRules, from_environment

PACKAGE = "iltorb@2.4.5"
MOST_TIMES = 1.3
ROUNDS = 3
MAKEFILE = """
sources := $(wildcard brotli/c/*/*.c)
all: $(sources:.c=.o)
\tar rcs libbrotli.a $^
%.o: %.c
\tgcc -O2 -Ibrotli/c/include -c -o $@ $<
"""
BUILD = """
find . -name '*.o' -delete
begun=${EPOCHREALTIME/./}
make -j2 > /dev/null || exit 1
echo "$((${EPOCHREALTIME/./} - begun))"
"""
POLICY = """
version: 1
modes: {exec: contained}
deny: [exec(rm -rf *), exec(curl *), exec(git push *)]
ask: [exec(docker *), exec(make install)]
"""


def main() -> list[Figure]:
    """Return medians of the builds, taken in turns."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    policy, workspace = folder / "policy.yaml", folder / "workspace"
    policy.write_text(POLICY)
    workspace.mkdir()
    _fetch(workspace)
    settings = from_environment()._replace(data_dir=folder / "data", port=0, policy_file=policy)
    times: dict[ExecRules, list[float]] = {"asked": [], "enforce": []}
    async with Supervisor(settings) as supervisor:
        sessions = supervisor.parts.sessions
        for _ in range(ROUNDS):
            for how, found in times.items():
                wanted = StartSession(
                    workspace=workspace, command=("bash", "-c", BUILD), exec_rules=how
                )
                begun = await sessions.start(wanted)
                while sessions.get(begun.id).agent_exited_at is None:
                    await asyncio.sleep(0.1)
                session = sessions.get(begun.id)
                printed = sessions.output(session.id, 0)[0].decode()
                if session.exit_code:
                    raise RuntimeError(f"the build failed: {printed}")
                found.append(int(printed) / 1000)
                await sessions.stop(session.id, reason="measured", by="bench")
                await sessions.wait_ended(session.id)
    ours, plain = (statistics.median(times[how]) for how in ("enforce", "asked"))
    return [
        Figure("a build with enforced exec rules", ours, "ms", plain, "without", wanted=MOST_TIMES)
    ]


def _fetch(folder: Path) -> None:
    subprocess.run(
        ["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    (archive,) = folder.glob("*.tgz")
    subprocess.run(["tar", "xzf", archive.name, "--strip-components=1"], cwd=folder, check=True)
    for one in folder.iterdir():
        if one.name != "brotli":
            subprocess.run(["rm", "-rf", one.name], cwd=folder, check=True)
    (folder / "Makefile").write_text(MAKEFILE)
