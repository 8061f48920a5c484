"""Every coding is read wherever it is cut, in small steps, and what unpacks to too much isn't."""

import gzip
import os
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard

from supervisor.egress.admission.egress_sessions import EgressSession
from supervisor.egress.protocols.codings import (
    BROKEN,
    MOST_UNPACKED_BYTES,
    STEP_BYTES,
    TOO_MANY,
    TOO_MUCH,
    UNKNOWN,
    Decoder,
    beginning,
    readable_only,
)

BODY = b"".join(number.to_bytes(4) for number in range(50_000)) + bytes(100_000)
# One call of zstandard's gives so much at most, of what it is fed at once.
MOST_OF_A_STEP_BYTES = STEP_BYTES + 8 * 128 * 1024


def bare(body: bytes) -> bytes:
    return zlib.compress(body, wbits=-15)


CODED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "gzip by its other name": (" X-GZIP ", gzip.compress),
    "gzip in two members": (
        "gzip",
        lambda body: gzip.compress(body[:1000]) + bytes(9) + gzip.compress(body[1000:]),
    ),
    "deflate": ("deflate", zlib.compress),
    "deflate without its header": ("deflate", bare),
    "br": ("br", lambda body: brotli.compress(body, quality=1)),
    "zstd": ("zstd", zstandard.compress),
    "zstd in two frames": (
        "zstd",
        lambda body: zstandard.compress(body[:1000]) + zstandard.compress(body[1000:]),
    ),
    "gzip in gzip": ("gzip, gzip", lambda body: gzip.compress(gzip.compress(body))),
    "br in gzip": (
        "br,identity,gzip",
        lambda body: gzip.compress(brotli.compress(body, quality=1)),
    ),
    "three": (
        "zstd, deflate, br",
        lambda body: brotli.compress(bare(zstandard.compress(body)), quality=1),
    ),
    "none": ("", bytes),
    "none by its name": ("identity", bytes),
    "none by S3's name": ("aws-chunked", bytes),
}


def decoded(decoder: Decoder, coded: bytes, size: int) -> bytes:
    return b"".join(
        part for at in range(0, len(coded), size) for part in decoder.decode(coded[at : at + size])
    )


@pytest.mark.parametrize("case", CODED.values(), ids=CODED)
def test_it_is_read_wherever_it_is_cut(case: tuple[str, Callable[[bytes], bytes]]) -> None:
    coding, wrap = case
    coded = wrap(BODY)
    for size in (997, 65_536, len(coded)):
        decoder = Decoder(coding)
        assert decoded(decoder, coded, size) == BODY
        assert decoder.is_readable
    short = wrap(b"short")
    for size in (1, 2, 3):
        assert decoded(Decoder(coding), short, size) == b"short"


@pytest.mark.parametrize(
    "coding", ["lz4", "compress", "gzip, lz4", "gzip, gzip, gzip, gzip", "br;q=1", "utf-9"]
)
def test_what_is_not_known_is_not_read(coding: str) -> None:
    decoder = Decoder(coding)
    assert decoder.why == UNKNOWN
    assert b"".join(decoder.decode(gzip.compress(b"x"))) == b""


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, br"])
def test_what_is_not_coded_as_it_says_is_not_read(coding: str) -> None:
    decoder = Decoder(coding)
    assert list(filter(None, decoder.decode(b"\xff\xfe what is this? " * 10))) == []
    assert decoder.why == BROKEN


ZEROS = bytes(MOST_UNPACKED_BYTES + STEP_BYTES)
BOMBS = {
    "gzip": lambda: gzip.compress(ZEROS, 1),
    "deflate": lambda: zlib.compress(ZEROS, 1),
    "br": lambda: brotli.compress(ZEROS, quality=1),
    "zstd": lambda: zstandard.compress(ZEROS),
    "gzip, gzip": lambda: gzip.compress(gzip.compress(ZEROS, 1), 1),
}


@pytest.mark.parametrize("coding", BOMBS)
def test_a_bomb_is_unpacked_in_steps_and_not_to_its_end(coding: str) -> None:
    decoder = Decoder(coding)
    lengths = [len(part) for part in decoder.decode(BOMBS[coding]())]
    assert decoder.why == TOO_MUCH
    assert sum(lengths) <= MOST_UNPACKED_BYTES
    assert max(lengths) <= MOST_OF_A_STEP_BYTES
    assert b"".join(decoder.decode(b"more")) == b""


def test_what_is_long_and_not_packed_tightly_is_read_to_its_end() -> None:
    """However long it is: nothing of it is kept."""
    piece = os.urandom(50_000) + bytes(1_000_000)
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    decoder = Decoder("gzip")
    count = 0
    for _ in range(80):
        count += sum(map(len, decoder.decode(packer.compress(piece))))
    count += sum(map(len, decoder.decode(packer.flush())))
    assert decoder.is_readable
    assert count == 80 * len(piece) > MOST_UNPACKED_BYTES


def test_a_coding_that_makes_nothing_takes_its_turns_too() -> None:
    """Skippable frames of zstd stand for nothing (RFC 8878 3.1.2), and a gzip of 4,000 empty
    members for as little."""
    frame = bytes.fromhex("50 2a 4d 18") + (60).to_bytes(4, "little") + bytes(60)
    for coding, coded in (("zstd", frame * 5000), ("gzip", gzip.compress(b"") * 4000)):
        parts = list(Decoder(coding).decode(coded))
        assert not any(parts)
        assert len(parts) > 50


@pytest.mark.parametrize("after", [b"z", b"\0", b"\0z"])
def test_what_follows_the_end_is_not_kept_however_long_it_is(after: bytes) -> None:
    """zlib keeps all that it is given past an end, and copies it with each piece: a body would
    fill egress, and hold it up for longer and longer."""
    decoder, piece = Decoder("gzip"), after * (STEP_BYTES // len(after))
    assert decoded(decoder, gzip.compress(b"short"), STEP_BYTES) == b"short"
    tracemalloc.start()
    try:
        for _ in range(64):
            assert not any(decoder.decode(piece))
        assert tracemalloc.get_traced_memory()[0] < 8 * STEP_BYTES
    finally:
        tracemalloc.stop()
    assert decoder.is_readable
    more = b"" if b"z" in after else b"more"
    assert decoded(decoder, gzip.compress(b"more"), STEP_BYTES) == more


def test_few_bodies_at_once_are_packed_in_a_way_that_much_is_kept_of() -> None:
    session = EgressSession("s")
    open_ones = []
    while session.may_unpack(decoder := Decoder("gzip, br")):
        open_ones.append(decoder)
    assert len(open_ones) == 8
    assert session.may_unpack(Decoder("gzip"))
    decoder.refuse(TOO_MANY)
    assert decoder.why == TOO_MANY
    open_ones[0].end()
    another = Decoder("zstd")
    assert session.may_unpack(another)
    assert not session.may_unpack(Decoder("zstd"))
    del another
    assert session.may_unpack(Decoder("zstd"))


def test_an_origin_is_asked_for_what_can_be_read() -> None:
    assert readable_only("br, gzip;q=0.5, zstd") == "gzip;q=0.5"
    assert readable_only("br") == "identity"


ONE_BY_ONE = [
    "gzip",
    "gzip by its other name",
    "gzip in two members",
    "deflate",
    "deflate without its header",
    "none",
]


@pytest.mark.parametrize("case", [CODED[name] for name in ONE_BY_ONE], ids=ONE_BY_ONE)
def test_the_beginning_of_a_body_is_read_as_far_as_it_came(
    case: tuple[str, Callable[[bytes], bytes]],
) -> None:
    coding, wrap = case
    assert beginning(wrap(BODY), coding, 1000) == BODY[:1000]
    said = beginning(wrap(BODY)[:30_000], coding, len(BODY))
    assert said
    assert BODY.startswith(said)


@pytest.mark.parametrize("member", [b"", b"x"])
def test_a_beginning_of_a_thousand_members_is_read_in_few_steps(member: bytes) -> None:
    """A body is packed as its sender likes; to show it must keep nobody waiting."""
    assert len(beginning(gzip.compress(member) * 3000, "gzip", 100_000)) < 300
    assert len(beginning(gzip.compress(bytes(50_000_000)), "gzip", 100_000)) == 100_000


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "gzip, br", "compress", "utf-8"])
def test_no_beginning_of_what_is_coded_otherwise(coding: str) -> None:
    assert beginning(b"text", coding, 1000) == b""


def test_no_beginning_of_what_breaks() -> None:
    coded = gzip.compress(os.urandom(1000))
    assert beginning(coded[:100] + b"broken" + coded[106:], "gzip", 10_000) == b""
