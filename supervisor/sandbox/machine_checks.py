"""Checks of this machine for `gatehouse doctor`, by trying.

They also explain a failed start. Each check looks at one need and says what to do about it. Only
the trial at the end is a proof: it starts a real sandbox and checks from inside that it is one.
Nothing here may make a sandbox weaker, or change the machine.
"""

import contextlib
import re
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from supervisor.base.process import run
from supervisor.errors import GatehouseError
from supervisor.git.run_git import run_git
from supervisor.sandbox import seccomp
from supervisor.sandbox.base import Sandbox, SandboxLimits, Spec
from supervisor.sandbox.cgroups import Cgroup
from supervisor.sandbox.check_result import CheckResult, bad
from supervisor.sandbox.containment import PROBE, check_of

BWRAP_AT_LEAST = (0, 8, 0)  # Debian 12: --disable-userns, --size, --add-seccomp-fd
TIMEOUT_S = 10.0
NF_CONNTRACK_MAX = Path("/proc/sys/net/netfilter/nf_conntrack_max")
# A session may have 512 connections at a time; the kernel tracks an ended one for two more minutes.
LEAST_TRACKED = 16_384
TRIAL_PORT = 3128
# Prints `ok` only if each line holds: own pid 1, own user, nothing writable that shouldn't be,
# filter and no_new_privs on.
TRIAL = """
test "$(id -u)" = 1000 && test "$$" -lt 10 && ! touch /workspace/lower/x 2>/dev/null && ! touch /usr/x 2>/dev/null &&
grep -q '^Seccomp:[[:space:]]*2' /proc/self/status && grep -q '^NoNewPrivs:[[:space:]]*1' /proc/self/status &&
! test -e /etc/shadow && touch /workspace/merged/made && echo ok
"""  # noqa: E501


async def check(backend: Sandbox, program: str | None) -> list[CheckResult]:
    """Check what the bubblewrap backend needs besides the kernel, in the order in which
    to fix it.
    """
    return [
        await bubblewrap(program),
        await git(),
        filters(),
        cgroups(),
        await trial(backend),
        await containment(backend),
        await redirection(backend),
    ]


async def bubblewrap(program: str | None) -> CheckResult:
    """Check bubblewrap and its version."""
    name, install = (
        "bubblewrap",
        "install bubblewrap 0.8.0 or later (Debian, Ubuntu: apt install bubblewrap)",
    )
    if program is None:
        return bad(name, "not found", install)
    try:
        done = await run([program, "--version"], env={}, timeout_s=TIMEOUT_S)
    except GatehouseError as error:
        return bad(name, str(error), install)
    text = done.stdout.decode(errors="replace").strip()
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    if found is None or tuple(int(part) for part in found.groups()) < BWRAP_AT_LEAST:
        return bad(name, f"{program} is `{text}`", install)
    if _is_setuid(program):
        return bad(
            name,
            f"{program} is setuid root",
            f"run `sudo chmod u-s {program}`: user namespaces do without",
        )
    return CheckResult(name=name, ok=True, detail=f"{program}, {text}")


async def git() -> CheckResult:
    """Check for git. Without it sessions work, except for what needs a repository."""
    install = "install git (Debian, Ubuntu: apt install git), into an absolute folder of PATH"
    try:
        done = await run_git(None, "--version", timeout_s=TIMEOUT_S)
    except GatehouseError as error:
        return bad("git", error.message, install)
    said = (done.stdout + done.stderr).decode(errors="replace").strip()
    if not done.ok or not said.startswith("git version"):
        return bad("git", f"`git --version` exits with {done.exit_code}: {said[-200:]}", install)
    return CheckResult(name="git", ok=True, detail=said)


def filters() -> CheckResult:
    """Check libseccomp, and that both programs can be built."""
    try:
        sizes = [len(program) // 8 for program in seccomp.programs()]
    except GatehouseError as error:
        return bad("seccomp", error.message, error.remedy)
    return CheckResult(
        name="seccomp", ok=True, detail=f"two filters of {sizes[0]} and {sizes[1]} instructions"
    )


def cgroups() -> CheckResult:
    """Check for control groups of our own: with them the kernel enforces the bounds, without them
    the watchdog does."""
    group = Cgroup.make(f"doctor-{secrets.token_hex(4)}", memory_bytes=1 << 30, processes=64)
    if group is None:
        return bad(
            "control groups",
            "none may be made here; the watchdog bounds memory, processes and CPU time",
            "start Gatehouse with `systemd-run --user --scope -p Delegate=yes ...`",
            needed=False,
        )
    detail = ", ".join(group.layers)
    group.remove()
    return CheckResult(name="control groups", ok=True, detail=detail, needed=False)


async def trial(backend: Sandbox) -> CheckResult:
    """Start a real sandbox, and check from inside that it is one."""
    name = "trial sandbox"
    with _trial_spec() as spec:
        try:
            result = await backend.run_tool(spec, timeout_s=TIMEOUT_S)
        except GatehouseError as error:
            return bad(name, error.message, "mend what is named above first")
        if (
            result.exit_code != 0
            or result.stdout != b"ok\n"
            or not _holds(spec.workspace_merged, "made")
        ):
            why = (
                result.killed_why
                or (result.stdout + result.stderr).decode(errors="replace").strip()
            )[-200:]
            return bad(name, f"it started, but isn't as it must be: {why}", "report this")
    return CheckResult(name=name, ok=True, detail="started, isolated and ended")


async def containment(backend: Sandbox) -> CheckResult:
    """Check whether commands can be run contained, as the gate does for each session."""
    name = "contained commands"
    with _trial_spec() as plain:
        spec = msgspec.structs.replace(plain, command=("/bin/bash", "-c", PROBE))
        problems = await check_of(backend, lambda: spec)
    if problems:
        return bad(
            name, "; ".join(problems), "report this; until then each command is asked", needed=False
        )
    return CheckResult(name=name, ok=True, detail="they change nothing outside", needed=False)


async def redirection(backend: Sandbox) -> CheckResult:
    """Check whether connections of programs that know no proxy can be redirected: nftables, in a
    sandbox's own network."""
    name = "transparent network"
    with _trial_spec() as plain:
        spec = msgspec.structs.replace(plain, redirected=True)
        try:
            await backend.run_tool(spec, timeout_s=TIMEOUT_S)
        except GatehouseError as error:
            modules = (
                "`sudo modprobe -a nf_tables nft_chain_nat nft_redir` (CONFIG_NF_TABLES_INET,"
                " CONFIG_NFT_REDIR)"
            )
            return bad(
                name,
                error.message,
                f"only `--network=transparent` needs it: {modules}",
                needed=False,
            )
    most = _most_tracked()
    if most is not None and most < LEAST_TRACKED:
        detail = (
            f"the kernel keeps {most} connections of a sandbox in mind; whatever is beyond is"
            " dropped, and waits in vain"
        )
        return bad(
            name,
            detail,
            f"`sudo sysctl -w net.netfilter.nf_conntrack_max={16 * LEAST_TRACKED}`",
            needed=False,
        )
    return CheckResult(
        name=name, ok=True, detail="every TCP connection can be led to the door", needed=False
    )


def _most_tracked() -> int | None:
    """Return how many connections can be redirected at once, including those of the last two
    minutes: a limit of the machine, the same for every network."""
    try:
        return int(NF_CONNTRACK_MAX.read_text())
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def _trial_spec() -> Iterator[Spec]:
    with tempfile.TemporaryDirectory(
        prefix="gatehouse-trial-", ignore_cleanup_errors=True
    ) as folder:
        lower, merged = Path(folder, "lower"), Path(folder, "merged")
        lower.mkdir()
        merged.mkdir()
        yield Spec(
            command=("/bin/sh", "-c", TRIAL),
            workspace_lower=lower,
            workspace_merged=merged,
            ports=(TRIAL_PORT,),
            limits=SandboxLimits(processes=32, memory_bytes=256 * 1024**2),
        )


def _is_setuid(program: str) -> bool:
    return bool(Path(program).stat().st_mode & 0o4000)


def _holds(folder: Path, name: str) -> bool:
    return (folder / name).exists()
