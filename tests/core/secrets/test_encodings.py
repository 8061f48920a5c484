"""Escapes are undone as their readers do it, what is none stays, and every part of a reading is
known by where it came from."""

import html
import json
import string
import urllib.parse
from html.entities import html5

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.secrets.encodings import (
    MOST_LAYERS,
    MOST_TORN_BYTES,
    as_digits,
    digits,
    in_one_line,
    readings,
    unescaped,
)
from tests.tables import each_row


@given(st.text())
def test_it_reads_as_others_read_it(text: str) -> None:
    plain = text.encode("utf-8", "replace")
    assert unescaped(urllib.parse.quote(plain, safe="").encode()) == plain
    if "\\" not in text and "%" not in text and "&" not in text:
        written = json.dumps(text, ensure_ascii=True)[1:-1].encode()
        assert unescaped(written) == json.loads(f'"{written.decode()}"').encode("utf-8", "replace")


@each_row(
    "name", [name for name in html5 if name.endswith(";") and html5[name] in string.printable]
)
def test_pages_name_some_characters(name: str) -> None:
    assert unescaped(f"&{name}".encode()).decode() == html.unescape(f"&{name}")


SOME = {
    b"%41%4a%4A": b"AJJ",
    b"\\u0041\\x42\\u{43}\\/\\\"\\'": b"ABC/\"'",
    b"\\ud83d\\ude00 \\u{1F600}": "\N{GRINNING FACE} \N{GRINNING FACE}".encode(),
    b"\\\\\\\\u0041": b"\\\\u0041",
    b"&#65;&#x41;&#0000065;&#X41&#65": b"AAAAA",
    b"&amp;&lt;&nosuch;": b"&<&nosuch;",
    b"&#99999999;\\u{ffffff}": b"??",
    b"%4 %zz \\q \\u12 & &; %": b"%4 %zz \\q \\u12 & &; %",
    b"\\ud83d and the text ends in \\ud83d": b"\xef\xbf\xbd and the text ends in \\ud83d",
    b"nothing": b"nothing",
}


@each_row("written", SOME)
def test_what_is_written_in_some_other_way_is_read(written: bytes) -> None:
    assert unescaped(written) == SOME[written]


@given(st.binary(max_size=200))
def test_each_byte_of_a_reading_came_from_somewhere_and_in_order(text: bytes) -> None:
    found = list(readings(text))
    assert len(found) <= MOST_LAYERS + 2
    for reading in found:
        for one in (reading, in_one_line(reading), as_digits(reading)):
            assert len(one.text) <= len(text)
            before = 0
            for at in range(len(one.text)):
                start, end = one.origin(at, at + 1)
                assert 0 <= start < end <= len(text)
                assert start >= before or not reading.is_unescaped
                before = start
            if one.text:
                start, end = one.origin(0, len(one.text))
                assert start == one.origin(0, 1)[0]
                assert end == one.origin(len(one.text) - 1, len(one.text))[1]
    assert not found[0].is_unescaped


def test_layers_and_what_is_left_between() -> None:
    assert [one.text for one in readings(b"%252541")] == [b"%252541", b"%2541", b"%41", b"A"]
    assert [one.text for one in readings(b"%25252541")][-1] == b"%41"
    assert [one.text for one in readings(b"a\0b\0")] == [b"a\0b\0", b"ab"]
    (plain,) = readings(b"ab-_ \r\n\tcd")
    assert in_one_line(plain).text == b"ab+/cd"
    assert as_digits(plain).text == b"abcd"
    assert digits(b"0x0A, 0xb0") == b"ab"
    assert as_digits(plain).origin(2, 4) == (8, 10)


@each_row(
    "torn",
    [
        b"%",
        b"%4",
        b"\\",
        b"\\u00",
        b"\\u{41",
        b"\\ud83d",
        b"\\ud83d\\u",
        b"&",
        b"&#x4",
        b"&quo",
        b"\\x4",
    ],
)
def test_an_escape_that_is_cut_off_is_no_part_of_what_is_before_it(torn: bytes) -> None:
    assert len(torn) <= MOST_TORN_BYTES
    assert [one.text for one in readings(b"abc%41" + torn, is_torn=True)][1] == b"abcA"
    assert [one.text for one in readings(b"abc%41" + torn + b".", is_torn=True)][1].endswith(b".")
    assert [one.text for one in readings(b"abc" + torn, is_torn=True)][1:] == [b"abc"]
