"""The Sandbox protocol: its Spec, its running sandbox, and doctor's findings.

It must never hold a backend's detail, and no field here may make a sandbox weaker than its default:
a Spec adds (a bind, a port), it never switches isolation off.
"""

import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from supervisor.core.actions import WORKSPACE
from supervisor.errors import SandboxError
from supervisor.sandbox.check_result import CheckResult
from supervisor.sandbox.program_listener import ProgramWatch

LOWER = "/workspace/lower"
MERGED = WORKSPACE
HOME = "/home/agent"
CA_BUNDLE = "/etc/gatehouse/ca-bundle.pem"
JAVA_STORE = "/etc/gatehouse/ca-bundle.p12"
# Where a sandbox with `Spec.redirected` has its door and its name server (`host` writes that into
# its resolv.conf).
DOOR_PORT = 3129
NAMES_PORT = 53

MIB = 1024 * 1024
GIB = 1024 * MIB

OnOutput = Callable[[bytes], None]
# Called with the listening sockets before the command starts, so that somebody serves them from its
# first instant.
OnListeners = Callable[[Mapping[int, socket.socket]], Awaitable[None]]


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of one sandbox as a whole. Above memory, processes or CPU time it is killed, with
    the reason.

    `cpu_s`: CPU seconds of all its processes together, None for no bound. `memory_bytes`:
    anonymous and shared memory, swapped out or not, with page tables, what its sockets may hold,
    and the files in its tmpfs.
    `processes`: tasks, so threads count. `output_bytes`: what is passed on of its output; the
    rest is dropped, and that is said once. `files`: open descriptors of one process.
    `file_bytes`: size of one file. `tmpfs_bytes`: each of /tmp, /home/agent, /var/tmp, /run and
    /dev/shm. `free_disk_bytes`: what is left free where the private copy is, but never more than
    a twentieth of that file system: below it the sandbox is killed, so that no agent fills the
    disk that the host and the record need.
    """

    cpu_s: int | None = None
    memory_bytes: int = 4 * GIB
    processes: int = 1024
    output_bytes: int = 64 * MIB
    files: int = 4096
    file_bytes: int = 4 * GIB
    tmpfs_bytes: int = GIB
    free_disk_bytes: int = GIB


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One sandbox: a command, its environment, and what it sees of the host.

    `command` is started in `cwd` (a path inside) with exactly `env`. `workspace_lower` shows
    read-only at LOWER (None: an empty folder), `workspace_merged` writable at MERGED. `masked` are
    host paths that must show nowhere inside (the data directory), also where they lie below the
    workspace, /usr or a bind. `readonly_binds` are pairs of host path and path inside. `ports`
    are opened as listening sockets on 127.0.0.1 in the sandbox's own network. `home_files`: what
    the home holds at the start, by path below it. `redirected`: every TCP
    connection but those to loopback comes to a listening socket at DOOR_PORT, and queries of
    names to a socket for datagrams at NAMES_PORT. `tty` gives the command a terminal. `within`
    are descriptors of a user and a mount namespace to make the sandbox in: those where
    `workspace_merged` is mounted (`overlay_mount`). Whoever gives them keeps them open until the
    sandbox has started. `programs`: what is asked before each program that is executed in it; None
    for nobody.
    """

    command: tuple[str, ...]
    workspace_lower: Path | None
    workspace_merged: Path
    env: dict[str, str] = {}
    cwd: str = MERGED
    masked: tuple[Path, ...] = ()
    readonly_binds: tuple[tuple[Path, str], ...] = ()
    ca_bundle: Path | None = None
    java_store: Path | None = None
    home_files: dict[str, str] = {}
    ports: tuple[int, ...] = ()
    redirected: bool = False
    limits: SandboxLimits = SandboxLimits()
    hostname: str = "gatehouse"
    tty: bool = False
    within: tuple[int, int] | None = None
    programs: ProgramWatch | None = None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Present use of a sandbox. `output_bytes` is its whole output, dropped bytes included."""

    processes: int
    memory_bytes: int
    cpu_s: float
    output_bytes: int


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """One command that ran in a sandbox of its own. `killed_why` says which bound ended it, ""
    where none did."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    timed_out: bool = False
    killed_why: str = ""


class Running(Protocol):
    """A sandbox that runs. `pid` is its init as the host numbers it, `pid_started` that process's
    start in clock ticks.

    `listeners` belong to the caller, who closes them. `limits_in_force` names the layers that
    bound it.
    """

    pid: int
    pid_started: int
    listeners: dict[int, socket.socket]
    limits_in_force: tuple[str, ...]
    master_fd: int | None

    @property
    def killed_why(self) -> str:
        """Return the bound, or the wish, that ended it; "" while it runs and where it ended by
        itself."""

    @property
    def truncated(self) -> bool:
        """Return whether output was dropped."""

    @property
    def paused_s(self) -> float:
        """Return how long it was paused so far, in seconds."""

    async def wait(self) -> int:
        """Wait until every process in it is gone and all output was passed on; the command's
        exit code (128 + signal)."""

    def terminate(self) -> None:
        """SIGTERM to every process of the agent's."""

    def kill(self, why: str = "") -> None:
        """Send SIGKILL to all of it at once; `why` becomes `killed_why` unless there is one."""

    def pause(self) -> str:
        """Stop every process in it where it stands. Return by what: `cgroup freezer` or
        `signals`."""

    def unpause(self) -> None:
        """Let every process go on."""

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal; nothing without one."""

    def stats(self) -> Stats:
        """Return its present use."""


class Sandbox(Protocol):
    """A backend."""

    def open(self) -> None:
        """Be ready for sandboxes, in the event loop. May be called again."""

    async def start(
        self,
        spec: Spec,
        *,
        on_output: OnOutput,
        on_error: OnOutput | None = None,
        on_listeners: OnListeners | None = None,
    ) -> Running:
        """Start `spec`, or raise SandboxError with the cause and a remedy, and nothing left behind.

        `on_output` gets standard output and error in the order written; with `on_error` they are
        told apart. Both are called in the event loop and must not block.
        """

    async def run_tool(
        self,
        spec: Spec,
        *,
        timeout_s: float,
        on_listeners: OnListeners | None = None,
        last_bytes: int | None = None,
    ) -> ToolResult:
        """Run `spec` to its end and return its output; at `timeout_s` all of it is killed. With
        `last_bytes` only the end of each stream is kept, and at least so much of it."""

    def pause(self, copy: Path) -> str:
        """Pause every sandbox over this private copy, those too that are started until `unpause`.
        Return by what."""

    def unpause(self, copy: Path) -> None:
        """Let every sandbox over this private copy go on."""

    async def check(self) -> list[CheckResult]:
        """Check what this backend needs of the machine besides its kernel, for doctor."""

    async def close(self) -> None:
        """Kill what still runs and release the backend's resources."""


__all__ = [
    "CA_BUNDLE",
    "DOOR_PORT",
    "HOME",
    "LOWER",
    "MERGED",
    "NAMES_PORT",
    "OnListeners",
    "OnOutput",
    "Running",
    "Sandbox",
    "SandboxError",
    "SandboxLimits",
    "Spec",
    "Stats",
    "ToolResult",
]
