"""Start `gatehouse` as a fork of a process that has imported everything.

For tests that need one that runs: what looks at the start itself starts the program as a user does.
A fork is the whole program with streams, folder and environment of its own, and a child of the
test's process as any other; all that it shares are imported modules.
"""

import ctypes
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from typing import Any

from supervisor.settings import ROOT

PROGRAM = ROOT / ".venv" / "bin" / "gatehouse"
_MOST_BYTES = 1024 * 1024
_FIRST_FREE_FD = 3
# sched.h; and the number of clone(2) by machine.
_CLONE_PARENT = 0x8000
_CLONE = {"x86_64": 56, "aarch64": 220}


class WarmPopen(subprocess.Popen[Any]):
    """`Popen(["gatehouse", *words], ...)` for the streams, the folder and the environment."""

    def _execute_child(self, *given: Any) -> None:
        words, _, _, _, _, folder, environment = given[:7]
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = given[10:16]
        wanted = [os.fsdecode(one) for one in words], os.fspath(folder), environment
        streams = [own if fd == -1 else fd for own, fd in enumerate((p2cread, c2pwrite, errwrite))]
        _, with_parent = _parent()
        socket.send_fds(with_parent, [json.dumps(wanted).encode()], streams)
        self.pid = int(with_parent.recv(16))
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


def is_possible() -> bool:
    """Return whether this machine can fork so."""
    return os.uname().machine in _CLONE


@functools.cache
def _parent() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the process that forks. It ends once the socket is closed, with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        parent = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.warm_gatehouse", str(theirs.fileno())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    return parent, ours


def _fork_beside() -> int:
    """`os.fork`, but for the parent: it is this process's own, which so can wait for it."""
    ctypes.pythonapi.PyOS_BeforeFork()
    clone = _CLONE[os.uname().machine]
    pid = ctypes.CDLL(None).syscall(clone, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return int(pid)


def _become(wanted: bytes, streams: list[int]) -> None:
    """Be the process that was asked for, up to its first line of code."""
    words, folder, environment = json.loads(wanted)
    for own, fd in enumerate(streams):
        os.dup2(fd, own)
    os.closerange(_FIRST_FREE_FD, os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False, buffering=1 if os.isatty(1) else -1)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1, errors="backslashreplace")


def main() -> None:
    """Import everything, and fork a `gatehouse` for each message: its words, its folder and its
    environment in JSON, with its three streams."""
    from supervisor.cli import cli

    for one in (ROOT / "supervisor" / "cli").rglob("[a-z]*.py"):
        name = ".".join(one.relative_to(ROOT).with_suffix("").parts)
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    with_tests = socket.socket(fileno=int(sys.argv[1]))
    while True:
        wanted, streams, _, _ = socket.recv_fds(with_tests, _MOST_BYTES, 3)
        if not wanted:
            return
        pid = _fork_beside()
        if pid == 0:
            break
        for fd in streams:
            os.close(fd)
        with_tests.send(b"%d" % pid)
    with_tests.detach()
    _become(wanted, streams)
    code = 1
    try:
        code = cli.main()
        sys.stdout.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        # To take all modules apart again takes longer than most verbs do.
        os._exit(code)


if __name__ == "__main__":
    main()
