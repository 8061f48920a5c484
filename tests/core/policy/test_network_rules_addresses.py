"""Addresses in every spelling, against generated rules: what is allowed is what a plain reading of
the policy's contract allows, and nothing else.

The model knows nothing of `core.hosts`: the C library reads IPv4 as every program's resolver
does, and what is near is a list of networks.
"""

import ipaddress
import json
import socket
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from supervisor.core.lab.check import answer

type Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# What a rule that names the address may allow; and what none does.
NEAR = [
    *(
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "169.254.0.0/16",
    ),
    *("::1/128", "fc00::/7", "fe80::/10", "fec0::/10"),
]
NEVER = ["0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "::/128", "ff00::/8"]
# Of IPv6 IANA gave out nothing but these.
GIVEN_OUT = ["2000::/3", "64:ff9b::/96", "::/96", "::ffff:0:0/96"]
METADATA = ["169.254.169.254/32", "fd00:ec2::254/128", "100.100.100.200/32"]
# IPv4 inside of IPv6 (RFC 4291, 6052, 3056): where its bits are, counted from the right.
INSIDE = {"::ffff:0:0/96": 0, "64:ff9b::/96": 0, "2002::/16": 80, "::/96": 0}


def is_in(address: Address, networks: list[str]) -> bool:
    found = map(ipaddress.ip_network, networks)
    return any(address.version == network.version and address in network for network in found)


def is_never(address: Address) -> bool:
    """What nobody has, or everybody."""
    if is_in(address, [*NEVER, *METADATA]):
        return True
    return address.version == 6 and not is_in(address, [*GIVEN_OUT, *NEAR])


def inside(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that this stands for."""
    for network, shift in INSIDE.items():
        if address.version == 6 and is_in(address, [network]) and int(address) > 1:
            return ipaddress.IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    return None


class Rule(NamedTuple):
    """One of the allow list."""

    text: str
    network: ipaddress.IPv4Network | ipaddress.IPv6Network
    port: int | None


def may_be_allowed(address: Address, port: int, rules: list[Rule]) -> bool:
    """By POLICY's words alone. What stands for an address that isn't public is no way round to
    it."""
    within = inside(address)
    if is_never(address) or (within is not None and (is_never(within) or is_in(within, NEAR))):
        return False
    return any(
        address.version == rule.network.version
        and address in rule.network
        and (port == rule.port if rule.port else port in (80, 443))
        for rule in rules
    )


def in_aton(number: int, how: tuple[int, ...], base: tuple[str, ...]) -> str:
    """An address as `inet_aton` reads it: so many bytes in each part, each in its base
    (inet(3))."""
    parts = []
    left = 4
    for size, form in zip(how, base, strict=False):
        left -= size
        value = number >> 8 * left & (1 << 8 * size) - 1
        parts.append(
            {"d": f"{value}", "o": f"0{value:o}", "x": f"0x{value:x}", "X": f"0X{value:X}"}[form]
        )
    return ".".join(parts)


FORMS = st.tuples(
    st.sampled_from([(1, 1, 1, 1), (1, 1, 2), (1, 3), (4,)]),
    st.lists(st.sampled_from("doxX"), min_size=4, max_size=4).map(tuple),
)
# Mostly what lies at an edge of something.
EDGES = [int(one) for text in [*NEAR, *NEVER,
*METADATA] if "." in text for one in (ipaddress.ip_network(text)[0],
ipaddress.ip_network(text)[-1])]  # fmt: skip
V4 = st.one_of(
    st.sampled_from(EDGES).flatmap(
        lambda edge: st.integers(max(0, edge - 2), min(0xFFFFFFFF, edge + 2))
    ),
    st.integers(0, 0xFFFFFFFF),
    st.just(int(ipaddress.IPv4Address("93.184.215.14"))),
)
PREFIXES = ["fe80::", "fe80:0:0:1::", "fc00::", "fd12:3456::", "fec0::", "ff02::", "2606:4700::",
"::", "fd00:ec2::", "65:fc::", "fe65:fc::"]  # fmt: skip


def v6(number: int, prefix: str) -> ipaddress.IPv6Address:
    return ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | number)


ADDRESSES: st.SearchStrategy[tuple[str, Address]] = st.one_of(
    st.builds(
        lambda number, form: (in_aton(number, *form), ipaddress.IPv4Address(number)), V4, FORMS
    ),
    st.builds(lambda number: (f"[::ffff:{ipaddress.IPv4Address(number)}]", v6(number | 0xFFFF << 32,
    "::")), V4),
    st.builds(lambda number: (f"[64:FF9B::{ipaddress.IPv4Address(number)}]", v6(number,
    "64:ff9b::")), V4),
    st.builds(lambda number: (f"[{v6(number << 80, '2002::')}]", v6(number << 80, "2002::")), V4),
    st.builds(
        lambda number, prefix: (f"[{v6(number, prefix).exploded}]", v6(number, prefix)),
        st.integers(0, 0x1FF),
        st.sampled_from(PREFIXES),
    ),
)  # fmt: skip


@st.composite
def rules(draw: st.DrawFn) -> list[Rule]:
    found = []
    for _ in range(draw(st.integers(0, 3))):
        _, address = draw(ADDRESSES)
        length = draw(
            st.sampled_from(
                [address.max_prefixlen, address.max_prefixlen - 4, address.max_prefixlen - 16]
            )
        )
        port = draw(st.sampled_from([None, 443, 8443]))
        network = ipaddress.ip_network((address, length), strict=False)
        bare = str(network[0]) if length == address.max_prefixlen else str(network)
        text = f"[{network[0]}]" if ":" in bare and "/" not in bare else bare
        if ":" in bare and "/" in bare:
            text = f"[{network[0]}]/{length}"
        found.append(Rule(f"network({text}{f':{port}' if port else ''})", network, port))
    return found


# Each example has rules of its own to compile.
FEWER = settings(max_examples=settings().max_examples // 2)


def verdict(line: dict[str, object], texts: list[str]) -> tuple[str, str]:
    policy = {"allow": texts, "modes": {"network": "deny"}}
    data = json.dumps({"id": "1", "category": "network", "policy": policy} | line).encode()
    found = json.loads(answer(data, None, None, 0.0))
    return found["verdict"], found["why"]


@FEWER
@given(place=ADDRESSES, allowed=rules(), port=st.sampled_from([80, 443, 8443]), own=st.booleans())
@example(place=("0x7f.1", ipaddress.IPv4Address("127.0.0.1")), allowed=[], port=443, own=True)
@example(
    place=("[::ffff:169.254.169.254]", ipaddress.IPv6Address("::ffff:a9fe:a9fe")),
    allowed=[],
    port=80,
    own=True,
)
def test_an_address_is_allowed_where_the_contract_allows_it_and_nowhere_else(
    place: tuple[str, Address], allowed: list[Rule], port: int, own: bool
) -> None:
    spelled, address = place
    if address.version == 4:
        assert socket.inet_aton(spelled) == address.packed
    if own:  # a rule that names this very address
        text = f"[{address}]" if address.version == 6 else str(address)
        allowed = [*allowed, Rule(f"network({text}:{port})", ipaddress.ip_network(address), port)]
    for line in (
        {"connect": f"{spelled}:{port}"},
        {"connect": f"{spelled}:{port}", "resolved": [str(address)]},
        {"method": "GET", "url": f"http://{spelled}:{port}/"},
    ):
        found, why = verdict(line, [rule.text for rule in allowed])
        assert (found == "allow") == may_be_allowed(address, port, allowed), (line, allowed, why)


@FEWER
@given(place=ADDRESSES, allowed=rules())
def test_a_name_that_means_an_address_is_allowed_no_more_than_the_address(
    place: tuple[str, Address], allowed: list[Rule]
) -> None:
    """DNS answers what it likes: a rule for the name lifts nothing of what is near."""
    _, address = place
    texts = [rule.text for rule in allowed]
    found, _ = verdict(
        {"connect": "host.example.com:443", "resolved": [str(address)]},
        ["network(host.example.com)", *texts],
    )
    within = inside(address)
    is_far = not any(
        one is not None and (is_never(one) or is_in(one, NEAR)) for one in (address, within)
    )
    assert found == "deny" or is_far or may_be_allowed(address, 443, allowed)


@given(
    address=st.sampled_from(["fe80::1", "fe80::ffff:10.0.0.1", "2606:4700::1", "::1"]),
    zone=st.sampled_from(["%eth0", "%25eth0", "%1", "%"]),
    brackets=st.booleans(),
)
def test_an_address_with_a_zone_is_never_allowed(address: str, zone: str, brackets: bool) -> None:
    spelled = f"[{address}{zone}]" if brackets else f"{address}{zone}"
    texts = [f"network([{address}])", f"network([{address}]/16)", "network([fe80::]/10)"]
    for line in ({"connect": f"{spelled}:443"}, {"method": "GET", "url": f"https://{spelled}/"}):
        assert verdict(line, texts[:1])[0] == "deny"


NO_ADDRESS = ["1.2.3.4.5", "256.1.1.1", "1.2.3.256", "0x100.1.1.1", "08.1.1.1", "1..2.3",
"1.2.3.4..", "4294967296", "0x1ffffffff", "-1.2.3.4", "1.2.3.4/32", "[1.2.3.4]", "[::1", "::1]",
"[:::1]", "[1::2::3]", "[12345::]", "[::g]"]  # fmt: skip


@given(spelled=st.sampled_from(NO_ADDRESS), port=st.sampled_from([80, 443]))
def test_what_only_looks_like_an_address_is_allowed_by_none(spelled: str, port: int) -> None:
    texts = ["network(1.2.3.4)", "network(0.0.0.0/1)", "network(128.0.0.0/1)", "network([::1])"]
    assert verdict({"connect": f"{spelled}:{port}"}, texts)[0] == "deny"
