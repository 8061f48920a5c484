"""Answers of agents in quarantine: what of them stands, and that nothing in them acts."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.quarantine.quarantine_answers import (
    BadAnswerError,
    checked_answer,
    dropped_words,
    inert,
    read_answer,
)
from supervisor.core.review_markdown import plain
from tests.tables import each_row

LINES = ["def f(a):", "", "    return  a", "", "print(f(1))"]


def said(*findings: dict[str, Any], **more: Any) -> str:
    body = {"verdict": "comment", "summary": "All in all.", "findings": list(findings)}
    return json.dumps(body | more)


def finding(**more: Any) -> dict[str, Any]:
    base = {"path": "a.py", "line": 1, "severity": "high", "title": "A title", "body": "Why."}
    return base | more


def checked(text: str, redact: Any = str):  # type: ignore[no-untyped-def]
    return checked_answer(read_answer(text), {"a.py", "gone.py"}, {"a.py": LINES}, redact)


@pytest.mark.parametrize(
    "text",
    [
        said(finding()),
        f"Words.\n<review>\n{said(finding())}\n</review>\nmore",
        f"<review>nothing</review> then <review>{said(finding())}</review>",
        f"<review>{said(finding(body='</review><review>{}</review>'))}</review>",
        f"<review>{said(summary='a draft')}</review><review>{said(finding())}</review>",
        f"<review>```json\n{said(finding())}\n```</review>",
    ],
)
def test_the_last_block_or_the_whole_is_the_answer(text: str) -> None:
    answer = read_answer(text)
    assert (answer.verdict, answer.misshapen, answer.paths) == ("comment", 0, {"a.py"})


@each_row(
    "text",
    [
        *("", "<review></review>", "Fine!", "[]", "null", '{"verdict": "comment"}'),
        *(said(verdict="merge"), said(more=1), said(summary=""), said() + said()),
        *(said(findings={}), said(*[finding()] * 201), '"\ud800"'),
    ],
)
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(BadAnswerError):
        read_answer(text)


@each_row(
    ("more", "reason"),
    [
        ({"severity": "grave"}, "shape"),
        ({"tool": "Bash"}, "shape"),
        ({"title": ""}, "shape"),
        ({"path": "b.py"}, "path"),
        ({"path": "/etc/passwd"}, "path"),
        ({"path": "../a.py"}, "path"),
        ({"path": "."}, "path"),
        ({"path": ".", "line": None, "quote": "x"}, "path"),
        ({"quote": "def g(a):"}, "quote"),
        ({"quote": "return a"}, "quote"),
        ({"quote": "def f(a):", "line": None}, "quote"),
        ({"quote": "def f(a):", "line": 2}, "quote"),
        ({"quote": "print(f(1))", "line": 6}, "quote"),
        ({"quote": "print(f(1))\nmore", "line": 5}, "quote"),
        ({"quote": " \n", "line": 1}, "quote"),
        ({"quote": "x = 1", "path": "gone.py"}, "quote"),
    ],
)
def test_what_is_dropped_and_counted(more: dict[str, Any], reason: str) -> None:
    answer = checked(said(finding(), finding(**more)))
    assert answer.dropped == {reason: 1}
    assert [one.title for one in answer.findings] == ["A title"]
    assert dropped_words(answer.dropped).startswith("dropped: 1 ")


@pytest.mark.parametrize(
    "more",
    [
        {"quote": "def f(a):"},
        {"quote": "def f(a):\n    return a", "start_line": 1, "line": 3},
        {"quote": "def f(a):\n    return a", "line": 1},
        {"quote": "return a\nprint(f(1))", "line": 4, "start_line": 3},
        {"line": None},
        {"path": ".", "line": None},
    ],
)
def test_a_quote_at_its_line_stands(more: dict[str, Any]) -> None:
    answer = checked(said(finding(**more)))
    assert not answer.dropped
    assert len(answer.findings) == 1
    assert dropped_words(answer.dropped) == ""


def test_secrets_are_redacted_everywhere() -> None:
    texts = {"body": "s3cret", "quote": "", "suggestion": "s3cret", "skill": "s3cret"}
    text = said(finding(title="a s3cret", **texts), summary="s3cret", notes=["s3cret"])
    answer = checked(text, lambda one: one.replace("s3cret", "[redacted]"))
    assert "s3cret" not in repr(answer)
    assert repr(answer).count("[redacted]") == 6


def test_code_stays_code() -> None:
    answer = checked(said(finding(suggestion="a = b[0](x)  # @ada #12\u202e", quote="def f(a):")))
    (kept,) = answer.findings
    assert kept.suggestion == "a = b[0](x)  # @ada #12\\u{202e}"
    assert kept.quote == "def f(a):"


@each_row(
    ("text", "wanted"),
    [
        ("Plain words, a < b && c > d.", "Plain words, a < b && c > d."),
        ("one\r\ntwo", "one\ntwo"),
        ("<!-- do it -->ok", " ok"),
        ("<!-- never closed", " "),
        ("a\u200bb\u202ec", "a\\u{200b}b\\u{202e}c"),
        ("![x](https://evil.example/?s=1)", "! [x] ((a link to evil . example)"),
        ("[x](javascript:alert(1))", "[x] ((a link)"),
        ("[x][1]\n[1]: https://evil.example", "[x] [1]\n[1] : (a link to evil . example)"),
        ("<img src=//evil.example/x>see", " see"),
        ("see www.evil.example/a", "see (a link to evil . example)"),
        ("ask @ada and @acme/team", "ask @ ada and @ acme/team"),
        ("a@b.c", "a@ b.c"),
        ("fixes #12, GH-3, acme/shop#4", "fixes # 12, GH 3, acme/shop# 4"),
        ("/approve\n- /merge now\na/b", "/ approve\n- / merge now\na/b"),
        ("&#64;ada &commat;ada AT&T", "& # 64;ada & commat;ada AT&T"),
        ("<!-<!-- x -->- y -->@<!-- x -->ada", "<!- - y -->@ ada"),
    ],
)
def test_what_would_act_does_not(text: str, wanted: str) -> None:
    assert inert(text) == wanted
    assert inert(wanted) == wanted


ACTS = re.compile(
    r"<!--|<img|!\[|\]\(|\]\[|[a-z]://|@[\w-]|#\d|&#|&commat;|^\s*/[a-z]|[\u200b\u202e]",
    re.MULTILINE | re.IGNORECASE,
)
PIECES = [
    *(
        "<!--",
        "-->",
        "<",
        "!",
        "--",
        "img ",
        "<img",
        "[",
        "]",
        "(",
        ")",
        ":",
        "://",
        "https",
        "www.",
    ),
    *(
        "@",
        "ada",
        "#",
        "1",
        "GH-",
        "/",
        "approve",
        "\n",
        "&",
        "#64;",
        "commat;",
        " ",
        "\u200b",
        ">",
    ),
]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_nothing_that_acts_is_left_nor_comes_back(text: str) -> None:
    made = inert(text)
    assert not ACTS.search(made)
    assert inert(made) == made
    assert "<" not in plain(made).replace("\\<", "")


def test_what_nothing_is_left_of_is_still_a_text() -> None:
    answer = checked(said(finding(title="<!-- a -->", body="<!-- b"), summary="<!-- c"))
    (kept,) = answer.findings
    assert {kept.title, kept.body, answer.summary} == {"(nothing is left of it)"}
    assert answer.defused == 3
