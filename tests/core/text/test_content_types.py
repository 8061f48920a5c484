"""What content is by its first bytes, and what may be shown as an image: measured, or not at
all."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.text.content_types import (
    LONGEST_SIDE_PX,
    MOST_IMAGE_BYTES,
    Image,
    image_of,
    type_of,
)
from tests.tables import each_row

PNG = b"\x89PNG\r\n\x1a\n"


def png(width: int, height: int) -> bytes:
    return PNG + struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 2, 0, 0, 0) + b"\0\0\0\0"


def jpeg(width: int, height: int) -> bytes:
    app = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + bytes(9)
    return (
        b"\xff\xd8"
        + app
        + b"\xff\xff\xc2"
        + struct.pack(">HBHHB", 17, 8, height, width, 3)
        + bytes(9)
    )


def webp(kind: bytes, body: bytes) -> bytes:
    return (
        b"RIFF"
        + struct.pack("<I", 4 + 8 + len(body))
        + b"WEBP"
        + kind
        + struct.pack("<I", len(body))
        + body
    )


IMAGES = {
    "png": (png(320, 200), Image("image/png", 320, 200)),
    "gif": (b"GIF89a" + struct.pack("<HH", 7, 9) + b"\xf7\0\0", Image("image/gif", 7, 9)),
    "jpeg": (jpeg(640, 480), Image("image/jpeg", 640, 480)),
    "webp lossy": (
        webp(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", 100, 50)),
        Image("image/webp", 100, 50),
    ),
    "webp lossless": (
        webp(b"VP8L", b"\x2f" + struct.pack("<I", 99 | 49 << 14)),
        Image("image/webp", 100, 50),
    ),
    "webp extended": (
        webp(b"VP8X", bytes(4) + (99).to_bytes(3, "little") + (49).to_bytes(3, "little")),
        Image("image/webp", 100, 50),
    ),
}


@pytest.mark.parametrize(("data", "expected"), IMAGES.values(), ids=IMAGES)
def test_images_are_measured(data: bytes, expected: Image) -> None:
    assert image_of(data, len(data)) == expected
    assert "image" in type_of(data)


@pytest.mark.parametrize(("data", "_"), IMAGES.values(), ids=IMAGES)
def test_an_image_that_is_cut_off_is_none(data: bytes, _: Image) -> None:
    for length in range(10):
        assert image_of(data[:length], length) is None


@each_row(
    ("data", "size"),
    [
        (png(0, 10), 100),
        (png(LONGEST_SIDE_PX + 1, 1), 100),
        (png(10_000, 10_000), 100),  # a small file that unpacks to 400 MB
        (png(10, 10), MOST_IMAGE_BYTES + 1),
        (PNG + bytes(30), 38),
        (b"\xff\xd8\xff\xe0\x00\x00" * 10, 60),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", 60),
        (b"<html>", 6),
        (b"RIFF\0\0\0\0WAVE", 12),
        (b"II*\0", 4),
    ],
)
def test_what_may_not_be_shown_is_no_image(data: bytes, size: int) -> None:
    assert image_of(data, size) is None


@given(st.binary(max_size=200))
def test_nothing_raises_and_nothing_is_served_as_another_type(data: bytes) -> None:
    for begun in (
        data,
        b"\xff\xd8\xff" + data,
        PNG + data,
        b"GIF89a" + data,
        b"RIFF1234WEBP" + data,
    ):
        assert type_of(begun)
        found = image_of(begun, len(begun))
        assert found is None or found.media_type in (
            "image/png",
            "image/jpeg",
            "image/gif",
            "image/webp",
        )


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"", "nothing"),
        (b"plain\n", "text"),
        ("é".encode()[:1], "text"),  # a beginning may end within a character
        (b"\xff\xfe\0a", "unknown binary data"),
        (b"a\0b", "unknown binary data"),
        (b"\x7fELF\2", "program or library (ELF)"),
        (b"PK\x03\x04", "ZIP archive (or a document made of one)"),
        (b"<svg></svg>", "text"),
    ],
)
def test_types_by_their_first_bytes(data: bytes, name: str) -> None:
    assert type_of(data) == name
