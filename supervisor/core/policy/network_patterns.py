"""Network patterns and targets: parsing, and matching one with the other.

    api.example.com  *.example.com  host:8443  10.0.0.5  10.0.0.0/8  [fd00::1]:443  GET,HEAD
    https://host/path/**  * https://*.host/**

Decides for one pattern and one target. Two ways to match: *narrow* for allow (a host alone means
ports 80 and 443; no empty path segments), *broad* for deny and ask (every port unless one is named,
every reading of a path, in any letter case, with a body or without).
"""

import difflib
import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from supervisor.core.actions import Network, is_read_with_body
from supervisor.core.text.globs import Glob, escape
from supervisor.core.text.globs import check as check_glob
from supervisor.core.text.hosts import (
    THIS_MACHINE,
    Address,
    address_class,
    as_address,
    canonical_host,
    embedded,
    registrable_domain,
)
from supervisor.core.text.urls import DEFAULT_PORTS, Path, normalise_path, same_letters
from supervisor.errors import PolicyError

type AnyNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

WEB_PORTS = frozenset({80, 443})
_URL = re.compile(
    r"(?:(?P<methods>[A-Za-z*,-]+)[ \t]+)?(?P<scheme>[A-Za-z*]+)://(?P<host>[^/]*)(?P<path>/.*)?\Z",
    re.DOTALL,
)
_ADDRESSES = re.compile(r"\[?[0-9a-fA-F.:]+\]?/[0-9]+(?::[0-9]+)?\Z")
_BLANK = re.compile(r"\s")
_DOTS = re.compile(r"/\.{1,2}(?:/|\Z)")
_QUERY = re.compile(r"\?[^/?=]*=")
_ENCODED_WILDCARD = re.compile(r"%(?:2A|3F|5B)", re.IGNORECASE)
_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}\Z")
# A method as a client may write it.
_SENT_METHOD = re.compile(r"[A-Za-z][A-Za-z-]{0,31}\Z")
_KNOWN_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_HOST_PORT = re.compile(r"(?P<host>\[[^\]]*\](?:/[0-9]+)?|[^:\[\]]*)(?::(?P<port>[0-9]{1,5}))?\Z")


class Target(NamedTuple):
    """Canonical target of an action. `method`, `scheme` and `path` are None for a connection.

    `is_read_with_body`: a GET or HEAD with a body, which no list of methods covers.
    """

    host: str
    address: Address | None
    port: int
    method: str | None = None
    scheme: str | None = None
    path: Path | None = None
    resolved: tuple[Address, ...] = ()
    is_read_with_body: bool = False

    def is_covered(self, pattern: "NetworkPattern") -> bool:
        """Return whether an allow rule covers it."""
        return pattern.matches(self, broad=False)

    def is_touched(self, pattern: "NetworkPattern") -> bool:
        """Return whether a deny or ask rule is about it."""
        return pattern.matches(self, broad=True)


class NetworkPattern(NamedTuple):
    """Compiled pattern. At most one of `host`, `suffix`, `network` is set; without one it means
    every host.

    `port` None: not given. `methods` None: every method, or no URL. `glob` None: no URL, so it
    matches connections and requests alike.
    """

    host: str | None = None
    suffix: str | None = None
    network: AnyNetwork | None = None
    port: int | None = None
    methods: frozenset[str] | None = None
    scheme: str | None = None
    glob: Glob | None = None
    folded: Glob | None = None

    @property
    def is_every_host(self) -> bool:
        """Return whether it means every host."""
        return self.host is None and self.suffix is None and self.network is None

    def names_host(self, target: Target, *, broad: bool) -> bool:
        """Return whether the pattern means the target's host, or (broad) one of its addresses."""
        if self.host is not None:
            return target.host == self.host
        if self.suffix is not None:
            return target.host.endswith(self.suffix)
        if self.network is not None:
            return any(_is_in(address, self.network) for address in _addresses(target, broad=broad))
        return broad

    def opens(self, target: Target) -> bool:
        """Return whether an allow rule may be about the target at all: this machine is opened by
        its name and a port alone."""
        return target.host != THIS_MACHINE or (
            self.host == THIS_MACHINE and self.port == target.port
        )

    def names_port(self, target: Target, *, broad: bool) -> bool:
        """Return whether the pattern means the port."""
        if self.port is not None:
            return target.port == self.port
        if broad:
            return True
        default = DEFAULT_PORTS.get(self.scheme or "")
        return target.port == default if default else target.port in WEB_PORTS

    def names(self, target: Target) -> bool:
        """Return whether an allow rule means the target's host and port."""
        return (
            self.opens(target)
            and self.names_port(target, broad=False)
            and self.names_host(target, broad=False)
        )

    def matches(self, target: Target, *, broad: bool) -> bool:
        """Return whether the pattern covers the whole target. A URL pattern never matches a bare
        connection."""
        if not (broad or self.opens(target)):
            return False
        if not self.names_port(target, broad=broad) or not self.names_host(target, broad=broad):
            return False
        return self.glob is None or self._matches_request(target, broad=broad)

    def _matches_request(self, target: Target, *, broad: bool) -> bool:
        if target.path is None or self.glob is None or self.folded is None:
            return False
        if self.scheme is not None and target.scheme != self.scheme:
            return False
        method = target.method or ""
        if self.methods is not None and (method.upper() if broad else method) not in self.methods:
            return False
        if not broad and self.methods is not None and target.is_read_with_body:
            return False
        if not broad:
            return not target.path.has_empty_segments and self.glob.matches(target.path.text[1:])
        glob, folded = self.glob, self.folded
        return any(
            glob.matches(written) or folded.matches(letters)
            for written, letters in spellings(target.path)
        )

    @property
    def broad_start(self) -> str:
        """Return the letters with which every broadly covered spelling starts; "" if unknown.

        INVARIANT: the result is never too long. A character beyond ASCII may become other letters,
        and change the letter before it.
        """
        if self.glob is None:
            return ""
        start = self.glob.start
        same = next((at for at, char in enumerate(start) if not char.isascii()), len(start))
        return start[: max(0, same - 1)].lower()


# Cached, because every rule about its host is asked about one request.
@lru_cache(maxsize=64)
def spellings(path: Path) -> tuple[tuple[str, str], ...]:
    """Return every reading of a path, without its leading slash and empty segments, and the letters
    of each."""
    found = dict.fromkeys(one.removeprefix("/") for one in (path.text, *path.readings))
    found |= dict.fromkeys(re.sub("/+", "/", one).removeprefix("/") for one in list(found))
    return tuple((one, same_letters(one)) for one in found)


def _addresses(target: Target, *, broad: bool) -> tuple[Address, ...]:
    """Return the addresses with which an address rule is compared: for broad matching, every one
    that could be meant."""
    own = () if target.address is None else (target.address,)
    if not broad:
        return own
    seen = (*own, *target.resolved)
    return (*seen, *(inner for address in seen for inner in embedded(address)))


def _is_in(address: Address, network: AnyNetwork) -> bool:
    return address.version == network.version and address in network


# Cached, because a pattern is read three times: checked, tried on its examples, and indexed.
@lru_cache(maxsize=32_768)
def parse(text: str) -> NetworkPattern:
    """Return the pattern of `network(text)`. Raise `PolicyError` with a remedy if it isn't one."""
    url = _URL.match(text) if "://" in text else None
    if url is not None:
        return _parse_url(text, url)
    if _BLANK.search(text) or ("/" in text and not _ADDRESSES.match(text)):
        raise PolicyError(
            f"`network({text})` is neither a host nor a URL",
            "write e.g. `network(GET https://api.example.org/path/**)`",
        )
    return _parse_host(text, text)


def _parse_url(text: str, url: re.Match[str]) -> NetworkPattern:
    scheme = url["scheme"].lower()
    if scheme not in ("http", "https", "*"):
        raise PolicyError(
            f"unknown scheme `{url['scheme']}` in `network({text})`", "write `https`, `http` or `*`"
        )
    if url["path"] is None:
        raise PolicyError(
            f"`network({text})` names no path",
            f"add `/**` for every path, or write `network({url['host']})`",
        )
    where = _parse_host(url["host"], text)
    path = url["path"]
    if "#" in path or _QUERY.search(path):
        raise PolicyError(
            f"`network({text})` names a query", "leave it out: rules compare the path only"
        )
    glob = _decoded(path, text)
    check_glob(glob, f"network({text})")
    letters, compiled = same_letters(glob), Glob(glob)
    return NetworkPattern(
        where.host,
        where.suffix,
        where.network,
        where.port,
        methods=_methods(url["methods"], text),
        scheme=None if scheme == "*" else scheme,
        glob=compiled,
        folded=compiled if letters == glob else Glob(letters),
    )


def _methods(text: str | None, rule: str) -> frozenset[str] | None:
    if text in (None, "*"):
        return None
    found = frozenset(text.upper().split(",")) if text else frozenset[str]()
    for method in found:
        if not _METHOD.match(method):
            near = difflib.get_close_matches(method, _KNOWN_METHODS, 1)
            hint = f"did you mean `{near[0]}`?" if near else "write e.g. `GET,HEAD`, or `*`"
            raise PolicyError(f"`{text}` in `network({rule})` is not a list of methods", hint)
    return found


def _decoded(path: str, rule: str) -> str:
    """Return the path glob without its leading slash, normalised like the paths with which it is
    compared."""
    if "%" in path or "\\" in path:
        # An encoded character is literal; only an unencoded one is a wildcard. A bare `?` is a
        # wildcard here, and doesn't end the path.
        literal = _ENCODED_WILDCARD.sub(lambda found: escape(unquote(found[0])), path)
        normal = normalise_path(literal.replace("?", "%3F"))
        if normal.ambiguous:
            raise PolicyError(
                f"`network({rule})` has {normal.ambiguous}",
                "write the path as it is meant, unencoded",
            )
        return normal.text[1:]
    if _DOTS.search(path) or "//" in path:
        raise PolicyError(
            f"`network({rule})` has dot or empty segments", "write the path as it is meant"
        )
    return path[1:]


def _parse_host(text: str, rule: str) -> NetworkPattern:
    bare = _bare_ipv6(text)
    found = _HOST_PORT.match(text) if bare is None else None
    host = bare or (found["host"] if found else "")
    number = found["port"] if found else None
    port = int(number) if number else None
    if port is not None and not 0 < port < 65536:
        raise PolicyError(
            f"`{port}` in `network({rule})` is not a port", "write a number from 1 to 65535"
        )
    if host in ("*", "**", "*.*"):
        return NetworkPattern(port=port)
    if "/" in host or bare is not None:
        return NetworkPattern(network=_network(host, rule), port=port)
    if host.startswith("*."):
        return NetworkPattern(suffix=f".{_name(host[2:], rule)}", port=port)
    name = _name(host, rule)
    address = as_address(name)
    if address is not None:
        return NetworkPattern(network=ipaddress.ip_network(address), port=port)
    return NetworkPattern(host=name, port=port)


def _bare_ipv6(text: str) -> str | None:
    if text.count(":") < 2 or text.startswith("["):
        return None
    return text


def _network(text: str, rule: str) -> AnyNetwork:
    try:
        return ipaddress.ip_network(text.replace("[", "").replace("]", ""), strict=False)
    except ValueError:
        raise PolicyError(
            f"`{text}` in `network({rule})` is not an address", "write e.g. `10.0.0.0/8`"
        ) from None


def _name(text: str, rule: str) -> str:
    if text.startswith("."):
        raise PolicyError(
            f"`network({rule})` starts with a dot",
            f"write `network(*{text})` for the names below it",
        )
    if "*" in text or "?" in text:
        raise PolicyError(
            f"a wildcard inside of a name in `network({rule})`",
            "only `*.` at the front is known: all names below",
        )
    try:
        return canonical_host(text)
    except ValueError as error:
        hint = "write e.g. `network(api.example.org)`"
        raise PolicyError(f"`{text}` in `network({rule})` {error}", hint) from None


def check(text: str, *, allows: bool) -> str:
    """Raise `PolicyError` if the pattern isn't valid in its list; else return a warning, or
    nothing."""
    pattern = parse(text)
    if not allows:
        return ""
    network = pattern.network
    if pattern.is_every_host or (network is not None and network.prefixlen == 0):
        raise PolicyError(
            f"`network({text})` would allow every host", "name the hosts that are needed"
        )
    if pattern.suffix is not None and registrable_domain(pattern.suffix[1:]) is None:
        base = pattern.suffix[1:]
        raise PolicyError(
            f"`network({text})` would allow everybody's hosts below the public suffix `{base}`",
            f"name a domain below it, e.g. `network(*.example.{base})`",
        )
    if (
        network is not None
        and address_class(network[0]) in ("metadata", "never")
        and network.num_addresses == 1
    ):
        return f"`network({text})` never matches: this address is never reached"
    return ""


def target_of(action: Network) -> Target:
    """Return the canonical target. Raise `ValueError` (a complete reason) if the action can't be
    judged."""
    try:
        host = canonical_host(action.host)
    except ValueError as error:
        raise ValueError(f"the host `{shown_host(action.host)}` {error}") from None
    if not 0 < action.port < 65536:
        raise ValueError(f"`{action.port}` is not a port")
    resolved = tuple(_address(text) for text in action.resolved)
    if action.operation == "connect":
        return Target(host, as_address(host), action.port, resolved=resolved)
    if (
        not action.method
        or not _SENT_METHOD.match(action.method)
        or action.scheme not in ("http", "https")
    ):
        raise ValueError("a request needs a method, and http or https")
    path = normalise_path(action.path or "/")
    return Target(
        host,
        as_address(host),
        action.port,
        action.method,
        action.scheme,
        path,
        resolved,
        is_read_with_body(action),
    )


def _address(text: str) -> Address:
    try:
        return ipaddress.ip_address(canonical_host(text))
    except ValueError:
        raise ValueError(
            f"`{shown_host(text)}` is not an address that a name can resolve to"
        ) from None


def shown_host(text: str) -> str:
    """Return the start of a host, which may not be text, for a reason."""
    return text[:100].encode("ascii", "backslashreplace").decode()


def is_nowhere_public(network: AnyNetwork) -> bool:
    """Return whether a network lies within private space, so that naming it means naming its
    private addresses."""
    ends = {address_class(network[0]), address_class(network[-1])}
    # Python treats the deprecated site-local addresses (RFC 3879) as global.
    is_old = isinstance(network, ipaddress.IPv6Network) and network.is_site_local
    is_private = is_old or network.is_private or not network.is_global
    return network.prefixlen > 0 and is_private and "public" not in ends


def as_literal(target: Target, address: Address) -> Target:
    """Return the target as if its host had been given as one of its addresses."""
    return target._replace(host=str(address), address=address)


def names_address(pattern: NetworkPattern, literal: Target) -> bool:
    """Return whether an allow rule with this pattern names an address that isn't public (see
    `as_literal`)."""
    return (
        pattern.network is not None
        and is_nowhere_public(pattern.network)
        and pattern.names_host(literal, broad=False)
        and pattern.names_port(literal, broad=False)
        and (pattern.glob is None or literal.path is None or pattern.matches(literal, broad=False))
    )
