"""The quick reader of ordinary CONNECT heads: what it reads h11 reads the same, to the byte; all
else it leaves to h11."""

import dataclasses

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.egress.protocols import checks, connect_head

CURL = (
    b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n"
    b"User-Agent: curl/8.5.0\r\nProxy-Connection: Keep-Alive\r\n\r\n"
)
HELLO = b"\x16\x03\x01\x02\x00"
ORDINARY = {
    "curl": CURL,
    "go": (
        b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nUser-Agent:"
        b" Go-http-client/1.1\r\n\r\n"
    ),
    "node": b"CONNECT a.example:443 HTTP/1.1\r\nhost: a.example:443\r\nconnection: close\r\n\r\n",
    "an address": b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n",
    "with more behind": CURL + HELLO,
    "with another request behind": CURL + CURL,
}
UNUSUAL = {
    "nothing": b"",
    "not whole": CURL[:-1],
    "another method": CURL.replace(b"CONNECT", b"GET"),
    "in lower case": CURL.replace(b"CONNECT", b"connect"),
    "an empty line before": b"\r\n" + CURL,
    "an older version": CURL.replace(b"1.1\r\nHost", b"1.0\r\nHost"),
    "no host": b"CONNECT a.example:443 HTTP/1.1\r\nUser-Agent: x\r\n\r\n",
    "no header": b"CONNECT a.example:443 HTTP/1.1\r\n\r\n",
    "two hosts": CURL.replace(b"User-Agent", b"hOST"),
    "an unknown header": CURL.replace(b"User-Agent", b"X-Other"),
    "a length": CURL.replace(b"User-Agent: curl/8.5.0", b"Content-Length: 5"),
    "chunks": CURL.replace(b"User-Agent: curl/8.5.0", b"Transfer-Encoding: chunked"),
    "a folded line": CURL.replace(b"Proxy-Connection:", b" Proxy-Connection:"),
    "a space before the colon": CURL.replace(b"Host:", b"Host :"),
    "no space behind the colon": CURL.replace(b"Host: ", b"Host:"),
    "a tab": CURL.replace(b"Host: ", b"Host:\t"),
    "a space at the end": CURL.replace(b"8.5.0\r", b"8.5.0 \r"),
    "an empty value": CURL.replace(b"curl/8.5.0", b""),
    "bare line feeds": CURL.replace(b"\r\n", b"\n"),
    "one bare line feed": CURL.replace(b"\r\nHost", b"\nHost"),
    "a carriage return in a value": CURL.replace(b"8.5.0", b"8.\r5.0"),
    "a zero byte": CURL.replace(b"8.5.0", b"8.\x005.0"),
    "another script": CURL.replace(b"8.5.0", "8.é".encode()),
    "a target with a path": CURL.replace(b":443 HTTP", b":443/x HTTP"),
    "a target with a user": CURL.replace(b"CONNECT api", b"CONNECT me@api"),
    "two spaces": CURL.replace(b"CONNECT ", b"CONNECT  "),
    "too long": CURL.replace(b"8.5.0", b"8" * 4096),
}


def by_h11(data: bytes) -> tuple[checks.Head, int] | None:
    """What h11 reads; None where it doesn't, or there is no whole head yet."""
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=checks.MOST_HEAD_BYTES)
    parser.receive_data(data)
    try:
        event = parser.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Request):
        return None
    head = connect_head.of(event.method, event.target, event.headers, event.http_version)
    return head, len(data) - len(parser.trailing_data[0])


@pytest.mark.parametrize("data", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_heads_are_read_as_h11_reads_them(data: bytes) -> None:
    found = connect_head.read(bytearray(data))
    assert found is not None
    assert found == by_h11(data)


@pytest.mark.parametrize("data", UNUSUAL.values(), ids=UNUSUAL)
def test_all_else_is_left_to_h11(data: bytes) -> None:
    assert connect_head.read(bytearray(data)) is None


def test_a_head_that_is_said_again_is_judged_as_itself() -> None:
    """What is kept of one says nothing of another, however alike."""
    other = CURL.replace(b"Host: api", b"Host: ape")
    for _ in range(2):
        for data, is_well in (
            (CURL, True),
            (other, False),
            (CURL.replace(b":443 HTTP", b":0 HTTP"), None),
        ):
            found = connect_head.read(bytearray(data))
            assert found is not None
            head, _ = found
            action, why = head.asked
            assert head.asked == checks.Head(**dataclasses.asdict(head)).asked
            assert (action is None, why is None) == (is_well is None, is_well is not False)
            assert action is None or (action.host, action.port, action.operation) == (
                "api.example.com",
                443,
                "connect",
            )


BITS = [
    b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"", b"\0", b"\x0b", b"\x0c", b"\x85", b"\xff",
    b"Host: b.example\r\n", b"Content-Length: 1\r\n", b"HTTP/1.1",
    b"CONNECT ", b"\r\n\r\n", b"accept: a  b\r\n", b"Connection: Upgrade\r\n",
    b"Transfer-Encoding: chunked\r\n", b",", b"@", b"/",
]  # fmt: skip
EDITS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 12),
st.sampled_from(BITS) | st.binary(max_size=3)), max_size=4)  # fmt: skip


@given(st.sampled_from(list(ORDINARY.values())), EDITS)
@example(CURL, [])
def test_whatever_it_reads_h11_reads_the_same(
    data: bytes, edits: list[tuple[int, int, bytes]]
) -> None:
    for at, gone, put in edits:
        data = data[:at] + put + data[at + gone :]
    found = connect_head.read(bytearray(data))
    assert found is None or found == by_h11(data)


NAMES = st.sampled_from(
    [b"Host", b"HOST", b"User-Agent", b"Accept", b"Connection", b"Proxy-Authorization", b"Upgrade"]
)
LINES = st.lists(
    st.tuples(NAMES, st.sampled_from([b": ", b":", b" : ", b":  "]), st.binary(max_size=8)),
    max_size=4,
)


@given(st.text("abAB09.-:[]@%_/", max_size=20), LINES, st.binary(max_size=20))
def test_of_heads_made_of_parts_too(
    target: str, lines: list[tuple[bytes, bytes, bytes]], rest: bytes
) -> None:
    said = b"".join(name + colon + value + b"\r\n" for name, colon, value in lines)
    data = b"CONNECT " + target.encode() + b" HTTP/1.1\r\nHost: a\r\n" + said + b"\r\n" + rest
    found = connect_head.read(bytearray(data))
    assert found is None or found == by_h11(data)
