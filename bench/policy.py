"""How long the rules take to decide: the whole of `evaluate` beside a loop of compiled regular expressions over the same rules."""

import re
import statistics
import time
from collections.abc import Callable, Sequence

from bench import Figure
from supervisor.core.actions import Action, Exec, FileChange, Git, Network, Packages
from supervisor.core.policy_text import policy_from_data
from supervisor.core.rules import evaluate

RULES = 1000
ACTIONS = 400


def main() -> list[Figure]:
    """At 1,000 rules, microseconds a decision: half of the actions are matched, none is asked twice in a row."""
    return [figure for category, make in _ACTIONS.items() for figure in _measure(category, make)]


def _measure(category: str, make: Callable[[int], tuple[str, Action, str]]) -> list[Figure]:
    rows = [make(number) for number in range(RULES)]
    policy = policy_from_data({"version": 1, "allow": [f"{category}({pattern})" for pattern, _, _ in rows]}, "bench")
    loop = [re.compile(re.escape(pattern).replace(r"\*", ".*")) for pattern, _, _ in rows]
    chosen = [make(number * 5 % (2 * RULES)) for number in range(ACTIONS)]
    evaluate(policy, chosen[0][1], now=0)  # the index is built at the first call
    ours = _times_us(lambda action: evaluate(policy, action, now=0), [action for _, action, _ in chosen])
    scanned = _times_us(lambda text: any(one.fullmatch(text) for one in loop), [text for _, _, text in chosen])
    hits = sum(evaluate(policy, action, now=0).decision == "allow" for _, action, _ in chosen)
    assert ACTIONS // 3 < hits < ACTIONS, f"{category}: {hits} of {ACTIONS} matched"
    against = "a loop of compiled expressions"
    return [
        Figure(f"{category} rule, p50", statistics.median(ours), "us", statistics.median(scanned), against),
        Figure(f"{category} rule, p99", _p99(ours), "us", _p99(scanned), against),
    ]


def _times_us[T](decide: Callable[[T], object], given: Sequence[T]) -> list[float]:
    times = []
    for one in given:
        start = time.perf_counter()
        decide(one)
        times.append((time.perf_counter() - start) * 1e6)
    return times


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def _network(number: int) -> tuple[str, Action, str]:
    host = f"h{number}.example{number % 7}.org"
    return f"*.{host}", Network(operation="connect", host=f"api.{host}", port=443), f"api.{host}"


def _filesystem(number: int) -> tuple[str, Action, str]:
    return f"src/part{number}/*", FileChange(operation="write", path=f"src/part{number}/a.py"), f"src/part{number}/a.py"


def _exec(number: int) -> tuple[str, Action, str]:
    command = f"tool{number} run --fast src/part{number}"
    return f"tool{number} run *", Exec(command=command), command


def _git(number: int) -> tuple[str, Action, str]:
    action = Git(operation="push", remote="origin", refspecs=(f"feature{number}/x",))
    return f"push origin feature{number}/*", action, f"push origin feature{number}/x"


def _packages(number: int) -> tuple[str, Action, str]:
    action = Packages(manager="npm", operation="install", names=(f"package{number}",))
    return f"npm:package{number}", action, f"npm:package{number}"


_ACTIONS: dict[str, Callable[[int], tuple[str, Action, str]]] = {
    "network": _network,
    "filesystem": _filesystem,
    "exec": _exec,
    "git": _git,
    "packages": _packages,
}
