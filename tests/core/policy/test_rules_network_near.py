"""What is open near a denied request: only what the same policy allows."""

import pytest

from supervisor.core.actions import Network
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import parse_policy
from supervisor.core.policy.rules import allowing_near, open_near

POLICY = parse_policy(
    """
version: 1
allow:
  - network(GET,HEAD https://api.example.org/repos/**)
  - network(POST https://api.example.org/search)
  - network(files.example.org)
  - {rule: network(GET https://late.example.org/**), expires: 2001-01-01}
  - network(a.example.net)
  - network(GET https://a.example.net/a)
  - network(GET https://a.example.net/b)
  - network(GET https://a.example.net/c)
  - network(GET https://a.example.net/d)
deny:
  - network(HEAD https://api.example.org/repos/secret)
""",
    "test",
)
NOW = 1e9


def near(action: Network) -> str:
    rules = allowing_near(POLICY, action, now=NOW, session_id="s")
    return open_near(action, lambda other: evaluate(POLICY, other, now=NOW, session_id="s"), rules)


def request(method: str, path: str, host: str = "api.example.org") -> Network:
    return Network(
        operation="request", host=host, port=443, scheme="https", method=method, path=path
    )


def connect(host: str, port: int) -> Network:
    return Network(operation="connect", host=host, port=port)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (request("PUT", "/repos/a"), "allowed on this path: GET, HEAD"),
        (request("PUT", "/repos/secret"), "allowed on this path: GET"),
        (request("DELETE", "/search"), "allowed on this path: POST"),
        (
            request("GET", "/users"),
            "allowed at this host: network(GET,HEAD https://api.example.org/repos/**), network(POST https://api.example.org/search)",
        ),
        (connect("files.example.org", 22), "allowed at this host: network(files.example.org)"),
        (connect("late.example.org", 443), ""),
        (connect("elsewhere.example.org", 443), ""),
        (connect("not a host", 443), ""),
    ],
)
def test_what_is_open(action: Network, expected: str) -> None:
    assert near(action) == expected


def test_many_rules_are_counted() -> None:
    assert near(connect("a.example.net", 22)).endswith("and 2 more")
