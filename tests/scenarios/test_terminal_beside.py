"""A terminal beside a supervisor that runs already: the second agent gets the second terminal, and
gives it back, whatever ends."""

import contextlib
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.scenarios.process import PATIENCE_S, Gatehouse, until
from tests.scenarios.test_terminal import AGENT, read_until

pytestmark = pytest.mark.timeout(300)

# Full-screen programs switch these off themselves; what is left of them is the terminal's of the
# agent, not the person's.
PATIENT = "trap 'echo caught' INT; echo ready; while :; do read -r line && echo got $line; done"


class Terminal:
    """A `gatehouse run` with a terminal of its own, as an emulator makes one."""

    def __init__(
        self,
        product: Gatehouse,
        workspace: Path,
        script: str,
        *,
        rows: int = 33,
        columns: int = 111,
    ) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.theirs)
        words = ["run", "--workspace", str(workspace), "--", "bash", "-c", script]
        self.process = subprocess.Popen(
            [str(product.program), *words],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env=product.environment(),
            start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        )

    def resize(self, rows: int, columns: int) -> None:
        ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def write(self, data: bytes) -> None:
        os.write(self.ours, data)

    def until(self, wanted: bytes) -> bytes:
        return read_until(self.ours, wanted)

    def is_given_back(self) -> bool:
        return termios.tcgetattr(self.theirs) == self.before

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def product(gatehouse: Path, tmp_path: Path) -> Iterator[Gatehouse]:
    (tmp_path / "workspace").mkdir()
    made = Gatehouse(gatehouse, tmp_path, "version: 1\n")
    yield made
    made.end()


@contextlib.contextmanager
def terminal(product: Gatehouse, script: str) -> Iterator[Terminal]:
    made = Terminal(product, product.data.parent / "workspace", script)
    try:
        yield made
    finally:
        made.end()


def start(product: Gatehouse) -> subprocess.Popen[bytes]:
    process = product.launch("up", log=product.data.parent / "up.log")
    until((product.data / "supervisor.json").exists, "the supervisor")
    return process


@pytest.mark.many
def test_a_second_agent_gets_the_second_terminal(product: Gatehouse) -> None:
    with terminal(product, PATIENT) as first:
        first.until(b"ready")
        with terminal(product, AGENT) as second:
            seen = second.until(b"name? ")
            assert b"terminal" in seen
            assert b"33 111" in seen
            first.write(b"one\r")
            first.until(b"got one")
            second.write(b"you\r")
            second.until(b"hello you")
            assert second.process.wait(PATIENCE_S) == 5
            assert second.is_given_back()
        first.write(b"two\r")
        first.until(b"got two")
    (_, other) = product.events("session_started")
    (ended,) = [
        one for one in product.events("session_ended") if one["session"] == other["session"]
    ]
    assert (ended["reason"], ended["exit_code"]) == ("the agent has exited", 5)


def test_control_c_and_a_new_size_are_the_agents(product: Gatehouse) -> None:
    start(product)
    script = (
        "trap 'echo caught' INT; trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done"
    )
    with terminal(product, script) as one:
        one.until(b"ready")
        one.write(b"\x03")
        one.until(b"caught")
        one.resize(21, 77)
        one.until(b"21 77")
        assert one.process.poll() is None


@pytest.mark.many
def test_much_output_arrives_whole_and_in_order(product: Gatehouse) -> None:
    start(product)
    with terminal(product, "stty -onlcr; seq 200000; echo the-end") as one:
        seen = one.until(b"the-end\n")
        lines = seen[seen.index(b"\n1\n") if b"\n1\n" in seen else seen.index(b"1\n") :].split()
        assert lines == [*(str(number).encode() for number in range(1, 200001)), b"the-end"]
        assert one.process.wait(PATIENCE_S) == 0


@pytest.mark.many
def test_the_death_of_the_cli_ends_its_session(product: Gatehouse) -> None:
    start(product)
    with terminal(product, PATIENT) as one:
        one.until(b"ready")
        one.process.kill()
        one.process.wait()
        (ended,) = product.until_event("session_ended")
        assert ended["reason"] == "the terminal that the agent had is gone"


@pytest.mark.many
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_cli_ends_its_session_and_gives_the_terminal_back(
    product: Gatehouse, number: int
) -> None:
    start(product)
    with terminal(product, PATIENT) as one:
        one.until(b"ready")
        one.process.send_signal(number)
        one.until(b"stopping the session")
        assert one.process.wait(PATIENCE_S) == 0
        assert one.is_given_back()
        assert product.until_event("session_ended")


@pytest.mark.many
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_supervisor_gives_the_terminal_back(product: Gatehouse, number: int) -> None:
    supervisor = start(product)
    with terminal(product, PATIENT) as one:
        one.until(b"ready")
        supervisor.send_signal(number)
        one.until(b"gatehouse: ")
        assert one.process.wait(PATIENCE_S) in (0, 1)
        assert one.is_given_back()


def test_an_agent_that_ends_at_once_is_shown_and_its_code_is_the_clis(product: Gatehouse) -> None:
    start(product)
    with terminal(product, "echo quick; exit 3") as one:
        one.until(b"quick")
        assert one.process.wait(PATIENCE_S) == 3
        assert one.is_given_back()
