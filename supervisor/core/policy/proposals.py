"""Check of a rule that an agent proposes, before a person is asked.

Refuses at once, with a reason for the agent, a rule that can't be used or would change nothing. All
others are asked, always: no rule answers a proposal. It must never accept one by itself.
"""

from supervisor.core.actions import Proposal
from supervisor.core.policy.policy_text import merge, parse_rule, policy_from_data
from supervisor.core.policy.rules import Policy
from supervisor.core.policy.superfluous import adds_nothing
from supervisor.core.verdicts import Verdict
from supervisor.errors import PolicyError

_ASKED = Verdict("ask", "a change of the policy is always asked", sticky=True)


def judge(policy: Policy, proposal: Proposal, now: float) -> Verdict:
    """Return the verdict on a proposal beside the rules in force. `now` is in seconds since the
    epoch."""
    try:
        rule = parse_rule(proposal.rule, proposal.effect)
    except PolicyError as error:
        return Verdict(
            "deny", f"the proposed rule can't be used: {error.message}", remedy=error.remedy
        )
    proposed = policy_from_data({proposal.effect: [rule.text]}, "the proposal")
    finding = adds_nothing(merge(policy, proposed), proposed.rules[0], now)
    if finding is None:
        return _ASKED
    # Where a rule in force lies is the operator's affair.
    why = (
        f"{finding.by} answers all that {rule.text} is about"
        if finding.by
        else f"{rule.text} {finding.what}"
    )
    remedy = "propose one that changes something, or do without it"
    return Verdict("deny", f"the proposed rule would change nothing: {why}", remedy=remedy)
