"""What a review's text says of the rounds before it."""

from supervisor.reviews.core.findings import Finding
from supervisor.reviews.core.posts import MOST_LISTED, round_sections
from supervisor.reviews.core.tracking import RoundOutcome, TrackedFinding


def found(title, state="open", **more):
    one = Finding(path="a.py", line=1, severity="high", title=title, body="b")
    return TrackedFinding(id="0123456789abcdef", finding=one, state=state, **more)


def outcome(**parts):
    empty = {name: [] for name in RoundOutcome._fields}
    return RoundOutcome(**empty | parts)


def test_the_first_round_has_nothing_to_say_of_earlier_ones() -> None:
    assert round_sections(outcome(), number=1, threads_stay=True) == []


def test_each_part_is_listed_and_no_title_is_markup() -> None:
    lines = "\n".join(
        round_sections(
            outcome(
                post=[found("n", unconfirmed=1)],
                carried=[found("[a](b)")],
                back=[found("again")],
                gone=[found("done", "fixed"), found("left", "stale")],
                kept_back=[found("small")],
            ),
            number=3,
            threads_stay=True,
        )
    )
    assert lines.startswith("Round 3.")
    assert "**Open from before**\n\n- high: \\[a\\](b) (`a.py`) `01234567`" in lines
    for words in (
        "**Back again**",
        "**Fixed since**",
        "**No longer part of the change**",
        "Their threads stay open here",
        "not looked at again in this round: 1.",
        "Below what this round posts, and kept: 1.",
    ):
        assert words in lines, words
    resolved = round_sections(outcome(gone=[found("d", "fixed")]), number=2, threads_stay=False)
    assert "threads" not in "\n".join(resolved)


def test_a_long_list_is_cut_and_says_so() -> None:
    many = [found(str(n)) for n in range(MOST_LISTED + 2)]
    lines = round_sections(outcome(carried=many), number=2, threads_stay=False)
    assert lines[-2:] == ["- and 2 more", ""]
