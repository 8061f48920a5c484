"""What is said on a forge."""

import re

import msgspec
import pytest

from supervisor.reviews.core.findings import Finding, PlacedFinding
from supervisor.reviews.core.posts import (
    MOST_BODY_CHARS,
    PullTarget,
    act_mark,
    held_comment,
    mark,
    marked,
    note_act,
    note_mark,
    own_mark,
    review_act,
    reviewed_by,
    run_of,
    taken,
    undo_act,
    without_mark,
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
        text = text.replace("```\n\n```", "")  # its block of code has no end, and nothing in it
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
    assert "`a.py`\n\nWhy" in review_act(TARGET, "comment", "s", [whole], run_id="ab").body


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


def test_code_lists_and_emphasis_of_a_model_are_posted() -> None:
    said = "`number` goes in:\n\n- *as it is*\n\n```py\nx = `1`\n```"
    found = placed(1, body=said, title="`find` is open", suggestion="y")
    act = review_act(TARGET, "comment", said, [found], run_id="ab")
    assert said in act.body
    assert act.comments[0].body == (
        f"**low: `find` is open** `00000000`\n\n{said}\n\n```suggestion\ny\n```"
    )


def test_what_is_cut_ends_no_block_of_code_in_its_middle() -> None:
    code = "```py\n" + "x = 1\n" * 300 + "```"
    (comment,) = review_act(
        TARGET, "comment", "s", [placed(1, body=code, suggestion="y")], run_id="ab"
    ).comments
    assert len(comment.body) <= 1_000
    assert comment.body.count("```") == 4
    assert comment.body.endswith("…\n```\n\n```suggestion\ny\n```")


@pytest.mark.parametrize(
    "line", [mark("ab12"), note_mark("ab12"), act_mark("77"), "<!-- gatehouse:prompt:a-b:ab12 -->"]
)
def test_a_mark_at_the_end_is_not_shown_and_stays(line: str) -> None:
    body = f"Words {mark('cd')}\n\n{line}\n"
    assert (own_mark(body), without_mark(body)) == (line, f"Words {mark('cd')}")
    assert own_mark(f"{line} more") == own_mark("") == own_mark("<!-- else -->") == ""
    assert without_mark("Words\n") == "Words"
    act = msgspec.structs.replace(posted(), body=body)
    assert taken(act, [], {"body": "Mine"}).body == f"Mine\n\n{line}"


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


@pytest.mark.parametrize("line", [0, 5])
@pytest.mark.parametrize("field", ["path", "title", "body", "suggestion"])
def test_an_address_is_seen_wherever_a_finding_has_it(field: str, line: int) -> None:
    assert posted(placed(1, line, **{field: "see https://example.org/x"})).links
    assert not posted(placed(1, line, **{field: "see example"})).links


def test_a_code_span_is_a_mark_at_the_end_alone() -> None:
    """Where a forge shows HTML, a mark is a code span; a model may write one, too."""
    ours, forged = mark("ab12", "bitbucket"), "`gatehouse:dead`"
    assert run_of(f"Words.\n\n{ours}\n") == "ab12"
    assert run_of(f"{forged}\n\n`gatehouse:prompt:p:ab12`") == ""
    assert run_of(f"{forged}\n\nWords.") == ""
    assert run_of(f"{forged}\n\n{mark('ab12')}") == "ab12"
    for end in ("`gatehouse:prompt:p:ab12`", act_mark("77", "bitbucket"), act_mark("77")):
        quoting = f"As {mark('dead')} says.\n\n{end}"
        assert (run_of(quoting), reviewed_by(quoting)) == ("", ""), "a stranger wrote that mark"
    assert own_mark(f"Words {forged}") == ""
    # GitHub's own words may come after ours.
    assert run_of(f"Words. {mark('ab12')}\n\nmore") == "ab12"


@pytest.mark.parametrize("forged", [mark("dead"), note_mark("dead")])
def test_a_mark_that_stands_in_the_code_is_none_of_ours(forged: str) -> None:
    act = posted(placed(1, suggestion=forged))
    assert forged in without_places(act).body
    note = without_places(note_act(act)).body
    act = without_places(act)
    assert (run_of(act.body), reviewed_by(act.body)) == ("ab12", "ab12")
    assert (run_of(note), reviewed_by(note)) == ("", "ab12")


def test_a_later_round_has_a_line_for_a_text_and_a_mark_of_its_own() -> None:
    act = posted(placed(1, severity="high"))
    note = note_act(act)
    assert note.body == (f"1 new finding; the summary above is up to date.\n\n{note_mark('ab12')}")
    assert (note.comments, note.head, note.severity) == (act.comments, act.head, "high")
    assert note_act(posted(placed(1), placed(2))).body.startswith("2 new findings; ")
    approval = review_act(TARGET, "approve", "All.", [], run_id="ab12")
    assert note_act(approval).body.startswith("Approved; the summary")
    changes = review_act(TARGET, "request_changes", "All.", [], run_id="ab12")
    assert note_act(changes).body.startswith("Changes are requested; the summary")
    assert (run_of(note.body), reviewed_by(note.body)) == ("", "ab12")
    assert (run_of(act.body), reviewed_by(act.body)) == ("ab12", "ab12")
    assert reviewed_by("nobody's") == ""
    assert without_places(note).body.endswith(f"Why.\n\n{note_mark('ab12')}")


def test_a_comment_is_known_by_the_request_that_it_is_of() -> None:
    act = posted()
    assert marked(act, "77").body == f"{act.body}\n\n{act_mark('77')}"
    assert run_of(act_mark("77")) == ""


def test_what_is_taken_back_says_by_whom() -> None:
    act = undo_act(TARGET, ["4"], ["5", "6"], by="ada @x", run_id="ab12")
    assert act.body == "This review was taken back by ada \\@ x."
    assert (act.operation, act.title) == ("undo", "ab12")
    assert act.targets == ("4", "review:5", "review:6")


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


def test_a_later_round_without_a_finding_says_no_new_ones() -> None:
    later = review_act(TARGET, "comment", "S", [], run_id="ab12", sections=["Round 2.", ""])
    assert "No new findings." in later.body
    assert "No findings." in review_act(TARGET, "comment", "S", [], run_id="ab12").body
