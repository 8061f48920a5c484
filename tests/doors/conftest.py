"""`gatehouse` as a person starts it: a process of its own, a data folder of its own, the shipped
policies. What a test here sees is what the person sees: exit codes, streams, HTTP."""

import http.client
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# A bound for what should take a second, on a machine that does ten other things.
PATIENCE_S = 90.0


def until[Found](condition: Callable[[], Found], what: str) -> Found:
    """Poll until the condition gives something."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE_S:g} s for {what}")


class Started:
    """A verb that goes on, and what it has printed so far, both streams together."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def printed(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def until_printed(self, text: str) -> str:
        """Wait for the text; all that is printed by then."""
        until(lambda: text in self.printed or self.process.poll() is not None, f"`{text}`")
        assert text in self.printed, self.printed
        return self.printed

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for its end; its exit code."""
        return self.process.wait(PATIENCE_S)


class Door:
    """One person's Gatehouse: a home for it in `folder`, with `data` and a `workspace`."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.data = folder / "data"
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self._started: list[Started] = []

    def environment(self, **more: str) -> dict[str, str]:
        own = {"GATEHOUSE_DATA": str(self.data), "GATEHOUSE_PORT": "0"}
        return {**os.environ, **own, **more}

    def run(
        self, *words: str | bytes, given: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end."""
        return self._run([self.program, *words], given, more)

    def sh(self, script: str, given: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """Run a line of a shell, bash, with `gatehouse` in it, in the folder."""
        line = f'gatehouse() {{ "{self.program}" "$@"; }}; {script}'
        return self._run(["bash", "-c", line], given, more)

    def _run(
        self, command: list[Any], given: str, more: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            input=given,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE_S,
            cwd=self.folder,
            env=self.environment(**more),
            check=False,
        )

    def start(self, *words: str, stdin: Any = subprocess.DEVNULL, **more: str) -> Started:
        """Start a verb and leave it running."""
        log = self.folder / f"log-{len(self._started)}.txt"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [self.program, *words],
                stdin=stdin,
                stdout=file,
                stderr=file,
                cwd=self.folder,
                env=self.environment(**more),
            )
        self._started.append(Started(process, log))
        return self._started[-1]

    def up(self, *words: str, **more: str) -> Started:
        """`gatehouse up`, once its page is there."""
        started = self.start("up", *words, **more)
        started.until_printed("open http://127.0.0.1:")
        return started

    def waiting(self) -> dict[str, str]:
        """What waits for an answer by `gatehouse approvals`: title to id."""
        lines = re.findall(
            r"^([0-9a-f]{32})  \S+\s+(.*)$", self.run("approvals").stdout, re.MULTILINE
        )
        return {title: request_id for request_id, title in lines}

    def until_waiting(self, title: str) -> str:
        """Wait until a request of this title waits; its id."""
        return until(lambda: self.waiting().get(title, ""), f"`{title}` to wait")

    def sessions(self) -> list[dict[str, Any]]:
        """`GET /api/sessions`, newest first."""
        found: list[dict[str, Any]] = self.http("GET", "/api/sessions")[1]
        return found

    def http(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One call of the operator's API with the token that the CLI has: status and JSON."""
        port = json.loads((self.data / "supervisor.json").read_text())["port"]
        token = (self.data / "operator.token").read_text().strip()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None

    def end(self) -> None:
        for one in self._started:
            if one.process.poll() is None:
                one.signal(signal.SIGTERM)
                try:
                    one.process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    one.process.kill()
                    one.process.wait()


@pytest.fixture
def door(gatehouse: Path, tmp_path: Path) -> Iterator[Door]:
    made = Door(gatehouse, tmp_path)
    yield made
    made.end()


def no_bug(done: subprocess.CompletedProcess[str]) -> str:
    """What was printed, both streams; fails where that tells of a bug of ours."""
    printed = done.stdout + done.stderr
    assert done.returncode != 3, printed
    assert "Traceback" not in printed, printed
    return printed


def one_line(done: subprocess.CompletedProcess[str], *words: str, code: int = 1) -> str:
    """The one line that a person's mistake, or the machine's state, is told by."""
    printed = no_bug(done)
    assert done.returncode == code, printed
    assert done.stderr.count("\n") == 1, printed
    assert done.stderr.startswith("gatehouse: "), printed
    for word in words:
        assert word in done.stderr, printed
    return done.stderr
