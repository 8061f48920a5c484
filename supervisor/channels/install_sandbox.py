"""Where package managers run: in sandboxes that reach a package index alone, or nothing.

    read      files of the private copy, by programs of the system alone; no network
    plan      before an answer: a folder that holds what was taken over of the copy, and no more; it
              may read at an index, without a secret (law 11)
    install   what a grant was used for: in the copy; it may read at the hosts of its card

It must never lend a sandbox the session's own network. Nothing else gives a program of a plan a way
to an index.
"""

import asyncio
import io
import os
import shlex
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import msgspec

from supervisor.base import process
from supervisor.channels.exec import SpecFor
from supervisor.core.actions import Exec, Packages
from supervisor.core.packages.install_recipes import is_at_home
from supervisor.core.packages.package_commands import environment_at_home
from supervisor.errors import RefusedError
from supervisor.gate.gate import Grant
from supervisor.sandbox.base import HOME, LOWER, MERGED, OnOutput, Sandbox, Spec, ToolResult
from supervisor.sandbox.programs import find_program
from supervisor.settings import for_package_managers, search_path

# The shims of rustup find a toolchain in the home; the toolchain's own programs need no home.
_RUSTUP = "rustup"
MOST_READ_BYTES = 32 * 1024 * 1024
MOST_FILES = 4000
# What the environments of a project say that they hold.
_METADATA = "*/lib/python3*/site-packages/*.dist-info/METADATA"
_INSTALLED = ("-maxdepth", "6", "-path", _METADATA)
_LEFT_OUT = ("*/vendor/*", "*/node_modules/*", "*/.*/*")
_SOURCES = ("-type", "f", *(word for one in _LEFT_OUT for word in ("-not", "-path", one)))
_SOURCES += ("(", "-name", "*.go", "-o", "-name", "go.mod", ")")
_LIST = "list"

type Hosts = frozenset[tuple[str, int]]
type OpenReach = Callable[[str, socket.socket, Hosts, Hosts | None], Awaitable[str]]
type CloseReach = Callable[[str], Awaitable[None]]

type Filling = Callable[[str, Spec, bool, tuple[str, ...]], Spec]

PLAN_S = 180.0
READ_S = 30.0


class InstallSandbox:
    """`spec_for` describes the tool sandbox of a command, `filling` adds those
    places where an install puts what is outside of projects that it is told, and if it is told so
    the session's whole home; `open_reach` and
    `close_reach` are egress's (`NetworkBroker`). `proxy_port` is where the sandbox's own proxy
    listens."""

    def __init__(
        self,
        sandbox: Sandbox,
        spec_for: SpecFor,
        filling: Filling,
        open_reach: OpenReach,
        close_reach: CloseReach,
        proxy_port: int,
    ) -> None:
        self._sandbox = sandbox
        self._spec_for = spec_for
        self._filling = filling
        self._open_reach = open_reach
        self._close_reach = close_reach
        self._proxy_port = proxy_port

    async def read(
        self,
        session_id: str,
        paths: Iterable[str],
        *,
        is_own: bool = False,
        installed: Iterable[str] = (),
        sources: str | None = None,
    ) -> dict[str, str | None]:
        """Return files of the private copy by their paths below it, those that are there; of the
        workspace itself with `is_own`. None for what is no regular file, or no text. `installed`
        are Python environments: also what they say that they hold; `sources` is a folder whose
        sources of go are wanted, too. `RefusedError` where that is more than a project has."""
        listed = "".join(f"./{path}\0" for path in sorted(set(paths)) if path.isprintable())
        script = (
            f"cp ~/{_LIST} /tmp/list;"
            f" {_finding(installed, _INSTALLED)}"
            f" {_finding(() if sources is None else (sources,), _SOURCES)}"
            " tar --null --no-recursion --hard-dereference --ignore-failed-read -T /tmp/list -cf -"
            f" 2>/dev/null | head -c {MOST_READ_BYTES + 1}"
        )
        spec = self._spec_for(session_id, Exec(command=script))
        spec = _alone(spec, cwd=LOWER if is_own else MERGED, home_files={_LIST: listed})
        done = await self._sandbox.run_tool(spec, timeout_s=READ_S)
        if done.killed_why or done.truncated or len(done.stdout) > MOST_READ_BYTES:
            raise RefusedError(
                "the project's manifests are more than can be read", "install by hand"
            )
        return await asyncio.to_thread(_unpacked, done.stdout)

    async def plan(
        self,
        session_id: str,
        files: Mapping[str, str],
        script: Callable[[str], str],
        *,
        manager: str,
        hosts: Hosts = frozenset(),
        own: Hosts = frozenset(),
    ) -> ToolResult:
        """Run a shell text in a folder that holds these files and nothing of the copy. `script` is
        called with the absolute path of the manager's program. It may read at `hosts`: at those of
        `own` whatever asks, else as the rules allow it."""
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="gatehouse-plan-"))
        try:
            await asyncio.to_thread(_write, folder, files)
            program, path, binds = await _program(manager)
            spec = self._spec_for(session_id, Exec(command=script(program)))
            spec = _alone(spec, binds=binds, path=path)
            spec = msgspec.structs.replace(
                spec, workspace_lower=None, workspace_merged=folder, within=None
            )
            return await self._reaching(session_id, spec, hosts, own, PLAN_S)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def install(
        self,
        grant: Grant,
        action: Packages,
        script: str,
        *,
        timeout_s: float,
        home_files: Mapping[str, str],
        places: tuple[str, ...],
        printed: tuple[OnOutput, OnOutput],
    ) -> ToolResult:
        """Use the grant, and run a shell text in the private copy; it may read at the hosts of the
        action's card. `places` are what it may change below the home (`places_written`). `printed`
        gets both of its streams as they come. `SandboxError` where there is no sandbox."""
        _, path, binds = await _program(action.manager)
        spec = self._spec_for(grant.session_id, Exec(command=script, cwd=action.cwd))
        cwd = HOME if is_at_home(action) else ""
        spec = _alone(spec, cwd=cwd, binds=binds, path=path, home_files=home_files)
        shows_home = bool(environment_at_home(action))
        spec = self._filling(grant.session_id, spec, shows_home, places)
        grant.use(action)
        hosts = frozenset(map(_host, action.hosts))
        return await self._reaching(grant.session_id, spec, hosts, None, timeout_s, printed)

    async def _reaching(
        self,
        session_id: str,
        spec: Spec,
        hosts: Hosts,
        own: Hosts | None,
        timeout_s: float,
        printed: tuple[OnOutput | None, OnOutput | None] = (None, None),
    ) -> ToolResult:
        run = partial(
            self._sandbox.run_tool, timeout_s=timeout_s, on_output=printed[0], on_error=printed[1]
        )
        if not hosts:
            return await run(spec)
        spec = msgspec.structs.replace(spec, ports=(self._proxy_port,))
        opened: list[str] = []

        async def lend(listeners: Mapping[int, socket.socket]) -> None:
            for listener in listeners.values():
                stand_in = await self._open_reach(session_id, listener, hosts, own)
                opened.append(stand_in)

        try:
            return await run(spec, on_listeners=lend)
        finally:
            for stand_in in opened:
                await self._close_reach(stand_in)


def _alone(
    spec: Spec,
    *,
    cwd: str = "",
    binds: Iterable[tuple[Path, str]] = (),
    path: str = "",
    home_files: Mapping[str, str] = MappingProxyType({}),
) -> Spec:
    """Return a sandbox that reaches nothing, and looks for programs in no folder of the copy."""
    folders = [path, *spec.env["PATH"].split(":")]
    kept = [one for one in folders if one.startswith("/") and not one.startswith("/workspace")]
    return msgspec.structs.replace(
        spec,
        cwd=cwd or spec.cwd,
        env=spec.env | {"NO_PROXY": "", "no_proxy": "", "PATH": ":".join(kept)},
        readonly_binds=(*spec.readonly_binds, *binds),
        home_files=dict(home_files),
        redirected=False,
        ports=(),
    )


def _finding(folders: Iterable[str], where: Sequence[str]) -> str:
    """Return what adds the files of these folders to the list."""
    places = [f"./{one}" for one in folders]
    if not places:
        return ":;"
    words = shlex.join(("find", *places, *where, "-print0"))
    return f"{words} 2>/dev/null | head -z -n {MOST_FILES} >> /tmp/list;"


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _unpacked(archive: bytes) -> dict[str, str | None]:
    """Return the files of an archive that the system's tar made, by path."""
    found: dict[str, str | None] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as entries:
        for entry in entries:
            file = entries.extractfile(entry) if entry.isreg() else None
            text = None if file is None else file.read()
            try:
                found[entry.name.removeprefix("./")] = (
                    None if text is None else text.decode("utf-8-sig")
                )
            except UnicodeDecodeError:
                found[entry.name.removeprefix("./")] = None
    return found


def _host(text: str) -> tuple[str, int]:
    name, _, port = text.rpartition(":")
    return name, int(port)


async def _program(manager: str) -> tuple[str, str, tuple[tuple[Path, str], ...]]:
    """Return a manager's real program on this machine by its absolute path, the folder that it
    needs in PATH, and what of the host must be shown for it."""
    path, binds = find_program(await real_program(manager), search_path(), Path.home())
    return path, path.rpartition("/")[0] if binds else "", binds


async def real_program(manager: str) -> str:
    """Return the name or path of a manager's real program on this machine.

    rustup is asked in `/`: a `rust-toolchain.toml` would choose the program, or have one installed
    (law 12).
    """
    found = shutil.which(manager, path=search_path())
    shim = found and os.path.realpath(found)  # noqa: ASYNC240 (a few links)
    if not shim or not shim.endswith(f"/{_RUSTUP}"):
        return manager
    which = [shim, "which", manager]
    done = await process.run(which, env=for_package_managers(), cwd="/", timeout_s=10.0)
    return done.stdout.decode().strip() if done.ok else manager
