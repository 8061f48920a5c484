"""README's and getting-started's steps, as written, in a fresh clone and a terminal."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.doors.conftest import PATIENCE_S, Door, House, until
from tests.fakes import registry

_COMMANDS = re.compile(r"`((?:make|gatehouse) [^`]+)`|^((?:make|gatehouse) [^#\n]+)", re.MULTILINE)
# Steps of these pages that other tests take.
ELSEWHERE = {
    "make test": "CI",
    "gatehouse demo": "tests/doors/test_demo.py",
    "gatehouse up": "tests/doors/test_every_page.py",
    "gatehouse claude": "tests/scenarios/test_agent_claude_code.py",
    "make up AGENT='claude'": "tests/scenarios/test_agent_claude_code.py",
}

# By a signal that `make` passes on to itself, or as its shell says it.
ENDED = (0, 130, -signal.SIGINT)


def promised() -> set[str]:
    """The commands that the two pages have a newcomer type."""
    text = "\n".join((ROOT / one).read_text() for one in ("README.md", "docs/getting-started.md"))
    return {" ".join((one[1] or one[2]).split()) for one in _COMMANDS.finditer(text)}


class Newcomer(Door):
    """Who types in a fresh clone; `gatehouse` is that clone's own."""

    def __init__(self, folder: Path) -> None:
        self.clone = folder / "gatehouse"
        super().__init__(self.clone / ".venv/bin/gatehouse", folder)
        self.taken: set[str] = set()
        (folder / "src").mkdir()
        self.workspace.rename(folder / "src/project")
        self.workspace = folder / "src/project"

    def environment(self, **more: str) -> dict[str, str]:
        home = {"HOME": str(self.folder), "PATH": f"{self.program.parent}:{os.environ['PATH']}"}
        return super().environment(**home, **more)

    def type(self, step: str, **blanks: str) -> str:
        """Type a step to its end; what it printed. `blanks`: what stands for a word of it."""
        self.taken.add(step)
        line = step
        for word, value in blanks.items():
            line = line.replace(word, value)
        done = subprocess.run(
            line,
            shell=True,
            cwd=self.clone,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert "Traceback" not in done.stdout + done.stderr
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def begin(self, step: str) -> "Terminal":
        self.taken.add(step)
        return Terminal(self, step.replace("PORT=3700", "PORT=0"))  # others use that one here


class Terminal:
    """A step that goes on, in a terminal of its own."""

    def __init__(self, who: Newcomer, line: str) -> None:
        ours, theirs = os.openpty()
        self._ours = ours
        os.set_blocking(ours, False)
        self.process = subprocess.Popen(
            f"exec {line}",
            shell=True,
            cwd=who.clone,
            env=who.environment(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._seen = ""

    def until(self, text: str, patience_s: float = PATIENCE_S) -> str:
        """Wait for the text; all that was printed so far."""

        def found() -> bool:
            self._read()
            assert text in self._seen or self.process.poll() is None, self._seen
            return text in self._seen

        until(found, text, patience_s)
        return self._seen

    def _read(self) -> None:
        try:
            self._seen += os.read(self._ours, 65536).decode(errors="replace")
        except OSError:
            return

    def interrupt(self) -> int:
        """^C, and the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)

        def over() -> bool:
            self._read()
            return self.process.poll() is not None

        until(over, "its end")
        assert "Traceback" not in self._seen
        return int(self.process.returncode)


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    made = Newcomer(tmp_path)
    words = ("git", "-c", "safe.directory=*", "clone", "-q", str(ROOT), str(made.clone))
    subprocess.run(words, check=True)
    project = made.workspace
    for line in (
        "init -q -b main",
        "add -A",
        "commit -qm begun",
        "remote add origin ../origin.git",
    ):
        (project / "README.md").write_text("# Shop\n")
        subprocess.run(["git", *line.split()], cwd=project, check=True)
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "src/origin.git")], check=True)
    (project / "README.md").write_text("# Shop of mine\n")
    yield made
    made.end()


@pytest.mark.many
def test_the_pages_of_a_newcomer_hold(newcomer: Newcomer) -> None:
    newcomer.type("make setup")
    assert "ok" in newcomer.type("gatehouse doctor")
    up = newcomer.begin("make up WORKSPACE=~/src/project")
    up.until("/login?token=", 300)
    watching = newcomer.begin("gatehouse approvals --watch")
    note = newcomer.until_waiting("write REVIEW_NOTES.md")
    assert "REVIEW_NOTES.md" in watching.until("REVIEW_NOTES.md")
    install = newcomer.until_waiting("pip install six")
    assert "Notes of a recorded review" in newcomer.type("gatehouse show ID", ID=note)
    newcomer.type("gatehouse approve ID", ID=note)
    until(lambda: (newcomer.workspace / "REVIEW_NOTES.md").exists(), "the approved change")
    reason = 'gatehouse deny ID --reason "use the fixture instead"'
    newcomer.type(reason, ID=install)
    assert (
        "use the fixture instead"
        in newcomer.http("GET", f"/api/requests/{install}")[1]["request"].values()
    )
    assert "/login?token=" in newcomer.type("gatehouse url")
    undone = newcomer.run("undo", note, "--yes")
    newcomer.taken.add("gatehouse undo ID")
    assert undone.returncode == 0, undone.stderr
    assert not (newcomer.workspace / "REVIEW_NOTES.md").exists()
    assert watching.interrupt() == 130
    assert up.interrupt() in ENDED
    for line in ("make up", "make up PORT=3700 MAX_UPTIME=2h30m"):
        again = newcomer.begin(line)
        again.until("/login?token=", 300)
        assert again.interrupt() in ENDED
    assert newcomer.taken | ELSEWHERE.keys() == promised()


def test_what_the_first_review_asks_for_succeeds_once_approved(house: House) -> None:
    """With the system's own python3 in the sandbox, under the policy that `make up` takes."""
    (house.workspace / "README.md").write_text("# Shop of mine\n")
    with registry.serving() as index:
        index.add_wheel("six", "1.17.0")
        person = {"PIP_INDEX_URL": f"{index.url}/simple/", "PATH": "/usr/bin:/bin"}
        # A person's index is hardly ever on their own machine: that needs a rule.
        policy = house.folder / "strict.yaml"
        rule = f"allow:\n  - network(127.0.0.1:{index.port})\n"
        text = (ROOT / "policy/examples/strict.yaml").read_text()
        policy.write_text(text.replace("allow:\n", rule, 1))
        words = ("--workspace", str(house.workspace), "--policy", str(policy), "--stay")
        house.start("review", *words, **person)
        until(lambda: (house.data / "supervisor.json").exists(), "the supervisor")
        house.until_waiting("write REVIEW_NOTES.md")

        def is_over() -> bool:
            for one in house.requests():
                house.run("approve", one["id"])
            return house.sessions()[0]["agent_exited_at"] is not None and not house.requests()

        until(is_over, "the review's end")
        said = house.sessions()[0]["review"]["summary"]
        came = dict(re.findall(r"^- (\w+): (.*)$", said, re.MULTILINE))
        fetched = came.pop("fetch")  # this machine may know no such name
        assert fetched == "done" or "has no address" in fetched
        assert came == dict.fromkeys(
            ("run_command", "write_file", "request_packages", "request_git", "propose_rule"), "done"
        )
        assert (house.workspace / "REVIEW_NOTES.md").exists()
        assert "gatehouse-first-look" in house.git("ls-remote", "origin")
