"""Every golden case, as somebody outside asks it: one JSON line of `gatehouse policy check`, one answer.

A case is `{name, category, policy, <fields of a line>, verdict}`. Each file keeps ordinary actions among the attacks, so that
strictness can't be bought with questions.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.core.check import answer_line

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "policy_cases"
NOW = 1_790_000_000.0


def cases(path: Path) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return loaded


FILES = sorted(FOLDER.glob("*.yaml"))
ALL = [
    pytest.param(case, id=f"{path.stem}: {case['name']}".encode("ascii", "backslashreplace").decode())
    for path in FILES
    for case in cases(path)
]


@pytest.mark.parametrize("case", ALL)
def test_a_case_is_answered_as_recorded(case: dict[str, Any]) -> None:
    line = {key: value for key, value in case.items() if key not in ("name", "verdict")}
    answer = answer_line(json.dumps({"id": "1", **line}).encode(), None, "/workspace/merged", NOW)
    assert answer["verdict"] == case["verdict"], answer["why"]
    assert answer["id"] == "1"
    assert answer["why"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_holds_enough_and_not_only_attacks(path: Path) -> None:
    found = cases(path)
    assert len(found) >= 60
    assert sum(case["verdict"] == "allow" for case in found) * 5 >= len(found)
    assert len({case["name"] for case in found}) == len(found)


def test_every_category_of_rules_has_cases() -> None:
    assert {path.stem for path in FILES} >= {"exec", "filesystem", "network", "git", "packages"}
