"""A person's terminal, in which a verb of `gatehouse` is typed."""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading

from tests.doors.conftest import PATIENCE_S, House
from tests.scenarios.process import until


class Terminal:
    """A verb that runs in a terminal of its own, in the workspace; what it shows is read as it
    comes."""

    def __init__(self, house: House, *words: str, rows: int = 24, columns: int = 80) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            ["setsid", "--ctty", str(house.program), *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=house.workspace,
            env=house.environment(TERM="xterm-256color"),
        )
        os.close(slave)
        self._shown = b""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # at its end
            while part := os.read(self._master, 4096):
                self._shown += part

    def types(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def answers(self, question: str, keys: str) -> None:
        """Type keys once this is asked."""
        until(lambda: question.encode() in self._shown or None, question)
        self.types(keys)

    def ended(self) -> str:
        """All that it showed, once the prompt is back."""
        assert self.process.wait(PATIENCE_S) == 0, self._shown
        self._reading.join(PATIENCE_S)
        os.close(self._master)
        return self._shown.decode().replace("\r\n", "\n")
