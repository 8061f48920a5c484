"""The verdict of a few rules on one action, in one call: what the tests of the judges ask."""

from collections.abc import Sequence
from typing import Any

from supervisor.core.actions import Action
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.rules import Verdict

NOW = 1_790_000_000.0


def ruled(
    action: Action,
    *,
    allow: Sequence[Any] = (),
    ask: Sequence[Any] = (),
    deny: Sequence[Any] = (),
    modes: dict[str, str] | None = None,
    **context: Any,
) -> Verdict:
    """What the rules say of the action; `context` is what `evaluate` takes besides."""
    policy = policy_from_data(
        {"allow": list(allow), "ask": list(ask), "deny": list(deny), "modes": modes or {}}
    )
    return evaluate(policy, action, **{"now": NOW, "uses": {}, **context})
