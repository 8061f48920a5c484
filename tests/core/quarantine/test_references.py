"""Typed references: one spelling each, and none that another session, file or byte could have."""

import hmac
import re
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.quarantine.references import (
    MOST_AGE_S,
    BadReferenceError,
    Reference,
    checked,
    is_plain,
    written,
)
from tests.tables import each_row

KEY = bytes(range(32))
SID = "0b9a4f1e-7c1d-4e55-9a77-3f2f6f1f2b10"
OTHER = "0b9a4f1e-7c1d-4e55-8a77-3f2f6f1f2b10"
REFERENCE = Reference("src/a b.py", "ab" * 32, 17, 1_000, SID)
TEXT = written(REFERENCE, KEY)
paths = (
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1),
        min_size=1,
        max_size=4,
    )
    .map("/".join)
    .filter(is_plain)
)


def signed(**changes: object) -> str:
    """A reference with a right MAC, whatever is in it."""
    return written(REFERENCE._replace(**changes), KEY)


def test_it_is_spelled_as_documented() -> None:
    head, _, mac = TEXT.partition("&hmac=")
    assert head == f"typed://src/a%20b.py?d={'ab' * 32}&n=17&ts=1000&sid={SID}"
    packed = msgspec.msgpack.encode(["ref1", SID, "src/a b.py", "ab" * 32, 17, 1000])
    assert mac == hmac.new(KEY, packed, "sha256").hexdigest()


@given(paths, st.integers(0, 2**40), st.integers(0, MOST_AGE_S))
def test_what_is_written_is_read_again(path: str, size: int, age: int) -> None:
    reference = Reference(path, "0" * 64, size, 5_000, SID)
    assert checked(written(reference, KEY), bytearray(KEY), SID, 5_000.9 + age) == reference


@given(st.integers(0, len(TEXT) - 1), st.characters(max_codepoint=0x2FF))
def test_a_reference_altered_in_any_byte_is_refused(at: int, char: str) -> None:
    altered = TEXT[:at] + char + TEXT[at + 1 :]
    if altered != TEXT:
        with pytest.raises(BadReferenceError):
            checked(altered, KEY, SID, 1_000)
    for other in (TEXT[:at] + TEXT[at + 1 :], TEXT[:at] + char + TEXT[at:]):
        with pytest.raises(BadReferenceError):
            checked(other, KEY, SID, 1_000)


@each_row(
    ("text", "why"),
    [
        ("", "isn't spelled"),
        ("src/a b.py", "isn't spelled"),
        ("/etc/passwd", "isn't spelled"),
        (f"{TEXT}\n", "isn't spelled"),
        (TEXT.replace("&n=17&ts=1000", "&ts=1000&n=17"), "isn't spelled"),
        (TEXT.replace("n=17", "n=017"), "isn't spelled"),
        (TEXT.replace("typed:", "TYPED:"), "isn't spelled"),
        (TEXT.upper(), "isn't spelled"),
        (f"typed://{'a' * 20_000}{TEXT[17:]}", "isn't spelled"),
        (TEXT.replace("%20", "%2520"), "MAC"),
        (TEXT.replace("src/a", "src/%61"), "spelled plainly"),
        (TEXT.replace("a%20b", "a%2"), "spelled plainly"),
        (TEXT.replace("a%20b", "%ff"), "UTF-8"),
        (TEXT.replace("src/", "src%2F"), "spelled plainly"),
        (signed(path="/etc/passwd"), "spelled plainly"),
        (signed(path="../a"), "spelled plainly"),
        (signed(path="a/./b"), "spelled plainly"),
        (signed(path="a//b"), "spelled plainly"),
        (signed(path="a/\0"), "spelled plainly"),
        (signed(sid=OTHER), "another session's"),
        (signed(made_at=1_001), "too old"),
        (signed(made_at=1_000 - MOST_AGE_S - 1), "too old"),
        (written(REFERENCE, b"\0" * 32), "MAC"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadReferenceError, match=re.escape(why)):
        checked(text, KEY, SID, 1_000)


def test_a_path_that_is_no_text_is_not_plain() -> None:
    assert not is_plain("a/\udc80")
    assert is_plain("a/é\U0001f600.py")
    assert quote("é", safe="/") in signed(path="é")
