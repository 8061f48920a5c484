"""The Sandbox protocol: its Spec, its running sandbox, and doctor's findings.

It must never contain a backend's detail, and no field here may make a sandbox weaker than its
default: a Spec adds (a bind, a port), it never switches isolation off.
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
GIT_CONFIG = "/etc/gatehouse/gitconfig"
# Ports of the door and the name server in a sandbox with `Spec.redirected` (`host` writes the
# latter into its resolv.conf).
DOOR_PORT = 3129
NAMES_PORT = 53

MIB = 1024 * 1024
GIB = 1024 * MIB

OnOutput = Callable[[bytes], None]
# Called with the listening sockets before the command starts, so that they are served from the
# first moment.
OnListeners = Callable[[Mapping[int, socket.socket]], Awaitable[None]]


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bounds of one sandbox as a whole. Above memory, processes or CPU time it is killed, with
    the reason."""

    # CPU seconds of all its processes together; None for no bound.
    cpu_s: int | None = None
    # Anonymous and shared memory, swapped out or not, with page tables, socket buffers and the
    # files in its tmpfs.
    memory_bytes: int = 4 * GIB
    # Tasks, so threads count.
    processes: int = 1024
    # Output that is passed on. The rest is dropped, which is reported once.
    output_bytes: int = 64 * MIB
    # Open descriptors of one process.
    files: int = 4096
    # Size of one file.
    file_bytes: int = 4 * GIB
    # Size of each of /tmp, /home/agent, /var/tmp, /run and /dev/shm.
    tmpfs_bytes: int = GIB
    # Room to leave free on the private copy's file system, but at most a twentieth of it. Below it
    # the sandbox is killed, so that no agent fills the disk that the host and the record need.
    free_disk_bytes: int = GIB


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One sandbox: a command, its environment, and what it sees of the host."""

    # Started in `cwd` (a path inside) with exactly `env`.
    command: tuple[str, ...]
    # Shown read-only at LOWER (None: an empty folder).
    workspace_lower: Path | None
    # Shown writable at MERGED.
    workspace_merged: Path
    env: dict[str, str] = {}
    cwd: str = MERGED
    # Host paths that must not show anywhere inside (the data directory), also below the workspace,
    # /usr or a bind.
    masked: tuple[Path, ...] = ()
    # Pairs of host path and path inside.
    readonly_binds: tuple[tuple[Path, str], ...] = ()
    # Pairs of target and path inside.
    links: tuple[tuple[str, str], ...] = ()
    ca_bundle: Path | None = None
    java_store: Path | None = None
    # A folder of the host that is the home; None for an empty one, in memory. `session_home` says
    # what of it is covered; `owns_settings`: whether the command may change its own there.
    home: Path | None = None
    owns_settings: bool = False
    # What git reads as the system's configuration.
    git_config: Path | None = None
    # Content of the home at the start, by path below it.
    home_files: dict[str, str] = {}
    # Pairs of host path and path inside, below the home or in a folder that nobody writes to.
    writable_binds: tuple[tuple[Path, str], ...] = ()
    # Folders in those, by path below the home and with a slash at the end, that are new and empty.
    forgotten: tuple[str, ...] = ()
    # Links in folders of a home on disk that are new in each sandbox: path below it, and target.
    home_links: tuple[tuple[str, str], ...] = ()
    # Opened as listening sockets on 127.0.0.1 in the sandbox's own network.
    ports: tuple[int, ...] = ()
    # Whether every TCP connection but those to loopback is redirected to a listening socket at
    # DOOR_PORT, and name queries to a datagram socket at NAMES_PORT.
    redirected: bool = False
    limits: SandboxLimits = SandboxLimits()
    hostname: str = "gatehouse"
    # Whether the command gets a terminal.
    tty: bool = False
    # Descriptors of the user and mount namespaces to make the sandbox in: those where
    # `workspace_merged` is mounted (`overlay_mount`). Their owner keeps them open until the sandbox
    # has started.
    within: tuple[int, int] | None = None
    # Judges each program before it is executed; None for no judge.
    programs: ProgramWatch | None = None


def files_in_etc(spec: Spec) -> list[tuple[Path, str]]:
    """Return the host files that a sandbox has in its /etc, with their places."""
    places = (
        (spec.ca_bundle, CA_BUNDLE),
        (spec.java_store, JAVA_STORE),
        (spec.git_config, GIT_CONFIG),
    )
    return [(file, inside) for file, inside in places if file is not None]


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Present use of a sandbox. `output_bytes` is its whole output, including dropped bytes."""

    processes: int
    memory_bytes: int
    cpu_s: float
    output_bytes: int


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """One command that ran in a sandbox of its own. `killed_why` names the bound that ended it; ""
    where none did."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    timed_out: bool = False
    killed_why: str = ""


class Running(Protocol):
    """A running sandbox. `pid` is its init's number on the host, `pid_started` that process's start
    in clock ticks.

    `listeners` belong to the caller, who closes them. `limits_in_force` names the layers that bound
    it.
    """

    pid: int
    pid_started: int
    listeners: dict[int, socket.socket]
    limits_in_force: tuple[str, ...]
    master_fd: int | None

    @property
    def killed_why(self) -> str:
        """Return the bound, or the request, that ended it; "" while it runs or if it ended by
        itself."""

    @property
    def truncated(self) -> bool:
        """Return whether output was dropped."""

    @property
    def paused_s(self) -> float:
        """Return how long it was paused so far, in seconds."""

    async def wait(self) -> int:
        """Wait until every process in it is gone and all output was passed on. Return the command's
        exit code (128 + signal)."""

    def terminate(self) -> None:
        """Send SIGTERM to every process of the agent's."""

    def kill(self, why: str = "") -> None:
        """Send SIGKILL to all of it at once. `why` becomes `killed_why` unless that is set."""

    def pause(self) -> str:
        """Stop every process in it. Return the means: `cgroup freezer` or `signals`."""

    def unpause(self) -> None:
        """Let every process continue."""

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal, if it has one."""

    def stats(self) -> Stats:
        """Return its present use."""


class Held(Protocol):
    """A sandbox that is there and bounded, in which nothing has run yet."""

    @property
    def is_over(self) -> bool:
        """Return whether it has ended, used or not."""

    async def run(
        self, command: str, cwd: str, *, timeout_s: float, on_output: OnOutput, on_error: OnOutput
    ) -> ToolResult:
        """Run a shell's text in it, in this folder, as `Sandbox.run_tool` would. Once only."""

    async def end(self) -> None:
        """End it unused."""


class Sandbox(Protocol):
    """A backend."""

    def open(self) -> None:
        """Prepare for sandboxes, in the event loop. May be called again."""

    async def start(
        self,
        spec: Spec,
        *,
        on_output: OnOutput,
        on_error: OnOutput | None = None,
        on_listeners: OnListeners | None = None,
    ) -> Running:
        """Start `spec`. Raise SandboxError with the cause and a remedy; then nothing is left
        behind.

        `on_output` gets standard output and error in the order written; with `on_error` they are
        separate. Both are called in the event loop and must not block.
        """

    async def run_tool(
        self,
        spec: Spec,
        *,
        timeout_s: float,
        on_listeners: OnListeners | None = None,
        last_bytes: int | None = None,
        on_output: OnOutput | None = None,
        on_error: OnOutput | None = None,
    ) -> ToolResult:
        """Run `spec` to its end and return its output; at `timeout_s` all of it is killed. With
        `last_bytes`, only the end of each stream is kept, at least this many bytes. `on_output` and
        `on_error` get each of them as it comes, as those of `start`."""

    async def hold(self, spec: Spec, *, on_listeners: OnListeners, last_bytes: int) -> Held | None:
        """Start `spec` without its command and folder, which come later, once. None where this
        backend can't."""

    def pause(self, copy: Path) -> str:
        """Pause every sandbox over this private copy, including those started until `unpause`.
        Return the means."""

    def unpause(self, copy: Path) -> None:
        """Let every sandbox over this private copy continue."""

    async def check(self) -> list[CheckResult]:
        """Check for doctor what this backend needs of the machine besides its kernel."""

    async def close(self) -> None:
        """Kill what still runs and release the backend's resources."""


__all__ = [
    "CA_BUNDLE",
    "DOOR_PORT",
    "GIT_CONFIG",
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
    "files_in_etc",
]
