"""Split URLs strictly, and normalise their paths.

Decides which path a request's target means, and whether another program could read it differently.
Egress, the rules and the suggestions must agree on it. It must never repair: a path with two
readings is `ambiguous`, and then no allow rule matches it.
"""

import re
import unicodedata
from functools import lru_cache
from urllib.parse import unquote_to_bytes

import msgspec

DEFAULT_PORTS = {"http": 80, "https": 443}
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#\\]*)(?P<rest>.*)\Z", re.DOTALL
)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]@]*\]|[^\[\]:@]*)(?::(?P<port>[0-9]{1,5}))?\Z")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_PLAIN = re.compile("/[^\x00-\x20\x7f%;\\\\\ud800-\udfff]*\\Z")
MAX_PATH_CHARS = 16_384


class Url(msgspec.Struct, frozen=True):
    """The parts of a URL; `host` is as written, `path` starts with `/` and includes the query."""

    scheme: str
    host: str
    port: int
    path: str


class Path(msgspec.Struct, frozen=True):
    """A normalised path. `text` is decoded, without query and dot segments.

    `ambiguous` names why no allow rule may match it. `readings` are the other paths that some
    server could see: deny and ask rules are compared with each. `has_empty_segments`: it holds
    `//`, which some servers merge.
    """

    text: str
    ambiguous: str = ""
    readings: tuple[str, ...] = ()
    has_empty_segments: bool = False


def split_url(text: str) -> Url:
    """Return the parts of an absolute http or https URL. Raise `ValueError` (a sentence part) for
    anything else."""
    found = _URL.match(text)
    if found is None:
        raise ValueError("is not an absolute URL")
    scheme = found["scheme"].lower()
    if scheme not in DEFAULT_PORTS:
        raise ValueError("is neither http nor https")
    host, port = split_authority(found["authority"])
    rest = found["rest"]
    path = rest.partition("#")[0]
    if path.startswith("\\"):
        raise ValueError("has a backslash behind the host")
    return Url(
        scheme, host, port or DEFAULT_PORTS[scheme], path if path.startswith("/") else f"/{path}"
    )


def split_authority(text: str) -> tuple[str, int | None]:
    """Return the host as written and the port (None: not given) of `host[:port]`. Raise
    `ValueError` for anything else."""
    if "@" in text:
        raise ValueError("names a user before the host")
    found = _AUTHORITY.match(text)
    if found is None or not found["host"]:
        raise ValueError("has no valid host")
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 0 < port < 65536:
        raise ValueError("has no valid port")
    return found["host"], port


@lru_cache(maxsize=4096)
def normalise_path(target: str) -> Path:
    """Return the path of a request target (`/path?query`). Never raises."""
    raw = target.partition("?")[0].partition("#")[0]
    if len(raw) > MAX_PATH_CHARS:
        return Path("/", "the path is too long to judge", ("/",))
    if _PLAIN.match(raw) and "/." not in raw:
        return Path(raw, has_empty_segments="//" in raw)
    decoded, problem = _decode(raw)
    text, beyond = _without_dots(decoded)
    if beyond:
        problem = problem or "a path that leaves the root"
    if "//" in decoded and re.search(r"/\.{1,2}(?:/|\Z)", decoded):
        problem = problem or "empty segments beside dot segments"
    if re.search(r"/\.{1,2};", decoded):
        problem = problem or "a dot segment with a parameter"
    return Path(text, problem, _readings(raw, decoded, text) if problem else (), "//" in text)


def _decode(raw: str) -> tuple[str, str]:
    """Return the path decoded once, and the reason that makes it ambiguous."""
    if not raw.startswith("/"):
        return f"/{raw}", "a target that is not a path"
    if _BAD_ESCAPE.search(raw):
        return raw, "a broken percent-encoding"
    try:
        data = raw.encode("utf-8")
    except UnicodeEncodeError:
        return raw, "a path that is not text"
    octets = unquote_to_bytes(data)
    try:
        decoded = octets.decode("utf-8")
    except UnicodeDecodeError:
        return octets.decode("latin-1"), "a path that is not UTF-8"
    if re.search("%2f", raw, re.IGNORECASE):
        return decoded, "an encoded slash"
    if "\x00" in decoded:
        return decoded, "an encoded NUL"
    if "\\" in decoded:
        return decoded, "a backslash"
    if _ESCAPE.search(decoded):
        return decoded, "a double encoding"
    if _CONTROL.search(decoded.replace(" ", "")):
        return decoded, "a control character"
    return decoded, ""


def _without_dots(path: str) -> tuple[str, bool]:
    """Return a path without dot segments (RFC 3986 5.2.4), and whether it went above the root."""
    kept: list[str] = []
    beyond = False
    segments = path.split("/")[1:]
    for index, segment in enumerate(segments):
        if segment in (".", ".."):
            if segment == "..":
                beyond = beyond or not kept
                kept = kept[:-1]
            if index == len(segments) - 1:
                kept.append("")
        else:
            kept.append(segment)
    return "/" + "/".join(kept), beyond


def _readings(raw: str, decoded: str, text: str) -> tuple[str, ...]:
    """Return a lenient server's possible readings of an ambiguous path: decoded again, backslashes
    as slashes, cut at NUL, slashes merged."""
    found = {raw, decoded, text}
    for start in (raw, decoded):
        current = start
        for _ in range(3):
            current = unquote_to_bytes(current.encode("utf-8", "surrogatepass")).decode(
                "utf-8", "replace"
            )
            found.add(current)
    for one in list(found):
        slashes = re.sub(r";[^/]*", "", one.replace("\\", "/"))
        found |= {one.replace("\\", "/"), slashes, one.partition("\x00")[0]}
    for one in list(found):
        found |= {_without_dots(one)[0], _without_dots(re.sub("/+", "/", one))[0]}
    return tuple(sorted(found))


def same_letters(path: str) -> str:
    """Return the path for deny and ask rules: differences of case and Unicode composition
    removed."""
    return unicodedata.normalize("NFKC", path).casefold()
