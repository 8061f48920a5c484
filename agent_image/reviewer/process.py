"""Start git and ripgrep for reading: the review agent's only child processes.

Commands that the model wants to run go to the supervisor instead (`gatehouse.execute`). A program
started here gets a bare environment and no input. It is ended with its children when it takes too
long or prints too much.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path

import msgspec

from agent_image.reviewer.settings import tool_environment

_PIECE_BYTES = 65_536


class Output(msgspec.Struct, frozen=True):
    """A program's output, both streams together. `code` is None if we ended it, and `ended` is the
    reason."""

    code: int | None
    data: bytes
    ended: str = ""


def run(
    argv: list[str],
    *,
    cwd: Path,
    limit_bytes: int,
    timeout_s: float = 30.0,
    env: dict[str, str] | None = None,
) -> Output:
    """Run `argv` and read at most `limit_bytes` bytes in at most `timeout_s` seconds. Raise OSError
    if it can't start."""
    with subprocess.Popen(
        argv,
        cwd=cwd,
        env=tool_environment() | (env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            data, ended = _read(process.stdout.fileno(), limit_bytes, time.monotonic() + timeout_s)
            if not ended:
                return Output(process.wait(timeout=5), data)
            return Output(None, data, ended)
        except subprocess.TimeoutExpired:
            return Output(None, data, "did not end after closing its output")
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _read(descriptor: int, limit_bytes: int, deadline: float) -> tuple[bytes, str]:
    collected = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                return bytes(collected), "took too long and was ended"
            piece = os.read(descriptor, _PIECE_BYTES)
            if not piece:
                return bytes(collected), ""
            collected += piece
            if len(collected) > limit_bytes:
                return bytes(
                    collected[:limit_bytes]
                ), f"said more than {limit_bytes} bytes and was cut there"
