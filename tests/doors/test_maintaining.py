"""`gatehouse maintain` with a stranger's program as the agent: what it does by itself, not by its
tests, refuses all of the job, with a branch and without one."""

import json
import os
import re
import signal

import pytest

from tests.doors.conftest import House, no_bug

pytestmark = [pytest.mark.timeout(300)]

WITHIN = "mkdir -p docs; echo fine > docs/fine.md"
COMMIT = "git -c user.name=t -c user.email=t@example.org commit -q"
HOSTILE = {
    "a workflow": ("mkdir -p .GITHUB/workflows; echo x > .GITHUB/workflows/x.yml", ".GITHUB/work"),
    "a link": ("ln -s /etc/passwd docs/passwd", "docs/passwd (a symlink)"),
    "hidden by git": (
        "echo evil >> README.md; git update-index --skip-worktree README.md",
        "outside docs/**: README.md",
    ),
    "replaced": (
        f"old=$(git rev-parse HEAD); echo evil >> README.md; {COMMIT} -am evil;"
        " git replace $old HEAD",
        "outside docs/**: README.md",
    ),
    "by a hook": (
        "mkdir .git/hooks; printf '#!/bin/sh\necho x > hooked\n' > .git/hooks/post-commit;"
        f" chmod +x .git/hooks/*; git add docs; {COMMIT} -m fine",
        "outside docs/**: hooked",
    ),
}


def job(house: House, script: str) -> tuple[list[str], dict[str, str]]:
    """The words and the variables with which a script plays Claude Code, within docs/."""
    folder = house.folder / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "claude").write_text(f"#!/bin/bash\ncd /workspace/merged\n{script}\n")
    (folder / "claude").chmod(0o755)
    words = ["maintain", "--workspace", str(house.workspace), "--agent", "claude"]
    words += ["--prompt", "Tidy.", "--scope", "docs/**"]
    path = f"{folder}:{os.environ['PATH']}"
    return words, {"PATH": path, "ANTHROPIC_API_KEY": "sk-of-nobody"}


def maintain(house: House, script: str, *more: str) -> tuple[int, str]:
    """Do a job: its exit code, and what was printed."""
    words, variables = job(house, script)
    done = house.run(*words, *more, **variables)
    return done.returncode, no_bug(done)


@pytest.mark.parametrize(("how", "words"), zip(HOSTILE, [("--branch",), ()] * 5, strict=False))
def test_what_the_agent_may_not_change_refuses_its_job(
    house: House, how: str, words: tuple[str, ...]
) -> None:
    script, named = HOSTILE[how]
    code, printed = maintain(house, f"{WITHIN}; {script}", *words)
    assert code == 2, printed
    (said,) = re.findall(r"the job: refused: (.*)", printed)
    assert named in said
    assert "take it with" not in printed
    assert "left to answer" not in printed
    assert house.git("status", "--short") == ""
    assert house.git("for-each-ref", "--format=%(refname:short)", "refs/heads") == "main\n"
    (line,) = [one for one in house.ok("audit", "--json").splitlines() if '"job_done"' in one]
    assert named in json.loads(line)["refused"]
    up = house.up()
    assert house.waiting() == {}
    (session,) = house.sessions()
    for branch in ((), ("--branch", "main")):
        taken = house.run("take", session["id"], *branch)
        assert "the job has no such branch" in no_bug(taken)
    page = house.page.get(f"/sessions/{session['id']}").text
    assert "refused: " in page
    assert "<passwd" not in page
    up.signal(signal.SIGTERM)
    up.ended()


def test_a_branch_has_what_the_job_changed_and_nothing_of_the_person_s(house: House) -> None:
    (house.workspace / ".gitignore").write_text("build/\n")
    house.git("add", ".")
    house.git("commit", "-qm", "ignored")
    (house.workspace / "docs").mkdir()
    (house.workspace / "docs/mine.md").write_text("mine\n")
    (house.workspace / "README.md").write_text("mine, too\n")
    leaves = "mkdir -p __pycache__ build; touch __pycache__/a.pyc build/x"
    code, printed = maintain(
        house, f"{WITHIN}; {leaves}", "--branch", "--tests", "cat docs/fine.md"
    )
    assert code == 0, printed
    assert "the job: 1 file, all within docs/**; tests passed; committed on gatehouse/" in printed
    (session,) = re.findall(r"take it with: gatehouse take ([0-9a-f]+)", printed)
    branch, _, _ = house.ok("take", session).partition(": ")
    assert house.git("diff", "--name-only", f"{branch}~1", branch) == "docs/fine.md\n"
    assert house.git("rev-parse", f"{branch}~1") == house.git("rev-parse", "main")
    assert house.git("status", "--short") == " M README.md\n?? docs/\n"


def test_an_agent_can_not_ask_for_a_file_or_a_push_beside_the_job(house: House) -> None:
    asks = {
        "files/write": {"path": "docs/asked.md", "content": "x"},
        "git": {"command": "git push origin HEAD:refs/heads/asked"},
    }
    calls = [
        'curl -s -X POST -H "Authorization: Bearer $GATEHOUSE_TOKEN"'
        f" -H 'Content-Type: application/json' -d '{json.dumps(body)}' $GATEHOUSE_URL/v1/{path}"
        for path, body in asks.items()
    ]
    code, printed = maintain(house, "; echo; ".join(calls))
    assert code == 0, printed
    assert printed.count("what a job changes is judged as a whole, once it is done") == 2, printed
    assert "the job: nothing to change" in printed
    assert not (house.workspace / "docs").exists()


def test_changes_without_a_branch_are_cards_once_the_job_is_done(house: House) -> None:
    """And only then: what it had changed while it ran has no card."""
    waits = "while ! [ -e /workspace/lower/go ]; do sleep 0.1; done"
    words, variables = job(house, f"{WITHIN}; echo made; {waits}")
    house.up(**variables)
    started = house.start(*words, **variables)
    started.until_printed("made")
    assert house.waiting() == {}
    (house.workspace / "go").touch()
    request = house.until_waiting("write docs/fine.md")
    house.ok("approve", request)
    assert started.ended() == 0, started.printed
    assert (house.workspace / "docs/fine.md").read_text() == "fine\n"
