"""The head of a CONNECT as clients ordinarily send it, read at once. Pure.

It is separate from `front`, where h11 reads every other head, because h11 takes a quarter of
what a new tunnel costs egress. It decides nothing: h11 is the authority, and whatever is unusual
in any way is left to it. INVARIANT: what is read here, h11 reads the same.
"""

import functools
import re
from collections.abc import Iterable

from supervisor.egress.protocols.checks import Head

_MOST_BYTES = 2048
_END = b"\r\n\r\n"
_REQUEST = re.compile(rb"CONNECT ([A-Za-z0-9.:\[\]-]+) HTTP/1\.1\r\n")
# Headers that say nothing of a body or a protocol, each a name that clients send with a CONNECT,
# with a plain value.
_HEADER = re.compile(
    rb"(host|user-agent|accept|connection|proxy-connection|proxy-authorization): ([!-~]+(?:"
    rb" [!-~]+)*)\r\n",
    re.IGNORECASE,
)


def read(data: bytearray) -> tuple[Head, int] | None:
    """The head at the start of `data`, and how long it is; None where that is for h11 to say."""
    end = data.find(_END, 0, _MOST_BYTES)
    return _read(bytes(data[: end + len(_END)])) if end > 0 else None


# Clients say the same again and again.
@functools.lru_cache(maxsize=1024)
def _read(data: bytes) -> tuple[Head, int] | None:
    """The same of a head alone."""
    first = _REQUEST.match(data)
    if first is None:
        return None
    end = len(data) - 2  # each line with its own end
    at = first.end()
    headers: list[tuple[bytes, bytes]] = []
    hosts = 0
    while at < end:
        line = _HEADER.match(data, at, end)
        if line is None:
            return None
        name = line[1].lower()
        hosts += name == b"host"
        headers.append((name, line[2]))
        at = line.end()
    if hosts != 1:
        return None
    return of(b"CONNECT", first[1], headers, b"1.1"), end + 2


def of(
    method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]], http_version: bytes
) -> Head:
    """A head as the checks want it, from what h11 calls a request."""
    return Head(
        method=method.decode("latin-1"),
        scheme="",
        path=b"",
        authority=target.decode("latin-1"),
        headers=tuple(headers),
        http_version=f"HTTP/{http_version.decode('ascii')}",
    )
