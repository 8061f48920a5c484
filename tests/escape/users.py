"""Running a driver as oneself, and, where the tests run as root, as an ordinary user too: that
is how Gatehouse is mostly run."""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
USER = "gatehouse-test"

# In a mount namespace of its own, so that nothing is left behind: the interpreter may lie below
# root's home, which an ordinary user can't enter. $1: the interpreter's prefix.
ENTER = """
set -e
mount -t tmpfs none /mnt
mkdir /mnt/py
mount --bind "$1" /mnt/py
case "$1" in /root/*) mount -t tmpfs -o mode=755 none /root; mkdir -p "$1"; mount --bind /mnt/py "$1";; esac
cd /
shift
exec setpriv --reuid="$U" --regid="$U" --clear-groups --inh-caps=-all --bounding-set=-all -- env -i PATH=/usr/bin:/bin \
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$R" "$@"
"""  # noqa: E501


def ordinary_user() -> None:
    """Make the user, once."""
    try:
        pwd.getpwnam(USER)
    except KeyError:
        subprocess.run(
            ["useradd", "--create-home", "--shell", "/usr/sbin/nologin", USER], check=True
        )


def command(as_user: str, argv: list[str]) -> tuple[list[str], dict[str, str]]:
    """The argument list and the environment that run `argv` with this interpreter as `self` or
    `ordinary`."""
    if as_user == "self":
        return [sys.executable, *argv], {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    ordinary_user()
    prefix = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        ENTER,
        "sh",
        sys.base_prefix,
    ]
    return [*prefix, sys.executable, *argv], {
        "PATH": os.environ["PATH"],
        "U": USER,
        "R": str(REPOSITORY),
    }


def drive(as_user: str, script: Path, *words: str, timeout_s: float = 60) -> object:
    """Run a driver script and give the JSON of its last line."""
    argv, env = command(as_user, [str(script), *words])
    done = subprocess.run(
        argv, env=env, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
