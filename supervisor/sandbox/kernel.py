"""Kernel features that a sandbox needs, read from /proc and /sys.

They are the first lines of `gatehouse doctor`. Reading them is quick, and imports next to nothing.
"""

import os
import re
from pathlib import Path

from supervisor.sandbox.check_result import CheckResult, bad

AT_LEAST = (5, 14)  # RLIMIT_NPROC counts by user namespace
# landlock_create_ruleset(2) has the same number on every architecture; with this flag it gives the
# ABI's version.
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_VERSION_FLAG = 1
SYSCTL = Path("/proc/sys")


def findings() -> list[CheckResult]:
    """Return all findings, in the order in which to fix them."""
    return [kernel(os.uname().release), user_namespaces(SYSCTL), apparmor(SYSCTL), landlock()]


def kernel(release: str) -> CheckResult:
    """Return the kernel's version."""
    found = re.match(r"(\d+)\.(\d+)", release)
    ok = found is not None and tuple(int(part) for part in found.groups()) >= AT_LEAST
    least = ".".join(str(part) for part in AT_LEAST)
    return CheckResult(
        name="kernel",
        ok=ok,
        detail=f"Linux {release}",
        remedy="" if ok else f"use Linux {least} or later",
    )


def user_namespaces(sysctl: Path) -> CheckResult:
    """Return whether an ordinary user may make user namespaces."""
    name = "user namespaces"
    switch = _read(sysctl / "kernel/unprivileged_userns_clone")
    most = _read(sysctl / "user/max_user_namespaces")
    if most == "0":
        return bad(
            name,
            "user.max_user_namespaces is 0",
            "run `sudo sysctl -w user.max_user_namespaces=15000`",
        )
    if switch == "0" and os.geteuid() != 0:
        detail = "kernel.unprivileged_userns_clone is 0"
        return bad(name, detail, "run `sudo sysctl -w kernel.unprivileged_userns_clone=1`")
    if not Path("/proc/self/ns/user").exists():
        return bad(name, "this kernel has none", "use a kernel with CONFIG_USER_NS")
    return CheckResult(name=name, ok=True, detail=f"allowed (up to {most})")


def apparmor(sysctl: Path) -> CheckResult:
    """Check Ubuntu's restriction of user namespaces to programs with an AppArmor profile (Ubuntu
    23.10 and later)."""
    name = "AppArmor"
    if _read(sysctl / "kernel/apparmor_restrict_unprivileged_userns") != "1" or os.geteuid() == 0:
        return CheckResult(name=name, ok=True, detail="doesn't restrict user namespaces here")
    profiles = [path.name for path in Path("/etc/apparmor.d").glob("*bwrap*")]
    detail = "user namespaces are restricted to programs with a profile"
    if profiles:
        return CheckResult(
            name=name, ok=True, detail=f"{detail}; found {', '.join(sorted(profiles))}"
        )
    return bad(
        name,
        f"{detail}, and bubblewrap has none",
        "run `sudo apt install apparmor-profiles && sudo ln -s"
        " /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && sudo"
        " systemctl reload apparmor`",
    )


def landlock() -> CheckResult:
    """Check for Landlock. The sandbox doesn't depend on it, but agents may use it for their own
    tools."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_VERSION_FLAG)
    if version < 1:
        detail = "not available; nothing here rests on it"
        return bad(
            "Landlock",
            detail,
            "boot with `lsm=landlock,...` (CONFIG_SECURITY_LANDLOCK)",
            needed=False,
        )
    return CheckResult(name="Landlock", ok=True, detail=f"ABI {version}", needed=False)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
