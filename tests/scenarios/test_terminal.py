"""A full-screen agent gets this terminal, its size and its keys; the terminal is given
back as it was."""

import os
import pty
import select
import struct
import subprocess
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.scenarios.process import PATIENCE_S, Gatehouse

pytestmark = pytest.mark.timeout(300)

AGENT = """
test -t 0 && test -t 1 && echo terminal
until [ "$(stty size)" = '33 111' ]; do sleep 0.1; done  # a full-screen program hears of it by SIGWINCH
stty size; printf 'name? '; read name; echo hello $name; exit 5
"""  # noqa: E501


def read_until(terminal: int, wanted: bytes, seen: bytes = b"") -> bytes:
    deadline = time.monotonic() + PATIENCE_S
    while wanted not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 0.5)[0]:
            seen += os.read(terminal, 4096)
    return seen


def test_the_agent_has_the_terminal_and_gives_it_back(gatehouse: Path, tmp_path: Path) -> None:
    product = Gatehouse(gatehouse, tmp_path, "version: 1\n")
    (tmp_path / "workspace").mkdir()
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    before = termios.tcgetattr(theirs)
    words = ["run", "--workspace", str(tmp_path / "workspace"), "--", "bash", "-c", AGENT]
    process = subprocess.Popen(
        [str(gatehouse), *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=product.environment(),
        start_new_session=True,
    )
    try:
        seen = read_until(ours, b"name? ")
        assert b"terminal" in seen
        assert b"33 111" in seen
        os.write(ours, b"you\r")
        read_until(ours, b"hello you", seen)
        assert process.wait(PATIENCE_S) == 5
        assert termios.tcgetattr(theirs) == before
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
        os.close(theirs)
