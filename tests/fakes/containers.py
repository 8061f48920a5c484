"""Stand-ins for the containers of compose.yaml where no engine is needed: each runner in namespaces
of its own, made by bubblewrap, with the same mounts.

The engine's own part (images, limits, seccomp) is `make test-compose`.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from supervisor.sandbox.bubblewrap import BWRAP
from supervisor.settings import ROOT


@contextlib.contextmanager
def runner(control: Path, lower: Path, merged: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A runner that has `control` as its volume. It ends with the block."""
    prefix = Path(sys.base_prefix).resolve()
    python = f"{prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    binds = [
        *("--ro-bind", "/usr", "/usr", "--ro-bind", "/etc/passwd", "/etc/passwd"),
        *("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
        *("--symlink", "usr/lib64", "/lib64", "--symlink", "usr/sbin", "/sbin"),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/home/agent"),
        *("--tmpfs", "/etc/gatehouse", "--tmpfs", "/run"),
        *("--ro-bind", str(ROOT / "agent_image"), "/opt/gatehouse/agent_image"),
        *("--ro-bind", str(control), "/run/gatehouse"),
        *("--ro-bind", str(lower), "/workspace/lower", "--bind", str(merged), "/workspace/merged"),
    ]
    if not prefix.is_relative_to("/usr"):
        binds += ["--ro-bind", str(prefix), str(prefix)]
    words = [BWRAP, "--unshare-all", "--die-with-parent", "--clearenv", *binds]
    command = [python, "-I", "/opt/gatehouse/agent_image/runner.py", "/run/gatehouse"]
    with subprocess.Popen([*words, "--", *command]) as process:
        try:
            yield process
        finally:
            process.kill()
