"""Network rules as a category: containment, faults, width, examples and candidates.

`network_patterns` and `network_rules` know how a rule is matched.
"""

import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from supervisor.core.actions import Network, is_read_with_body
from supervisor.core.policy.category import (
    FAR,
    MOST_PARTS,
    NEAR,
    ONE_WILDCARD,
    SPELLED_OUT,
    AnyRule,
    Candidate,
    Label,
    Option,
    ProtectedBy,
    Reading,
    Remark,
    RuleCategory,
    RuleLook,
    Topic,
    excepted,
    look_at,
    miss,
)
from supervisor.core.policy.network_patterns import (
    WEB_PORTS,
    NetworkPattern,
    Target,
    as_literal,
    is_nowhere_public,
    names_address,
    parse,
)
from supervisor.core.policy.network_rules import NetworkJudge, NetworkRule, check_pattern
from supervisor.core.text.globs import longest_segment, path_in_path, spelled_segments
from supervisor.core.text.hosts import (
    LIFTABLE,
    THIS_MACHINE,
    Address,
    address_class,
    as_address,
    canonical_host,
    embedded,
    is_metadata_name,
    is_shared_by_strangers,
    registrable_domain,
)
from supervisor.core.text.urls import DEFAULT_PORTS, normalise_path, split_authority, split_url
from supervisor.core.verdicts import Context, Mode, Rule, Verdict
from supervisor.errors import PolicyError

_URL = re.compile(r"(?:(?P<method>[A-Z-]+)[ \t]+)?(?P<url>[a-z]+://.*)\Z", re.DOTALL)
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._~/@:+,=-]*\Z")
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
# A network of more addresses than this has many owners.
_MANY = {4: 1 << 16, 6: 1 << 96}


# -- containment -----------------------------------------------------------------------------------


def _contains(outer: AnyRule, inner: AnyRule, _: ProtectedBy) -> bool:
    wide: NetworkPattern = outer.pattern
    narrow: NetworkPattern = inner.pattern
    if not _hosts_in(wide, narrow, broad=outer.is_broad):
        return False
    # An allow rule that names private addresses lets them be dialled at all: without it they are
    # denied, not asked.
    if not inner.is_broad and narrow.network is not None and is_nowhere_public(narrow.network):
        names_them = (
            not outer.is_broad and wide.network is not None and is_nowhere_public(wide.network)
        )
        if outer.rule.effect != "deny" and not names_them:
            return False
    if not _ports_in(wide, narrow, outer, inner):
        return False
    if wide.glob is None:
        return True
    # A URL rule that allows also lets the connection open; a stricter URL rule doesn't forbid that.
    return (
        narrow.glob is not None
        and outer.is_broad == inner.is_broad
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


def _ports_in(wide: NetworkPattern, narrow: NetworkPattern, outer: AnyRule, inner: AnyRule) -> bool:
    if outer.is_broad and wide.port is None:
        return True
    if inner.is_broad:
        return narrow.port == wide.port
    return _own_ports(narrow) <= _own_ports(wide)


def _own_ports(pattern: NetworkPattern) -> frozenset[int]:
    """Return the ports of an allow rule, or of any rule that names a port."""
    if pattern.port is not None:
        return frozenset({pattern.port})
    default = DEFAULT_PORTS.get(pattern.scheme or "")
    return frozenset({default}) if default else WEB_PORTS


def _requests_in(wide: NetworkPattern, narrow: NetworkPattern, inner: AnyRule) -> bool:
    if wide.scheme not in (None, narrow.scheme) or narrow.glob is None or wide.glob is None:
        return False
    if wide.methods is not None and not (
        narrow.methods is not None and narrow.methods <= wide.methods
    ):
        return False
    if not path_in_path(wide.glob.text, narrow.glob.text):
        return False
    return not inner.is_broad or (
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
    is_usual = action.port in DEFAULT_PORTS.values() and host != THIS_MACHINE
    port = "" if is_usual else f":{action.port}"
    is_address = as_address(host) is not None
    shown = f"[{host}]" if ":" in host else host
    domain = None if is_address else registrable_domain(host)
    # Below some names, strangers have their own hosts: there nothing wider than the exact host is
    # offered.
    is_wide = (
        host != THIS_MACHINE
        and domain is not None
        and domain != host
        and not is_shared_by_strangers(domain)
    )
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
    path = _plain_path(action)
    folder = path.rpartition("/")[0]
    below = f"{folder}/**" if folder else path
    return f"network({_url_head(action, host)}{below})" if path else ""


def _url_head(action: Network, host: str) -> str:
    is_usual = action.port == DEFAULT_PORTS.get(action.scheme) and host != THIS_MACHINE
    port = "" if is_usual else f":{action.port}"
    methods = "*" if is_read_with_body(action) else action.method
    return f"{methods} {action.scheme}://{host}{port}"


def _plain_path(action: Network) -> str:
    """Return a request's path; empty if a rule can't spell it."""
    path = normalise_path(action.path or "/")
    is_plain = not path.ambiguous and not path.has_empty_segments and _PLAIN_PATH.match(path.text)
    return path.text if is_plain else ""


def _options(action: Network) -> Iterator[Option]:
    host = canonical_host(action.host)
    shown = f"[{host}]" if as_address(host) is not None and ":" in host else host
    if action.operation == "connect":
        port = "" if action.port in DEFAULT_PORTS.values() else f":{action.port}"
        yield Option(f"network({shown}{port})", SPELLED_OUT, 2)
        return
    path = _plain_path(action)
    if is_read_with_body(action) or not path:
        return
    head = f"network({_url_head(action, shown)}"
    yield Option(f"{head}{path})", SPELLED_OUT, 2)
    if action.method in _READS:
        folder = path.rpartition("/")[0]
        yield Option(f"{head}{folder}/**)", ONE_WILDCARD, 2, path)
        while folder:
            above = folder.rpartition("/")[0]
            yield Option(f"{head}{above}/**)", ONE_WILDCARD + 1, 2, folder)
            folder = above


# -- explained -------------------------------------------------------------------------------------


def _read(judge: NetworkJudge, rules: Sequence[Rule], action: Network, context: Context) -> Reading:
    seen = judge.canonical(action)
    if isinstance(seen, Verdict):
        return Reading()
    target, closing = seen.target, judge.closing(seen.target, context)
    # Each private address is a separate part, which a rule must name.
    every = dict.fromkeys((target.address, *target.resolved))
    private = [one for one in every if one and address_class(one) != "public"]
    shown = private[: MOST_PARTS - 1]
    alone = replace(action, resolved=(), sni=None, host_header=None)
    kind = "connection" if action.operation == "connect" else "request"
    topics = [Topic(kind, _where(target), forced=tuple(seen.forced), alone=alone)]
    topics += [
        Topic("address", str(one), (_naming(one),), alone=replace(alone, host=str(one)))
        for one in shown
    ]
    # URL rules alone let a connection open, and each request in it is judged.
    is_opened = not any(
        context.is_active(rule) and _at_target(rule, target, closing).counts for rule in rules
    )

    def look(rule: Rule, at: int) -> RuleLook:
        if at:
            return _at_address(rule, target, shown[at - 1])
        found = _at_target(rule, target, closing)
        if found.fits or target.method is not None or rule.effect != "allow":
            return found
        return _opening(parse(rule.pattern), target, found, is_opened=is_opened)

    return Reading(_facts(action, target), topics, look, (), len(private) - len(shown))


def _at_target(rule: Rule, target: Target, closing: Sequence[Rule]) -> RuleLook:
    if rule in closing:
        why = "denies every request to this host, so no connection is opened for them"
        return RuleLook(True, why)
    one = NetworkRule(rule)
    return look_at(one, target, _how(one.pattern, target), _miss)


def _at_address(rule: Rule, target: Target, address: Address) -> RuleLook:
    if rule.effect != "allow":
        return miss("only an allow rule can name an address", FAR)
    one, literal = NetworkRule(rule), as_literal(target, address)
    if not names_address(one.pattern, literal):
        return miss(f"doesn't name the address `{address}`", FAR)
    exception = one.exception_for(literal)
    return excepted(exception) if exception else RuleLook(True, f"names `{address}`")


def _opening(
    pattern: NetworkPattern, target: Target, missed: RuleLook, *, is_opened: bool
) -> RuleLook:
    """Return what a rule about requests says about opening a connection."""
    if pattern.glob is None or not pattern.names(target):
        return missed
    if is_opened:
        why = (
            "is about requests to this host: the connection is opened, and each request in it is"
            " judged"
        )
        return RuleLook(True, why)
    why = "is about requests, and this connection has other rules that answer"
    return RuleLook(True, why, stopped="spare")


def _naming(address: Address) -> str:
    kind = address_class(address)
    return f"{kind}: " + (
        "only a rule that names it lets it be dialled"
        if kind in LIFTABLE
        else "it is never dialled"
    )


def _where(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    if target.path is None:
        return f"{host}:{target.port}"
    port = "" if target.port == DEFAULT_PORTS.get(target.scheme or "") else f":{target.port}"
    return f"{target.method} {target.scheme}://{host}{port}{target.path.text}"


def _facts(action: Network, target: Target) -> list[tuple[str, str]]:
    written = f" (written as `{action.host}`)" if action.host != target.host else ""
    facts = [("host", f"{target.host}{written}")]
    domain = None if target.address is not None else registrable_domain(target.host)
    if domain is not None and domain != target.host:
        facts.append(("below", domain))
    if target.address is not None:
        facts.append(("address", _classified(target.address)))
    if target.resolved:
        facts.append(("resolves to", ", ".join(map(_classified, target.resolved))))
    facts.append(("port", str(target.port)))
    if target.path is not None:
        facts += [
            ("scheme", str(target.scheme)),
            ("method", _method(target)),
            ("path", _path(action, target)),
        ]
    seen = (("TLS names", action.sni), ("Host header", action.host_header))
    return facts + [(what, text) for what, text in seen if text is not None]


def _method(target: Target) -> str:
    return f"{target.method} with a body" if target.is_read_with_body else str(target.method)


def _path(action: Network, target: Target) -> str:
    assert target.path is not None
    notes = []
    raw = (action.path or "/").partition("?")[0]
    if raw != target.path.text:
        notes.append(f"written as `{raw}`")
    if "?" in (action.path or ""):
        notes.append("the query is left aside")
    if target.path.ambiguous:
        notes.append(f"ambiguous: {target.path.ambiguous}")
    return f"{target.path.text} ({'; '.join(notes)})" if notes else target.path.text


def _classified(address: Address) -> str:
    inner = "".join(f", stands for {one}" for one in embedded(address))
    return f"{address} ({address_class(address)}{inner})"


def _how(pattern: NetworkPattern, target: Target) -> str:
    whom = f"`{target.host}`"
    if pattern.suffix is not None:
        whom = f"`*{pattern.suffix}` covers {whom}"
    elif pattern.network is not None and target.address is None:
        whom = f"{whom} resolves into `{pattern.network}`"
    elif pattern.network is not None and pattern.network.num_addresses > 1:
        whom = f"`{pattern.network}` holds {whom}"
    elif pattern.is_every_host:
        whom = f"every host, {whom} too"
    else:
        whom = f"names {whom}"
    if pattern.glob is not None and target.path is not None:
        return f"{whom}, and `/{pattern.glob.text}` covers the path"
    return whom


def _miss(pattern: NetworkPattern, target: Target, broad: bool) -> RuleLook:
    """Return the first part of a rule that differs, in the order host, port, URL. The later it
    differs, the nearer the rule."""
    if not pattern.names_host(target, broad=broad):
        return _other_host(pattern, target)
    host = "is about every host" if pattern.is_every_host else "names the host"
    far = FAR if pattern.is_every_host else 0
    if not pattern.names_port(target, broad=broad):
        return miss(f"{host}, but {_ports(pattern)}; here the port is {target.port}", far or 2)
    if target.path is None:
        return miss("is about requests; this only opens a connection", far or 2)
    if pattern.scheme is not None and target.scheme != pattern.scheme:
        return miss(f"{host}, but {pattern.scheme}; here the scheme is {target.scheme}", far or 2)
    method = target.method or ""
    if pattern.methods is not None and (method.upper() if broad else method) not in pattern.methods:
        exact = " (methods are compared exactly)" if method.upper() in pattern.methods else ""
        return miss(
            f"{host}, but {','.join(sorted(pattern.methods))}; here the method is {method}{exact}",
            far or 1,
        )
    if not broad and pattern.methods is not None and target.is_read_with_body:
        return miss(
            f"{host}, but no list of methods covers a {method} with a body; `*` or the host alone"
            " does",
            far or 1,
        )
    if not broad and target.path.has_empty_segments:
        return miss(f"{host}, but no allow rule covers a path with empty segments (`//`)", far or 1)
    glob = pattern.glob.text if pattern.glob is not None else ""
    return miss(f"{host}, but `/{glob}` doesn't cover the path `{target.path.text}`", far or 1)


def _ports(pattern: NetworkPattern) -> str:
    if pattern.port is not None:
        return f"port {pattern.port}"
    default = DEFAULT_PORTS.get(pattern.scheme or "")
    return (
        f"port {default}"
        if default
        else f"no port, so it means {' and '.join(map(str, sorted(WEB_PORTS)))}"
    )


def _other_host(pattern: NetworkPattern, target: Target) -> RuleLook:
    if pattern.network is not None:
        where = (
            f"`{target.host}`"
            if target.address is not None
            else "a name: only what is written as an address"
        )
        return miss(f"is about the addresses of `{pattern.network}`; here it is {where}", FAR)
    if pattern.suffix is not None and target.host == pattern.suffix[1:]:
        return miss(f"covers the names below `{target.host}`, not `{target.host}` itself", 1)
    name = pattern.host or (pattern.suffix or "")[1:]
    meant = f"the names below `{name}`" if pattern.suffix is not None else f"`{name}`"
    is_below = pattern.host is not None and target.host.endswith(f".{name}")
    hint = f", not the names below it (`*.{name}` would be)" if is_below else ""
    return miss(
        f"is about {meant}{hint}; here the host is `{target.host}`", _distance(name, target)
    )


def _distance(name: str, target: Target) -> int:
    """Return the distance of two hosts: near if both belong to one owner."""
    if target.address is not None:
        return FAR
    domain = registrable_domain(target.host)
    return NEAR - 1 if domain is not None and registrable_domain(name) == domain else FAR


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
    read=_read,
    options=_options,
    never=_never,
    is_wide_unsaid=True,
)
