"""How long the rules take to decide, beside cedarpy, a loop of compiled expressions and one
combined expression over the same rules.

The stream is 10,000 different actions of all categories, so nothing is answered from a cache;
every policy is asked cold. A verdict is two steps: the action in its canonical form (which no
rule changes), and the *matching*, which is what a larger policy could slow down. Both are timed
apart. All times are processor time of the one thread, taken in turns with the peers. Of each
action the best of several rounds counts, each by a policy that was never asked: p50 and p99 tell
easy actions from hard ones, not the machine's calm moments from its busy ones. Absolute limits
stand beside the ratios; read them on a quiet machine.
"""

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench import Figure
from bench._policy_hard import long_inputs, shapes
from bench._policy_lines import RULES, lines
from bench._policy_peers import CAP_S, Peer, cedar, combined, loop
from bench._policy_rules import CATEGORIES, Asked, Row, policy_data, policy_text, rows, stream
from supervisor.core.actions import Action, Category, Exec
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.core.verdicts import Context, Judge, Verdict

ROUNDS = 5
# Where a round takes seconds before its first decision.
_FEW_ROUNDS = 3
# Decisions between two looks at the clock where a rate is measured.
_TOGETHER = 20
_CONTEXT = Context(0.0, "/workspace/merged", None, frozenset(), frozenset({"origin"}), None)
_LOOP = "a loop of compiled expressions"


def main() -> list[Figure]:
    """All figures of the engine."""
    return [
        *matching(10),
        *matching(1_000, cedar_times=100, loop_times=10, limit_us=20),
        *matching(100_000, limit_us=50),
        *whole_way(),
        *command_lines(),
        *loading(),
        *importing(),
        *hard_rules(),
        *long_texts(),
    ]


# -- the matching step ----------------------------------------------------------------------------


class Times(NamedTuple):
    """Microseconds of processor time of each decision; and the mean of every few, with no look
    at the clock between them."""

    us: Sequence[float]
    means_us: Sequence[float] = ()

    @property
    def rate(self) -> float:
        return 1e6 / statistics.fmean(self.means_us)

    @property
    def p50(self) -> float:
        return statistics.median(self.us)

    @property
    def p99(self) -> float:
        return sorted(self.us)[int(len(self.us) * 0.99)]


def matching(
    count: int,
    cedar_times: float | None = None,
    loop_times: float | None = None,
    limit_us: float | None = None,
) -> list[Figure]:
    """Decisions a second and the slowest hundredth at `count` rules, canonical action in,
    verdict out."""
    rules, asked = rows(count), stream(count)
    peers = {"cedarpy": cedar(rules), _LOOP: loop(rules)}
    if count <= 1_000:
        peers["one combined expression"] = combined(rules)
    else:
        print(
            f"one combined expression: not asked at {count} rules (it takes 10 s to compile, and"
            " half a gigabyte)"
        )
    rounds: list[Times] = []
    others: dict[str, list[Times]] = {name: [] for name in peers}
    for _ in range(ROUNDS if count <= 1_000 else _FEW_ROUNDS):
        rounds.append(_match_all(rules, asked))
        for name, peer in peers.items():
            others[name].append(_ask_peer(peer, [one.subject for one in asked]))
    ours = _best(rounds)
    wanted = {"cedarpy": cedar_times, _LOOP: loop_times}
    at = f"{count:,} rules"
    figures = [
        Figure(
            f"matching, {at}",
            ours.rate,
            "/s",
            _best(taken).rate,
            name,
            wanted.get(name),
            is_rate=True,
        )
        for name, taken in others.items()
    ]
    slow = _best(others[_LOOP])
    return [
        *figures,
        Figure(f"matching, {at}, p50", ours.p50, "us", slow.p50, _LOOP),
        Figure(f"matching, {at}, p99", ours.p99, "us", slow.p99, _LOOP, limit=limit_us),
    ]


def _best(rounds: Sequence[Times]) -> Times:
    """Of each decision the best of several rounds: what else runs on the machine only ever makes
    it slower."""
    us = zip(*(one.us for one in rounds), strict=False)
    means_us = zip(*(one.means_us for one in rounds), strict=False)
    return Times(list(map(min, us)), list(map(min, means_us)))


def _match_all(rules: Sequence[Row], asked: Sequence[Asked]) -> Times:
    """The matching step for each action, by policies that were never asked before: once with a
    look at the clock, once without."""
    timed, counted = (
        _forms(policy_from_data(policy_data(rules), "bench"), asked) for _ in range(2)
    )
    hits, taken = 0, []
    for judge, form in timed:
        start = time.thread_time_ns()
        verdict = judge.decide(form, "ask", _CONTEXT)
        taken.append((time.thread_time_ns() - start) / 1000)
        hits += verdict.rule is not None
    assert 0.55 < hits / len(asked) < 0.65, f"{hits} of {len(asked)} actions were matched"
    return Times(taken, _means_us(lambda one: one[0].decide(one[1], "ask", _CONTEXT), counted))


def _forms(policy: Policy, asked: Sequence[Asked]) -> list[tuple[Judge[Any], Any]]:
    """The actions in their canonical form, each with the judge of its category."""
    judges = {category: policy.judge_for(category) for category in CATEGORIES}
    # The exec rules are compiled at the first command; the stream measures decisions, `loading`
    # what comes before them.
    judges["exec"].judge(Exec(command="true"), "ask", _CONTEXT)
    return [
        ((judge := judges[_category(one.action)]), judge.canonical(one.action)) for one in asked
    ]


def _category(action: Action) -> Category:
    category: Category = action.__struct_config__.tag  # type: ignore[assignment]
    return category


def _ask_peer(peer: Peer, subjects: Sequence[str]) -> Times:
    """As many questions as a peer answers in its time, once with a look at the clock, once
    without."""
    taken, end = [], time.thread_time() + CAP_S / ROUNDS / 2
    for subject in subjects:
        start = time.thread_time_ns()
        peer(subject)
        taken.append((time.thread_time_ns() - start) / 1000)
        if time.thread_time() > end:
            break
    return Times(taken, _means_us(peer, subjects[: len(taken)]))


def _means_us[T](decide: Callable[[T], object], given: Sequence[T]) -> list[float]:
    means = []
    for at in range(0, len(given), _TOGETHER):
        few = given[at : at + _TOGETHER]
        start = time.thread_time_ns()
        for one in few:
            decide(one)
        means.append((time.thread_time_ns() - start) / 1000 / len(few))
    return means


# -- from the request to the verdict --------------------------------------------------------------


def whole_way() -> list[Figure]:
    """`evaluate` on raw requests of each category but exec at 1,000 rules of all categories."""
    rules, asked = rows(1_000), stream(1_000)
    slow = loop(rules)
    taken: dict[str, list[Times]] = {category: [] for category in CATEGORIES}
    scanned: dict[str, list[Times]] = {category: [] for category in CATEGORIES}
    for _ in range(ROUNDS):
        policy = policy_from_data(policy_data(rules), "bench")
        for category in CATEGORIES:
            own = [one for one in asked if _category(one.action) == category]
            evaluate(policy, own[0].action, now=0)
            raw = [one.action for one in own[1:]]
            taken[category].append(_times(lambda action: evaluate(policy, action, now=0), raw))  # noqa: B023
            scanned[category].append(_times(slow, [one.subject for one in own[:200]]))
    return [
        Figure(
            f"raw {category} request, p50",
            _best(taken[category]).p50,
            "us",
            _best(scanned[category]).p50,
            f"{_LOOP}, nothing parsed",
            limit=60,
        )
        for category in CATEGORIES
        if category != "exec"
    ]


def command_lines() -> list[Figure]:
    """Command lines of agents, parse included, at 1,000 rules."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    others = [one.rule for one in rows(5 * (1_000 - len(RULES))) if one.category == "exec"]
    data = {"version": 1, "allow": [*(f"exec({rule})" for rule in RULES), *others], "deny": []}
    texts = list(lines(2_000))
    parser = Parser(Language(tree_sitter_bash.language()))
    rounds, parses = [], []
    for _ in range(ROUNDS):
        parses.append(_times(parser.parse, [text.encode() for text in texts]))
        policy = policy_from_data(data, "bench")
        evaluate(policy, Exec(command="true"), now=0)
        _forget_parsed()
        rounds.append(_times(lambda text: evaluate(policy, Exec(command=text), now=0), texts))  # noqa: B023
    ours, parsed = _best(rounds), _best(parses)
    against = "tree-sitter's parse alone"
    return [
        Figure("command line, p50", ours.p50, "us", parsed.p50, against, limit=150),
        Figure("command line, p99", ours.p99, "us", parsed.p99, against, limit=1_000),
    ]


def _forget_parsed() -> None:
    from supervisor.core.shell import shell

    shell._parse.cache_clear()


# -- before the first verdict ---------------------------------------------------------------------


def loading() -> list[Figure]:
    """YAML text to a policy that can be asked, in a process of its own; against PyYAML's C loader
    on the same text.

    The best of several processes counts, of both; there are more of the short ones, which a busy
    machine spoils sooner.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _loading({**os.environ, **_with_bytecode(folder)})


def _with_bytecode(folder: str) -> dict[str, str]:
    """Variables of a process that keeps its bytecode, as an installed program does."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}


def _loading(environment: dict[str, str]) -> list[Figure]:
    figures = []
    _load(0, environment)
    for count, examples, limit_ms, rounds in (
        (1_000, True, 100, 3 * ROUNDS),
        (100_000, False, 3_000, ROUNDS),
    ):
        found = [_load(count, environment, examples=examples) for _ in range(rounds)]
        text = policy_text(rows(count), examples=examples)
        yaml_ms = min(_cpu_ms(lambda: _plain_yaml(text)) for _ in range(rounds))  # noqa: B023
        name = f"load {count:,} rules{' with examples' if examples else ''}"
        took_ms = min(one["ready_ms"] for one in found)
        figures.append(
            Figure(name, took_ms, "ms", yaml_ms, "yaml.CSafeLoader on the text", limit=limit_ms)
        )
        cold_ms = statistics.median(one["tables_ms"] for one in found)
        print(
            f"{name}: the engine's own tables, read once in a process, took {cold_ms:.0f} ms before"
            " that"
        )
    bare = _load(0, environment)
    held_mb = statistics.median(one["mb"] for one in found)
    figures.append(
        Figure("memory with 100,000 rules", held_mb, "MB", bare["mb"], "with none", limit=200)
    )
    return figures


def _load(count: int, environment: dict[str, str], *, examples: bool = False) -> dict[str, float]:
    words = [
        sys.executable,
        "-m",
        "bench._policy_load",
        str(count),
        *(["examples"] if examples else []),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _cpu_ms(do: Callable[[], object]) -> float:
    start = time.process_time()
    do()
    return (time.process_time() - start) * 1000


def _plain_yaml(text: str) -> Any:
    import yaml

    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def importing() -> list[Figure]:
    """A process that imports the engine, against one that imports nothing."""
    engine = (
        "import supervisor.core.policy.rules, supervisor.core.policy.policy_text,"
        " supervisor.core.shell.exec_rules"
    )

    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **_with_bytecode(folder)}

        def start_ms(code: str) -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000

        start_ms(engine)
        rounds = [(start_ms("pass"), start_ms(engine)) for _ in range(10)]
    bare_ms, ours_ms = map(statistics.median, zip(*rounds, strict=True))
    return [
        Figure(
            "import the engine, start included",
            ours_ms,
            "ms",
            bare_ms,
            "python -c pass",
            limit=bare_ms + 150,
        )
    ]


# -- what an index can do least with --------------------------------------------------------------


def hard_rules(count: int = 100_000) -> list[Figure]:
    """The slowest hundredth at 100,000 rules that share what tells others apart, against the
    same rules scanned one by one."""
    figures = []
    for name, category, patterns, actions in shapes(count):
        policy = policy_from_data(
            {"version": 1, "allow": [f"{category}({one})" for one in patterns]}, "bench"
        )
        judge = policy.judge_for(category)
        first, *forms = [judge.canonical(action) for action in actions]
        judge.decide(first, "ask", _CONTEXT)
        ours = _times(lambda form: judge.decide(form, "ask", _CONTEXT), forms)  # noqa: B023
        each_us = _scan_us(patterns)
        figures.append(
            Figure(
                f"{len(patterns):,} rules, {name}, p99",
                ours.p99,
                "us",
                each_us,
                "expressions, one by one",
            )
        )
    return figures


def _scan_us(patterns: Sequence[str]) -> float:
    few = [re.compile(re.escape(one)) for one in patterns[:500]]
    start = time.thread_time_ns()
    for one in few:
        one.match("a text that no rule is about")
    return (time.thread_time_ns() - start) / 1000 / len(few) * len(patterns)


def long_texts() -> list[Figure]:
    """The slowest of the inputs of 10,000 characters that were made to be slow."""
    policy = policy_from_data(policy_data(rows(1_000)), "bench")
    slowest: dict[str, float] = dict.fromkeys(CATEGORIES, 0.0)
    for category in CATEGORIES:
        policy.judge_for(category)
    for category, action in long_inputs():
        took_ms = min(_times(lambda one: _fresh(policy, one), [action, action, action]).us) / 1000
        slowest[category] = max(slowest[category], took_ms)
    calm = min(_times(lambda _: _loop_of_letters(), range(5)).us) / 1000
    return [
        Figure(
            f"10,000 characters, slowest {category}",
            took_ms,
            "ms",
            calm,
            "a Python loop over as many",
            limit=50,
        )
        for category, took_ms in slowest.items()
    ]


def _fresh(policy: Policy, action: Action) -> Verdict:
    _forget_parsed()
    return evaluate(policy, action, now=0)


def _loop_of_letters() -> int:
    return sum(1 for letter in "a" * 10_000 if letter == "b")


def _times[T](decide: Callable[[T], object], given: Sequence[T]) -> Times:
    taken = []
    for one in given:
        start = time.thread_time_ns()
        decide(one)
        taken.append((time.thread_time_ns() - start) / 1000)
    return Times(taken)
