"""Network rules as a category: containment, faults, width, examples and candidates.

How a rule is matched is known by `network_patterns` and `network_rules`.
"""

import re
from collections.abc import Hashable, Iterator
from typing import Literal

from supervisor.core.actions import Network, is_read_with_body
from supervisor.core.policy.category import (
    Candidate,
    Compiled,
    Label,
    ProtectedBy,
    Remark,
    RuleCategory,
)
from supervisor.core.policy.network_patterns import (
    WEB_PORTS,
    NetworkPattern,
    is_nowhere_public,
    parse,
)
from supervisor.core.policy.network_rules import NetworkJudge, check_pattern
from supervisor.core.text.globs import longest_segment, path_in_path, spelled_segments
from supervisor.core.text.hosts import (
    address_class,
    as_address,
    canonical_host,
    is_metadata_name,
    is_shared_by_strangers,
    registrable_domain,
)
from supervisor.core.text.urls import DEFAULT_PORTS, normalise_path, split_authority, split_url
from supervisor.core.verdicts import Mode
from supervisor.errors import PolicyError

_URL = re.compile(r"(?:(?P<method>[A-Z-]+)[ \t]+)?(?P<url>[a-z]+://.*)\Z", re.DOTALL)
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._~/@:+,=-]*\Z")
# A network of more addresses than this has many owners.
_MANY = {4: 1 << 16, 6: 1 << 96}


# -- containment -----------------------------------------------------------------------------------


def _contains(outer: Compiled, inner: Compiled, _: ProtectedBy) -> bool:
    wide: NetworkPattern = outer.pattern
    narrow: NetworkPattern = inner.pattern
    if not _hosts_in(wide, narrow, broad=not outer.is_allow):
        return False
    # An allow rule that names private addresses lets them be dialled at all: without it they are
    # denied, not asked.
    if inner.is_allow and narrow.network is not None and is_nowhere_public(narrow.network):
        names_them = outer.is_allow and wide.network is not None and is_nowhere_public(wide.network)
        if outer.rule.effect != "deny" and not names_them:
            return False
    if not _ports_in(wide, narrow, outer, inner):
        return False
    if wide.glob is None:
        return True
    # A URL rule that allows also lets the connection be opened, which a stricter URL rule doesn't
    # forbid.
    return (
        narrow.glob is not None
        and outer.is_allow == inner.is_allow
        and _requests_in(wide, narrow, inner)
    )


def _hosts_in(wide: NetworkPattern, narrow: NetworkPattern, *, broad: bool) -> bool:
    if wide.is_every_host:
        return broad
    if narrow.host is not None:
        return wide.host == narrow.host or (
            wide.suffix is not None and narrow.host.endswith(wide.suffix)
        )
    if narrow.suffix is not None:
        return wide.suffix is not None and narrow.suffix.endswith(wide.suffix)
    if (
        narrow.network is None
        or wide.network is None
        or narrow.network.version != wide.network.version
    ):
        return False
    return narrow.network[0] in wide.network and narrow.network[-1] in wide.network


def _ports_in(
    wide: NetworkPattern, narrow: NetworkPattern, outer: Compiled, inner: Compiled
) -> bool:
    if not outer.is_allow and wide.port is None:
        return True
    if not inner.is_allow:
        return narrow.port == wide.port
    return _own_ports(narrow) <= _own_ports(wide)


def _own_ports(pattern: NetworkPattern) -> frozenset[int]:
    """Return the ports of an allow rule (and of any rule that names one)."""
    if pattern.port is not None:
        return frozenset({pattern.port})
    default = DEFAULT_PORTS.get(pattern.scheme or "")
    return frozenset({default}) if default else WEB_PORTS


def _requests_in(wide: NetworkPattern, narrow: NetworkPattern, inner: Compiled) -> bool:
    if wide.scheme not in (None, narrow.scheme) or narrow.glob is None or wide.glob is None:
        return False
    if wide.methods is not None and not (
        narrow.methods is not None and narrow.methods <= wide.methods
    ):
        return False
    if not path_in_path(wide.glob.text, narrow.glob.text):
        return False
    return inner.is_allow or (
        wide.folded is not None
        and narrow.folded is not None
        and path_in_path(wide.folded.text, narrow.folded.text)
    )


def _key(pattern: NetworkPattern) -> Hashable:
    return (*_host_key(pattern), "" if pattern.glob is None else longest_segment(pattern.glob))


def _keys_above(pattern: NetworkPattern) -> Iterator[Hashable]:
    segments = [""] if pattern.glob is None else spelled_segments(pattern.glob)
    yield from ((*host, one) for host in _hosts_above(pattern) for one in segments)


def _host_key(pattern: NetworkPattern) -> tuple[Hashable, ...]:
    if pattern.network is not None:
        return (pattern.network.version, pattern.network.prefixlen, int(pattern.network[0]))
    return (pattern.host or pattern.suffix or "",)


def _hosts_above(pattern: NetworkPattern) -> Iterator[tuple[Hashable, ...]]:
    yield ("",)
    if pattern.network is not None:
        network = pattern.network
        yield from (
            _host_key(NetworkPattern(network=network.supernet(new_prefix=n)))
            for n in range(network.prefixlen)
        )
    yield _host_key(pattern)
    name = pattern.host or pattern.suffix or ""
    at = name.find(".")
    while at >= 0:
        yield (name[at:],)
        at = name.find(".", at + 1)


# -- in words, and from an action ------------------------------------------------------------------


def _never(pattern: NetworkPattern, _: ProtectedBy, __: Mode) -> Remark | None:
    name = pattern.host or (pattern.suffix or "")[1:]
    if name and is_metadata_name(name):
        return Remark("names a cloud metadata service, which is never reached", "remove it")
    network = pattern.network
    if (
        network is not None
        and network.num_addresses == 1
        and address_class(network[0]) in ("metadata", "never")
    ):
        return Remark("names an address that is never reached", "remove it")
    return None


def _wide(pattern: NetworkPattern) -> Remark | None:
    suffix = pattern.suffix
    if suffix is not None and is_shared_by_strangers(suffix[1:]):
        return Remark(
            f"reaches hosts of strangers: anybody can have a name below `{suffix[1:]}`",
            "name the hosts that are meant",
        )
    network = pattern.network
    if (
        network is not None
        and network.num_addresses > _MANY[network.version]
        and not is_nowhere_public(network)
    ):
        return Remark(
            f"reaches {network.num_addresses} addresses, of many owners",
            "name hosts, or a smaller network",
        )
    return None


def _width(pattern: NetworkPattern) -> str:
    if pattern.host is not None:
        where = f"the host {pattern.host}"
    elif pattern.suffix is not None:
        where = f"every host below {pattern.suffix}"
    elif pattern.network is None:
        where = "every host"
    elif pattern.network.num_addresses == 1:
        where = f"the address {pattern.network[0]}"
    else:
        where = f"every address of {pattern.network}: {pattern.network.num_addresses:,} addresses"
    if pattern.port is not None:
        where += f", port {pattern.port}"
    if pattern.glob is None:
        return where
    methods = (
        "requests of every method"
        if pattern.methods is None
        else f"{', '.join(sorted(pattern.methods))} requests"
    )
    path = pattern.glob.text
    paths = (
        "of every path"
        if path == "**"
        else f"of the path /{path}"
        if pattern.glob.literal is not None
        else ""
    )
    return f"{methods} {paths or f'of every path like /{path}'} at {where}"


def _example(example: str) -> Network:
    found = _URL.match(example)
    try:
        if found is not None:
            url = split_url(found["url"])
            scheme: Literal["https", "http"] = "https" if url.scheme == "https" else "http"
            method = found["method"] or "GET"
            return Network(
                operation="request",
                host=url.host,
                port=url.port,
                scheme=scheme,
                method=method,
                path=url.path,
            )
        host, port = (
            (example, None)
            if example.count(":") > 1 and "[" not in example
            else split_authority(example)
        )
    except ValueError as error:
        raise PolicyError(
            f"the example `{example}` {error}",
            "write a host, `host:port`, or `GET https://host/path`",
        ) from None
    return Network(operation="connect", host=host, port=port or 443)


def _candidates(action: Network, _: str) -> Iterator[Candidate]:
    host = canonical_host(action.host)
    port = "" if action.port in DEFAULT_PORTS.values() else f":{action.port}"
    is_address = as_address(host) is not None
    shown = f"[{host}]" if ":" in host else host
    domain = None if is_address else registrable_domain(host)
    # Below some names strangers have their own hosts: there the exact host is the most that is
    # offered.
    is_wide = domain is not None and domain != host and not is_shared_by_strangers(domain)
    label: Label = "exact"
    if action.operation == "request" and action.path is not None:
        rule = _url_rule(action, shown)
        if rule:
            which = (
                "requests of every method"
                if is_read_with_body(action)
                else "only requests of this method"
            )
            yield Candidate(label, rule, default=False, explains=f"{which} below this path")
        label = "narrow"
    yield Candidate(
        label, f"network({shown}{port})", default=not is_wide, explains=f"everything at {host}"
    )
    if is_wide:
        yield Candidate(
            "broad",
            f"network(*.{domain}{port})",
            default=True,
            explains=f"every host below {domain}, not {domain} itself",
        )


def _url_rule(action: Network, host: str) -> str:
    path = normalise_path(action.path or "/")
    if path.ambiguous or path.has_empty_segments or not _PLAIN_PATH.match(path.text):
        return ""
    folder = path.text.rpartition("/")[0]
    below = f"{folder}/**" if folder else path.text
    port = "" if action.port == DEFAULT_PORTS.get(action.scheme) else f":{action.port}"
    methods = "*" if is_read_with_body(action) else action.method
    return f"network({methods} {action.scheme}://{host}{port}{below})"


CATEGORY = RuleCategory(
    check=check_pattern,
    compile=parse,
    judge=lambda rules, _: NetworkJudge(rules),
    contains=_contains,
    key=_key,
    keys_above=_keys_above,
    wide=_wide,
    width=_width,
    example=_example,
    candidates=_candidates,
    never=_never,
    is_wide_unsaid=True,
)
