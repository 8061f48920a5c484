"""Stand-ins for the containers of compose.yaml where no engine is needed: each runner in namespaces
of its own, made by bubblewrap, with the same mounts and capabilities.

Only root can make them: the runner and what it runs are two users. The engine's own part (images,
limits, seccomp) is `make test-compose`.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from agent_image.runner import RUNNER
from supervisor.sandbox.bubblewrap import BWRAP
from supervisor.settings import ROOT

# As compose.yaml has them.
RIGHTS = ("SETUID", "SETGID", "SETPCAP", "KILL")
CONTROL = "/opt/gatehouse/private/control"


@contextlib.contextmanager
def runner(control: Path, lower: Path, merged: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A runner that has `control` as its volume. It ends with the block."""
    prefix = Path(sys.base_prefix).resolve()
    python = f"{prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    private = control.parent / f"private-{control.name}"
    private.mkdir(mode=0o700)
    os.chown(private, RUNNER, RUNNER)
    binds = [
        *("--ro-bind", "/usr", "/usr", "--ro-bind", "/etc/passwd", "/etc/passwd"),
        *("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
        *("--symlink", "usr/lib64", "/lib64", "--symlink", "usr/sbin", "/sbin"),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/home/agent"),
        *("--tmpfs", "/etc/gatehouse", "--tmpfs", "/run", "--tmpfs", "/var/tmp"),
        *("--dir", "/opt", "--dir", "/opt/gatehouse"),
        *("--ro-bind", str(ROOT / "agent_image"), "/opt/gatehouse/agent_image"),
        *("--bind", str(private), "/opt/gatehouse/private", "--ro-bind", str(control), CONTROL),
        *("--ro-bind", str(lower), "/workspace/lower", "--bind", str(merged), "/workspace/merged"),
    ]
    if not prefix.is_relative_to("/usr"):
        binds += ["--ro-bind", str(prefix), str(prefix)]
    rights = ["--cap-drop", "ALL"]
    for one in RIGHTS:
        rights += ["--cap-add", f"CAP_{one}"]
    own = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--as-pid-1")
    words = [BWRAP, *own, *rights, "--die-with-parent", "--clearenv", *binds]
    command = [python, "-I", "/opt/gatehouse/agent_image/runner.py", CONTROL]
    with subprocess.Popen([*words, "--", *command]) as process:
        try:
            yield process
        finally:
            process.kill()
