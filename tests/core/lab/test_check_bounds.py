"""No input of any kind raises, or takes long: 10,000 characters, 500 nested constructs.

Time is measured as CPU time of this thread, so that a loaded machine doesn't matter, with the
collector of garbage off; the best of five counts, so that neither does a cold cache; and nothing
is remembered from one run to the next. Counting executed lines instead would be the same on
every machine, but would miss what takes long inside of the grammar or of a regular expression.
"""

import gc
import json
import time
from collections.abc import Callable

import pytest

from supervisor.core.actions import Action, Exec, Proposal
from supervisor.core.lab.check import answer_line
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import parse_rule, policy_from_data
from supervisor.core.policy.rules import Policy, Verdict
from supervisor.core.policy.suggest import suggest
from supervisor.core.shell.shell import _parse
from supervisor.errors import PolicyError
from tests.fakes.long_inputs import ACTIONS, DEEP, MAX_CHARS, SHELL
from tests.tables import each_row

# Coverage would be measured, too.
pytestmark = pytest.mark.untraced

# On an idle machine none takes 0.05 s; beside others, cores and caches are shared.
LIMIT_S = 0.25
TRIES = 5
RULES = {
    "allow": [
        "exec(ls *)", "exec(echo *)", "exec(cat *)", "exec(git log *)", "exec(find *)",
        "exec(xargs *)", "exec(sed *)", "exec(awk *)",
        "exec(bash -c *)", "exec(sh -c *)", "exec(* --version)", "filesystem(src/**/*.py)",
        "filesystem(**)", "filesystem(*a*b*c*d*/**/x)",
        "network(*.example.com)", "network(GET https://a.example.com/**/x/*a*b*)",
        "network(192.0.2.0/24)", "git(push origin feature/*)", "git(*)",
        "git(push *a*a*a*a*b)", "packages(npm:*)", "packages(pip install a*a*a*a*b)",
        "packages(npm install @team/*)",
    ],
    "ask": ["exec(rm *)", "exec(git push *)", "exec(* --force *)", "filesystem(**/secret*/**)",
    "network(POST https://*.example.com/**)", "git(main)"],
    "deny": [
        "exec(rm -rf *)", "exec(curl *)", "exec(git push --force *)", "exec(* -z *)",
        "exec(a*b*c*d *)", "filesystem(**/*a*a*a*a*a*b)",
        "filesystem(**/a/**/a/**/b)", "filesystem([!a-c]*/**/[[]*)", "network(*.evil.net)",
        "git(push --force *)", "packages(npm:evil*)",
    ],
    "modes": {"filesystem": "allow", "network": "allow", "git": "allow"},
}  # fmt: skip
IN_FORCE = policy_from_data(RULES)


def at_once[T](run: Callable[[], T]) -> T:
    """Return what it returns; the fastest of a few runs keeps the limit."""
    best = float("inf")
    gc.disable()
    try:
        for _ in range(TRIES):
            _parse.cache_clear()
            start = time.thread_time()
            result = run()
            best = min(best, time.thread_time() - start)
            if best < LIMIT_S:
                return result
    finally:
        gc.enable()
    raise AssertionError(f"takes {best:.3f} s, and may take {LIMIT_S}")


def judge(action: Action, policy: Policy = IN_FORCE) -> Verdict:
    return evaluate(policy, action, now=0.0)


def assert_bounded(action: Action) -> None:
    verdict = at_once(lambda: judge(action))
    assert "could not be evaluated" not in verdict.why, verdict
    assert "can't be judged" not in verdict.why, verdict
    at_once(lambda: suggest(action))


def longest(make: Callable[[int], str]) -> str:
    """As many repetitions as fit into the longest line that is judged."""
    size = max(1, (len(make(200)) - len(make(100))) / 100)
    text = make(int(MAX_CHARS / size))
    return text[:MAX_CHARS]


@pytest.mark.timeout(600)  # 600 lines, parsed twice each
@each_row("name", SHELL)
def test_a_command_line_of_any_kind_is_judged_at_once(name: str) -> None:
    make = SHELL[name]
    for text in (make(DEEP)[:MAX_CHARS], make(DEEP - 1), longest(make)):
        assert_bounded(Exec(command=text))
    assert judge(Exec(command=make(3 * MAX_CHARS))).decision != "allow"


@each_row("name", ACTIONS)
def test_an_action_of_any_kind_is_judged_at_once(name: str) -> None:
    assert_bounded(ACTIONS[name])


@each_row(
    "name", [name for name in ACTIONS if name.endswith(("'a'", "'*a'", "'[' ", "'%25'", "'../'"))]
)
def test_a_working_directory_of_any_kind_is_judged_at_once(name: str) -> None:
    assert_bounded(Exec(command="ls", cwd=name * 100))


@each_row(
    "text",
    [b"[" * MAX_CHARS, b"{" * MAX_CHARS, b'{"a":' * 2_000, b'"' + b"\\u0000" * 1_600,
     b"\xff" * MAX_CHARS, b"9" * MAX_CHARS, b"-" * MAX_CHARS,
     b'{"category":"exec","command":' + b"[" * 9_000, b" " * MAX_CHARS,
     b'{"category":"exec","command":"ls","policy":' + b'{"allow":[' * 900,
     json.dumps({"category": "exec", "command": ["ls"] * 3_000}).encode(),
     json.dumps({f"key{i}": i for i in range(700)}).encode(),
     json.dumps({"category": "x" * 9_000}).encode(), json.dumps({"category": "exec",
     "command": "ls", "x" * 9_000: 1}).encode(),
     json.dumps({"category": "network", "url": "https://" + "a." * 4_900}).encode(),
     json.dumps({"category": "network", "url": "h" * 9_900}).encode(),
     json.dumps({"category": "network", "url": "https://" + "@" * 9_900}).encode(),
     json.dumps({"category": "network", "connect": ":" * 9_900}).encode(),
     json.dumps({"category": "packages", "manager": "npm", "operation": "install",
     "names": ["a"] * 2_000}).encode(),
     json.dumps({"category": "git", "command": "git push", "remotes": ["o"] * 2_000}).encode(),
     json.dumps({"category": "filesystem", "operation": "write", "path_b64": "=" * 9_900}).encode(),
     json.dumps({"category": "exec", "command": "ls",
     "policy": {"allow": ["exec(" + "*a" * 400 + ")"] * 10}}).encode(),
     json.dumps({"category": "exec", "command": "ls",
     "policy": {"allow": ["(" * 9_000]}}).encode()],
    ids=range(23),
)  # fmt: skip
def test_a_line_of_any_kind_is_answered_at_once(text: bytes) -> None:
    answer = at_once(lambda: answer_line(text, IN_FORCE, None, 0.0))
    assert answer["verdict"] in ("allow", "ask", "deny")
    assert "could not be judged" not in answer["why"]


@each_row("category", ["exec", "filesystem", "network", "git", "packages", "x", ""])
@each_row(
    "unit",
    [
        "*",
        "*a",
        "**/",
        "[",
        "[!",
        "(",
        ")",
        "{a,",
        "\\",
        "'",
        '"',
        "a",
        "a.",
        " ",
        "%2f",
        "\x00",
        "-",
        "$(",
        "https://",
        "a b ",
        "\u0301",
    ],
)
def test_a_rule_of_any_kind_is_read_at_once_and_matched_at_once(category: str, unit: str) -> None:
    for size in (MAX_CHARS, 1_900):
        text = f"{category}({(unit * size)[:size]})"

        def read(text: str = text) -> object:
            try:
                return parse_rule(text, "deny")
            except PolicyError as error:
                return error

        if not isinstance(at_once(read), PolicyError):
            policy = policy_from_data({"deny": [text]})
            for action in (
                Exec(command=f"ls {'a' * 5_000}"),
                ACTIONS["path of 'a'"],
                ACTIONS["url path of 'a'"],
                ACTIONS["remote"],
                ACTIONS["package name"],
            ):
                at_once(lambda action=action, policy=policy: judge(action, policy))  # type: ignore[misc]


def test_a_proposal_of_any_length_that_is_no_rule_is_denied() -> None:
    assert judge(Proposal(effect="allow", rule="(" * MAX_CHARS)).decision == "deny"
