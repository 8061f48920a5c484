"""Comments that call us, and those that don't."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.reviews.core.findings import Finding, PlacedFinding
from supervisor.reviews.core.mentions import (
    MOST_ARGUMENT_CHARS,
    finding_of,
    parse_mention,
    read_ignore,
    shown_finding,
    split_words,
    why_text,
)
from supervisor.reviews.core.posts import comment_of
from supervisor.reviews.core.tracking import TrackedFinding
from tests.tables import each_row

APP = "Gatehouse-Demo"


@pytest.mark.parametrize(
    ("body", "command", "arguments"),
    [
        ("@gatehouse-demo review", "review", ""),
        ("@GATEHOUSE-demo review full\nand more words", "review", "full"),
        ("\n  \n@gatehouse-demo   docs  the README, please ", "docs", "the README, please"),
        ("@gatehouse-demo ignore 1234abcd\r\nwhy not", "ignore", "1234abcd"),
    ],
)
def test_its_first_line_calls_us(body, command, arguments) -> None:
    found = parse_mention(body, APP)
    assert found is not None
    assert (found.command, found.arguments) == (command, arguments)


@each_row(
    "body",
    [
        "",
        "review",
        "please, @gatehouse-demo review",
        " @gatehouse-demo review",
        "> @gatehouse-demo review",
        "`@gatehouse-demo review`",
        "    @gatehouse-demo review",
        "```\n@gatehouse-demo review\n```",
        "first\n@gatehouse-demo review",
        "@gatehouse-demos review",
        "@other review",
        "@gatehouse-demo",
        "@gatehouse-demo Review",
        "@gatehouse-demo -x",
        "!review",
        "@gatehouse-demo " + "a" * 65,
    ],
)
def test_anything_else_calls_nobody(body) -> None:
    assert parse_mention(body, APP) is None


def test_a_bang_calls_only_where_it_may() -> None:
    found = parse_mention("!review full", APP, takes_bang=True)
    assert found is not None
    assert (found.command, found.argv) == ("review", ("full",))
    assert parse_mention("! review", APP, takes_bang=True) is None


def test_arguments_may_be_only_so_long() -> None:
    found = [parse_mention(f"@{APP} docs {'x' * n}", APP) for n in (MOST_ARGUMENT_CHARS, 2001)]
    assert [one is not None and one.is_too_long for one in found] == [False, True]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ()),
        ("a  b", ("a", "b")),
        ('"a b" \'c " d\'', ("a b", 'c " d')),
        ("'never closed to the end", ("never closed to the end",)),
        ("a'b c", ("a'b", "c")),
        ('""', ("",)),
    ],
)
def test_words_are_split_at_blanks(text, words) -> None:
    assert split_words(text) == words


@given(st.text(alphabet="ab -@!é\n\t"))
def test_words_without_quotes_are_what_lies_between_blanks(text) -> None:
    assert split_words(text) == tuple(text.split())


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text) -> None:
    found = parse_mention(text, APP, takes_bang=True)
    assert found is None or (found.command and split_words(found.arguments) == found.argv)


@pytest.mark.parametrize(
    ("arguments", "finding", "why", "everywhere"),
    [
        ("1234abcd it is on purpose", "1234abcd", "it is on purpose", False),
        ("`1234abcd` --repository as everywhere", "1234abcd", "as everywhere", True),
        ("it is on purpose", "", "it is on purpose", False),
        ("", "", "", False),
    ],
)
def test_ignore_names_a_finding_or_means_its_threads(arguments, finding, why, everywhere) -> None:
    found = parse_mention(f"@{APP} ignore {arguments}", APP)
    assert found is not None
    assert read_ignore(found) == (finding, why, everywhere)


def test_a_comment_of_ours_shows_its_finding() -> None:
    assert finding_of("**high: T** `0123abcd`\n\n`ffffffff` in the text") == "0123abcd"
    assert finding_of("What do you mean?\n`0123abcd`") == ""


def test_a_finding_is_read_from_its_comment() -> None:
    finding = Finding(path="a.py", line=3, severity="high", title="It `x`_fails", body="Why.")
    placed = PlacedFinding("0123abcd" * 2, finding, 3, 3)
    found = shown_finding(comment_of(placed).body, "a.py", 3)
    assert found is not None
    assert (found.id, found.is_posted, found.state, found.line) == ("0123abcd", True, "open", 3)
    assert found.finding == finding
    bare = shown_finding("**low: t** `0123abcd`", "b.py", 0)
    assert bare is not None
    assert (bare.finding.body, bare.finding.line) == ("t", None)
    for other in ("", "hm", "**huge: t** `0123abcd`", "**low: t** `0123abcd` and more"):
        assert shown_finding(other, "a.py", 3) is None


@pytest.mark.parametrize("quote", ["", "x = `1`\n```"])
def test_why_says_what_a_finding_rests_on(quote) -> None:
    finding = Finding(
        path="a.py", line=3, severity="high", title="@all", body="Why.", quote=quote, skill="bugs"
    )
    one = TrackedFinding(id="0123abcd" * 2, finding=finding, state="open", line=3)
    text = why_text(one)
    assert "\\@ all" in text
    assert "a.py:3" in text
    assert ("````" in text) == bool(quote)
    plain = TrackedFinding(
        id="0" * 16, finding=Finding(path="b", severity="low", title="t", body="b"), state="open"
    )
    assert "found by" not in why_text(plain)
