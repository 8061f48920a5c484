"""Checks that a command's sandbox is contained: it can change nothing outside.

One harmless command in a tool sandbox of the session reports what it sees: mounts, variables,
network interfaces, rights. This module decides nothing: the gate asks about each command where the
check fails, or wasn't made. INVARIANT: unreadable output counts as a problem.

Sources: proc_pid_mountinfo(5), proc_pid_status(5).
"""

import asyncio
from collections.abc import Callable, Collection

from supervisor.errors import GatehouseError
from supervisor.sandbox.base import HOME, MERGED, Sandbox, Spec
from supervisor.sandbox.host import devices_of_others

CHECK_S = 20.0
_MARK = "--- next ---"
_FILES = ("/proc/self/mountinfo", "/proc/net/dev", "/proc/self/status")
PROBE = f"; echo '{_MARK}'; ".join((*(f"cat {file}" for file in _FILES), "compgen -e"))
# No command may hold a key, or the right to ask in the agent's name.
_FORBIDDEN_VARIABLES = frozenset({"GATEHOUSE_TOKEN", "GATEHOUSE_URL"})
_RIGHTS = {"CapEff": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"}

type OnChecked = Callable[[str, tuple[str, ...]], None]


class Containment:
    """The checks of all sessions. `spec_for(session_id)` is the sandbox of `PROBE`, as any command
    gets it; `on_checked(session_id, problems)` is called with the result."""

    def __init__(
        self, sandbox: Sandbox, spec_for: Callable[[str], Spec], on_checked: OnChecked
    ) -> None:
        self._sandbox = sandbox
        self._spec_for = spec_for
        self._on_checked = on_checked
        self._checks: dict[str, asyncio.Future[tuple[str, ...]]] = {}

    async def checked(self, session_id: str) -> tuple[str, ...]:
        """Return the problems found; none where commands are contained. The first call checks;
        further calls wait for that."""
        known = self._checks.get(session_id)
        if known is None:
            known = self._checks[session_id] = asyncio.get_running_loop().create_future()
            problems: tuple[str, ...] = ("the check was cut short",)
            try:
                problems = await check_of(self._sandbox, lambda: self._spec_for(session_id))
            finally:
                known.set_result(problems)
                self._on_checked(session_id, problems)
        return await asyncio.shield(known)

    def result(self, session_id: str) -> tuple[str, ...] | None:
        """Return the result, or None before there is one."""
        known = self._checks.get(session_id)
        return known.result() if known is not None and known.done() else None

    def forget(self, session_id: str) -> None:
        """Forget a session, which has ended."""
        self._checks.pop(session_id, None)


async def check_of(sandbox: Sandbox, spec: Callable[[], Spec]) -> tuple[str, ...]:
    """Run `PROBE` in a sandbox as `spec()` says; return the problems found."""
    try:
        made = await sandbox.run_tool(spec(), timeout_s=CHECK_S)
    except GatehouseError as error:
        return (f"the check can't be made: {error.message}",)
    if made.exit_code != 0:
        return (f"the check failed: {made.killed_why or f'exit code {made.exit_code}'}",)
    return problems_in(made.stdout.decode(errors="replace"), devices_of_others())


def problems_in(output: str, devices: Collection[str] = ()) -> tuple[str, ...]:
    """Return the problems in what `PROBE` printed. `devices`: the device files that nobody in the
    sandbox owns, whose mounts may be writable."""
    parts = output.split(f"{_MARK}\n")
    if len(parts) != len(_FILES) + 1:
        return ("the check printed something else",)
    mounts, interfaces, status, variables = (part.splitlines() for part in parts)
    found = [f"`{where}` of the host can be written to" for where in _writable(mounts, devices)]
    found += [
        f"there is a network interface `{name}`"
        for line in interfaces[2:]
        if (name := line.partition(":")[0].strip()) != "lo"
    ]
    fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    found += [
        f"{name} is {fields.get(name, 'missing')}"
        for name, wanted in _RIGHTS.items()
        if fields.get(name) != wanted
    ]
    found += [f"the variable {name} is set" for name in sorted(_FORBIDDEN_VARIABLES & {*variables})]
    return tuple(found)


def _writable(mounts: list[str], devices: Collection[str]) -> list[str]:
    """Return the writable mounts that aren't the sandbox's own: neither the private copy, nor the
    session's home, nor a file system in memory that it has whole, nor one of `devices`."""
    rows = [(line.split(" "), line.rpartition(" - ")[2].split(" ")[0]) for line in mounts]
    memory = {row[2] for row, kind in rows if kind in ("tmpfs", "devpts") and row[3] == "/"}
    found = []
    for (_, _, device, root, where, options, *_), _ in rows:
        is_own = where in (MERGED, HOME) or device in memory
        is_own = is_own or (where in devices and root == where.removeprefix("/dev"))
        if "rw" in options.split(",") and not is_own:
            found.append(where)
    return found or ([] if mounts else ["/"])
