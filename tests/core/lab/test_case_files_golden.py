"""Every golden case, as somebody outside asks it: one JSON line of `gatehouse policy check`, one
answer.

`core/lab/case_files.py` tells the form of a case. Each file keeps ordinary actions among the
attacks, so that strictness can't be bought with questions.
"""

from pathlib import Path

import pytest

from supervisor.core.lab.case_files import Case, failure_of, read_cases
from tests.tables import each_row

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "policy_cases"
NOW = 1_790_000_000.0

FILES = {
    path.stem: read_cases(path.read_text(encoding="utf-8"), path.name)
    for path in sorted(FOLDER.glob("*.yaml"))
}
ALL = [
    pytest.param(case, id=f"{stem}: {case.name}".encode("ascii", "backslashreplace").decode())
    for stem, cases in FILES.items()
    for case in cases
]


@each_row("case", ALL)
def test_a_case_is_answered_as_recorded(case: Case) -> None:
    failure = failure_of(case, None, NOW)
    assert failure is None, str(failure)


@pytest.mark.parametrize("stem", FILES)
def test_each_file_holds_enough_and_not_only_attacks(stem: str) -> None:
    found = FILES[stem]
    assert len(found) >= 60
    assert sum(case.verdict == "allow" for case in found) * 3 >= len(found), (
        "a third are ordinary, and must not ask"
    )
    assert all(case.has_policy for case in found), "a golden case depends on no policy but its own"


def test_every_category_of_rules_has_cases() -> None:
    assert FILES.keys() >= {"exec", "filesystem", "network", "git", "packages"}
