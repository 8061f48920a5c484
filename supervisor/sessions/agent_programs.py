"""Find the programs of the agents that Gatehouse knows, or install them.

A program on the person's PATH is used as it is. Else npm installs the version that agent_image/cli
locks into our own cache: hashes are checked, and no package script runs.
"""

import contextlib
import importlib.metadata
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from supervisor import settings as environment
from supervisor.base.process import run
from supervisor.core.agents.agents import AGENTS, NAMES, AgentName
from supervisor.errors import UserError
from supervisor.sandbox.programs import find_program
from supervisor.settings import ROOT, ReviewRuntime, Settings, review_runtime_of

INSTALL_S = 600.0
PLACE = "/opt/gatehouse/agents"
# Leads the word of a review's or job's command that names what conducts it.
RUNTIME = "--runtime="


class FoundProgram(NamedTuple):
    """`path` is its path inside a sandbox with `binds`; `where` says where it comes from."""

    path: str
    binds: tuple[tuple[Path, str], ...]
    where: str


def find(name: AgentName, search_path: str, settings: Settings) -> FoundProgram | None:
    """Return an agent's program; None where there is none. In containers it is the image's."""
    agent = AGENTS[name]
    if settings.backend == "compose":
        path = f"/usr/local/bin/{agent.program}"
        return FoundProgram(path, (), "its image") if settings.agent_image == name else None
    if found := shutil.which(agent.program, path=search_path):
        path, binds = find_program(agent.program, search_path, Path.home())
        return FoundProgram(path, binds, found)
    installed = folder(name)
    for program in _programs(name, installed):
        place = f"{PLACE}/{name}"
        path = f"{place}/{program.relative_to(installed)}"
        return FoundProgram(path, ((installed, place),), "Gatehouse's own cache")
    return None


def runtime_of(command: Sequence[str]) -> ReviewRuntime:
    """Return what conducts a session of the built-in agent, by the words of its command."""
    named = [one.removeprefix(RUNTIME) for one in command if one.startswith(RUNTIME)]
    return review_runtime_of(named[-1] if named else "loop", "the runtime")


def of_runtime(runtime: ReviewRuntime, search_path: str, settings: Settings) -> FoundProgram | None:
    """Return the program of what conducts a review; None where it needs none. `UserError` where
    that can't be had."""
    if runtime == "loop":
        return None
    if settings.backend == "compose":
        raise UserError(f"compose has no runtime `{runtime}`", "choose `loop`")
    if runtime == "cli":
        if found := find("claude", search_path, settings):
            return found
        raise UserError(
            "the runtime `cli` needs Claude Code, which isn't installed",
            "run `gatehouse claude` once, which installs it, or choose `loop`",
        )
    try:
        version = importlib.metadata.version("claude-agent-sdk")
    except importlib.metadata.PackageNotFoundError as error:
        raise UserError(
            "the runtime `sdk` needs claude-agent-sdk, which isn't installed",
            "run `scripts/setup sdk`, or choose `loop`",
        ) from error
    return FoundProgram("", (), f"claude-agent-sdk {version}")


def available(settings: Settings) -> dict[AgentName, str]:
    """Return the titles of the agents whose programs are found, by name."""
    path = environment.search_path()
    return {name: AGENTS[name].title for name in NAMES if find(name, path, settings) is not None}


async def install(name: AgentName) -> None:
    """Install the locked version of an agent's program. `UserError` where that fails."""
    agent, place = AGENTS[name], folder(name)
    npm = shutil.which("npm", path=environment.search_path())
    if npm is None:
        raise UserError(
            f"{agent.title} isn't installed, and npm, which would install it, isn't either",
            f"install Node.js, or `{agent.program}` itself",
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
    try:
        for file in ("package.json", "package-lock.json"):
            shutil.copy(_locked(name) / file, fresh)
        words = (npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
        done = await run(
            words, env=environment.for_package_managers(), cwd=str(fresh), timeout_s=INSTALL_S
        )
        if not done.ok or not _programs(name, fresh):
            said = done.stderr.decode(errors="replace").strip().splitlines()
            why = said[0] if said else "it has no program for this machine"
            raise UserError(
                f"{agent.title} can't be installed: {why}", f"install `{agent.program}` by hand"
            )
        _take(fresh, place)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def folder(name: AgentName) -> Path:
    """Return the folder that the locked version is installed to."""
    wanted = msgspec.json.decode((_locked(name) / "package.json").read_bytes())
    # `1.2.3`, or as an alias `npm:PACKAGE@1.2.3-linux-x64`.
    said = next(iter(wanted["optionalDependencies"].values()))
    version = said.rpartition("@")[2].partition("-")[0]
    return environment.cache_dir() / "agents" / f"{name}-{version}"


def no_key(name: AgentName) -> str:
    """Return the error for an agent without a key: its login isn't one."""
    agent = AGENTS[name]
    unset = " and ".join(agent.keys) + (" is" if len(agent.keys) == 1 else " are")
    said = f"there is no key for {agent.title}: {unset} not set"
    if (Path.home() / agent.login).exists():
        said += f" (its login in ~/{agent.login} has to be renewed by itself, so it isn't taken)"
    return said


def _programs(name: AgentName, place: Path) -> list[Path]:
    return sorted(place.glob(AGENTS[name].installed))


def _take(fresh: Path, place: Path) -> None:
    with contextlib.suppress(OSError):  # another one was faster
        fresh.rename(place)


def _locked(name: AgentName) -> Path:
    return ROOT / "agent_image/cli" / name
