"""Explain a connection or request: host, addresses, and where a rule differs.

Decides nothing (see `explain`). `network_patterns` and `network_rules` tell whether a rule fits;
only the wording is made here.
"""

import msgspec

from supervisor.core.actions import Action, Effect, Network
from supervisor.core.lab.explanation import FAR, MOST_PARTS, NEAR, RuleLook, Topic, excepted, miss
from supervisor.core.policy.network_patterns import (
    WEB_PORTS,
    NetworkPattern,
    Target,
    as_literal,
    names_address,
    parse,
    target_of,
)
from supervisor.core.policy.network_rules import NetworkJudge, forced_of
from supervisor.core.policy.rules import Policy
from supervisor.core.text.hosts import (
    LIFTABLE,
    Address,
    address_class,
    embedded,
    registrable_domain,
)
from supervisor.core.text.urls import DEFAULT_PORTS
from supervisor.core.verdicts import Context, Forced, Rule


class NetworkReading:
    """A `Network` action as understood: its target, and each private address that a rule must
    name."""

    def __init__(self, policy: Policy, action: Action, context: Context) -> None:
        assert isinstance(action, Network)
        self.action = action
        self.facts: list[tuple[str, str]] = []
        self.forced: list[Forced] = []
        self.left_out = 0
        self.topics: list[Topic] = []
        self.private: list[Address] = []
        self.patterns: dict[str, NetworkPattern] = {}
        try:
            self.target = target_of(action)
        except ValueError:
            return
        self.facts = _facts(action, self.target)
        addresses = (self.target.address, *self.target.resolved)
        private = list(
            dict.fromkeys(one for one in addresses if one and address_class(one) != "public")
        )
        self.private = private[: MOST_PARTS - 1]
        self.left_out = len(private) - len(self.private)
        kind = "connection" if action.operation == "connect" else "request"
        alone = msgspec.structs.replace(action, resolved=(), sni=None, host_header=None)
        self.topics = [
            Topic(kind, _where(self.target), forced=tuple(forced_of(self.target)), alone=alone)
        ]
        self.topics += [
            Topic(
                "address",
                str(one),
                (_naming(one),),
                alone=msgspec.structs.replace(alone, host=str(one)),
            )
            for one in self.private
        ]
        judge = policy.judge_for("network")
        assert isinstance(judge, NetworkJudge)
        self.closing = judge.closing(self.target, context)
        # A connection for which only URL rules exist is opened by them, and each request in it is
        # judged.
        self.is_opened = action.operation == "connect" and not any(
            context.is_active(rule) and self._at_target(rule).counts
            for rule in policy.of("network")
        )

    def look(self, rule: Rule, at: int) -> RuleLook:
        """Return what a rule says of the target (0), or of one of the addresses that must be
        named."""
        if at:
            return self._at_address(rule, self.private[at - 1])
        found = self._at_target(rule)
        if found.fits or self.action.operation == "request" or rule.effect != "allow":
            return found
        return self._opening(rule, found)

    def _pattern(self, text: str) -> NetworkPattern:
        if text not in self.patterns:
            self.patterns[text] = parse(text)
        return self.patterns[text]

    def _at_target(self, rule: Rule) -> RuleLook:
        if rule in self.closing:
            return RuleLook(
                True, "denies every request to this host, so no connection is opened for them"
            )
        broad = rule.effect != "allow"
        pattern = self._pattern(rule.pattern)
        if not pattern.matches(self.target, broad=broad):
            return _miss(pattern, self.target, rule.effect)
        exception = self._exception(rule, self.target)
        return excepted(exception) if exception else RuleLook(True, _how(pattern, self.target))

    def _exception(self, rule: Rule, target: Target) -> str | None:
        broad = rule.effect == "allow"
        return next(
            (one for one in rule.exceptions if self._pattern(one).matches(target, broad=broad)),
            None,
        )

    def _at_address(self, rule: Rule, address: Address) -> RuleLook:
        if rule.effect != "allow":
            return miss("only an allow rule can name an address", FAR)
        pattern, literal = self._pattern(rule.pattern), as_literal(self.target, address)
        if not names_address(pattern, literal):
            return miss(f"doesn't name the address `{address}`", FAR)
        exception = self._exception(rule, literal)
        return excepted(exception) if exception else RuleLook(True, f"names `{address}`")

    def _opening(self, rule: Rule, missed: RuleLook) -> RuleLook:
        """Return what a rule about requests says of a mere connection."""
        pattern = self._pattern(rule.pattern)
        names = pattern.names_port(self.target, broad=False) and pattern.names_host(
            self.target, broad=False
        )
        if pattern.glob is None or not names:
            return missed
        if not self.is_opened:
            return RuleLook(
                True,
                "is about requests, and this connection has other rules that answer",
                stopped="spare",
            )
        return RuleLook(
            True,
            "is about requests to this host: the connection is opened, and each request in it is"
            " judged",
        )


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


# -- what covers, what differs --------------------------------------------------------------------


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


def _miss(pattern: NetworkPattern, target: Target, effect: Effect) -> RuleLook:
    """Return the first part of a rule that differs, in the order host, port, URL; the later, the
    nearer."""
    broad = effect != "allow"
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
    """Near where both belong to one owner."""
    if target.address is not None:
        return FAR
    domain = registrable_domain(target.host)
    return NEAR - 1 if domain is not None and registrable_domain(name) == domain else FAR
