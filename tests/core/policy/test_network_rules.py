"""Network verdicts: what is denied whatever rules say, what must agree, and what naming an
address lifts."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import Network
from supervisor.core.policy.evaluate import evaluate, names_addresses
from supervisor.core.policy.policy_text import parse_policy, policy_from_data
from supervisor.core.policy.rules import Verdict, host_ports
from supervisor.core.verdicts import Context
from tests.fakes.ruled import NOW, ruled
from tests.tables import each_row

ANY = ["network(api.example.com)", "network(*.example.org)"]


def connect(host: str, port: int = 443, **seen: Any) -> Network:
    return Network(operation="connect", host=host, port=port, **seen)


def verdict(action: Network, **rules: Any) -> Verdict:
    return ruled(action, **{"allow": ANY, **rules})


@each_row(
    ("action", "why"),
    [
        (connect("api.example.com", 0), "`0` is not a port"),
        (connect("api.example.com", 65_536), "`65536` is not a port"),
        (connect("api..example.com"), "the host `api..example.com` is not a valid host name"),
        (connect("api.example.com", resolved=("nonsense",)),
         "`nonsense` is not an address that a name can resolve to"),
        (Network(operation="request", host="api.example.com", port=443),
         "a request needs a method, and http or https"),
        (
            Network(operation="request", host="api.example.com", port=443, scheme="https",
            method="G T"),
            "a request needs a method, and http or https",
        ),
        (connect("api.example.com", sni="x.example.com"),
         "TLS names `x.example.com`, but the connection goes to `api.example.com`"),
        (connect("api.example.com", sni=""), "TLS names ``, which is not a valid host"),
        (
            connect("api.example.com", host_header="x.example.com"),
            "the Host header names `x.example.com`, but the connection goes to `api.example.com`",
        ),
        (
            connect("api.example.com", host_header="api.example.com:8443"),
            "the Host header names port 8443, but the connection goes to port 443",
        ),
        (connect("api.example.com", host_header="me@api.example.com"),
         "the Host header names `me@api.example.com`, which is not a valid host"),
        (connect("169.254.169.254", 80),
         "`169.254.169.254` is a cloud metadata service, which is never reached"),
        (connect("224.0.0.1"), "`224.0.0.1` is never the address of one public host"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_or_is_never_reached_is_denied(action: Network, why: str) -> None:
    found = verdict(action, allow=[*ANY, "network(169.254.0.0/16)"])
    assert (found.decision, found.why) == ("deny", why)


@pytest.mark.parametrize("header", ["api.example.com", "API.example.com.", "api.example.com:443"])
def test_a_host_header_that_agrees_is_no_contradiction(header: str) -> None:
    assert verdict(connect("api.example.com", host_header=header)).decision == "allow"


def test_an_ipv6_host_header_may_come_with_and_without_brackets() -> None:
    named = ["network([2001:db8::7])"]
    for header in ("2001:db8::7", "[2001:db8::7]", "[2001:db8::7]:443"):
        assert (
            verdict(connect("2001:db8::7", host_header=header), allow=named).decision == "allow"
        ), header
    assert (
        verdict(connect("2001:db8::7", host_header="2001:db8::8"), allow=named).decision == "deny"
    )


def test_a_private_address_needs_a_rule_that_names_it() -> None:
    action = connect("db.example.org", 443, resolved=("10.0.0.5",))
    assert verdict(action).decision == "deny"
    named = verdict(action, allow=[*ANY, "network(10.0.0.0/8)"])
    assert named.decision == "allow"
    assert set(named.rules) >= {"network(*.example.org)", "network(10.0.0.0/8)"}
    policy = policy_from_data({"allow": [*ANY, "network(10.0.0.0/8)"]})
    assert names_addresses(policy, action, now=NOW)
    assert not names_addresses(
        policy, connect("db.example.org", resolved=("93.184.216.34",)), now=NOW
    )
    assert not names_addresses(
        policy, connect("db.example.org", resolved=("10.0.0.5", "192.168.0.1")), now=NOW
    )


HERE = "host.gatehouse.internal"


@each_row(
    ("rule", "decision"),
    [
        ("network(host.gatehouse.internal:5432)", "allow"),
        ("network(HOST.Gatehouse.Internal.:5432)", "allow"),
        ("network(host.gatehouse.internal)", "ask"),
        ("network(host.gatehouse.internal:5433)", "ask"),
        ("network(*.gatehouse.internal:5432)", "ask"),
        ("network(127.0.0.1:5432)", "ask"),
        ("network(127.0.0.0/8:5432)", "ask"),
        ("network(* https://host.gatehouse.internal/**)", "ask"),
    ],
)
@each_row("resolved", [(), ("127.0.0.1",)])
@each_row("mode", ["ask", "allow"])
def test_this_machine_is_opened_by_its_name_and_a_port_alone(
    rule: str, decision: str, resolved: tuple[str, ...], mode: str
) -> None:
    found = verdict(connect(HERE, 5432, resolved=resolved), allow=[rule], modes={"network": mode})
    assert found.decision == decision


def test_of_this_machine_deny_rules_hold_and_our_own_ports_are_never_reached() -> None:
    allow = [f"network({HERE}:5432)"]
    for rule in ("network(*.internal)", "network(127.0.0.1)", f"network({HERE})"):
        there = connect(HERE, 5432, resolved=("127.0.0.1",))
        assert verdict(there, allow=allow, deny=[rule]).decision == "deny"
    other = connect(HERE, 5432, resolved=("127.0.0.2",))
    assert verdict(other, allow=allow).decision == "deny"
    for resolved in ((), ("127.0.0.1",)):
        own = verdict(
            connect(HERE, 5432, resolved=resolved),
            allow=allow,
            forbidden_endpoints=frozenset({("127.0.0.1", 5432)}),
        )
        assert "is Gatehouse itself" in own.why


def test_ports_of_this_machine_that_rules_are_about() -> None:
    text = f"""
version: 1
allow: ["network({HERE}:5432)", "network({HERE})", "network(GET http://{HERE}:8080/**)"]
ask: ["network({HERE}:6379)"]
deny: ["network({HERE}:22)"]
"""
    context = Context(NOW, "", "s", frozenset(), frozenset(), None)
    assert host_ports(parse_policy(text, "test"), context) == {5432, 6379}
    assert host_ports(parse_policy("version: 1", "test"), context) == set()


def test_an_exception_takes_an_address_out_of_what_is_named() -> None:
    rule = {"rule": "network(10.0.0.0/8)", "except": ["network(10.0.0.5)"]}
    assert verdict(connect("10.0.0.4"), allow=[rule]).decision == "allow"
    assert verdict(connect("10.0.0.5"), allow=[rule]).decision == "deny"


def test_a_deny_rule_is_named_even_where_nothing_could_allow_it() -> None:
    found = verdict(connect("10.0.0.5"), deny=["network(10.0.0.0/8)"])
    assert found.rule == "network(10.0.0.0/8)"
    found = verdict(
        connect("api.example.com", sni="x.example.com"), deny=["network(api.example.com)"]
    )
    assert found.rule == "network(api.example.com)"


def test_what_is_looked_into_is_so_because_of_the_same_rule_in_any_order() -> None:
    rules = [
        "network(POST https://api.example.com/b/**)",
        "network(GET https://*.example.com/a/**)",
    ]
    rules.append("network(GET https://api.example.com/a/**)")
    found = {
        verdict(connect("api.example.com"), allow=list(order)) for order in permutations(rules)
    }
    (one,) = found
    assert one.why == f"looked into because of {one.rule}: each request is judged"
    assert set(one.rules) == set(rules)


def test_an_ambiguous_path_is_asked_under_any_rule() -> None:
    action = Network(
        operation="request",
        host="api.example.com",
        port=443,
        scheme="https",
        method="GET",
        path="/a%2fb",
    )
    found = verdict(action)
    assert (found.decision, found.sticky) == ("ask", True)
    assert "an encoded slash" in found.why


def read(method: str = "GET", path: str = "/a/x", **seen: Any) -> Network:
    whole = {"scheme": "https", "has_body": True, **seen}
    return Network(
        operation="request", host="api.example.com", port=443, method=method, path=path, **whole
    )


READING = "network(GET,HEAD https://api.example.com/a/**)"


@pytest.mark.parametrize("mode", ["ask", "allow", "deny"])
def test_a_get_with_a_body_is_refused_where_a_rule_lets_one_without_go(mode: str) -> None:
    for method in ("GET", "HEAD"):
        found = verdict(read(method), allow=[READING], modes={"network": mode})
        assert (found.decision, found.rule) == ("deny", None)
        assert found.why == f"{READING} covers a {method}, and this one has a body"
        assert "by POST" in found.remedy
        assert (
            verdict(read(method, has_body=False), allow=[READING], modes={"network": mode}).decision
            == "allow"
        )


@pytest.mark.parametrize(
    "rule",
    [
        "network(api.example.com)",
        "network(* https://api.example.com/a/**)",
        "network(*.example.com)",
    ],
)
def test_a_rule_for_the_host_or_for_every_method_covers_a_get_with_a_body(rule: str) -> None:
    assert verdict(read(), allow=[READING, rule]).decision == "allow"
    assert verdict(read(), allow=[READING], ask=[rule]).decision == "ask"
    assert verdict(read(), allow=[READING, rule], deny=[READING]).decision == "deny"


def test_a_get_with_a_body_of_which_no_rule_speaks_is_up_to_the_mode() -> None:
    for path, action in (("/b", read(path="/b")), ("PURGE", read("PURGE"))):
        assert verdict(action, allow=[READING]).decision == "ask", path
    private = read(resolved=("10.0.0.5",))
    assert (
        verdict(private, allow=[READING]).why == f"{READING} covers a GET, and this one has a body"
    )


def test_an_exception_for_requests_has_the_host_looked_into() -> None:
    """Else the connection would be passed on unread, and no request in it be judged."""
    exception = "network(* https://a.example.com/private/**)"
    policy = policy_from_data(
        {"allow": [{"rule": "network(a.example.com)", "except": [exception]}]}
    )
    assert policy.looks_into("a.example.com")
    assert not policy.looks_into("b.example.com")
    hosts_alone = {"rule": "network(*.example.com)", "except": ["network(a.example.com)"]}
    assert not policy_from_data({"allow": [hosts_alone]}).looks_into("a.example.com")


def test_a_host_denied_but_for_some_requests_is_connected_to_for_these() -> None:
    exception = "network(GET https://a.example.com/public/**)"
    policy = policy_from_data(
        {"deny": [{"rule": "network(a.example.com)", "except": [exception]}],
         "allow": ["network(a.example.com)"]}
    )  # fmt: skip
    assert evaluate(policy, connect("a.example.com"), now=NOW).decision == "allow"
    for method, path, expected in [("GET", "/public/x", "allow"), ("GET", "/x", "deny"),
                                   ("POST", "/public/x", "deny")]:  # fmt: skip
        request = Network(
            operation="request", host="a.example.com", port=443, scheme="https", method=method,
            path=path,
        )  # fmt: skip
        assert evaluate(policy, request, now=NOW).decision == expected


CLOSING = st.sampled_from(
    [
        "* https://{}/**",
        "* *://{}/**",
        "GET https://{}/**",
        "* https://{}/a/**",
        "{}",
        "{}:8443",
        "* https://{}:443/**",
    ]
)
NAMES = st.sampled_from(["a.example.com", "*.example.com", "b.example.com"])
PATTERNS = st.builds(lambda form, name: f"network({form.format(name)})", CLOSING, NAMES)
DENYING = st.one_of(
    PATTERNS, st.builds(lambda rule, exceptions: {"rule": rule, "except": exceptions}, PATTERNS,
    st.lists(PATTERNS, min_size=1, max_size=2))
)  # fmt: skip


@given(
    st.lists(DENYING, max_size=3), st.lists(PATTERNS, max_size=2), st.lists(PATTERNS, max_size=2),
    st.sampled_from(["GET", "POST", "PROPFIND"]), st.sampled_from(["/", "/a/b", "/b", "/a%2fb",
    "/a//b"]),
)  # fmt: skip
def test_a_connection_is_denied_only_where_every_request_in_it_is(
    deny: list[Any], ask: list[str], allow: list[str], method: str, path: str
) -> None:
    policy = policy_from_data(
        {"deny": deny, "ask": ask, "allow": allow, "modes": {"network": "ask"}}
    )
    opened = evaluate(policy, connect("a.example.com"), now=NOW)
    request = Network(
        operation="request",
        host="a.example.com",
        port=443,
        scheme="https",
        method=method,
        path=path,
    )
    if opened.decision == "deny":
        assert evaluate(policy, request, now=NOW).decision == "deny"
