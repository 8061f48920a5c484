"""The rules engine's baselines: cedarpy, a loop of compiled expressions, and a combined one.

All use the same globs.
"""

import re
from collections.abc import Callable, Sequence

import cedarpy

from bench._policy_rules import Row, effect_of

# Seconds until a peer is not asked further; it has then said enough for a rate.
CAP_S = 1.0

type Peer = Callable[[str], bool]


def loop(rules: Sequence[Row]) -> Peer:
    """Return a peer where the first matching expression decides."""
    compiled = [re.compile(expression(one.glob)) for one in rules]
    return lambda subject: any(one.fullmatch(subject) for one in compiled)


def combined(rules: Sequence[Row]) -> Peer:
    """Return a peer with all of them as one expression."""
    compiled = re.compile("|".join(expression(one.glob) for one in rules))
    return lambda subject: compiled.fullmatch(subject) is not None


def cedar(rules: Sequence[Row]) -> Peer:
    """Return cedarpy with one policy for each rule (`like`), parsed once and reused."""
    texts = []
    for number, one in enumerate(rules):
        effect = "forbid" if effect_of(number) == "deny" else "permit"
        glob = one.glob.replace("\\", "\\\\").replace('"', '\\"')
        texts.append(
            f'{effect}(principal, action, resource) when {{ context.subject like "{glob}" }};'
        )
    policies = cedarpy.PolicySet.from_str("\n".join(texts))
    entities = cedarpy.Entities.from_json_str("[]")
    request = {"principal": 'Agent::"a"', "action": 'Action::"do"', "resource": 'Thing::"x"'}
    allow = cedarpy.Decision.Allow

    def ask(subject: str) -> bool:
        answer = cedarpy.is_authorized(
            {**request, "context": {"subject": subject}}, policies, entities
        )
        return bool(answer.decision == allow)

    return ask


def expression(glob: str) -> str:
    """Return the regular expression of a glob in which `*` crosses everything."""
    return re.escape(glob).replace(r"\*", ".*")
