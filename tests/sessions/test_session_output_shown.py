"""An agent's output as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.secrets.redact import Redactor
from supervisor.sessions.session_output import LONGEST_LINE_BYTES, as_text, complete_part


@pytest.mark.parametrize(
    ("data", "is_final", "wanted"),
    [
        (b"", False, b""),
        (b"half", False, b""),
        (b"half", True, b"half"),
        (b"one\ntwo", False, b"one\n"),
        (b"10%\r20%", False, b"10%\r"),
        (b"x" * LONGEST_LINE_BYTES, False, b"x" * LONGEST_LINE_BYTES),
        (b"x" * LONGEST_LINE_BYTES + "ü".encode()[:1], False, b"x" * LONGEST_LINE_BYTES),
        (b"x" * LONGEST_LINE_BYTES + "\U0001f600".encode()[:3], False, b"x" * LONGEST_LINE_BYTES),
        (b"\x80" * LONGEST_LINE_BYTES, False, b"\x80" * LONGEST_LINE_BYTES),
    ],
)
def test_what_can_be_shown_of_a_read(data: bytes, is_final: bool, wanted: bytes) -> None:
    assert complete_part(data, is_final=is_final) == wanted


@given(st.text(max_size=60), st.integers(1, 50))
def test_reading_on_loses_and_doubles_nothing(text: str, step: int) -> None:
    data = text.encode()
    offset, read, shown = 0, 0, b""
    while offset < len(data):
        read = min(len(data), max(read, offset) + step)
        part = complete_part(data[offset:read], is_final=read == len(data))
        shown += part
        offset += len(part)
    assert shown == data


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"\x1b[1;31mred\x1b[0m\x1b[2J\x1b[?25l", "red"),
        (b"\x1b]0;title\x07\x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"a\r\nb\rc", "a\nb\nc"),
        (b"\x1b\x07\x00", "\\u{1b}\\u{7}\\u{0}"),
        ("\u202e\u200b".encode(), "\\u{202e}\\u{200b}"),
        (b"\xff", "\ufffd"),
        (b"the-secret-value", "[redacted]"),
    ],
)
def test_output_is_safe_to_look_at(data: bytes, wanted: str) -> None:
    assert as_text(data, Redactor(["the-secret-value"])) == wanted
