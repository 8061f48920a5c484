"""`gatehouse policy learn`: print a policy derived from a person's answers.

The policy goes to standard output, its effect to standard error. The proposal is a separate policy
file (`run --policy` accepts it, and asks about everything else). It is meant to be read, and its
rules added to the policy that it was learned for. Nothing is saved here.
"""

import sys
from collections.abc import Iterable
from typing import Any

import yaml

from supervisor.base.clock import RealClock
from supervisor.cli.lab.inputs import chosen_policy, read_record
from supervisor.core.lab.learn import Learned, LearnedRule, StaysAsked
from supervisor.core.lab.past import Past, of_session
from supervisor.core.policy.policy_text import parse_policy
from supervisor.core.text.display import visible
from supervisor.errors import UserError
from supervisor.settings import Settings

MOST_EXAMPLE_CHARS = 80
_HEADER = """\
# Proposed by `gatehouse policy learn`: rules for what was approved, beside the policy that they were learned for.
# Read them, and add the ones that you want below `allow:` of that policy: each answers whatever it matches, without asking.
"""  # noqa: E501


def learn(
    audit: str | None, policy_file: str | None, session: str | None, settings: Settings
) -> int:
    """Print the proposal for a record. Return 0. With `session`, denials in other sessions still
    count."""
    from supervisor.core.lab.learn import learn

    record = tuple(read_record(audit, settings))
    history = record if session is None else _with_denials(record, session)
    learned = learn(history, chosen_policy(policy_file, settings), now=RealClock().now())
    text = policy_text(learned)
    # The printed policy must load: one that doesn't would be a bug, and is never printed as if it
    # did.
    parse_policy(text, "the proposal")
    sys.stdout.write(text)
    sys.stderr.write(summary(learned))
    return 0


def _with_denials(record: tuple[Past, ...], session: str) -> tuple[Past, ...]:
    if not of_session(record, session):
        raise UserError(
            f"no session `{session}` in the record",
            "name one of `gatehouse sessions`, or leave it out",
        )
    return tuple(
        past for past in record if past.session.startswith(session) or past.outcome == "deny"
    )


def policy_text(learned: Learned) -> str:
    """Return the proposal as a policy file: each rule with what it saves, and an example that is
    checked when the file loads."""
    data = {"version": 1, "allow": [_entry(rule) for rule in learned.rules]}
    return _HEADER + yaml.safe_dump(data, sort_keys=False, allow_unicode=False, width=1000)


def _entry(learned: LearnedRule) -> dict[str, Any]:
    sessions = f" of {learned.sessions} sessions" if learned.sessions > 1 else ""
    why = f"saves {_count(learned.saves, 'prompt')}{sessions}; e.g. {_short(learned.example)}"
    entry: dict[str, Any] = {"rule": learned.rule, "why": why}
    return entry | {"match": [learned.match]} if learned.match else entry


def summary(learned: Learned) -> str:
    """Return what the proposal changes, and what stays asked and why."""
    requests = f"{_count(learned.approved, 'request')} approved and {learned.denied} denied"
    them = "it" if len(learned.rules) == 1 else "them"
    proposed = f"{_count(len(learned.rules), 'rule')} proposed"
    lines = [
        f"learned from {requests}, in {_count(learned.sessions, 'session')}",
        f"{proposed}; asked before: {learned.asked_before}, with {them}: {learned.asked_after}",
    ]
    if learned.stays:
        lines += ["approved, and stays asked:", *_reasons(learned.stays)]
    return "\n".join(lines) + "\n"


def _reasons(stays: Iterable[StaysAsked]) -> Iterable[str]:
    for one in stays:
        yield f"{one.count:5}  {visible(one.why, one_line=True)}; e.g. {_short(one.example)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _short(text: str) -> str:
    """Return an agent's words on one readable line."""
    shown = visible(text, one_line=True)
    return shown if len(shown) <= MOST_EXAMPLE_CHARS else f"{shown[: MOST_EXAMPLE_CHARS - 3]}..."
