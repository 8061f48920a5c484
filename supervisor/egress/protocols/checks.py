"""Contradictions in a request, refused before any rule is asked. Pure.

A request names its destination in up to five places: the CONNECT target, the TLS server name, the
Host header, `:authority` and an absolute target. Rules judge one host, so all of them must name it
(otherwise: domain fronting). Parts that we and the origin could read differently (lengths,
upgrades, control characters) are refused, not repaired. Each function returns the why of a refusal,
or None.
"""

import functools
import re
from dataclasses import dataclass

from supervisor.core.actions import Network
from supervisor.core.secrets.header_secrets import authenticates
from supervisor.core.secrets.secret_forms import SecretForms
from supervisor.core.secrets.token_shapes import MARK
from supervisor.core.text import hosts

MOST_HEAD_BYTES = 64 * 1024
MOST_PATH_BYTES = 16 * 1024
MOST_HEADERS = 200
DEFAULT_PORTS = {"http": 80, "https": 443}

# Versions of HTTP/1; HTTP/2 is identified otherwise.
SPOKEN = ("HTTP/1.1", "HTTP/1.0")
# RFC 9110 5.6.2, but upper case only: a method is case-sensitive, and no method in use has
# lower-case letters.
_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}")
# TRACE echoes headers, including injected credentials.
_NEVER_METHODS = frozenset({"TRACE", "TRACK", "CONNECT", "PRI"})
# Printable ASCII without space, `#` and `\`: RFC 3986 wants everything else percent-encoded.
_PATH = re.compile(rb"/[!\"$-\[\]-~]*")
_HEADER_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# Some servers, and programs behind them, let these headers override the method or path in the head.
_OVERRIDES_METHOD = frozenset({b"x-http-method-override", b"x-http-method", b"x-method-override"})
_OVERRIDES_PATH = frozenset({b"x-original-url", b"x-rewrite-url"})
_OF_A_BODY = (b"content-length", b"transfer-encoding")
HIDDEN = "[hidden]"
_MOST_KEPT_CHARS = 300
MOST_SHOWN_HEADERS = 60
MOST_SHOWN_BYTES = 300
_NOTHING = SecretForms(())
_MARK = MARK.encode()
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\\\s]+)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True)
class Head:
    """A request's head as the client sent it. `authority` is `:authority` or that of an absolute
    target, else empty."""

    method: str
    scheme: str
    path: bytes
    authority: str
    headers: tuple[tuple[bytes, bytes], ...]
    http_version: str

    @property
    def is_http2(self) -> bool:
        return self.http_version == "HTTP/2.0"

    @functools.cached_property
    def asked(self) -> tuple[Network | None, str | None]:
        """Return the connection that a CONNECT asks for (None where its target isn't host and
        port), and why the head contradicts itself, if it does.

        It is cached, since clients send the same head again and again, which is then the same
        `Head` (`connect_head`).
        """
        parts = split_authority(self.authority)
        host, port = parts or ("", None)
        if port is None:
            return None, None
        return Network(operation="connect", host=host, port=port), connect(self, host, port)

    def values(self, name: bytes) -> list[str]:
        """Return the values of a header, in order."""
        return [value.decode("latin-1") for key, value in self.headers if key.lower() == name]


def shown_headers(
    headers: tuple[tuple[bytes, bytes], ...], hides: SecretForms = _NOTHING
) -> tuple[tuple[str, str], ...]:
    """Return the headers to show to a person. They are bounded, without values of authenticating
    headers, and without secrets that an origin echoes. Request headers are taken before any secret
    is put in."""
    shown = [
        (name, HIDDEN.encode() if authenticates(name, value) else value[:MOST_SHOWN_BYTES])
        for name, value in headers[:MOST_SHOWN_HEADERS]
    ]
    # One search for all values: there is nearly always nothing to hide. A truncated value may end
    # in part of a secret.
    joined = b"\0".join(value for _, value in shown)
    if (
        any(len(value) == MOST_SHOWN_BYTES for _, value in shown)
        or hides.without(joined, _MARK) != joined
    ):
        shown = [(name, hides.without(value, _MARK)) for name, value in shown]
    return tuple(
        (name[:MOST_SHOWN_BYTES].decode("latin-1"), value.decode("latin-1"))
        for name, value in shown
    )


def canonical_host(text: str) -> str | None:
    """Return the host as rules and the dialler use it, or None where it isn't a valid name or
    address."""
    try:
        return hosts.canonical_host(text)
    except ValueError:
        return None


def split_authority(text: str) -> tuple[str, int | None] | None:
    """Return the canonical host and port of `host[:port]`; the port is None where it is missing.
    Return None for any other text."""
    return _split_kept(text) if len(text) <= _MOST_KEPT_CHARS else _split(text)


def _split(text: str) -> tuple[str, int | None] | None:
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return None
    host = canonical_host(match["host"])
    port = int(match["port"]) if match["port"] else None
    if host is None or (port is not None and not 0 < port < 65536):
        return None
    return host, port


# Cached: each head repeats the host, and heads repeat each other. Long texts aren't cached, or
# clients could fill memory with them.
_split_kept = functools.lru_cache(maxsize=1024)(_split)


def connect(request: Head, host: str, port: int) -> str | None:
    """Return why a CONNECT contradicts its headers, or None. `host` is canonical."""
    if request.http_version not in SPOKEN:
        return "this version of HTTP is not spoken here"
    why = headers(request)
    if why is None and any(name.lower() in _OF_A_BODY for name, _ in request.headers):
        return "a CONNECT has no body"
    for text in request.values(b"host"):
        parts = split_authority(text)
        if parts is None or parts[0] != host or parts[1] not in (port, None):
            return f"the Host header of the CONNECT names another host than `{host}`"
    return why


def says_body(fields: tuple[tuple[bytes, bytes], ...]) -> bool:
    """Return whether the headers announce a body that isn't empty."""
    said = {name.lower(): value for name, value in fields}
    return b"transfer-encoding" in said or said.get(b"content-length", b"0").strip(b"0 \t") != b""


def head(request: Head) -> str | None:
    """Return why the head can be read in more than one way, or None."""
    if not (request.is_http2 or request.http_version in SPOKEN):
        return "this version of HTTP is not spoken here"
    if not _METHOD.fullmatch(request.method) or request.method in _NEVER_METHODS:
        return "this method is never let through"
    if len(request.path) > MOST_PATH_BYTES:
        return f"the target is longer than {MOST_PATH_BYTES} bytes"
    if not _PATH.fullmatch(request.path):
        return "the target is not a path of printable ASCII characters"
    return headers(request) or _override(request)


def _override(request: Head) -> str | None:
    """Return why a header that names another method or path is refused, since rules would judge the
    wrong one. A CGI reads `_` as `-` (RFC 3875 4.1.18)."""
    for written, value in request.headers:
        name = written.lower().replace(b"_", b"-")
        if name in _OVERRIDES_METHOD and value.strip().upper() != request.method.encode():
            return (
                f"the header `{name.decode()}` names another method than the request's own,"
                f" `{request.method}`"
            )
        if name in _OVERRIDES_PATH:
            return (
                f"the header `{name.decode()}` names a path beside the request's own, which servers"
                " may take instead"
            )
    return None


def headers(request: Head) -> str | None:
    """Return why the headers frame the request ambiguously or ask for another protocol, or None."""
    if len(request.headers) > MOST_HEADERS:
        return f"the request has more than {MOST_HEADERS} headers"
    if sum(len(k) + len(v) for k, v in request.headers) > MOST_HEAD_BYTES:
        return f"the headers of the request are longer than {MOST_HEAD_BYTES >> 10} KiB together"
    # Lowered once: this check runs for every connection and request.
    names = [name.lower() for name, _ in request.headers]
    for name, value in request.headers:
        if not _HEADER_NAME.fullmatch(name) or _BAD_VALUE.search(value):
            return "a header has characters that don't belong there"
    lengths = names.count(b"content-length")
    if lengths > 1 or (lengths and b"transfer-encoding" in names):
        return "the length of the body is said twice"
    if b"http2-settings" in names:
        return "an upgrade to HTTP/2 is refused"
    upgrades = request.values(b"upgrade") if b"upgrade" in names else []
    if upgrades and (
        request.is_http2
        or request.method != "GET"
        or [u.lower() for u in upgrades] != ["websocket"]
    ):
        return "an upgrade to another protocol than WebSocket is refused"
    return None


def destination(request: Head, host: str, port: int) -> str | None:
    """Return why Host and `:authority` don't name exactly the dialled host and port, or None.
    `host` is canonical."""
    said = request.values(b"host")
    if len(said) > 1:
        return "the Host header is said twice"
    if not said and not (request.is_http2 and request.authority):
        return "the request names no host"
    for text in (*said, *([request.authority] if request.authority else [])):
        parts = split_authority(text)
        if parts is None:
            return "the Host header is not a host name"
        if parts[0] != host:
            return f"the request names `{parts[0]}`, but the connection goes to `{host}`"
        if parts[1] is not None and parts[1] != port:
            return f"the request names port {parts[1]}, but the connection goes to port {port}"
    return None


def server_name(sni: str | None, host: str, *, was_sent: bool = False) -> str | None:
    """Return why the TLS server name contradicts the host of the CONNECT, or None. A missing name
    contradicts nothing.

    `was_sent`: the client sent one, readable or not (mitmproxy gives None for an invalid name).
    """
    if sni is None and not was_sent:
        return None
    sni = sni or ""
    named = canonical_host(sni)
    if named != host:
        return f"TLS names `{named or 'no valid host'}`, but the connection goes to `{host}`"
    return None


def tunnelled_name(sni: str | None, host: str) -> str | None:
    """Return the same for a tunnel, where nothing else names the host: the client must send a
    server name, unless the host is an address."""
    if sni is None and hosts.as_address(host) is None:
        return f"TLS names no host, but the connection goes to `{host}`"
    return server_name(sni, host, was_sent=sni is not None)
