"""List what the policy leaves open near a denied request, in words for the agent.

Pure. It decides nothing: what it names was judged by the same policy. It must never name a method
as open that isn't.
"""

from collections.abc import Callable, Sequence

import msgspec

from supervisor.core.actions import Network
from supervisor.core.verdicts import Verdict

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MOST_RULES = 3


def open_near(action: Network, judge: Callable[[Network], Verdict], rules: Sequence[str]) -> str:
    """Return the methods that are allowed on the same path, else `rules`, those that allow
    something at the same host; empty where there is nothing. `judge` gives the verdict on another
    method."""
    others = [one for one in METHODS if action.operation == "request" and one != action.method]
    open_ones = [
        one
        for one in others
        if judge(msgspec.structs.replace(action, method=one)).decision == "allow"
    ]
    if open_ones:
        return f"allowed on this path: {', '.join(open_ones)}"
    more = f" and {len(rules) - MOST_RULES} more" if len(rules) > MOST_RULES else ""
    return f"allowed at this host: {', '.join(rules[:MOST_RULES])}{more}" if rules else ""
