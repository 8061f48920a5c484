"""`gatehouse` as a person starts it: a process of its own, a data folder of its own, the shipped
policies. What a test here sees is what the person sees: exit codes, streams, HTTP."""

import html
import http.client
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.scenarios.process import PATIENCE_S, Gatehouse, until


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
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it doesn't end; it printed:\n{self.printed}") from None


class Door(Gatehouse):
    """One person's Gatehouse on the shipped policies: a home for it in `folder`, with `data` and a
    `workspace`."""

    def __init__(self, program: Path, folder: Path) -> None:
        super().__init__(program, folder)
        self.workspace = folder / "workspace"
        self.workspace.mkdir()

    def sh(self, script: str, given: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """Run a line of a shell, bash, with `gatehouse` in it, in the folder."""
        line = f'gatehouse() {{ "{self.program}" "$@"; }}; {script}'
        return self.run_command(["bash", "-c", line], given, more)

    def start(self, *words: str, stdin: Any = subprocess.DEVNULL, **more: str) -> Started:
        """Start a verb and leave it running."""
        log = self.folder / f"log-{len(self.started)}.txt"
        return Started(self.launch(*words, log=log, stdin=stdin, **more), log)

    def up(self, *words: str, **more: str) -> Started:
        """`gatehouse up`, once its page is there."""
        started = self.start("up", *words, **more)
        started.until_printed("open http://127.0.0.1:")
        return started

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


@pytest.fixture(autouse=True)
def _really_started(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that says `REALLY_STARTED = True` starts each verb as a person does."""
    if getattr(request.module, "REALLY_STARTED", False):
        monkeypatch.setattr(Gatehouse, "is_warm", False)


@pytest.fixture
def door(gatehouse: Path, tmp_path: Path) -> Iterator[Door]:
    made = Door(gatehouse, tmp_path)
    yield made
    made.end()


class House(Door):
    """A `Door` on a git repository with an origin, and a browser's session on its page. `policy`: a
    shipped example; None is what a new installation has."""

    def __init__(self, program: Path, folder: Path, policy: Path | None = None) -> None:
        super().__init__(program, folder)
        self._shipped = policy
        self._page: httpx.Client | None = None
        (self.workspace / "README.md").write_text("# Shop\n")
        origin = folder / "origin.git"
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("commit", "-qm", "begun")
        self.git("init", "-q", "--bare", str(origin))
        self.git("remote", "add", "origin", str(origin))
        self.git("push", "-q", "origin", "main")

    def git(self, *words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=self.workspace, check=True, capture_output=True, text=True
        ).stdout

    def environment(self, **more: str) -> dict[str, str]:
        own = {"GATEHOUSE_POLICY": str(self._shipped)} if self._shipped else {}
        return super().environment(**own, **more)

    def begin(self, script: str, *words: str) -> tuple[Started, str]:
        """Have a shell script supervised beside `up` until it is done: the verb, and the session's
        id. What it asked for may wait still."""
        known = {one["id"] for one in self.sessions()}
        place = ("--workspace", str(self.workspace))
        started = self.start("run", *place, *words, "--", "sh", "-c", script)

        def done() -> str:
            new = [one for one in self.sessions() if one["id"] not in known]
            if new and new[0]["agent_exited_at"] is not None:
                return str(new[0]["id"])
            assert started.process.poll() in (None, 0), started.printed
            return ""

        return started, self.until_told(done, "the agent's end")

    def agent(self, script: str, *words: str) -> str:
        """The same; the session's id."""
        return self.begin(script, *words)[1]

    def stop(self, session: str) -> None:
        """`gatehouse stop`, and wait for the session's end."""
        self.ok("stop", session)
        self.until_told(lambda: self.session(session)["state"] == "ended", "the session's end")

    def ended(self, script: str, *words: str) -> str:
        """A session whose agent is done, and which was stopped; its id."""
        session = self.agent(script, *words)
        self.stop(session)
        return session

    def session(self, session: str) -> dict[str, Any]:
        return next(one for one in self.sessions() if one["id"] == session)

    def requests(self) -> list[dict[str, Any]]:
        """`GET /api/requests`."""
        found: list[dict[str, Any]] = self.http("GET", "/api/requests")[1]
        return found

    @property
    def page(self) -> httpx.Client:
        """A browser's session, signed in by the URL that `gatehouse url` prints."""
        if self._page is not None:
            return self._page
        url = self.ok("url").strip()
        base = url.partition("/login")[0]
        self._page = httpx.Client(
            base_url=base, headers={"Origin": base}, timeout=PATIENCE_S, follow_redirects=True
        )
        assert self._page.get(url).status_code == 200
        # htmx sends with each request what the page says in this attribute.
        sent = re.search(r"hx-headers='([^']*)'", self._page.get("/").text)
        assert sent is not None
        self._page.headers.update(json.loads(html.unescape(sent[1])))
        return self._page

    def end(self) -> None:
        if self._page is not None:
            self._page.close()
            self._page = None
        super().end()


@pytest.fixture
def house(gatehouse: Path, tmp_path: Path) -> Iterator[House]:
    made = House(gatehouse, tmp_path)
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
