"""What a job leaves for the next one, as a mark in a check: whole, bounded, and read with care."""

import zlib

import msgspec
import pytest

from supervisor.reviews.core.findings import Finding
from supervisor.reviews.core.kept_rounds import (
    MOST_MARK_CHARS,
    KeptRounds,
    kept_mark,
    mark_of,
    read_kept,
    with_mark,
    with_posted,
)
from supervisor.reviews.core.tracking import FindingState, TrackedFinding


def found(number: int, state: FindingState = "open", body: str = "It fails.") -> TrackedFinding:
    finding = Finding(path="a.py", severity="high", title=f"Number {number}", body=body, line=3)
    return TrackedFinding(id=f"{number:08x}ffffffff", finding=finding, state=state, is_posted=True)


KEPT = KeptRounds(rounds=2, head="a" * 40, cost=5, findings=(found(1), found(2, "fixed")))


def test_it_is_read_as_it_was_written() -> None:
    text = with_mark("The change was reviewed.", kept_mark(KEPT))
    assert read_kept(text) == KEPT
    assert mark_of(text) == kept_mark(KEPT)
    assert mark_of("The change was reviewed.") == ""


def test_what_is_posted_counts_also_if_nobody_kept_that() -> None:
    new = msgspec.structs.replace(found(3, "new"), is_posted=False)
    gone = msgspec.structs.replace(found(4, "fixed"), is_posted=False)
    other = msgspec.structs.replace(found(5, "new"), is_posted=False)
    kept = KeptRounds(findings=(new, gone, other, found(6)))
    shown = [msgspec.structs.replace(found(one), id=f"{one:08x}") for one in (3, 4, 6, 7, 7)]
    told = with_posted(kept, shown).findings
    assert [one.id for one in told] == [*(one.id for one in kept.findings), "00000007"]
    assert [one.is_posted for one in told] == [True, True, False, True, True]
    assert [one.state for one in told] == ["open", "fixed", "new", "open", "open"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no mark",
        "<!-- gatehouse:kept:abc -->",
        "<!-- gatehouse:kept:00 -->",
        f"<!-- gatehouse:kept:{zlib.compress(b'no JSON').hex()} -->",
        f"<!-- gatehouse:kept:{zlib.compress(b'[1]').hex()} -->",
        f"{kept_mark(KEPT)} and more",
    ],
)
def test_anything_else_is_nothing(text: str) -> None:
    assert read_kept(text) is None


def noise(number: int, words: int) -> str:
    """A text that can't be packed."""
    return " ".join(str(hash((number, one))) for one in range(words))


def test_a_long_one_loses_texts_then_what_is_gone_then_more() -> None:
    texts = [found(one, body=noise(one, 40)) for one in range(60)]
    kept = read_kept(kept_mark(KeptRounds(findings=tuple(texts))))
    assert kept is not None
    assert len(kept.findings) == 60
    assert kept.findings[0].finding.body == "Number 0"

    def long(number: int, state: FindingState) -> TrackedFinding:
        one = found(number, state)
        finding = msgspec.structs.replace(one.finding, quote=noise(number, 20))
        return msgspec.structs.replace(one, finding=finding)

    some = [long(one, "open" if one % 2 else "stale") for one in range(120)]
    kept = read_kept(kept_mark(KeptRounds(findings=tuple(some))))
    assert kept is not None
    assert {one.state for one in kept.findings} == {"open"}
    many = [long(one, "open") for one in range(1_000)]
    assert kept_mark(KeptRounds(findings=tuple(many))) == ""


def test_a_text_that_has_no_room_stays_without() -> None:
    mark = kept_mark(KEPT)
    assert len(mark) < MOST_MARK_CHARS
    assert with_mark("x" * 64_999, mark) == "x" * 64_999
    assert with_mark("x", "") == "x"


def test_it_holds_no_secret() -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    one = found(1, body=f"The token {token} is in the code.")
    kept = read_kept(kept_mark(KeptRounds(findings=(one,))))
    assert kept is not None
    assert token not in kept.findings[0].finding.body
