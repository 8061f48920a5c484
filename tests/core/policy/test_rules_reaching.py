"""A name and its addresses at once: allowed only where one rule allows both."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import WORKSPACE, Network
from supervisor.core.policy.evaluate import ORIGIN, evaluate_in, evaluate_reaching
from supervisor.core.policy.policy_text import DENY_ALL, policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.core.verdicts import Context, Verdict

RULES: dict[str, Any] = {
    "allow": [
        "network(open.example.org)",
        "network(10.0.0.0/8)",
        {"rule": "network(short.example.org)", "expires": "1970-01-01T00:01:40Z"},
        {"rule": "network(few.example.org)", "uses": 2, "id": "few"},
        {"rule": "network(mine.example.org)", "session": "s1"},
    ],
    "ask": ["network(203.0.113.7)"],
    "deny": [{"rule": "network(198.51.100.0/24)", "session": "s2"}],
}
HOSTS = [f"{name}.example.org" for name in ("open", "short", "few", "mine", "other")] + [
    "10.0.0.5",
    "not a host",
]
ADDRESSES = [
    "203.0.113.9",
    "203.0.113.7",
    "198.51.100.4",
    "10.0.0.5",
    "127.0.0.1",
    "169.254.169.254",
]
ACTIONS = st.builds(
    lambda host, port, found: Network(
        operation="connect", host=host, port=port, resolved=tuple(found)
    ),
    st.sampled_from(HOSTS),
    st.sampled_from([443, 8443]),
    st.lists(st.sampled_from(ADDRESSES), max_size=2),
)
CONTEXTS = st.builds(
    context_of := lambda now, session, ours, uses: Context(
        now, WORKSPACE, session, ours, ORIGIN, uses
    ),
    st.sampled_from([0.0, 99.0, 100.0, float("nan")]),
    st.sampled_from([None, "s1", "s2"]),
    st.sampled_from([frozenset[Any](), frozenset({("203.0.113.9", 443)})]),
    st.sampled_from([None, {}, {"few": 1}, {"few": 2}]),
)
PLAIN = context_of(0.0, "s1", frozenset(), {})
OPEN = Network(operation="connect", host="open.example.org", port=443, resolved=("203.0.113.9",))
FEW = Network(operation="connect", host="few.example.org", port=443, resolved=("203.0.113.9",))


def said(policy: Policy, action: Network, context: Context) -> Verdict | None:
    """By its definition."""
    name = Network(operation="connect", host=action.host, port=action.port)
    by_name, whole = (evaluate_in(policy, one, context) for one in (name, action))
    both_allowed = by_name.decision == whole.decision == "allow"
    is_one = (by_name.rule_id, by_name.why) == (whole.rule_id, whole.why)
    return whole if action.resolved and both_allowed and is_one else None


@given(ACTIONS, CONTEXTS)
def test_it_is_what_both_say(action: Network, context: Context) -> None:
    policy = policy_from_data(RULES)
    assert evaluate_reaching(policy, action, context) == said(policy, action, context)


def test_it_says_nothing_where_nothing_is_in_force_or_no_address_is_known() -> None:
    assert evaluate_reaching(DENY_ALL, OPEN, PLAIN) is None
    assert (
        evaluate_reaching(
            policy_from_data(RULES), Network(operation="connect", host=OPEN.host, port=443), PLAIN
        )
        is None
    )


def test_what_fails_allows_nothing() -> None:
    assert evaluate_reaching(policy_from_data(RULES), FEW, PLAIN) is not None

    class Broken(dict[str, int]):
        def get(self, *_: Any) -> Any:
            raise RuntimeError

    assert (
        evaluate_reaching(
            policy_from_data(RULES), FEW, context_of(0.0, "s1", frozenset(), Broken())
        )
        is None
    )
