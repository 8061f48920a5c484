"""Where package managers run: a tool sandbox over the private copy, with a way to the package index
alone.

It is separate from `packages`, which knows requests: this only runs shell texts. It must never lend
a sandbox the session's own network: what an install reaches is what its card names.
"""

import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from supervisor.base import process
from supervisor.channels.exec import SpecFor
from supervisor.core.actions import Exec
from supervisor.sandbox.base import Sandbox, ToolResult
from supervisor.sandbox.programs import find_program
from supervisor.settings import for_package_managers, search_path

# The shims of rustup find a toolchain in the home; the toolchain's own programs need no home.
_RUSTUP = "rustup"

type Hosts = frozenset[tuple[str, int]]
type OpenReach = Callable[[str, socket.socket, Hosts], Awaitable[str]]
type CloseReach = Callable[[str], Awaitable[None]]


PLAN_S = 180.0


class InstallSandbox:
    """`spec_for` describes the tool sandbox of a command, `open_reach` and `close_reach` are
    egress's (`NetworkBroker`). `proxy_port` is where the sandbox's own proxy listens."""

    def __init__(
        self,
        sandbox: Sandbox,
        spec_for: SpecFor,
        open_reach: OpenReach,
        close_reach: CloseReach,
        proxy_port: int,
    ) -> None:
        self._sandbox = sandbox
        self._spec_for = spec_for
        self._open_reach = open_reach
        self._close_reach = close_reach
        self._proxy_port = proxy_port

    async def run(
        self,
        session_id: str,
        script: str,
        *,
        cwd: str,
        manager: str,
        hosts: Hosts = frozenset(),
        timeout_s: float = PLAN_S,
    ) -> ToolResult:
        """Run a shell text in a folder of the private copy; it reaches these hosts, or nothing.
        `SandboxError` where there is no sandbox."""
        spec = self._spec_for(session_id, Exec(command=script, cwd=cwd))
        path, binds = find_program(await real_program(manager), search_path(), Path.home())
        folder = path.rpartition("/")[0]
        env = spec.env | {"NO_PROXY": "", "no_proxy": ""}
        if binds:
            env["PATH"] = f"{folder}:{env['PATH']}"
        spec = msgspec.structs.replace(
            spec,
            env=env,
            readonly_binds=(*spec.readonly_binds, *binds),
            redirected=False,
            ports=(self._proxy_port,) if hosts else (),
        )
        opened: list[str] = []

        async def lend(listeners: Mapping[int, socket.socket]) -> None:
            opened.extend(
                [
                    await self._open_reach(session_id, listener, hosts)
                    for listener in listeners.values()
                ]
            )

        try:
            return await self._sandbox.run_tool(
                spec, timeout_s=timeout_s, on_listeners=lend if hosts else None
            )
        finally:
            for stand_in in opened:
                await self._close_reach(stand_in)


async def real_program(manager: str) -> str:
    """Return the name or path of a manager's real program on this machine.

    rustup is asked in `/`: a `rust-toolchain.toml` would choose the program, or have one installed.
    """
    found = shutil.which(manager, path=search_path())
    shim = found and os.path.realpath(found)  # noqa: ASYNC240 (a few links)
    if not shim or not shim.endswith(f"/{_RUSTUP}"):
        return manager
    which = [shim, "which", manager]
    env = for_package_managers() | {"RUSTUP_AUTO_INSTALL": "0"}
    done = await process.run(which, env=env, cwd="/", timeout_s=10.0)
    return done.stdout.decode().strip() if done.ok else manager
