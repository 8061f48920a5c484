"""Detect and decode text bodies, for the Network tab and the archive.

It decides by the bytes and by the stated charset, one of a few common ones. Pure. It must never
guess: a body whose bytes aren't text stays bytes, so that nothing is lost. A body that was cut may
end within a character.
"""

import codecs
import re

# Charsets by their names in Content-Type (https://encoding.spec.whatwg.org/#names-and-labels) and
# Python's names. For any other name no Python codec is looked up: some codecs are slow, and some
# aren't for text.
_CHARSETS = {
    "utf-8": "utf-8", "utf8": "utf-8", "utf-16": "utf-16-le", "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
    "us-ascii": "cp1252", "ascii": "cp1252", "iso-8859-1": "cp1252", "latin1": "cp1252",
    "windows-1252": "cp1252",
    "iso-8859-2": "iso8859-2", "iso-8859-15": "iso8859-15", "windows-1250": "cp1250",
    "windows-1251": "cp1251",
    "koi8-r": "koi8-r", "gb2312": "gb18030", "gbk": "gb18030", "gb18030": "gb18030", "big5": "big5",
    "euc-jp": "euc_jp",
    "shift_jis": "shift_jis", "euc-kr": "euc_kr",
}  # fmt: skip
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([a-z0-9_-]{1,20})", re.IGNORECASE)
_TEXT_TYPE = re.compile(
    r"text/|[^;]*\b(?:json|xml|javascript|x-www-form-urlencoded|yaml|graphql)\b", re.IGNORECASE
)


def charset_of(data: bytes, media_type: str, *, is_cut: bool) -> str | None:
    """Return the text's charset by Python's name; None if it isn't text. `is_cut`: it is only the
    beginning of a body."""
    for mark, charset in _MARKS:
        if data.startswith(mark):
            return charset
    said = _CHARSET.search(media_type)
    named = _CHARSETS.get(said[1].lower()) if said is not None else None
    if named is not None and named.startswith("utf-16"):
        return named
    if b"\0" in data:
        return None
    if named is None and _is_utf8(data, is_cut=is_cut):
        return "utf-8"
    return named or ("cp1252" if _TEXT_TYPE.match(media_type) else None)


def decoded(data: bytes, charset: str) -> str:
    """Return the text without a byte order mark, and without half a character at its end."""
    return codecs.getincrementaldecoder(charset)("replace").decode(data).removeprefix("\ufeff")


def _is_utf8(data: bytes, *, is_cut: bool) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=not is_cut)
    except UnicodeDecodeError:
        return False
    return True
