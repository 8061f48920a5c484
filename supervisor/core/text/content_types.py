"""Detect a file's content type by its first bytes.

Pure. A small table, for a person who is shown no text. A name or an extension is the agent's word;
these bytes are what a program would go by. The card names the type, and the route that serves an
image must agree with it. It must never call a file an image if it can't measure it: only four
types, with bounded dimensions, are served to the browser.
"""

import struct

import msgspec

# An image beyond these limits is only named, not shown: a small file can unpack to gigabytes in the
# browser.
MOST_IMAGE_BYTES = 8 << 20
MOST_PIXELS = 40_000_000
LONGEST_SIDE_PX = 16_384

_TYPES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "PNG image"),
    (0, b"\xff\xd8\xff", "JPEG image"),
    (0, b"GIF87a", "GIF image"),
    (0, b"GIF89a", "GIF image"),
    (8, b"WEBP", "WebP image"),
    (0, b"II*\x00", "TIFF image"),
    (0, b"MM\x00*", "TIFF image"),
    (0, b"\x00\x00\x01\x00", "icon"),
    (0, b"%PDF-", "PDF document"),
    (0, b"PK\x03\x04", "ZIP archive (or a document made of one)"),
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"\xfd7zXZ\x00", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (0, b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (257, b"ustar", "tar archive"),
    (0, b"\x7fELF", "program or library (ELF)"),
    (0, b"\xcf\xfa\xed\xfe", "program or library (Mach-O)"),
    (0, b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
    (0, b"MZ", "Windows program"),
    (0, b"\x00asm", "WebAssembly program"),
    (0, b"SQLite format 3\x00", "SQLite database"),
    (0, b"wOF2", "web font"),
    (0, b"wOFF", "web font"),
    (4, b"ftyp", "video or audio (MP4)"),
    (0, b"OggS", "audio or video (Ogg)"),
    (0, b"ID3", "MP3 audio"),
)
_MEDIA_TYPES = {
    "PNG image": "image/png",
    "JPEG image": "image/jpeg",
    "GIF image": "image/gif",
    "WebP image": "image/webp",
}


class Image(msgspec.Struct, frozen=True):
    """An image that may be sent to a browser, in pixels."""

    media_type: str
    width: int
    height: int


def type_of(data: bytes) -> str:
    """Name the content's type in a word or two; `data` may be its beginning."""
    if not data:
        return "nothing"
    for at, magic, name in _TYPES:
        if data.startswith(magic, at) and (magic != b"WEBP" or data.startswith(b"RIFF")):
            return name
    return "text" if _is_text(data) else "unknown binary data"


def image_of(data: bytes, size_bytes: int) -> Image | None:
    """Return the image in the data if it may be shown; `data` may be the beginning of
    `size_bytes`."""
    name = type_of(data)
    if name not in _MEDIA_TYPES or size_bytes > MOST_IMAGE_BYTES:
        return None
    try:
        found = {"PNG image": _png, "GIF image": _gif, "JPEG image": _jpeg, "WebP image": _webp}[
            name
        ](data)
    except (struct.error, IndexError):
        return None
    if found is None or not 0 < found[0] <= LONGEST_SIDE_PX or not 0 < found[1] <= LONGEST_SIDE_PX:
        return None
    return Image(_MEDIA_TYPES[name], *found) if found[0] * found[1] <= MOST_PIXELS else None


def _png(data: bytes) -> tuple[int, int] | None:
    if data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def _gif(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack("<HH", data[6:10])
    return width, height


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """Return the size from the start-of-frame segment; each segment before it gives its own length
    (ITU T.81, annex B)."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        else:
            at += 2 + int(struct.unpack(">H", data[at + 2 : at + 4])[0])
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    """Return the size of a lossy, lossless or extended image
    (https://developers.google.com/speed/webp/docs/riff_container)."""
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", data[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = struct.unpack("<I", data[21:25])[0]
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(
                data[27:30], "little"
            ) + 1
    return None


def _is_text(data: bytes) -> bool:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        # A beginning may end within a character.
        return error.start >= len(data) - 3 and b"\0" not in data
    return "\0" not in text
