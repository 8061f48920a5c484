"""Findings of a reader: where each may stand, and what it is known by."""

from supervisor.reviews.core.diffs import ChangedFile, ShownLines
from supervisor.reviews.core.findings import (
    MOST_COMPARED,
    Finding,
    find_quote,
    identity,
    place,
    read_review,
)
from tests.tables import each_row

LINES = [f"line {number}" for number in range(1, 101)]
LINES[40:43] = ["def f(a):", "", "    return  a"]
FILE = ChangedFile("a.py", "a.py", "M", 3, 0, (ShownLines(38, 48), ShownLines(80, 85)))


def finding(**more):
    base = {"path": "a.py", "line": 41, "severity": "high", "title": "A title", "body": "Why."}
    return Finding(**base | more)


def placed(*found):
    return place(found, [FILE], lambda path: LINES if path == "a.py" else None)


@each_row(
    ("more", "lines"),
    [
        ({}, (41, 41)),
        ({"quote": "def f(a):"}, (41, 41)),
        ({"quote": "def f(a):\n    return a"}, (41, 43)),
        ({"quote": "  return a ", "line": 45}, (43, 43)),
        ({"quote": "def f(a):", "line": 55}, (41, 41)),
        ({"start_line": 39}, (39, 41)),
        ({"start_line": 50}, (41, 41)),
        ({"start_line": 30}, (41, 41)),
        ({"line": 82, "start_line": 45}, (82, 82)),
        # In no hunk, of no line, of another file, with a quote that isn't there.
        ({"line": 60}, (0, 0)),
        ({"line": None}, (0, 0)),
        ({"path": "b.py"}, (0, 0)),
        ({"quote": "never there"}, (0, 0)),
        ({"quote": "def f(a):", "line": 90}, (0, 0)),
        ({"quote": " \n "}, (0, 0)),
        ({"quote": "line 99\nline 100\nline 101", "line": 84}, (0, 0)),
        ({"quote": "line 60", "line": 60}, (0, 0)),
    ],
)
def test_it_stands_where_its_quote_is_and_the_change_shows_it(more, lines) -> None:
    (found,) = placed(finding(**more))
    assert (found.start_line, found.line) == lines


def test_the_gravest_come_first_and_the_same_once() -> None:
    low = finding(severity="low", title="Other", quote="line 39", line=39)
    again = finding(title="In other words", quote="def f(a):")
    found = placed(low, finding(quote="def  f(a):"), again)
    assert [one.finding.severity for one in found] == ["high", "low"]


def test_identity_outlives_rewording_and_drift_and_not_another_place() -> None:
    one = finding(quote="def f(a):")
    assert identity(one) == identity(finding(quote=" def  f(a):", title="Else", line=99))
    assert identity(one) != identity(finding(quote="def f(a):", path="b.py"))
    assert identity(one) != identity(finding(quote="def f(a):", skill="security-review"))
    assert identity(finding()) == identity(finding(title="a  TITLE"))


def test_a_file_that_can_not_be_read_takes_no_quote() -> None:
    (found,) = place([finding(quote="def f(a):")], [FILE], lambda path: None)
    assert found.line == 0


def test_a_recorded_review_is_read_and_notes_are_left_out() -> None:
    note = {"path": "a", "severity": "info", "title": "t", "body": "b"}
    verdict, summary, found = read_review(
        {"verdict": "approve", "summary": "s", "findings": [note, note | {"severity": "low"}]}
    )
    assert (verdict, summary, len(found)) == ("approve", "s", 1)


def test_a_quote_is_looked_for_near_first_and_not_for_ever() -> None:
    assert find_quote("a\nb", ["a", "b", "x", "a", "b"], 4, within=5) == (4, 5)
    assert find_quote("a\nb", ["a", "b", "x", "a", "b"], 2, within=5) == (1, 2)
    looked_at: list[int] = []

    class Lines(list[str]):
        def __getitem__(self, at):
            looked_at.append(at)
            return super().__getitem__(at)

    lines = Lines(["a"] * 1_000 + [""] * 20_000)
    assert find_quote("\n".join(["a"] * 900 + ["b"]), lines, 1, within=len(lines)) is None
    assert len(looked_at) == MOST_COMPARED
