"""Check everything that Gatehouse needs of the machine, by trying it.

That is: kernel, sandbox, the page's port, the CA, the data folder, the review service, the targets
that are told what waits, the MCP servers. Each finding is printed at once, and each check imports
what it needs in its turn, so the first line appears immediately.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from supervisor.core.text.display import visible
from supervisor.errors import GatehouseError
from supervisor.sandbox import kernel
from supervisor.sandbox.check_result import CheckResult, bad
from supervisor.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from supervisor.core.agents.agents import AgentName


def report(settings: Settings, agent: AgentName | None) -> int:
    """Print every finding, of an agent, too, where one is named. Return 1 where a needed one
    fails."""
    code = 0
    for finding in _findings(settings, agent):
        mark = "ok  " if finding.ok else "FAIL" if finding.needed else "note"
        print(f"{mark}  {finding.name}: {visible(finding.detail, one_line=True)}", flush=True)
        if not finding.ok and finding.remedy:
            print(f"      -> {visible(finding.remedy, one_line=True)}", flush=True)
        if not finding.ok and finding.needed:
            code = 1
    return code


def _findings(settings: Settings, agent: AgentName | None) -> Iterator[CheckResult]:
    """Yield the findings, the most fundamental first."""
    yield from kernel.findings()
    yield this_python()
    yield from _sandbox(settings.data_dir)
    yield _port(settings.port)
    yield _authority(settings.data_dir / "ca")
    yield _data_dir(settings.data_dir)
    yield from _reviews(settings)
    if settings.review_model:
        from supervisor.app import model_lists

        yield from model_lists.findings(settings)
    yield from _telling(settings)
    yield from _mcp_servers(settings)
    if agent is not None:
        yield from _agent(settings, agent)


def _agent(settings: Settings, name: AgentName) -> Iterator[CheckResult]:
    """Yield what a session of this agent would start with, and what it would lack."""
    from supervisor import settings as environment
    from supervisor.core.agents.agents import AGENTS
    from supervisor.sandbox.toolchains import MANAGERS
    from supervisor.sessions import agent_programs

    agent, home = AGENTS[name], Path.home()
    found = agent_programs.find(name, environment.search_path(), settings)
    where = found.where if found else f"is installed at the first `gatehouse {name}`"
    yield CheckResult(agent.title, ok=True, detail=where)
    keys = [one for one in agent.keys if settings.model_keys[one]]
    if keys:
        yield CheckResult("its key", ok=True, detail=f"{keys[0]}; egress adds it, outside")
    else:
        yield bad("its key", agent_programs.no_key(name), agent.advice)
    for path, what in agent.left_out.items():
        if (home / path).exists():
            yield bad(
                what,
                f"~/{path} isn't in a session's home",
                "put what it needs into the workspace, as files of the project",
                needed=False,
            )
    for tools, shown in MANAGERS.items():
        with contextlib.suppress(GatehouseError):
            shown(home)
            if tools not in settings.binds:
                yield bad(
                    f"tools of {tools}",
                    "no session sees them",
                    f"add `--bind {tools}`, or GATEHOUSE_BIND",
                    needed=False,
                )


def this_python() -> CheckResult:
    """Return `interpreter` for the Python that runs this."""
    import sysconfig

    version = ".".join(map(str, sys.version_info[:3]))
    return interpreter(version, sys.base_prefix, str(sysconfig.get_config_var("CONFIG_ARGS") or ""))


def interpreter(version: str, prefix: str, configured: str) -> CheckResult:
    """Return the finding about how this Python was built: its location, and its configure
    arguments.

    Without --enable-optimizations (docs.python.org/3/using/configure.html), as pyenv builds by
    default, it needs up to twice the time. Debian optimises its own differently, so a
    distribution's Python counts as optimised.
    """
    ok = prefix == "/usr" or "--enable-optimizations" in configured
    if ok:
        return CheckResult("Python", ok=True, detail=version)
    return bad(
        "Python",
        f"{version} in {prefix} was built without optimisation and takes up to twice as long",
        "use your distribution's or uv's, or with pyenv:"
        " PYTHON_CONFIGURE_OPTS='--enable-optimizations --with-lto' pyenv install --force"
        f" {version}; then `rm -r .venv && make setup`",
        needed=False,
    )


def _sandbox(data_dir: Path) -> list[CheckResult]:
    import asyncio

    from supervisor.sandbox import overlay_mount
    from supervisor.sandbox.bubblewrap import Bubblewrap

    async def check() -> list[CheckResult]:
        sandbox = Bubblewrap()
        try:
            # If the data folder doesn't exist yet, the nearest existing parent has its file system.
            place = next(folder for folder in (data_dir, *data_dir.parents) if folder.is_dir())
            return [*await sandbox.check(), await overlay_mount.check(place)]
        finally:
            await sandbox.close()

    return asyncio.run(check())


def _reviews(settings: Settings) -> list[CheckResult]:
    made = (settings.github_app_dir / "app.json", settings.data_dir / "reviews.db")
    named = settings.github_app_id or settings.bitbucket_token_file
    if not named and not any(one.is_file() for one in (*made, settings.bitbucket_dir / "token")):
        return [CheckResult("reviews", ok=True, detail="not set up; see docs/reviews.md")]
    import asyncio

    from supervisor.reviews.app import review_checks

    async def check() -> list[CheckResult]:
        return [one async for one in review_checks.findings(settings)]

    return asyncio.run(check())


def _telling(settings: Settings) -> list[CheckResult]:
    if not settings.tell:
        return []
    import asyncio

    from supervisor.app import telling
    from supervisor.core import waiting_lines

    try:
        told = waiting_lines.targets(settings.tell, "GATEHOUSE_TELL")
    except GatehouseError as error:
        return [bad("telling", error.message, error.remedy)]

    async def check() -> list[CheckResult]:
        return [
            CheckResult(f"telling {name}", ok=True, detail="a test line was sent")
            if problem is None
            else bad(f"telling {name}", problem, "check GATEHOUSE_TELL", needed=False)
            async for name, problem in telling.try_all(told)
        ]

    return asyncio.run(check())


def _mcp_servers(settings: Settings) -> Iterator[CheckResult]:
    """Yield what keeps an MCP server from starting; nothing is started."""
    if not os.path.lexists(settings.mcp_servers_file):
        return
    from supervisor.core.mcp_servers_file import only_for_servers
    from supervisor.sessions.mcp_programs import read_servers, shown_of_server
    from supervisor.sessions.named_secrets import bindings

    try:
        servers = read_servers(settings.mcp_servers_file)
        known = {one.name for one in bindings(settings.bindings_file)}
    except GatehouseError as error:
        yield bad("MCP servers", error.message, error.remedy)
        return
    for name, server in servers.items():
        unknown = next((one for one in server.credentials if one not in known), None)
        try:
            shown_of_server(server)
            if unknown is not None:
                yield bad(f"MCP server {name}", f"no credential `{unknown}`", "add it to the file")
            else:
                where = server.url or " ".join(server.command)
                kept = sorted(only_for_servers(servers.values()).intersection(server.credentials))
                own = f"; no agent has its credentials {', '.join(kept)}" if kept else ""
                yield CheckResult(f"MCP server {name}", ok=True, detail=where + own)
        except GatehouseError as error:
            yield bad(f"MCP server {name}", error.message, error.remedy)


def _port(port: int) -> CheckResult:
    from supervisor.server.common.listening import listen

    try:
        listen(port).close()
    except GatehouseError as error:
        return bad("port", error.message, error.remedy, needed=False)
    return CheckResult("port", ok=True, detail=f"127.0.0.1:{port} is free")


def _authority(folder: Path) -> CheckResult:
    from supervisor.base.clock import RealClock
    from supervisor.network.ca import check_ca

    name = "certificate authority"
    if not folder.exists():
        return CheckResult(name, ok=True, detail="is made at the first start")
    problem = check_ca(folder, RealClock())
    return (
        CheckResult(name, ok=True, detail=str(folder)) if problem is None else bad(name, *problem)
    )


def _data_dir(folder: Path) -> CheckResult:
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return bad("data folder", f"{nearest} can't be written", "give another with --data-dir")
    return CheckResult("data folder", ok=True, detail=str(folder))
