"""The real `gatehouse` as a process of its own: for what only a process shows, such as kill -9,
signals and exit codes."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from supervisor.reviews.demo.stage import Stage
from tests.fakes.warm_gatehouse import PROGRAM, WarmPopen, is_possible

# A bound for what should take a second, on a machine that does ten other things.
PATIENCE_S = 90.0
# How often a verb is run anew that waits for something, where nothing new is on record.
VERB_EVERY_S = 1.0


class Gatehouse:
    """One data folder, and the processes that were started on it. `policy`: the text of its policy;
    None is what a new installation has."""

    # Whether a verb is a fork of a process that has imported everything, instead of started as a
    # person does.
    is_warm = is_possible() and not os.environ.get("EVERYTHING")

    def __init__(self, program: Path, folder: Path, policy: str | None = None) -> None:
        self.program = program
        self.folder = folder
        self.data = folder / "data"
        self.policy = folder / "policy.yaml"
        if policy is not None:
            self.policy.write_text(policy)
        self._has_policy = policy is not None
        self.started: list[subprocess.Popen[bytes]] = []

    def environment(self, **more: str) -> dict[str, str]:
        own = {"GATEHOUSE_DATA": str(self.data), "GATEHOUSE_PORT": "0"}
        if self._has_policy:
            own["GATEHOUSE_POLICY"] = str(self.policy)
        return {**os.environ, **own, **more}

    def run(
        self, *words: str | bytes, given: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end."""
        return self.run_command([self.program, *words], given, more)

    def run_command(
        self, command: list[Any], given: str, more: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run any command to its end, as a verb is run."""
        with self._popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=self.environment(**more),
        ) as process:
            try:
                output, errors = process.communicate(given, PATIENCE_S)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def _popen(self, command: list[Any], **more: Any) -> subprocess.Popen[Any]:
        is_warm = self.is_warm and command[0] == PROGRAM
        return (WarmPopen if is_warm else subprocess.Popen)(command, cwd=self.folder, **more)

    def ok(self, *words: str, **more: str) -> str:
        """A verb that must succeed; its output."""
        done = self.run(*words, **more)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def launch(
        self, *words: str, log: Path, stdin: Any = subprocess.DEVNULL, **more: str
    ) -> subprocess.Popen[bytes]:
        """Start a verb and leave it running; its output and errors go to `log`."""
        with log.open("wb") as file:
            process = self._popen(
                [self.program, *words],
                stdin=stdin,
                stdout=file,
                stderr=file,
                env=self.environment(**more),
            )
        self.started.append(process)
        return process

    def waiting(self) -> dict[str, str]:
        """What waits for an answer by `gatehouse approvals`: title to id."""
        lines = re.findall(
            r"^([0-9a-f]{32})  \S+\s+(.*)$", self.run("approvals").stdout, re.MULTILINE
        )
        return {title: request_id for request_id, title in lines}

    def until_waiting(self, title: str) -> str:
        """Wait until a request of this title waits; its id."""
        return self.until_all_wait(title)[title]

    def until_all_wait(self, *titles: str) -> dict[str, str]:
        """Wait until all of these wait for an answer."""

        def found() -> dict[str, str] | None:
            waiting = self.waiting()
            return waiting if set(titles) <= waiting.keys() else None

        return self.until_told(found, f"{titles} to wait")

    def until_told[Found](self, condition: Callable[[], Found | None], what: str) -> Found:
        """`until`, for a condition that runs a verb. That is a process of its own: it is run when
        there is something new on record, and once in a while."""
        looked_at, seen_bytes = 0.0, -1

        def found() -> Found | None:
            nonlocal looked_at, seen_bytes
            size, now = self._record_bytes(), time.monotonic()
            if size == seen_bytes and now < looked_at + VERB_EVERY_S:
                return None
            looked_at, seen_bytes = now, size
            return condition()

        return until(found, what)

    def _record_bytes(self) -> int:
        path = self.data / "audit.log"
        return path.stat().st_size if path.exists() else 0

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Audit records of these events, of all where none is named; oldest first."""
        path = self.data / "audit.log"
        if not path.exists():
            return []
        records = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
        return [record for record in records if not names or record["event"] in names]

    def until_event(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        return until(
            lambda: found if len(found := self.events(name)) >= count else None, f"{count} {name}"
        )

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def start_reviews(
    product: Gatehouse, stage: Stage, folder: Path, port: int
) -> subprocess.Popen[bytes]:
    """A supervisor that reviews the pull requests of a forge that is served."""
    env = {
        "GATEHOUSE_FORGE_PORT": str(port),
        **stage.environment(),
        "GATEHOUSE_REVIEW_DEBOUNCE": "1s/3s",
    }
    log = folder / f"log-{len(product.started)}.txt"
    process = product.launch("up", "--reviews", log=log, **env)
    until(lambda: b"webhooks come in" in log.read_bytes() or None, "the door for webhooks")
    return process


def until[Found](
    condition: Callable[[], Found | None], what: str, patience_s: float = PATIENCE_S
) -> Found:
    """Poll a condition of other processes until it gives something; fail loudly where it doesn't
    for so long."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {patience_s:g} s for {what}")


def descendants(pid: int) -> set[int]:
    """Every process below `pid`, as /proc has it now."""
    found: set[int] = set()
    left = [pid]
    while left:
        for task in Path(f"/proc/{left.pop()}/task").glob("*/children"):
            try:
                children = {int(word) for word in task.read_text().split()}
            except OSError:
                continue
            left += children - found
            found |= children
    return found


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
