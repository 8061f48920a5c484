"""Random scripts: what holds only allowed commands is allowed, and one command that isn't,
anywhere in it, makes it not allowed."""

from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from supervisor.core.actions import Exec
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.policy.rules import Verdict
from tests.fakes.shell_scripts import (
    ALLOWED,
    EVIL,
    FED,
    FEEDERS,
    POLICY,
    PREFIXES,
    SUFFIXES,
    insert,
    random_script,
)
from tests.tables import each_row

# A tracer would slow these down, and no branch is reached by them alone.
pytestmark = pytest.mark.untraced

IN_FORCE = policy_from_data(POLICY)
DENYING = policy_from_data({**POLICY, "deny": ["exec(evil --now *)"]})
RANDOM = st.randoms(use_true_random=False)
# The grammar misreads about one in ten thousand of these scripts. Our own reader notices, and then
# it is asked.
MISREAD = "two parsers read differently"
# Asked like the rest, but no deny rule finds the command: it stands in another language than a
# shell's, in an alias, or (seldom, before a here-document) where the grammar loses its way.
NOT_SEEN = ("alias", "printf -v", "test -v", "[ -v", "awk", "sed", "git -c", "echo ${x:=")


def judge(text: str) -> Verdict:
    return evaluate(IN_FORCE, Exec(command=text), now=0.0)


@each_row(
    "text",
    [
        *ALLOWED,
        *(prefix + "ls -la" for prefix in PREFIXES),
        *(f + fed for f in FEEDERS for fed in FED),
    ],
)
def test_each_part_is_allowed(text: str) -> None:
    assert judge(text).decision == "allow", judge(text).why


@each_row(
    "text", [*(text.format("evil --now") for text in EVIL), *("ls" + suffix for suffix in SUFFIXES)]
)
def test_each_evil_part_is_not(text: str) -> None:
    assert judge(text).decision == "ask"


@given(RANDOM)
def test_a_script_whose_every_command_is_allowed_is_allowed(random: Random) -> None:
    text = random_script(random).render()
    verdict = judge(text)
    assume(MISREAD not in verdict.why)
    assert verdict.decision == "allow", (text, verdict.why)


@given(RANDOM)
def test_a_command_that_isn_t_allowed_anywhere_in_it_makes_it_not_allowed(random: Random) -> None:
    script = random_script(random)
    what = insert(random, script)
    assert judge(script.render()).decision == "ask", (what, script.render())


@given(RANDOM)
def test_a_deny_rule_finds_its_command_anywhere(random: Random) -> None:
    """Whatever else is opaque in the script: a denied command that stands there as it is written
    is seen."""
    script = random_script(random)
    what = insert(random, script)
    if "evil --now" in what and not what.startswith(NOT_SEEN):
        verdict = evaluate(DENYING, Exec(command=script.render()), now=0.0)
        assert verdict.decision == "deny", (what, script.render())
