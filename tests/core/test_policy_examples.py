"""The policies that we ship, and every example of policy/README.md, run."""

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from supervisor.core.check import answer_line
from supervisor.core.policy_text import parse_policy, parse_rule
from supervisor.core.rule_examples import failing

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "policy" / "README.md").read_text(encoding="utf-8")
SHIPPED = [ROOT / "policy" / "default.yaml", *sorted((ROOT / "policy" / "examples").glob("*.yaml"))]


def rows() -> list[tuple[str, list[str], list[str]]]:
    found = []
    for line in README.splitlines():
        cells = [re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) == 3:
            found.append((cells[0][0], cells[1], cells[2]))
    return found


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_policy_loads_without_a_warning_and_each_rule_says_why(path: Path) -> None:
    policy = parse_policy(path.read_text(encoding="utf-8"), path.name)
    assert policy.rules
    assert not policy.warnings
    assert [rule.text for rule in policy.rules if not rule.why] == []


def test_the_default_policy_lets_nothing_out_unasked() -> None:
    policy = parse_policy((ROOT / "policy" / "default.yaml").read_text(encoding="utf-8"), "default.yaml")
    assert {rule.category for rule in policy.rules if rule.effect == "allow"} == {"exec"}
    assert {policy.mode_of(category) for category in ("exec", "filesystem", "network", "git", "packages")} == {"ask"}


def test_the_readme_has_tables() -> None:
    assert len(rows()) >= 20


@pytest.mark.parametrize(("rule", "matches", "others"), rows(), ids=[row[0] for row in rows()])
def test_a_row_of_the_readme_holds(rule: str, matches: list[str], others: list[str]) -> None:
    parsed = replace(parse_rule(rule, "allow"), match=tuple(matches), not_match=tuple(others))
    assert matches
    assert list(failing(parsed)) == []


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
def test_a_policy_of_the_readme_loads(text: str) -> None:
    parse_policy(text, "README.md")


def test_the_answers_of_the_readme_are_the_answers() -> None:
    lines = [line for block in re.findall(r"```jsonl\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
    assert len(lines) >= 6
    for question, expected in zip(lines[::2], lines[1::2], strict=True):
        assert answer_line(question.encode(), None, None, 0.0) == json.loads(expected)
