"""Work in a process of its own: what is killed in its midst, and what would change the test's own
process for good.

It is forked by a server that has one thread, `multiprocessing`'s: the test's process has others,
and a fork of it would keep for ever whatever they hold locked just then. So the work is found by
its name, its arguments are copies, and nothing that a test patched goes along.
"""

import asyncio
import contextlib
import inspect
import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

KILLED = -signal.SIGKILL

_PROCESSES = multiprocessing.get_context("forkserver")
# Loaded once, by the server: what takes long of what such work imports.
_PROCESSES.set_forkserver_preload(["hypothesis", "tests.workspace.conftest"])


class KilledAt:
    """What a channel tells its steps to: it kills its process at the nth time of one."""

    def __init__(self, step: str, nth: int = 1) -> None:
        self._step = step
        self._left = nth

    def __call__(self, step: str) -> None:
        self._left -= step == self._step
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


def exit_code(work: Callable[..., object], *arguments: object) -> int:
    """Of the work, which may be a coroutine: 0, or 1 where it raised, or less than 0 where a
    signal ended it (`KILLED`)."""
    process = _PROCESSES.Process(target=_run, args=(work, *arguments), daemon=True)
    process.start()
    return _ended(process)


def heard(work: Callable[..., object], *arguments: object) -> tuple[int, list[Any]]:
    """`exit_code`, and what the work told meanwhile, by a function that is its first argument."""
    reading, writing = _PROCESSES.Pipe(duplex=False)
    told: list[Any] = []
    with reading:
        with writing:
            process = _PROCESSES.Process(
                target=_run, args=(work, writing.send, *arguments), daemon=True
            )
            process.start()
        with contextlib.suppress(EOFError):
            while True:
                told.append(reading.recv())
    return _ended(process), told


def _run(work: Callable[..., object], *arguments: object) -> None:
    result = work(*arguments)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def _ended(process: multiprocessing.process.BaseProcess) -> int:
    process.join()
    code = process.exitcode
    process.close()
    assert code is not None
    return code
