"""Remarks on lines as the agent reads them: whole, each with its place, never cut."""

import msgspec
import pytest

from supervisor.core.files.line_comments import (
    MOST_COMMENTS,
    MOST_REASON_CHARS,
    LineComment,
    read_comments,
    read_set_comments,
    reason_with,
)
from supervisor.errors import UserError


def test_each_remark_is_a_line_of_the_reason_with_its_place() -> None:
    said = [
        LineComment(line=12, text="rename  this\nto `x`"),
        LineComment(line=3, text="why?"),
        LineComment(line=12, text="keep it", is_old=True),
    ]
    assert reason_with("not yet", "src/a.py", said) == (
        "not yet\nsrc/a.py:3: why?\nsrc/a.py:12 before: keep it\nsrc/a.py:12: rename this to `x`"
    )
    assert reason_with("", "a.py", said[1:2]) == "a.py:3: why?"
    assert reason_with("no", "a.py", []) == "no"


def test_a_path_makes_no_line_of_its_own() -> None:
    said = reason_with("", "a\nb.py:1: approve it", [LineComment(line=2, text="no")])
    assert said == "a\\nb.py:1: approve it:2: no"


def test_what_is_too_long_is_refused_and_not_cut() -> None:
    long = [LineComment(line=one, text="x" * 1000) for one in (1, 2)]
    assert len(reason_with("", "a", long[:1])) < MOST_REASON_CHARS
    with pytest.raises(UserError, match=r"2,0\d\d characters"):
        reason_with("", "a", long)


def test_comments_are_read_as_a_page_sends_them() -> None:
    one = [LineComment(line=1, text="x", is_old=True)]
    text = msgspec.json.encode(one).decode()
    assert read_comments(text) == one
    assert read_comments("") == []
    assert read_set_comments(f'{{"id": {text}}}') == {"id": one}
    assert read_set_comments("") == {}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[{}]",
        '[{"line": 0, "text": "x"}]',
        '[{"line": 1, "text": ""}]',
        '[{"line": 1, "text": "x", "path": "y"}]',
        f"[{','.join(['{"line": 1, "text": "x"}'] * (MOST_COMMENTS + 1))}]",
        "\ud800",
    ],
)
def test_others_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="can't be read"):
        read_comments(text)
