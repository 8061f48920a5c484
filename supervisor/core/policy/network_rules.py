"""Verdict on a connection or request: hosts, addresses, URLs and fixed denials.

Decides by the canonical host (the value that is dialled) and by every address to which it resolved.
It never resolves or dials anything. INVARIANT: a metadata service, one of Gatehouse's own
listeners, a name that contradicts TLS or Host, and a private address that no rule names are denied
whatever else matches.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from msgspec.structs import replace

from supervisor.core.actions import Action, Effect, Network
from supervisor.core.policy.network_patterns import (
    NetworkPattern,
    Target,
    as_literal,
    check,
    names_address,
    parse,
    shown_host,
    spellings,
    target_of,
)
from supervisor.core.text.hosts import (
    ITS_ADDRESS,
    LIFTABLE,
    THIS_MACHINE,
    Address,
    address_class,
    as_address,
    canonical_host,
    embedded,
    is_local_name,
    is_metadata_name,
)
from supervisor.core.text.prefixes import FEW, Prefixes
from supervisor.core.text.urls import DEFAULT_PORTS, Path, split_authority
from supervisor.core.verdicts import (
    CompiledRule,
    Context,
    Forced,
    Judge,
    Matches,
    Mode,
    Rule,
    Sought,
    Verdict,
    by_rules,
    verdict_of,
)

_EVERY_PATH = "**"
_SCHEMES = frozenset(DEFAULT_PORTS)
_SCHEMES_ON = {port: frozenset({scheme}) for scheme, port in DEFAULT_PORTS.items()}
_BODY_REMEDY = (
    "send it without a body or by POST, or ask the operator for a rule that names the host or every"
    " method (`*`)"
)
_NAME_IT = "a rule must name the address or its network, e.g. `network({})`"


def check_pattern(pattern: str, effect: Effect) -> str:
    """Raise `PolicyError` if the pattern isn't valid in the list of `effect`; else return a
    warning, or nothing."""
    return check(pattern, allows=effect == "allow")


class NetworkRule(CompiledRule[NetworkPattern]):
    """A rule with its patterns."""

    __slots__ = ()

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule, parse)

    def exception_for(self, sought: Sought[NetworkPattern]) -> str | None:
        """Return the exception that excludes a target from the rule.

        If a request is an exception of a deny or ask rule, the other rules decide on the
        connection: each request in it is judged (`looks_into`).
        """
        assert isinstance(sought, Target)
        if sought.path is not None or not self.is_broad:
            return super().exception_for(sought)
        texts = zip(self.rule.exceptions, self.exceptions, strict=True)
        return next((text for text, one in texts if one.names(sought)), None)

    @property
    def is_about_requests(self) -> bool:
        """Return whether its pattern or one of its exceptions is about requests."""
        return any(one.glob is not None for one in (self.pattern, *self.exceptions))

    @property
    def may_close(self) -> bool:
        """Return whether it denies every request to some host."""
        pattern = self.pattern
        is_every_request = (
            pattern.glob is not None
            and pattern.glob.text == _EVERY_PATH
            and pattern.methods is None
        )
        return self.rule.effect == "deny" and is_every_request

    def closes(self, target: Target) -> bool:
        """Return whether it denies every request of its scheme that could follow on this
        connection, without exceptions."""
        return (
            self.may_close
            and self.pattern.names_port(target, broad=True)
            and self.pattern.names_host(target, broad=True)
            and self.exception_for(target) is None
        )


class _Index:
    """The rules, indexed by host, by parent domain, by network, and the rest."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.by_host: dict[str, list[NetworkRule]] = {}
        self.by_suffix: dict[str, list[NetworkRule]] = {}
        self.by_network: dict[tuple[int, int], dict[int, list[NetworkRule]]] = {}
        self.every: list[NetworkRule] = []
        self._can_close = False
        self._by_path: dict[str, _ByPath] = {}
        for rule in rules:
            self._add(NetworkRule(rule))

    def _add(self, entry: NetworkRule) -> None:
        pattern = entry.pattern
        self._can_close = self._can_close or entry.may_close
        if pattern.host is not None:
            self.by_host.setdefault(pattern.host, []).append(entry)
        elif pattern.suffix is not None:
            self.by_suffix.setdefault(pattern.suffix[1:], []).append(entry)
        elif pattern.network is not None:
            network = pattern.network
            of_length = self.by_network.setdefault((network.version, network.prefixlen), {})
            of_length.setdefault(int(network.network_address), []).append(entry)
        else:
            self.every.append(entry)

    def about_host(self, host: str, path: Path | None = None) -> list[NetworkRule]:
        """Return the entries whose pattern could name this host; with a path, only those that could
        apply to the path."""
        found = [*self.every]
        if host in self.by_host:
            found += self._about_path(host, self.by_host[host], path)
        if self.by_suffix:
            at = host.find(".")
            while at >= 0:
                parent = host[at + 1 :]
                if parent in self.by_suffix:
                    found += self._about_path(f"*.{parent}", self.by_suffix[parent], path)
                at = host.find(".", at + 1)
        return found

    def _about_path(
        self, hosts: str, entries: list[NetworkRule], path: Path | None
    ) -> list[NetworkRule]:
        """Return those of many rules for one host whose literal path start fits."""
        if path is None or len(entries) <= FEW:
            return entries
        index = self._by_path.get(hosts)
        if index is None:
            index = self._by_path[hosts] = _ByPath(entries)
        return index.about(path)

    def about_address(self, address: Address) -> Iterator[NetworkRule]:
        """Return the entries whose network contains this address."""
        for (version, length), of_length in self.by_network.items():
            if version == address.version:
                shift = address.max_prefixlen - length
                yield from of_length.get(int(address) >> shift << shift, ())

    def about(self, target: Target, path: Path | None = None) -> list[NetworkRule]:
        """Return the entries that could apply to a target: by its host, or by any address that
        could be meant."""
        found = self.about_host(target.host, path)
        if self.by_network and (target.address is not None or target.resolved):
            addresses = (
                [*target.resolved] if target.address is None else [target.address, *target.resolved]
            )
            addresses += [inner for address in addresses for inner in embedded(address)]
            found += {
                id(entry): entry for one in addresses for entry in self.about_address(one)
            }.values()
        return found

    def closing(self, target: Target, context: Context) -> list[Rule]:
        """Return the deny rules in force that together deny every request the connection could
        carry; none if any request could pass, or if the target is a request itself.

        A CONNECT to port 443 is for https and one to port 80 for http; on any other port it may be
        either.
        """
        if target.path is not None or not self._can_close:
            return []
        spoken = _SCHEMES_ON.get(target.port, _SCHEMES)
        found: list[Rule] = []
        closed: set[str] = set()
        for one in self.about(target):
            schemes = spoken if one.pattern.scheme is None else spoken & {one.pattern.scheme}
            if schemes and one.closes(target) and context.is_active(one.rule):
                found.append(one.rule)
                closed |= schemes
        return found if closed == spoken else []

    def matching(self, target: Target, context: Context) -> list[Rule]:
        """Return the rules in force that match: allow rules narrowly, others broadly."""
        return self.closing(target, context) + [
            entry.rule
            for entry in self.about(target, target.path)
            if entry.pattern.matches(target, broad=entry.is_broad)
            and context.is_active(entry.rule)
            and not (entry.exceptions and entry.exception_for(target) is not None)
        ]


class _ByPath:
    """The rules of one host, indexed by the literal text of their globs before the first wildcard.
    Every spelling of a path is looked up for rules that don't allow."""

    def __init__(self, entries: Sequence[NetworkRule]) -> None:
        self._narrow = Prefixes((_path_start(one), one) for one in entries if not one.is_broad)
        self._broad = Prefixes((one.pattern.broad_start, one) for one in entries if one.is_broad)

    def about(self, path: Path) -> list[NetworkRule]:
        """Return the entries that could cover a path."""
        return self._narrow.starting([path.text]) + self._broad.starting(
            letters for _, letters in spellings(path)
        )


def _path_start(entry: NetworkRule) -> str:
    """Return the common start of all paths that a rule allows."""
    glob = entry.pattern.glob
    return "" if glob is None else f"/{glob.start}"


class _Barred(NamedTuple):
    """A refusal that applies whatever rules allow: its reason, and the remedy. `by_policy`: as in
    `Verdict`."""

    why: str
    remedy: str = ""
    by_policy: bool = True


class _Seen(NamedTuple):
    """An action as the rules see it. `contradiction`: TLS or Host names another place. `refusal`:
    the name alone is never dialled. `is_plain`: neither applies and no address is known, so only
    rules decide."""

    target: Target
    contradiction: str
    refusal: _Barred | None
    forced: Sequence[Forced]
    is_plain: bool


class NetworkJudge(Judge[_Seen]):
    """The network rules of a policy, indexed."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._index = _Index(rules)

    @staticmethod
    def canonical(action: Action) -> _Seen | Verdict:
        """Return a `Network` action's target, and those of its faults that no rule lifts."""
        assert isinstance(action, Network)
        try:
            target = target_of(action)
        except ValueError as error:
            return Verdict("deny", str(error), remedy="check the address")
        contradiction, refusal, forced = (
            _contradiction(action, target),
            _refusal_by_name(target),
            forced_of(target),
        )
        is_plain = not (contradiction or refusal or forced or _addresses(target))
        is_plain = is_plain and target.host != THIS_MACHINE
        return _Seen(target, contradiction, refusal, forced, is_plain)

    def decide(self, seen: _Seen, mode: Mode, context: Context) -> Verdict:
        """Return the verdict on a connection or a request."""
        target = seen.target
        if target.host == THIS_MACHINE and mode == "allow":
            mode = "ask"
        rules = self._index.matching(target, context)
        if target.is_read_with_body and not rules:
            seen = seen._replace(
                refusal=seen.refusal or self._refusal_of_body(target, context), is_plain=False
            )
        if seen.is_plain and (rules or target.method is not None):
            return verdict_of(rules, (), "network", mode)
        matches = Matches(rules, seen.forced)
        if seen.contradiction and not matches.deny:
            return Verdict(
                "deny", seen.contradiction, remedy="name one and the same host everywhere"
            )
        named = self._naming(target, context)
        refusal = seen.refusal or _refusal(target, context, named)
        if refusal is not None and not matches.deny:
            why, remedy, by_policy = refusal
            return Verdict("deny", why, remedy=remedy, by_policy=by_policy)
        if seen.forced:
            matches.allow = []
        verdict = matches.verdict("network", mode)
        if verdict.decision == "allow" and matches.allow and named:
            naming = (rule for rules in named.values() for rule in rules)
            return by_rules(
                "allow",
                list({id(rule): rule for rule in (*matches.allow, *naming)}.values()),
                verdict.why,
            )
        if target.method is None and not (matches.deny or matches.ask or matches.allow):
            return self._looked_into(target, context) or verdict
        return verdict

    def _refusal_of_body(self, target: Target, context: Context) -> _Barred | None:
        """Return why a GET or HEAD with a body is refused although a rule allows one without a
        body, and the remedy."""
        rules = self._index.matching(target._replace(is_read_with_body=False), context)
        if not rules:
            return None
        lead = min(rule.text for rule in rules)
        why = f"{lead} covers a {target.method}, and this one has a body"
        return _Barred(why, _BODY_REMEDY)

    def _looked_into(self, target: Target, context: Context) -> Verdict | None:
        """Allow opening a connection for which only URL rules exist: it is decrypted, and each
        request is judged."""
        rules = [
            entry.rule
            for entry in self._index.about(target)
            if entry.rule.effect == "allow"
            and entry.pattern.glob is not None
            and entry.pattern.names(target)
            and context.is_active(entry.rule)
        ]
        if not rules:
            return None
        verdict = by_rules("allow", rules)
        return replace(
            verdict, why=f"looked into because of {verdict.rule}: each request is judged"
        )

    def _naming(self, target: Target, context: Context) -> dict[Address, list[Rule]]:
        """Return the allow rules that name each address that isn't public (a whole network of such
        addresses counts)."""
        found: dict[Address, list[Rule]] = {}
        for address in _addresses(target):
            if address_class(address) not in LIFTABLE:
                continue
            literal = as_literal(target, address)
            rules = [
                entry.rule
                for entry in self._index.about_address(address)
                if entry.rule.effect == "allow"
                and names_address(entry.pattern, literal)
                and context.is_active(entry.rule)
                and entry.exception_for(literal) is None
            ]
            if rules:
                found[address] = rules
        return found

    def closing(self, target: Target, context: Context) -> list[Rule]:
        """Return the rules that deny a connection because they deny every request that could follow
        on it."""
        return self._index.closing(target, context)

    def host_ports(self, is_active: Callable[[Rule], bool]) -> set[int]:
        """Return the ports of this machine that rules in force let connections to, or ask about."""
        return {
            one.pattern.port
            for one in self._index.by_host.get(THIS_MACHINE, ())
            if one.pattern.port is not None
            and one.pattern.glob is None
            and one.rule.effect != "deny"
            and is_active(one.rule)
        }

    def names_addresses(self, action: Network, context: Context) -> bool:
        """Return whether the action has addresses that aren't public, and rules name all of
        them."""
        target = target_of(action)
        private = [address for address in _addresses(target) if address_class(address) != "public"]
        return bool(private) and self._naming(target, context).keys() >= set(private)

    def allowing(self, action: Network, is_active: Callable[[Rule], bool]) -> list[str]:
        """Return the allow rules in force that name the action's host, as written."""
        try:
            target = target_of(action)
        except ValueError:
            return []
        return [
            entry.rule.text
            for entry in self._index.about(target)
            if entry.rule.effect == "allow"
            and entry.pattern.names_host(target, broad=False)
            and is_active(entry.rule)
        ]

    def looks_into(self, host: str) -> bool:
        """Return whether a rule of any effect, or an exception of one, is about requests to this
        host; True for an invalid host."""
        try:
            name = canonical_host(host)
        except ValueError:
            return True
        target = Target(name, as_address(name), 443)
        return any(entry.is_about_requests for entry in self._index.about(target))


def forced_of(target: Target) -> list[Forced]:
    """Return the parts of a request that no rule may allow."""
    if target.path is None or not target.path.ambiguous:
        return []
    return [
        Forced("ask", f"an ambiguous path ({target.path.ambiguous}) is never allowed by a rule")
    ]


def _addresses(target: Target) -> tuple[Address, ...]:
    return target.resolved if target.address is None else (target.address, *target.resolved)


def _contradiction(action: Network, target: Target) -> str:
    """Return why TLS or Host contradicts the place that is dialled; empty if all agree."""
    for kind, text in (("TLS", action.sni), ("the Host header", action.host_header)):
        if text is None:
            continue
        try:
            host, port = (text, None) if kind == "TLS" else _host_header(text)
            named = canonical_host(host)
        except ValueError:
            return f"{kind} names `{shown_host(text)}`, which is not a valid host"
        if named != target.host:
            return f"{kind} names `{named}`, but the connection goes to `{target.host}`"
        if port is not None and port != target.port:
            return f"{kind} names port {port}, but the connection goes to port {target.port}"
    return ""


def _host_header(text: str) -> tuple[str, int | None]:
    if text.count(":") > 1 and not text.startswith("["):
        return text, None
    return split_authority(text)


def _refusal_by_name(target: Target) -> _Barred | None:
    """Return why a name is never dialled, wherever it leads, and the remedy."""
    if is_metadata_name(target.host):
        return _Barred(f"`{target.host}` is a cloud metadata service, which is never reached")
    if is_local_name(target.host) and not target.resolved:
        why = f"`{target.host}` is this machine itself"
        return _Barred(why, _NAME_IT.format("127.0.0.1:8080"))
    return None


def _refusal(target: Target, context: Context, named: Mapping[Address, object]) -> _Barred | None:
    """Return why an address is never dialled, or is dialled only if a rule names it, and the
    remedy."""
    # Where it leads is known before it is looked up.
    is_here = target.host == THIS_MACHINE and not target.resolved
    for address in (ip_address(ITS_ADDRESS),) if is_here else _addresses(target):
        kind = address_class(address)
        if _is_own(address, target.port, context.forbidden_endpoints):
            why = f"`{address}` port {target.port} is Gatehouse itself, which is never reached"
            return _Barred(why, by_policy=False)
        if kind == "metadata":
            return _Barred(f"`{address}` is a cloud metadata service, which is never reached")
        if kind != "public" and kind not in LIFTABLE:
            return _Barred(f"`{address}` is never the address of one public host")
        is_meant = target.host == THIS_MACHINE and str(address) == ITS_ADDRESS
        if kind != "public" and address not in named and not is_meant:
            where = (
                f"`{target.host}` resolves to `{address}`, which"
                if target.address is None
                else f"`{address}`"
            )
            why = f"{where} is a {kind} address that no rule names"
            return _Barred(why, _NAME_IT.format(address))
    return None


def _is_own(address: Address, port: int, endpoints: frozenset[tuple[str, int]]) -> bool:
    """Return whether the address is one of Gatehouse's listeners, in any form of the address. All
    loopback addresses count as this machine."""
    if not endpoints:
        return False
    forms = {str(address), *(str(one) for one in embedded(address))}
    if any(one.is_loopback or one.is_unspecified for one in (address, *embedded(address))):
        forms |= {"127.0.0.1", "::1", "0.0.0.0", "::", "localhost"}
    return any((form, number) in endpoints for form in forms for number in (port, 0))
