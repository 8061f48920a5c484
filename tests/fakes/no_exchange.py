"""A process whose file systems know no renameat2(2) with flags, as NFS and some FUSE ones don't:
the kernel says EINVAL."""

import ctypes
import errno
import platform
import struct
from collections.abc import Callable

from tests.fakes.own_process import exit_code

_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
_LOAD, _EQUALS, _RETURN = 0x20, 0x15, 0x06  # of BPF: ld [k], jeq k, ret k
_FLAGS_AT = 16 + 8 * 4  # of `struct seccomp_data`: the low half of the fifth argument
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def without_exchange() -> None:
    """From now on, for good: in this thread and those that it starts. Only for a process that
    ends soon."""
    steps = [
        (_LOAD, 0, 0, 0),
        (_EQUALS, 0, 3, _RENAMEAT2[platform.machine()]),
        (_LOAD, 0, 0, _FLAGS_AT),
        (_EQUALS, 1, 0, 0),
        (_RETURN, 0, 0, _ERRNO | errno.EINVAL),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(steps), code)
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _SET_SECCOMP, _MODE_FILTER, ctypes.byref(program)
    ):
        raise OSError(ctypes.get_errno(), "no filter")


def in_such_a_process(work: Callable[..., object], *arguments: object) -> int:
    """Its exit code (`own_process`)."""
    return exit_code(_without, work, *arguments)


def _without(work: Callable[..., object], *arguments: object) -> object:
    without_exchange()
    return work(*arguments)
