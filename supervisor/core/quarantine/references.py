"""Typed references: name one file of a quarantined session without ambiguity.

    typed://PATH?d=SHA256&n=SIZE&ts=UNIX&sid=UUID&hmac=HEX64

Pure. A reference binds path, content and session; the MAC is over MessagePack `["ref1", sid, path,
digest, size, ts]`. PATH is percent-encoded except for `/`, and the order of the parameters is
fixed, so each reference has one spelling: any other byte makes another reference, which is refused.
"""

import hmac
import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

import msgspec

from supervisor.core.text.utf8 import is_text

# As long as a session lasts.
MOST_AGE_S = 300
LONGEST = 20_000
_WHOLE = re.compile(
    r"typed://([A-Za-z0-9_.~%/-]{1,12288})"
    r"\?d=([0-9a-f]{64})&n=(0|[1-9][0-9]{0,14})&ts=(0|[1-9][0-9]{0,14})"
    r"&sid=([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"
    r"&hmac=([0-9a-f]{64})"
)


class BadReferenceError(ValueError):
    """Raised for a reference that isn't valid here; the message is why, and quotes none of it."""


class Reference(NamedTuple):
    """The content of a reference. `digest`: SHA-256 of the file's content in hex, `size` in bytes.
    `sid`: the quarantine's session, a UUID4. `made_at`: seconds since the epoch."""

    path: str
    digest: str
    size: int
    made_at: int
    sid: str


def written(reference: Reference, key: bytes | bytearray) -> str:
    """Return the reference as text, with its MAC."""
    head = (
        f"typed://{quote(reference.path, safe='/')}?d={reference.digest}&n={reference.size}"
        f"&ts={reference.made_at}&sid={reference.sid}"
    )
    return f"{head}&hmac={_mac(reference, key)}"


def checked(text: str, key: bytes | bytearray, sid: str, now: float) -> Reference:
    """Return the content of a reference of this session. Raise `BadReferenceError` if it belongs to
    another session, or is too old. The reader has to check that the file is unchanged."""
    found = _WHOLE.fullmatch(text) if len(text) <= LONGEST else None
    if found is None:
        raise BadReferenceError("it isn't spelled as a reference")
    reference = Reference(_path(found[1]), found[2], int(found[3]), int(found[4]), found[5])
    if reference.sid != sid:
        raise BadReferenceError("it is another session's")
    if not hmac.compare_digest(_mac(reference, key), found[6]):
        raise BadReferenceError("its MAC is wrong")
    if not 0 <= int(now) - reference.made_at <= MOST_AGE_S:
        raise BadReferenceError("it is too old")
    return reference


def is_plain(path: str) -> bool:
    """Return whether a path is relative, without empty parts, `.` and `..`, and UTF-8."""
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        return False
    return is_text(path)


def _path(spelled: str) -> str:
    try:
        path = unquote_to_bytes(spelled).decode()
    except UnicodeDecodeError:
        raise BadReferenceError("its path isn't UTF-8") from None
    if quote(path, safe="/") != spelled or not is_plain(path):
        raise BadReferenceError("its path isn't spelled plainly")
    return path


def _mac(reference: Reference, key: bytes | bytearray) -> str:
    parts = (
        *("ref1", reference.sid, reference.path),
        *(reference.digest, reference.size, reference.made_at),
    )
    return hmac.digest(key, msgspec.msgpack.encode(parts), "sha256").hex()
