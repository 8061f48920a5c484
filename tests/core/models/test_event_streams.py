"""Events of streams, whatever the boundaries of the chunks."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.models import event_streams
from supervisor.core.models.event_streams import AwsEvents, ServerSent, StreamEvent


def aws(kind: str, payload: bytes, extra: bytes = b"") -> bytes:
    """One frame as AWS writes it; the sums aren't looked at."""
    name = b":event-type"
    head = extra + bytes([len(name)]) + name + b"\x07" + len(kind).to_bytes(2) + kind.encode()
    total = 12 + len(head) + len(payload) + 4
    return total.to_bytes(4) + len(head).to_bytes(4) + b"\0" * 4 + head + payload + b"\0" * 4


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(at)]


def read(reader: ServerSent | AwsEvents, chunks: list[bytes]) -> list[StreamEvent]:
    return [event for chunk in chunks for event in reader.feed(chunk)] + list(reader.end())


EVENTS = [
    StreamEvent("message_start", b'{"a": 1}'),
    StreamEvent("", b"two\nlines"),
    StreamEvent("done", b"[DONE]"),
]


def sse(newline: bytes) -> bytes:
    text = (
        b': a comment\n\nevent: message_start\ndata: {"a": 1}\nid: 7\n\ndata:two\ndata:'
        b" lines\n\n\nevent: done\ndata: [DONE]"
    )
    return text.replace(b"\n", newline)


@given(
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef\xbb\xbfdata: x\n\n"]),
    st.lists(st.integers(0, 500), max_size=12),
)
def test_server_sent_events_cut_anywhere(newline: bytes, before: bytes, places: list[int]) -> None:
    reader = ServerSent()
    first = [StreamEvent("", b"x")] if b"data" in before else []
    assert read(reader, cut(before + sse(newline), places)) == first + EVENTS
    assert not reader.lost


@given(st.lists(st.integers(0, 500), max_size=12))
def test_aws_events_cut_anywhere(places: list[int]) -> None:
    data = aws("chunk", b"one") + aws(
        "metadata", b"", extra=b"\x01a\x00\x01b\x04\0\0\0\0\x01c\x06\0\x02xx"
    )
    reader = AwsEvents()
    assert read(reader, cut(data, places)) == [
        StreamEvent("chunk", b"one"),
        StreamEvent("metadata", b""),
    ]
    assert not reader.lost


def test_an_event_that_is_too_long_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "MOST_EVENT_BYTES", 10)
    reader = ServerSent()
    assert read(reader, [b"data: 01234", b"567890\n\ndata: ok\n\n"]) == [StreamEvent("", b"ok")]
    assert reader.lost
    reader = ServerSent()
    assert read(reader, [b"data: 01234\ndata: 567890\ndata: 9\n\ndata: ok\n\n"]) == [
        StreamEvent("", b"ok")
    ]
    assert reader.lost
    reader = ServerSent()
    assert read(reader, [b"data: 0123456789ab", b"data: cd"]) == []
    assert reader.lost


@pytest.mark.parametrize("line", [b"data:\n", b"data\n", b"data: \r\n", b"data: x\n"])
def test_lines_without_content_are_no_less_bounded(
    monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    """A stream of nothing else, without the blank line that ends an event, was kept whole."""
    monkeypatch.setattr(event_streams, "MOST_EVENT_BYTES", 100)
    reader = ServerSent()
    for _ in range(50):
        assert list(reader.feed(line * 40)) == []
        assert len(reader._data) <= 101
    assert reader.lost
    assert read(reader, [b"\ndata: ok\n\n"]) == [StreamEvent("", b"ok")]


def test_an_event_may_have_empty_lines_and_be_as_long_as_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_streams, "MOST_EVENT_BYTES", 10)
    reader = ServerSent()
    assert read(reader, [b"data:\n\ndata\ndata\n\ndata:1234\ndata:56789\n\n"]) == [
        StreamEvent("", b""),
        StreamEvent("", b"\n"),
        StreamEvent("", b"1234\n56789"),
    ]
    assert not reader.lost
    assert read(reader, [b"data:1234\ndata:567890\n\n"]) == []
    assert reader.lost


def test_what_is_no_aws_stream_is_passed_over_whole() -> None:
    for data in (b"\xff" * 40, b"\0" * 40, b"\0\0\0\x20\0\0\0\x20" + b"\0" * 40):
        reader = AwsEvents()
        assert read(reader, [data, b"more"]) == []
        assert reader.lost
    reader = AwsEvents()
    assert read(reader, [aws("chunk", b"one")[:-1]]) == []
    assert reader.lost


@pytest.mark.parametrize(
    "head", [b"", b"\x05", b"\x01a", b"\x01a\x07\0\x01x", b"\x0b:event-type\x06\0\x01x"]
)
def test_a_frame_without_a_name(head: bytes) -> None:
    data = (
        (16 + len(head) + 2).to_bytes(4)
        + len(head).to_bytes(4)
        + b"\0" * 4
        + head
        + b"ok"
        + b"\0" * 4
    )
    assert read(AwsEvents(), [data]) == [StreamEvent("", b"ok")]


@given(st.lists(st.binary(max_size=60), max_size=8), st.booleans())
def test_no_event_is_longer_than_the_bytes_it_came_in(chunks: list[bytes], is_aws: bool) -> None:
    found = read(AwsEvents() if is_aws else ServerSent(), chunks)
    assert all(len(event.data) <= sum(map(len, chunks)) for event in found)


def test_a_line_break_that_comes_in_two_pieces_swallows_none_behind_it() -> None:
    """Two events in one are neither, and the count of the last would be gone."""
    frames = ServerSent()
    pieces = (b"data: 1\r", b"\n", b"\ndata: 2\r", b"", b"\n", b"\r", b"\n")
    assert [event.data for piece in pieces for event in frames.feed(piece)] == [b"1", b"2"]
