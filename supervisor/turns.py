"""Short turns on the processor for the two that others wait for: the supervisor, which answers, and egress, which passes bytes on.

Since Linux 6.12 a thread may ask for shorter turns than others have: when it wakes up it is let in at once, where it would wait until the other's turn is
over (`sched_runtime` of sched_setattr(2); https://docs.kernel.org/scheduler/sched-eevdf.html). It gets no more of the processor by that, only sooner, and
no privilege is needed. So agents that compute on every processor keep nobody's connection waiting; and where egress and the supervisor share one, the
supervisor, whose turns are the shorter, answers as soon as it is asked.

It decides nothing, and where the kernel knows no such turns it does nothing. It must never reach further than the thread that asks: what that starts,
sandboxes among them, has ordinary turns.
"""

import ctypes
import os
import struct
from typing import NamedTuple

ANSWERS_NS = 100_000  # the shortest that there is
PASSES_ON_NS = 300_000

# The system calls sched_setattr and sched_getattr, by machine. The C library has functions for them only since 2025.
_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}
_ORDINARY = 0  # SCHED_OTHER
_RESET_ON_FORK = 1
_LAYOUT = struct.Struct("=IIQiIQQQ")


class _Attributes(NamedTuple):
    """`struct sched_attr`, as far as every kernel has it. `runtime` is the turn of an ordinary thread, 0 before Linux 6.12."""

    size: int
    policy: int
    flags: int
    nice: int
    priority: int
    runtime: int
    deadline: int
    period: int


def take_short(turn_ns: int) -> None:
    """Give the calling thread turns of this length, where they are longer and the kernel lets it."""
    now = _attributes(0)
    if now is None or now.policy != _ORDINARY or now.runtime <= turn_ns:
        return
    wanted = now._replace(size=_LAYOUT.size, flags=now.flags | _RESET_ON_FORK, runtime=turn_ns)
    _call(0, 0, ctypes.create_string_buffer(_LAYOUT.pack(*wanted), _LAYOUT.size), 0)


def length_ns(thread_id: int) -> int | None:
    """How long the turns of a thread are; None where the kernel knows only one length for all."""
    now = _attributes(thread_id)
    return now.runtime or None if now is not None else None


def _attributes(thread_id: int) -> _Attributes | None:
    buffer = ctypes.create_string_buffer(_LAYOUT.size)
    return _Attributes(*_LAYOUT.unpack(buffer)) if _call(1, thread_id, buffer, _LAYOUT.size, 0) else None


def _call(which: int, thread_id: int, *arguments: object) -> bool:
    """Whether the kernel did it."""
    numbers = _CALLS.get(os.uname().machine)
    return numbers is not None and ctypes.CDLL(None).syscall(numbers[which], thread_id, *arguments) == 0
