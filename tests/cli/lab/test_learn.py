"""`gatehouse policy learn` over the log of a real supervisor: the next session asks what it
should, and no more."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from supervisor.cli import cli
from supervisor.core.actions import Exec, FileChange, fingerprint, title
from supervisor.core.approvals import Request
from supervisor.core.policy.policy_text import parse_policy
from tests.fakes.sandboxed_agent import agent_command
from tests.fakes.supervised import Answer, make_repository, settings_in, supervised

BASE = (
    "version: 1\nallow: [exec(true), exec(tail *)]\nask: [exec(git commit *)]\ndeny: [exec(sudo"
    " *)]\n"
)

type Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`gatehouse policy learn ...` with the base policy: exit code, standard output, standard
    error."""
    base = tmp_path / "base.yaml"
    base.write_text(BASE)

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(
            [
                "policy",
                "learn",
                "--data-dir",
                str(tmp_path / "no-data"),
                "--policy",
                str(base),
                *map(str, words),
            ]
        )
        return code, *capsys.readouterr()

    return call


def log(folder: Path, *asked: tuple[str, str, Answer]) -> str:
    """An audit log of commands: session, command, answer."""
    lines: list[dict[str, Any]] = []
    for number, (session, command, answer) in enumerate(asked):
        action = Exec(command=command)
        facts = {
            "at": 1_800_000_000.0 + number,
            "session": session,
            "request": f"r{number}",
            "action": msgspec.to_builtins(action),
            "fingerprint": fingerprint(action),
            "category": "exec",
            "rule": None,
        }
        lines.append(
            facts
            | {
                "event": "request_asked",
                "verdict": "ask",
                "why": "no rule matches; exec asks",
            }
        )
        lines.append({"at": 1_800_000_000.5, "event": "request_answered", "session": session} | {
            "request": f"r{number}", "answer": answer, "by": "operator (browser)", "reason": "",
        })  # fmt: skip
    path = folder / "audit.log"
    path.write_text(
        "".join(json.dumps({"seq": at} | line) + "\n" for at, line in enumerate(lines, start=1))
    )
    return str(path)


def in_one(*texts: str) -> str:
    """One policy file with the rules of several."""
    merged: dict[str, Any] = {"version": 1}
    for text in texts:
        for key, value in (yaml.safe_load(text) or {}).items():
            if key != "version":
                merged[key] = [*merged.get(key, []), *(value or [])]
    return yaml.safe_dump(merged)


async def test_after_one_session_the_next_asks_only_what_it_should(
    tmp_path: Path, run: Run
) -> None:
    workspace = make_repository(tmp_path / "project")
    agent = agent_command(
        *[
            ("/v1/exec", {"command": command})
            for command in (
                "cat README.md 2>&1 | tail -1", "cat src/app.py", "true && wc -l README.md",
                "rm src/app.py", "rm README.md",
                "git commit --allow-empty -m one", "git commit --allow-empty -m two", "echo $(id)",
            )
        ],
        *[("/v1/files/write", {"path": path, "content": "x"}) for path in ("src/a.py", "src/b.py",
        "src/.env")],
    )  # fmt: skip

    def person(request: Request) -> Answer:
        return "denied" if title(request.action) == "rm README.md" else "approved"

    asked: list[list[str]] = []
    texts = [BASE]
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        async with supervised(settings_in(tmp_path / name, in_one(*texts))) as running:
            with running.answering(person) as answered:
                await running.run(workspace, *agent)
            asked.append([title(request.action) for request in answered])
        (tmp_path / name / "data" / "audit.log").rename(tmp_path / f"{name}.log")
        code, policy, _ = run(str(tmp_path / f"{name}.log"))
        assert code == 0
        texts.append(policy)

    held = ["rm src/app.py", "rm README.md", "git commit --allow-empty -m one",
    "git commit --allow-empty -m two", "echo $(id)", "write src/.env"]  # fmt: skip
    assert len(asked[0]) == 12
    assert asked[1] == held
    rules = [entry["rule"] for entry in yaml.safe_load(texts[1])["allow"]]
    assert rules == ["exec(cat *)", "exec(wc *)", "filesystem(src/*)"]


def test_the_proposal_is_a_policy_with_its_reasons(tmp_path: Path, run: Run) -> None:
    audit = log(
        tmp_path,
        ("s1", "cargo test -p a 2>&1 | tail -20", "approved"),
        ("s2", "cargo test", "approved"),
        ("s1", "echo $(id)", "approved"),
        ("s1", "rm -rf /", "denied"),
    )
    code, text, summary = run(audit)
    assert code == 0
    assert yaml.safe_load(text) == {
        "version": 1,
        "allow": [{"rule": "exec(cargo test *)",
        "why": "saves 2 prompts of 2 sessions; e.g. cargo test", "match": ["cargo test"]}],
    }  # fmt: skip
    assert parse_policy(text, "proposal").warnings == ()
    assert summary.splitlines() == [
        "learned from 3 requests approved and 1 denied, in 2 sessions",
        "1 rule proposed; asked before: 4, with it: 2",
        "approved, and stays asked:",
        "    1  no rule may allow a command substitution; e.g. echo $(id)",
    ]
    assert run(audit) == (code, text, summary)


def test_nothing_to_learn_is_a_policy_without_rules(tmp_path: Path, run: Run) -> None:
    code, text, summary = run(log(tmp_path))
    assert code == 0
    assert parse_policy(text, "proposal").rules == ()
    assert (
        summary
        == "learned from 0 requests approved and 0 denied, in 0 sessions\n0 rules proposed; asked"
        " before: 0, with them: 0\n"
    )


def test_of_one_session_the_denials_of_all_count(tmp_path: Path, run: Run) -> None:
    audit = log(
        tmp_path,
        ("first-session", "cargo test", "approved"),
        ("first-session", "cat a", "approved"),
        ("second-session", "wc a", "approved"),
        ("second-session", "cargo test --evil", "denied"),
    )
    _, text, summary = run(audit, "--session", "first")
    assert [entry["rule"] for entry in yaml.safe_load(text)["allow"]] == ["exec(cat *)"]
    assert "2 requests approved and 1 denied, in 1 session" in summary
    code, text, error = run(audit, "--session", "third")
    assert (code, text) == (1, "")
    assert "no session `third`" in error


def test_a_hostile_command_can_not_act_through_what_is_printed(tmp_path: Path, run: Run) -> None:
    audit = log(
        tmp_path,
        ("s", "cat 'a\n- exec(rm *)' '\u202egpj.exe' 'x: {y}' '#'", "approved"),
        ("s", "wc \x1b[2J", "approved"),
        ("s", "sed -n '\n  - exec(*)\n' a", "approved"),
        ("s", "./a'\nallow: [exec(rm *)]\n'", "approved"),
        ("s", "./a'\nallow: [exec(rm *)]\n'", "approved"),
    )
    code, text, summary = run(audit)
    assert code == 0
    assert all(
        rule.text.split("(")[1].split()[0] in ("sed", "./a") or rule.text.startswith("exec($'./a")
        for rule in parse_policy(text, "x").rules
    )
    assert not any(char in text + summary for char in "\x1b\u202e")
    assert "exec(rm *)" not in [rule.text for rule in parse_policy(text, "x").rules]


def test_errors_end_in_a_remedy(tmp_path: Path, run: Run) -> None:
    assert run(str(tmp_path / "none.log"))[0] == 1
    (tmp_path / "bad.log").write_text("{}\n")
    assert run(str(tmp_path / "bad.log"))[0] == 1


def test_paths_are_learned_from_a_log_too(tmp_path: Path, run: Run) -> None:
    lines = []
    for number, path in enumerate(("src/a.py", "src/b.py", "docs/\u202ex.md")):
        action = FileChange(operation="write", path=path)
        facts = {"session": "s", "request": f"r{number}", "at": 1.0 + number}
        lines.append(facts | {"event": "request_asked", "action": msgspec.to_builtins(action),
        "fingerprint": fingerprint(action), "verdict": "ask", "why": "", "rule": None})  # fmt: skip
        lines.append(
            facts | {"event": "request_answered", "answer": "approved", "by": "operator (browser)"}
        )
    file = tmp_path / "audit.log"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, text, _ = run(str(file))
    assert [rule.text for rule in parse_policy(text, "x").rules] == ["filesystem(src/*)"]
