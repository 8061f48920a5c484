"""What is said on a forge."""

import re

from supervisor.core.reviews.findings import Finding, PlacedFinding
from supervisor.core.reviews.posts import (
    MOST_BODY_CHARS,
    PullTarget,
    held_comment,
    mark,
    review_act,
    run_of,
    taken,
    without_places,
)

TARGET = PullTarget(forge="github", repository="acme/shop", number=7, head="a" * 40)


def placed(number: int = 0, line: int = 5, **more) -> PlacedFinding:
    base = {"path": "a.py", "line": 5, "severity": "low", "title": f"T{number}", "body": "Why."}
    return PlacedFinding(f"{number:016x}", Finding(**base | more), line, line)


def test_a_review_has_its_comments_and_what_stands_nowhere_in_its_text() -> None:
    found = [
        placed(1, severity="high", suggestion="return 1", confidence="low"),
        placed(2, line=0, path="b.py"),
        placed(3, line=0)._replace(finding=placed(3, line=0).finding),
    ]
    act = review_act(TARGET, "comment", "All in all.", found, run_id="ab", notes=["1 file"])
    (comment,) = act.comments
    assert (comment.path, comment.line, comment.start_line) == ("a.py", 5, 0)
    assert comment.body == (
        "**high: T1** `00000000`\n\nWhy\\.\n\n```suggestion\nreturn 1\n```"
    ).replace("\\.", ".")
    assert "b.py:5" in act.body
    assert "Findings: 1 high, 2 low." in act.body
    assert act.body.endswith(mark("ab"))
    assert "<sub>1 file</sub>" in act.body
    assert (act.severity, act.confidence, act.links) == ("high", "low", False)


def test_no_findings_are_said_so() -> None:
    act = review_act(TARGET, "approve", "Fine.", [], run_id="ab")
    assert "No findings." in act.body
    assert (act.severity, act.confidence, act.verdict) == ("", "", "approve")


def test_no_word_of_a_model_becomes_markup_or_a_mention() -> None:
    hostile = "![x](https://evil.example/a) <img src=x> @ada #12 /approve\n# big\n```"
    act = review_act(
        TARGET, "comment", hostile, [placed(1, body=hostile, title=hostile)], run_id="ab"
    )
    for text in (act.body.replace("## Review", "").replace(mark("ab"), ""), act.comments[0].body):
        for part in (r"!\[", "<img", "@ada", "#12", "# big", "```"):
            assert not re.search(rf"(?<!\\){part}", text)
    assert act.links


def test_long_texts_are_cut_and_many_findings_go_to_the_text() -> None:
    many = [placed(number, body="x" * 20_000) for number in range(200)]
    act = review_act(TARGET, "comment", "s" * 20_000, many, run_id="ab")
    assert len(act.comments) == 25
    assert all(len(one.body) <= 1_000 for one in act.comments)
    assert len(act.body) <= MOST_BODY_CHARS
    assert act.body.endswith(mark("ab"))
    long = placed(1, suggestion="y" * 2_000)
    assert (
        "suggestion" not in review_act(TARGET, "comment", "s", [long], run_id="ab").comments[0].body
    )


def test_several_lines_begin_where_they_begin() -> None:
    several = placed(1)._replace(start_line=3)
    assert review_act(TARGET, "comment", "s", [several], run_id="ab").comments[0].start_line == 3
    whole = placed(2, line=0)
    whole = whole._replace(finding=Finding(**{**_fields(whole.finding), "line": None}))
    assert "a.py: Why" in review_act(TARGET, "comment", "s", [whole], run_id="ab").body


def _fields(finding: Finding):
    return {name: getattr(finding, name) for name in Finding.__struct_fields__}


def posted(*found: PlacedFinding):
    return review_act(TARGET, "comment", "All.", list(found), run_id="ab12")


def test_of_a_review_a_person_takes_some_in_their_words() -> None:
    act = posted(placed(1, severity="high"), placed(2), placed(3))
    assert run_of(act.body) == "ab12"
    kept = [act.comments[1].finding]
    part = taken(act, kept, {kept[0]: "Mine.", "other": "nothing"})
    assert [one.body for one in part.comments] == ["Mine."]
    assert "Findings: 1 low." in part.body
    assert part.severity == "low"
    assert taken(act, [one.finding for one in act.comments], {}) == act


def test_none_of_the_comments_leaves_the_text_and_its_mark() -> None:
    act = posted(placed(1, severity="high"))
    part = taken(act, [], {"body": "Just this: https://example.org"})
    assert part.comments == ()
    assert part.body == f"Just this: https://example.org\n\n{mark('ab12')}"
    assert (part.severity, part.links) == ("high", True)
    other = taken(act, [act.comments[0].finding], {"body": f"x {mark('cd')}"})
    assert run_of(other.body) == "ab12"
    assert run_of(taken(act.__class__(**{**_act(act), "body": "x"}), [], {}).body) == ""
    assert "No findings." in taken(act, [], {}).body


def test_what_can_not_stand_beside_the_code_stands_in_the_text() -> None:
    act = posted(placed(1, severity="high"), placed(2))
    whole = without_places(act)
    assert whole.comments == ()
    assert "`a.py:5`\n\n**high: T1**" in whole.body
    assert whole.body.count("gatehouse:ab12") == 1
    assert whole.body.endswith(mark("ab12"))


def _act(act):
    return {name: getattr(act, name) for name in act.__struct_fields__}


def test_the_comment_that_nothing_is_left_is_the_same_all_day() -> None:
    one, again, next_day, life = (
        held_comment(TARGET, reason, "$5.00", refills_at, day=day)
        for reason, refills_at, day in (
            ("no-budget-repository", 1795737600.0, "2026-11-26"),
            ("no-budget-repository", 1795737600.0, "2026-11-26"),
            ("no-budget-repository", 1795824000.0, "2026-11-27"),
            ("no-budget-pull", None, "2026-11-26"),
        )
    )
    assert one == again
    assert run_of(one.body) != run_of(next_day.body)
    assert (one.operation, one.number) == ("comment", 7)
    assert "On 2026-11-27 at 00:00 UTC the newest head is reviewed by itself" in one.body
    assert "The limit is $5.00. When the limit is raised the newest head" in life.body
