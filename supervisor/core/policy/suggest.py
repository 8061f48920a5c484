"""Rules that an action gives reason for: what "always" offers, and what may be learned.

`suggest` decides up to three allow rules, from exact to broad, the default first. INVARIANT: each
of them parses, would have allowed this very action alone, and isn't bare; if there is none, nothing
is offered. `options` are for `learn`, which asks the engine what each would do. It never saves
anything.
"""

import msgspec

from supervisor.core.actions import WORKSPACE, Action, Git, category_of
from supervisor.core.policy.categories import rule_category
from supervisor.core.policy.category import Candidate, Option
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.errors import PolicyError

MOST = 3


def suggest(action: Action, *, workspace: str = WORKSPACE) -> tuple[Candidate, ...]:
    """Return up to three candidates, the default first; none if no rule may allow the action. Never
    raises."""
    try:
        found = list(rule_category(category_of(action)).candidates(action, workspace))
    except (ValueError, PolicyError):
        return ()
    unique = {candidate.rule: candidate for candidate in reversed(found)}
    kept = [one for one in found if unique[one.rule] is one and _holds(one, action, workspace)][
        :MOST
    ]
    if not kept:
        return ()
    default = next((one for one in kept if one.default), kept[0])
    ordered = [default, *(one for one in kept if one is not default)]
    return tuple(msgspec.structs.replace(one, default=one is default) for one in ordered)


def _holds(candidate: Candidate, action: Action, workspace: str) -> bool:
    """Return whether the rule alone allows the action, without a warning."""
    try:
        policy = policy_from_data({"allow": [candidate.rule]})
    except PolicyError:
        return False
    if policy.warnings:
        return False
    remotes = frozenset({action.remote}) if isinstance(action, Git) and action.remote else None
    verdict = evaluate(policy, action, now=0.0, workspace=workspace, configured_remotes=remotes)
    return verdict.decision == "allow" and policy.rules[0].text in verdict.rules


def options(action: Action) -> tuple[Option, ...]:
    """Return rules that may be learned from an approved action, from narrow to wide; none if no
    rule should answer it. Never raises.

    An action that leaves the sandbox (a connection, a push, a package) must have been approved more
    than once. No rule is wider than a folder's tree, a host, or the branches beside the approved
    ones. The commands of a line are requested one by one (`exec_category.exec_options`).
    """
    try:
        return tuple(rule_category(category_of(action)).options(action))
    except (ValueError, PolicyError):
        return ()
