"""The measurement of attention: its judge, and its counting, on sessions made up here."""

import json
from pathlib import Path

import pytest

from bench import attention
from bench._worth_asking import worth_asking
from supervisor.core.policy.policy_text import parse_policy

WORTH = {
    "a push": ["git push", "git -C x push origin main", "git commit -m x && git push 2>&1"],
    "a GitHub write": ["gh pr create --fill", "gh run cancel 7", "gh api -X PUT x",
    "curl -s -X PATCH https://api.example.org"],
    "an install": ["npm install x", "npm --prefix site ci", "python -m pip install x",
    "cd a && uv add x"],
    "an external download": ["curl -sL https://example.org/x -o y", "gh release download v1",
    "git clone https://example.org/x"],
    "another machine, or a deployment": ["ssh host", "firebase deploy", "npm publish"],
    "another user": ["sudo id", "ls; sudo id"],
    "a secret": ["cat .env", "cat a/.env.local", "grep -o x web/.env",
    "sed -i '' \\\n 's/a/b/' \\\n .env", "env", "gh auth token"],
    "SQL that alters": ["psql -c 'DROP TABLE x'", "python manage.py migrate"],
    "git's configuration or credentials": ["git config user.email x", "git remote add x y"],
    "a delete outside of the project": ["rm -rf /workspace-other", "rm -f ~/x",
    "cd a && rm -r ../b", "rm -rf $X", "rm /workspace/../x"],
}  # fmt: skip
ROUTINE = [
    "git status",
    "git log --grep=push",
    "git config --get user.name",
    "git remote -v",
    "gh run view 7",
    "gh api repos/a/b",
    "npm run build",
    "npm ls",
    "curl -s http://localhost:8080/healthz",
    "curl -s http://127.0.0.1:3000",
    "cat app/.env.example",
    "grep -q 'master.key' .gitignore",
    "test -f .env",
    "cat src/environment.ts",
    "rm -rf build /workspace/dist /tmp/x",
    "echo env",
]


@pytest.mark.parametrize(
    ("kind", "command"), [(kind, one) for kind, commands in WORTH.items() for one in commands]
)
def test_what_is_worth_asking(kind: str, command: str) -> None:
    assert worth_asking(command, "/workspace") == kind


@pytest.mark.parametrize("command", ROUTINE)
def test_what_is_routine(command: str) -> None:
    assert worth_asking(command, "/workspace") == ""


def test_in_doubt_it_is_worth_asking() -> None:
    assert worth_asking("git stash push", "/workspace") == "a push"


def recording(*commands: tuple[str, str]) -> list[bytes]:
    actions = [
        {"category": category, "command": command, "cwd": "."} for category, command in commands
    ]
    actions.insert(0, {"category": "filesystem", "operation": "read", "path": "a.py"})
    return [json.dumps({"id": "one", "project": "p", "actions": actions}).encode(), b""]


def test_it_counts_what_is_answered_asked_and_answered_wrongly() -> None:
    policy = parse_policy("version: 1\nallow: [exec(git *), exec(ls *)]\n", "test")
    commands = attention.read_commands(
        recording(("exec", "ls"), ("git", "git push origin x"), ("exec", "make"))
    )
    answers = attention.answered(policy, commands)
    assert [(one.is_answered, one.command.worth) for one in answers] == [
        (True, ""),
        (False, "a push"),
        (False, ""),
    ]
    assert attention.totals({"p": answers}).splitlines()[-1].split() == [
        "p",
        "3",
        "1",
        "33.3",
        "%",
        "2",
        "1",
        "1",
        "0",
    ]
    assert attention.by_session({"p": answers}).splitlines()[-3:] == [
        "one             3         2           1",
        "median                    2           1",
        "p90                       2           1",
    ]
    assert "routine: no rule allows `make`" in attention.reasons("p", answers)


def test_a_contained_command_is_asked_at_the_walls_and_never_wrongly() -> None:
    commands = ["sudo id", "gh pr create --fill", "npm i x", "git push", "cat .env", "make"]
    read = attention.read_commands(recording(*(("exec", one) for one in commands)))
    contained = parse_policy("version: 1\nmodes: {exec: contained}\n", "test")
    answers = attention.answered(contained, read)
    assert [one.is_answered for one in answers] == [True, False, False, False, True, True]
    assert not any(one.is_wrong for one in answers)
    allowed = parse_policy("version: 1\nallow: [exec(cat .env)]\n", "test")
    assert attention.answered(allowed, read)[4].is_wrong


def test_without_a_recording_it_says_how_to_give_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GATEHOUSE_SESSIONS", str(tmp_path / "none.jsonl"))
    assert attention.main() is None
    assert "GATEHOUSE_SESSIONS" in capsys.readouterr().out


def test_with_one_it_returns_the_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sessions.jsonl"
    file.write_bytes(b"\n".join(recording(("exec", "git status"), ("exec", "git push"))))
    monkeypatch.setenv("GATEHOUSE_SESSIONS", str(file))
    figures = attention.main()
    assert figures is not None
    assert [figure.ours for figure in figures] == [50.0, 50.0]
    assert "wrongly answered" in capsys.readouterr().out
