"""`gatehouse policy import claude`, as a person runs it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from supervisor.core.policy.policy_text import parse_policy


def run(gatehouse: Path, file: Path, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = os.environ | ({"HOME": str(home)} if home else {})
    words = [str(gatehouse), "policy", "import", "claude", str(file)]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=env)


def settings(folder: Path, **permissions: object) -> Path:
    file = folder / ".claude" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"permissions": permissions}))
    return file


def test_the_policy_goes_to_standard_output_and_what_is_left_to_both(
    gatehouse: Path, tmp_path: Path
) -> None:
    done = run(
        gatehouse,
        settings(tmp_path, allow=["Bash(npm run test:*)", "WebSearch"], deny=["Bash(rm *)"]),
    )
    assert done.returncode == 0
    policy = parse_policy(done.stdout, "made.yaml")
    assert [(rule.effect, rule.text) for rule in policy.rules] == [
        ("allow", "exec(npm run test *)"),
        ("deny", "exec(rm *)"),
    ]
    assert done.stderr.startswith("not carried over: allow WebSearch: ")
    assert "#   allow WebSearch: " in done.stdout


def test_absolute_paths_are_taken_from_the_project_that_the_settings_lie_in(
    gatehouse: Path, tmp_path: Path
) -> None:
    done = run(gatehouse, settings(tmp_path, allow=[f"Edit(/{tmp_path}/src/**)", "Edit(/docs/**)"]))
    assert [rule.text for rule in parse_policy(done.stdout, "p").rules] == [
        "filesystem(src/**)",
        "filesystem(docs/**)",
    ]


def test_settings_of_the_person_are_for_every_project(gatehouse: Path, tmp_path: Path) -> None:
    done = run(
        gatehouse, settings(tmp_path, allow=["Edit(/docs/**)", "Edit(src/**)"]), home=tmp_path
    )
    assert [rule.text for rule in parse_policy(done.stdout, "p").rules] == ["filesystem(src/**)"]


def test_what_is_made_lints_and_tests_as_any_policy(gatehouse: Path, tmp_path: Path) -> None:
    made = tmp_path / "policy.yaml"
    made.write_text(
        run(
            gatehouse, settings(tmp_path, allow=["Bash(git log *)"], ask=["Bash(git push *)"])
        ).stdout
    )
    cases = tmp_path / "cases.yaml"
    cases.write_text(
        "- {name: a, category: exec, command: git log -3, verdict: allow}\n"
        "- {name: b, category: git, command: git push origin x, verdict: ask}\n"
    )
    for words in (["lint", "--policy", str(made)], ["test", "--policy", str(made), str(cases)]):
        assert (
            subprocess.run(
                [str(gatehouse), "policy", *words], check=False, capture_output=True
            ).returncode
            == 0
        ), words


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"permissions": 3}'])
def test_what_cant_be_read_is_one_clear_line(
    gatehouse: Path, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "settings.json"
    file.write_bytes(content)
    done = run(gatehouse, file)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"gatehouse: {file}")
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_isnt_there_is_one_clear_line(gatehouse: Path, tmp_path: Path) -> None:
    done = run(gatehouse, tmp_path / "nowhere.json")
    assert done.returncode == 1
    assert (
        "nowhere.json: No such file or directory; give a settings.json of Claude Code"
        in done.stderr
    )
