"""Rounds: what a further review makes of what is known, whatever was done to the code and however
a reader words it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from supervisor.core.forge_acts import SEVERITIES
from supervisor.reviews.core.diffs import ChangedFile, ShownLines
from supervisor.reviews.core.findings import Finding, PlacedFinding, identity
from supervisor.reviews.core.tracking import (
    MOST_UNCONFIRMED,
    REPOSITORY_SAID_S,
    HeadCode,
    TrackedFinding,
    advance,
    is_said,
    same,
    say,
)

NOW = 1_000_000.0
LINES = ["import os", "", "def f(a):", "    return a / 0", "", "def g(b):", "    return eval(b)"]


def finding(**more):
    base = {
        "path": "a.py",
        "line": 4,
        "severity": "high",
        "title": "Divides by zero",
        "body": "Always.",
        "quote": "    return a / 0",
        "skill": "bug-detection",
    }
    return Finding(**base | more)


def placed(one=None, line=4):
    one = one or finding()
    return PlacedFinding(identity(one), one, line, line)


def tracked(one=None, state="open", *, is_posted=True, line=4, **more):
    one = one or finding()
    return TrackedFinding(
        id=identity(one),
        finding=one,
        state=state,
        line=line,
        start_line=line,
        is_posted=is_posted,
        **more,
    )


def code(lines=LINES, *, renames=None, touched=(), path="a.py"):
    files = [ChangedFile(path, path, "M", 9, 0, (ShownLines(1, 99),))]
    changed = [ChangedFile(path, path, "M", 1, 0, (ShownLines(*one),)) for one in touched]
    return HeadCode(files, {path: lines}.get, renames or {}, changed)


def names(found):
    return [one.finding.title for one in found]


def test_the_first_round_posts_what_it_finds_and_the_second_says_it_is_open() -> None:
    first = advance([], [placed()], code(), number=1, now=NOW)
    assert [one.state for one in first.post] == ["new"]
    known = [replace(first.tracked[0], is_posted=True, state="open")]
    second = advance(known, [placed()], code(), number=2, now=NOW)
    assert (second.post, names(second.carried)) == ([], ["Divides by zero"])
    unseen = advance(known, [], code(), number=2, now=NOW)
    assert (unseen.post, names(unseen.carried)) == ([], ["Divides by zero"])


@pytest.mark.parametrize(
    "again",
    [
        {},
        {"title": "A division that fails", "body": "In other words."},
        {"line": 40},
        {"quote": "return  a / 0"},
        {"quote": "def f(a):\n    return a / 0", "line": 3},
        {"skill": "code-quality", "title": "Divides by zero here"},
        {"quote": "", "title": "It divides by zero"},
        {"quote": "return a/0", "title": "divides by zero!"},
    ],
)
def test_reworded_it_is_the_same(again) -> None:
    outcome = advance([tracked()], [placed(finding(**again))], code(), number=2, now=NOW)
    assert (outcome.post, names(outcome.carried)) == ([], ["Divides by zero"])


@pytest.mark.parametrize(
    "other",
    [
        {"path": "b.py"},
        {"quote": "    return eval(b)", "line": 7, "title": "Runs what it is given"},
        {"skill": "security-review", "title": "Tells a stranger too much"},
        {"quote": "a", "title": "A name of one letter"},
        {"quote": "", "title": "No tests for this"},
        {"quote": "", "title": "Never divides by one", "line": None, "skill": ""},
        {"quote": "return a/0", "line": 60},
        {"quote": "return c / 0", "line": 6, "title": "Divides g by zero"},
    ],
)
def test_another_one_is_not(other) -> None:
    assert not same(finding(), finding(**other))
    assert not same(finding(**other), finding())


def test_two_without_a_line_are_near_each_other() -> None:
    one = finding(quote="", line=None, title="There are no tests")
    assert same(one, finding(quote="", line=None, title="There are really no new tests"))
    assert not same(finding(quote="", title="?"), finding(quote="", title="!", path="a.py"))


def test_what_the_code_no_longer_holds_is_fixed() -> None:
    outcome = advance([tracked()], [], code(LINES[:2]), number=2, now=NOW)
    assert [(one.state, one.line) for one in outcome.gone] == [("fixed", 0)]
    later = advance(outcome.tracked, [], code(LINES[:2]), number=3, now=NOW)
    assert (later.gone, [one.state for one in later.tracked]) == ([], ["fixed"])
    reverted = advance(later.tracked, [], code(), number=4, now=NOW)
    assert [(one.state, one.line) for one in reverted.back] == [("open", 4)]


def test_a_file_that_is_gone_makes_it_stale_and_so_does_one_that_left_the_change() -> None:
    gone = advance([tracked()], [], code(path="b.py"), number=2, now=NOW)
    assert [one.state for one in gone.gone] == ["stale"]
    left = HeadCode([], {"a.py": LINES[:2]}.get)
    assert [one.state for one in advance([tracked()], [], left, number=2, now=NOW).gone] == [
        "stale"
    ]


def test_what_comes_back_is_said_and_not_posted_again() -> None:
    outcome = advance([tracked(state="fixed")], [placed()], code(), number=3, now=NOW)
    assert (outcome.post, names(outcome.back)) == ([], ["Divides by zero"])
    assert outcome.tracked[0].state == "open"


def test_lines_that_drift_are_followed_by_their_quote() -> None:
    drifted = ["# new"] * 20 + LINES
    outcome = advance([tracked()], [], code(drifted), number=2, now=NOW)
    assert outcome.carried[0].line == 24


def test_a_renamed_file_keeps_its_findings() -> None:
    moved = code(path="b.py", renames={"a.py": "b.py"})
    for found in ([], [placed(finding(path="b.py"))]):
        outcome = advance([tracked()], found, moved, number=2, now=NOW)
        assert (outcome.post, [one.finding.path for one in outcome.carried]) == ([], ["b.py"])
        assert outcome.tracked[0].id == identity(finding())


def test_without_a_quote_a_change_of_its_lines_is_what_can_be_known() -> None:
    one = tracked(finding(quote=""))
    kept = advance([one], [], code(touched=[(6, 7)]), number=2, now=NOW)
    assert names(kept.carried) == ["Divides by zero"]
    gone = advance([one], [], code(touched=[(4, 4)]), number=2, now=NOW)
    assert [one.state for one in gone.gone] == ["fixed"]
    nowhere = tracked(finding(quote="", line=None), line=0)
    assert names(advance([nowhere], [], code(), number=2, now=NOW).carried)


@pytest.mark.parametrize(
    ("number", "severity", "touched", "is_wanted", "posts"),
    [
        (1, "low", (), False, True),
        (2, "low", (), False, False),
        (2, "medium", (), False, True),
        (3, "medium", [(4, 4)], False, False),
        (3, "high", [(4, 4)], False, True),
        (3, "high", [(6, 7)], False, False),
        (5, "critical", [(1, 4)], False, True),
        (6, "critical", [(4, 4)], False, False),
        (6, "low", (), True, True),
    ],
)
def test_each_round_posts_less(number, severity, touched, is_wanted, posts) -> None:
    outcome = advance(
        [],
        [placed(finding(severity=severity))],
        code(touched=touched),
        number=number,
        now=NOW,
        is_wanted=is_wanted,
    )
    assert (len(outcome.post), len(outcome.kept_back)) == ((1, 0) if posts else (0, 1))
    later = advance(outcome.tracked, [placed()], code(), number=9, now=NOW, is_wanted=True)
    assert len(later.post) == 1, "what was kept back can be asked for"


def test_below_the_floor_it_is_kept_back() -> None:
    low = placed(finding(severity="medium"))
    outcome = advance([], [low], code(), number=1, now=NOW, floor="high", is_wanted=True)
    assert (outcome.post, len(outcome.kept_back)) == ([], 1)


def test_what_a_person_said_is_not_said_again_until_it_expires() -> None:
    said = say(tracked(), "wont-fix", "pull", NOW)
    assert (said.state, said.said_until) == ("wont-fix", None)
    outcome = advance([said], [placed()], code(), number=2, now=NOW)
    assert (outcome.post, outcome.carried) == ([], [])
    assert outcome.tracked[0].state == "wont-fix"
    unseen = advance([said], [], code(LINES[:1]), number=2, now=NOW)
    assert unseen.tracked[0].state == "wont-fix"
    short = say(tracked(is_posted=False), "justified", "pull", NOW, until=NOW + 60)
    assert is_said(short, NOW)
    over = advance([short], [placed()], code(), number=2, now=NOW + 61)
    assert [(one.state, one.said) for one in over.post] == [("new", "")]
    assert say(said, "", "", NOW).state == "open"


def test_what_was_said_for_the_repository_holds_in_another_pull_request() -> None:
    said = say(tracked(), "justified", "repository", NOW)
    assert said.said_until == NOW + REPOSITORY_SAID_S
    outcome = advance([], [placed()], code(), number=1, now=NOW, remembered=[said])
    assert (outcome.post, outcome.tracked[0].state) == ([], "justified")
    later = advance(
        [], [placed()], code(), number=1, now=NOW + REPOSITORY_SAID_S, remembered=[said]
    )
    assert len(later.post) == 1


def test_unposted_it_goes_on_unseen_twice_and_is_stale_then() -> None:
    known = [tracked(state="new", is_posted=False)]
    for count in range(1, MOST_UNCONFIRMED + 1):
        outcome = advance(known, [], code(), number=7, now=NOW)
        assert [one.unconfirmed for one in outcome.post] == [count]
        known = outcome.tracked
    outcome = advance(known, [], code(), number=8, now=NOW)
    assert (outcome.post, outcome.gone) == ([], [])
    assert outcome.tracked[0].state == "stale"
    seen = advance(known, [placed(finding(title="Anew"))], code(), number=8, now=NOW)
    assert [(one.unconfirmed, one.finding.title) for one in seen.post] == [(0, "Anew")]


def test_kept_back_and_unseen_it_stays_kept_back() -> None:
    one = tracked(finding(severity="low"), state="open", is_posted=False)
    outcome = advance([one], [], code(), number=3, now=NOW)
    assert (outcome.post, len(outcome.kept_back)) == ([], 1)


def test_what_undoes_an_earlier_one_is_contested_and_posted_nowhere() -> None:
    earlier = tracked(finding(suggestion="    return a / 1"), state="fixed")
    undoes = finding(quote="    return a / 1", title="One is odd here", line=4)
    lines = [*LINES[:3], "    return a / 1"]
    outcome = advance([earlier], [placed(undoes)], code(lines), number=2, now=NOW)
    assert (outcome.post, names(outcome.contested)) == ([], ["One is odd here"])
    again = advance(outcome.tracked, [placed(undoes)], code(lines), number=3, now=NOW)
    assert (again.post, names(again.contested)) == ([], ["One is odd here"])
    seen_no_more = advance(outcome.tracked, [], code(lines), number=3, now=NOW)
    assert names(seen_no_more.contested) == ["One is odd here"]


def test_the_same_code_twice_is_two_findings() -> None:
    one, two = placed(), PlacedFinding(identity(finding(), 2), finding(line=9), 9, 9)
    outcome = advance([], [one, two], code(), number=1, now=NOW)
    assert len(outcome.post) == 2
    known = [replace(each, is_posted=True, state="open") for each in outcome.tracked]
    again = advance(known, [one, two], code(), number=2, now=NOW)
    assert (again.post, len(again.carried)) == ([], 2)


QUOTES = ["alpha(1)", "beta(2)", "gamma(3)", "delta(4)", "epsilon(5)"]


@given(
    rounds=st.lists(
        st.tuples(
            st.lists(st.sampled_from(QUOTES), unique=True),  # what the code holds
            st.lists(st.sampled_from(QUOTES), unique=True),  # what the reader reports
            st.booleans(),  # whether it was posted
        ),
        min_size=1,
        max_size=6,
    ),
    severity=st.sampled_from(SEVERITIES),
)
def test_in_any_rounds_nothing_is_posted_twice_and_nothing_found_is_lost(rounds, severity) -> None:
    known, posted = [], []
    for number, (held, reported, is_posted) in enumerate(rounds, 1):
        lines = [*held]
        found = [
            placed(
                finding(quote=one, title=f"About {one}", severity=severity), lines.index(one) + 1
            )
            for one in reported
            if one in held
        ]
        outcome = advance(known, found, code(lines), number=number, now=NOW)
        ids = [one.id for one in outcome.tracked]
        assert len(ids) == len(set(ids))
        tracked_ = {one.id: one for one in outcome.tracked}
        for one in found:
            state = tracked_[one.id].state
            assert state in ("new", "open"), "what was found is open, posted or kept back"
        parts = itertools.chain(outcome.post, outcome.carried, outcome.back, outcome.kept_back)
        shown = {one.id for one in parts}
        assert {one.id for one in outcome.tracked if one.state in ("new", "open")} == shown
        if is_posted:
            posted += [one.id for one in outcome.post]
            known = [
                replace(one, is_posted=True, state="open") if one in outcome.post else one
                for one in outcome.tracked
            ]
        else:
            known = outcome.tracked
        assert len(posted) == len(set(posted))
