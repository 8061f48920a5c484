"""Start a command so that Gatehouse is asked before every program that it executes.

    python3 -I -S exec_notify.py SOCKET FILTER COMMAND...

`FILTER` is a descriptor of a seccomp program under which a listener answers execve(2) and
execveat(2). The listener is sent to Gatehouse by `SOCKET`. Neither descriptor stays open here, and
this process becomes the command, the first program that is asked about. Source: seccomp(2),
seccomp_unotify(2).

INVARIANT: if any step fails, the command isn't started.
"""

import ctypes
import os
import platform
import socket
import sys

SECCOMP_SET_MODE_FILTER = 1
NEW_LISTENER = 1 << 3
# Linux 5.19: after a non-fatal signal the call keeps waiting, instead of asking again.
WAIT_KILLABLE = 1 << 5
SECCOMP = {"x86_64": 317, "aarch64": 277}
INSTRUCTION_BYTES = 8


class Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def listener(instructions):
    """Put this process under the filter. Return the descriptor by which its calls are answered."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    number = SECCOMP[platform.machine()]
    wanted = Program(len(instructions) // INSTRUCTION_BYTES, instructions)
    for flags in (NEW_LISTENER | WAIT_KILLABLE, NEW_LISTENER):
        found = call(number, SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(wanted))
        if found >= 0:
            return found
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main():
    """See the module's text."""
    gatehouse, instructions, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    try:
        with os.fdopen(instructions, "rb") as file:
            found = listener(file.read())
        with socket.socket(fileno=gatehouse) as channel:
            socket.send_fds(channel, [b"l"], [found])
        os.close(found)
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"gatehouse: `{command[0]}` can't be started: {error.strerror}")


if __name__ == "__main__":
    main()
