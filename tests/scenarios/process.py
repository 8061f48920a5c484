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

from supervisor.demo.stage import Stage

# A bound for what should take a second, on a machine that does ten other things.
PATIENCE_S = 90.0
# How often a verb is run anew that waits for something, where nothing new is on record.
VERB_EVERY_S = 1.0


class Gatehouse:
    """One data folder, one policy, and the processes that were started on it."""

    def __init__(self, program: Path, folder: Path, policy: str) -> None:
        self.program = program
        self.data = folder / "data"
        self.policy = folder / "policy.yaml"
        self.policy.write_text(policy)
        self.started: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "GATEHOUSE_DATA": str(self.data),
            "GATEHOUSE_POLICY": str(self.policy),
            "GATEHOUSE_PORT": "0",
        }

    def run(self, *words: str, given: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end."""
        env = self.environment | more
        command = [str(self.program), *words]
        return subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=env,
            check=False,
        )

    def start(self, *words: str, log: Path, **more: str) -> subprocess.Popen[bytes]:
        """Start a verb and leave it running; its output and errors go to `log`."""
        with log.open("wb") as file:
            process = subprocess.Popen(
                [str(self.program), *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=self.environment | more,
            )
        self.started.append(process)
        return process

    def ask(self, *words: str) -> str:
        """A verb that must succeed; its output."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pending(self) -> dict[str, str]:
        """Waiting requests: title -> id."""
        lines = [
            line.split(maxsplit=2)
            for line in self.run("approvals").stdout.splitlines()
            if re.match(r"[0-9a-f]{32} ", line)
        ]
        return {title: request_id for request_id, _, title in lines}

    def until_pending(self, *titles: str) -> dict[str, str]:
        """Wait until all of these wait for an answer. A verb is a process of its own: it is run
        when there is something new."""
        looked_at, seen_bytes = 0.0, -1

        def found() -> dict[str, str] | None:
            nonlocal looked_at, seen_bytes
            size, now = self._record_bytes(), time.monotonic()
            if size == seen_bytes and now < looked_at + VERB_EVERY_S:
                return None
            looked_at, seen_bytes = now, size
            pending = self.pending()
            return pending if set(titles) <= pending.keys() else None

        return until(found, f"{titles} to wait")

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
        "GATEHOUSE_GITHUB_API": stage.api,
        "GATEHOUSE_GITHUB_APP_ID": stage.app_id,
        "GATEHOUSE_GITHUB_KEY_FILE": str(stage.key_file),
        "GATEHOUSE_GITHUB_SECRET_FILE": str(stage.secret_file),
        "GATEHOUSE_REVIEW_DEBOUNCE": "1s/3s",
    }
    log = folder / f"log-{len(product.started)}.txt"
    process = product.start("up", "--reviews", log=log, **env)
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
