"""The reader of ClientHellos: every way to cut one gives the same name, everything else is
refused, nothing hangs or crashes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy.proxy.layers.tls import parse_client_hello

from supervisor.egress.protocols.client_hello import (
    RETRY_BYTES,
    ClientHello,
    HelloError,
    HelloReader,
    asks_again,
)
from tests.egress.hellos import (
    BAD,
    HELLO,
    NAME,
    RETRY_RANDOM,
    client_hello,
    extension,
    message,
    record,
    records,
    server_hello,
    server_name,
    with_extensions,
)


def read(data: bytes, *, is_second: bool = False) -> ClientHello | None:
    return HelloReader(is_second=is_second).read(bytearray(data))


def test_the_name_of_a_real_hello() -> None:
    assert read(HELLO) == ClientHello(NAME, len(HELLO))
    assert read(client_hello(None)) == ClientHello(None, len(client_hello(None)))


def test_what_comes_behind_is_not_part_of_it() -> None:
    assert read(HELLO + record(b"\x01", kind=20) + b"rest") == ClientHello(NAME, len(HELLO))


@given(st.lists(st.integers(1, 200), max_size=40), st.lists(st.integers(1, 300), max_size=40))
def test_however_it_is_cut_the_name_is_the_same(sizes: list[int], segments: list[int]) -> None:
    data = records(message(HELLO), sizes)
    reader, held, found = HelloReader(), bytearray(), None
    for size in [*segments, len(data)]:
        assert found is None
        part, data = data[:size], data[size:]
        held += part
        found = reader.read(held)
        if not data:
            break
    assert found == ClientHello(NAME, len(held))


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_is_no_hello_is_refused(data: bytes) -> None:
    with pytest.raises(HelloError):
        read(data)


def test_of_an_encrypted_hello_the_outer_name_counts() -> None:
    outer = with_extensions(extension(0, server_name(b"public.test")), extension(0xFE0D, bytes(40)))
    assert read(outer) == ClientHello("public.test", len(outer))


def test_a_second_hello_may_follow_records_that_say_nothing() -> None:
    before = record(b"\x01", kind=20) + record(b"early data", kind=23)
    assert read(before + HELLO, is_second=True) == ClientHello(NAME, len(before + HELLO))
    for bad in (
        record(b"\x02", kind=20),
        record(b"x", kind=21),
        records(message(HELLO), [9])[:14] + record(b"\x01", kind=20),
    ):
        with pytest.raises(HelloError):
            read(bad + HELLO, is_second=True)


@given(st.binary(max_size=300), st.integers(0, len(HELLO)), st.booleans())
def test_no_bytes_make_it_fail_otherwise(noise: bytes, at: int, is_second: bool) -> None:
    for data in (
        noise,
        HELLO[:at] + noise,
        HELLO[:at] + noise + HELLO[at:],
        record(b"\x01\x00\x00" + noise) if noise else b"",
    ):
        try:
            found = read(data, is_second=is_second)
        except HelloError:
            continue
        assert found is None or 0 < found.length <= len(data)


@given(st.integers(5, len(HELLO) - 1), st.integers(0, 255))
def test_where_another_reader_sees_a_name_this_one_sees_the_same_or_none_at_all(
    at: int, byte: int
) -> None:
    """mitmproxy's reader, over hellos with one byte changed."""
    data = HELLO[:at] + bytes([byte]) + HELLO[at + 1 :]
    try:
        ours = read(data)
    except HelloError:
        return
    try:
        theirs = parse_client_hello(data)
    except ValueError:
        theirs = None
    if ours is not None and theirs is not None and theirs.sni is not None:
        assert ours.server_name == theirs.sni


def test_whether_a_server_asks_again() -> None:
    assert asks_again(server_hello()) is False
    assert asks_again(server_hello(RETRY_RANDOM)) is True
    assert asks_again(record(b"\x02\x28", kind=21)) is False
    assert asks_again(b"\x15") is None, "it may be the first byte of anything"
    for cut in range(RETRY_BYTES):
        assert asks_again(server_hello(RETRY_RANDOM)[:cut]) is None
    for bad in (
        b"SSH-2.0-",
        b"HTTP/1.1 200 OK",
        record(b"\x0b"),
        record(b"x", kind=23),
        records(message(server_hello(RETRY_RANDOM)), [20]),
    ):
        with pytest.raises(HelloError):
            asks_again(bad)
