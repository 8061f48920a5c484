"""What went over the network, summed by host."""

import msgspec
import pytest

from supervisor.core.actions import Network
from supervisor.core.network.exchanges import Exchange, Verdict, by_host, name_of


def connect(host: str, port: int = 443) -> Network:
    return Network(operation="connect", host=host, port=port)


def get(host: str, path: str = "/a?b=1", port: int = 443) -> Network:
    return Network(
        operation="request", host=host, port=port, scheme="https", method="GET", path=path
    )


def exchange(
    action: Network, at: float = 0.0, verdict: Verdict = "allow", **facts: object
) -> Exchange:
    plain = {
        "number": 1,
        "session_id": "one",
        "action": msgspec.to_builtins(action),
        "at": at,
        "verdict": verdict,
        "why": "no rule",
    }
    return msgspec.convert(plain | facts, Exchange)


@pytest.mark.parametrize(
    ("action", "name"),
    [
        (connect("a.example.org"), "a.example.org"),
        (connect("a.example.org", 8443), "a.example.org:8443"),
        (connect("2001:db8::1"), "[2001:db8::1]"),
        (connect("2001:db8::1", 80), "[2001:db8::1]:80"),
        (
            Network(
                operation="request",
                host="a.example.org",
                port=80,
                scheme="http",
                method="GET",
                path="/",
            ),
            "a.example.org",
        ),
    ],
)
def test_a_host_is_named_as_a_person_would(action: Network, name: str) -> None:
    assert name_of(action) == name


def test_sums_count_the_bytes_of_a_connection_once() -> None:
    found = [
        exchange(
            connect("a.example.org"),
            1.0,
            rule="network(a.example.org)",
            up_bytes=30,
            down_bytes=300,
            ended_at=4.0,
        ),
        exchange(
            get("a.example.org"),
            2.0,
            rule="network(a.example.org)",
            up_bytes=10,
            down_bytes=100,
            ended_at=3.0,
        ),
        exchange(get("a.example.org"), 3.0),
        exchange(
            connect("b.example.org"), 5.0, "deny", rule="network(b.example.org)", ended_at=5.0
        ),
        exchange(connect("b.example.org"), 6.0, "ask_timeout", ended_at=6.0, why="nobody answered"),
    ]
    b, a = by_host(found)
    assert (a.host, a.connections, a.requests, a.refused, a.open) == ("a.example.org", 1, 2, 0, 1)
    assert (a.up_bytes, a.down_bytes, a.last_at, a.rules, a.whys) == (
        30,
        300,
        3.0,
        ("network(a.example.org)",),
        (),
    )
    assert (b.host, b.connections, b.refused, b.up_bytes, b.last_at) == (
        "b.example.org",
        0,
        2,
        0,
        6.0,
    )
    assert (b.rules, b.whys) == (("network(b.example.org)",), ("no rule", "nobody answered"))


def test_plain_requests_carry_their_own_bytes() -> None:
    (host,) = by_host(
        [
            exchange(get("a.example.org"), up_bytes=1, down_bytes=2),
            exchange(get("a.example.org"), up_bytes=3),
        ]
    )
    assert (host.up_bytes, host.down_bytes) == (4, 2)


def test_bytes_in_the_clear_are_counted_beside_those_of_connections() -> None:
    plain = Network(
        operation="request", host="a.example.org", port=80, scheme="http", method="GET", path="/"
    )
    found = [exchange(plain, up_bytes=1, down_bytes=2), exchange(connect("a.example.org"),
    up_bytes=30, down_bytes=40),
             exchange(get("a.example.org"), up_bytes=5, down_bytes=6)]  # fmt: skip
    (host,) = by_host(found)
    assert (host.up_bytes, host.down_bytes) == (31, 42)
