"""The remotes in a repository's configuration, and the protocol of each. Pure.

It must refuse an address that would have git run a program (`ext::COMMAND`).

Sources: git-config(1), `remote.*`; "GIT URLS" in git-fetch(1); gitremote-helpers(7).
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
_HELPER = re.compile(r"[A-Za-z0-9]+::")
_PROTOCOLS = {
    "https": "https", "http": "http", "git": "git", "file": "file",
    "ssh": "ssh", "git+ssh": "ssh", "ssh+git": "ssh",
}  # fmt: skip


class Addresses(NamedTuple):
    """The URLs of a remote, as written, and the separate URLs for pushes if it has any."""

    urls: list[str]
    push_urls: list[str]


class Remotes(NamedTuple):
    """The remotes of a repository by name; `push_default` may name none."""

    remotes: Mapping[str, Addresses]
    push_default: str


def remotes_in(values: Iterable[tuple[str, str]]) -> Remotes:
    """Read the remotes from a repository's own configuration."""
    found: dict[str, Addresses] = {}
    push_default = ""
    for key, value in values:
        section, _, rest = key.partition(".")
        name, _, what = rest.rpartition(".")
        if key == "remote.pushdefault":
            push_default = value
        elif section == "remote" and name and what in ("url", "pushurl"):
            addresses = found.setdefault(name, Addresses([], []))
            (addresses.urls if what == "url" else addresses.push_urls).append(value)
    return Remotes({name: one for name, one in found.items() if one.urls}, push_default)


def shown_url(url: str) -> str:
    """Return a URL, or a text with URLs, without user and password: everything up to the last `@`
    before the path, as a client reads it."""
    return _CREDENTIALS.sub("", url)


def protocol_of(url: str) -> str:
    """Return git's name for a URL's protocol (git-config(1), `protocol.NAME.allow`). Raise
    `ValueError` for a protocol that isn't supported here."""
    if not url.isprintable():
        raise ValueError("a remote's address has characters that no address has")
    if _HELPER.match(url):
        raise ValueError(f"`{url.partition('::')[0]}::` names a program, which isn't started")
    if scheme := _SCHEME.match(url):
        protocol = _PROTOCOLS.get(scheme[1])
        if protocol is None:
            raise ValueError(f"`{scheme[1]}` is no scheme that is spoken here")
        return protocol
    # `host:path`, unless a slash comes before the colon.
    before, colon, _ = url.partition(":")
    return "ssh" if colon and "/" not in before else "file"
