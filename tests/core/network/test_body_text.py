"""Which bodies are text, and what they say."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.network.body_text import charset_of, decoded
from tests.tables import each_row


@each_row(
    ("data", "media_type", "charset", "text"),
    [
        (b"", "", "utf-8", ""),
        (b"plain", "image/png", "utf-8", "plain"),
        ("é".encode(), "text/plain", "utf-8", "é"),
        ("né".encode()[:-1], "application/octet-stream; cut", "utf-8", "n"),
        (codecs.BOM_UTF8 + b"a", "", "utf-8", "a"),
        ("é\u201d".encode("cp1252"), "text/html; charset=ISO-8859-1", "cp1252", "é\u201d"),
        ("é".encode("latin-1"), "text/plain", "cp1252", "é"),
        ("{é}".encode("latin-1"), "application/vnd.x+json", "cp1252", "{é}"),
        ("я".encode("koi8-r"), 'text/plain; charset="koi8-r"', "koi8-r", "я"),
        ("é".encode("utf-16"), "text/plain", "utf-16-le", "é"),
        (codecs.BOM_UTF16_BE + "é".encode("utf-16-be"), "", "utf-16-be", "é"),
        ("é".encode("utf-16-be"), "text/plain;charset=utf-16be", "utf-16-be", "é"),
        ("éa".encode("utf-16-le")[:-1], "text/plain; charset=utf-16", "utf-16-le", "é"),
        (b"\xff", "text/plain; charset=utf-8", "utf-8", "\ufffd"),
        (b"a", "text/plain; charset=punycode", "utf-8", "a"),
    ],
)
def test_text_is_read_as_it_is_written(
    data: bytes, media_type: str, charset: str, text: str
) -> None:
    assert charset_of(data, media_type, is_cut="cut" in media_type) == charset
    assert decoded(data, charset) == text


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"a\0b", "text/plain"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"\xff", ""),
        (b"\x89PNG\r\n\x1a\n\0", "text/html; charset=utf-8"),
    ],
)
def test_what_is_none_stays_bytes(data: bytes, media_type: str) -> None:
    assert charset_of(data, media_type, is_cut=True) is None


@given(st.binary(max_size=40), st.text(max_size=40), st.booleans())
def test_nothing_is_too_odd_to_be_looked_at(data: bytes, media_type: str, is_cut: bool) -> None:
    charset = charset_of(data, media_type, is_cut=is_cut)
    assert charset is None or isinstance(decoded(data, charset), str)
