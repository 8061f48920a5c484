"""Start egress processes as forks of one that has imported everything.

For tests that only need one: what looks at the start or at the process starts it as the product
does. A fork is the real egress, hardened by itself; all that it shares are imported modules.

The supervisor starts a small client, which hands over the channel, ends as egress ends and takes it
along when it is killed. The process id that the supervisor knows is the client's.
"""

import atexit
import functools
import gc
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from supervisor import settings
from supervisor.base.process import exit_code
from supervisor.network import network

# It imports nothing that is written in Python, which would take longer than all the rest.
_CLIENT = """
import _socket, posix, sys
path, code, _, channel = sys.argv[1:]
with_parent = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
with_parent.connect(path)
fds = b"".join(int(fd).to_bytes(4, sys.byteorder) for fd in (channel, 2))
with_parent.sendmsg([code.encode() or b" "], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
posix.close(int(channel))
sys.exit(int(with_parent.recv(9) or b"1"))
"""
_MOST_CODE_BYTES = 64 * 1024
_FIRST_FREE_FD = 4


def command(code: str = "") -> tuple[str, ...]:
    """Return what starts an egress, in place of `network.EGRESS`. It runs `code` first."""
    return (sys.executable, "-I", "-S", "-c", _CLIENT, _parent(), code)


@functools.cache
def _parent() -> str:
    """Start the process that forks, and return the path of its socket. It ends with this one, and
    removes the folder."""
    path = str(Path(tempfile.mkdtemp(prefix="egress-")) / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(64)
        parent = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.warm_egress", str(listener.fileno())],
            stdin=subprocess.PIPE,
            env=network.egress_environment(),
            cwd=settings.ROOT,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    atexit.register(parent.communicate)
    return path


@dataclass(frozen=True, eq=False)
class _Started:
    """One egress, and the program that stands for it."""

    pid: int
    ended: int
    client: socket.socket


def _serve(listener: socket.socket, selector: selectors.BaseSelector) -> None:
    """Fork an egress for each client, until nobody needs any."""
    while True:
        for key, _ in selector.select():
            started = key.data
            if key.fileobj is sys.stdin:
                return
            if started is None:
                client, _ = listener.accept()
                code, fds, _, _ = socket.recv_fds(client, _MOST_CODE_BYTES, 2)
                pid = os.fork()
                if pid == 0:
                    _become_egress(code.decode(), *fds)
                for fd in fds:
                    os.close(fd)
                started = _Started(pid, os.pidfd_open(pid), client)
                selector.register(started.ended, selectors.EVENT_READ, started)
                selector.register(client, selectors.EVENT_READ, started)
            elif key.fileobj is started.client:
                selector.unregister(started.client)
                signal.pidfd_send_signal(started.ended, signal.SIGKILL)
            else:
                _, status = os.waitpid(started.pid, 0)
                selector.unregister(started.ended)
                with suppress(KeyError):
                    selector.unregister(started.client)
                os.close(started.ended)
                with started.client, suppress(OSError):
                    started.client.send(b"%d" % exit_code(os.waitstatus_to_exitcode(status)))


def _become_egress(code: str, channel: int, errors: int) -> NoReturn:
    from supervisor.egress import __main__

    status = 1
    try:
        os.dup2(errors, 2)
        os.dup2(channel, 3)
        os.closerange(_FIRST_FREE_FD, os.sysconf("SC_OPEN_MAX"))
        sys.argv = ["supervisor.egress", "--channel-fd", "3"]
        exec(code, {})
        __main__.main()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Import everything, and serve the socket that was handed over."""
    import supervisor.egress.mitm.inspector
    import supervisor.egress.name_server  # noqa: F401

    gc.collect()
    gc.freeze()
    listener = socket.socket(fileno=int(sys.argv[1]))
    folder = Path(listener.getsockname()).parent
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        _serve(listener, selector)
        for key in list(selector.get_map().values()):
            if key.data is not None:
                signal.pidfd_send_signal(key.data.ended, signal.SIGKILL)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
