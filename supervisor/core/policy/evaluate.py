"""Entry point of the policy engine: `evaluate` judges one action by a policy.

    deny rule > ask rule > allow rule > mode of the category; order never matters

It never acts and never raises: every failure is a denial (law 3).
"""

from collections.abc import Mapping

from supervisor.core.actions import (
    WORKSPACE,
    Action,
    Exec,
    Git,
    McpTools,
    Network,
    Packages,
    Proposal,
    category_of,
)
from supervisor.core.policy.rules import Policy
from supervisor.core.verdicts import (
    NOT_EVALUATED,
    NOTHING_IN_FORCE,
    Context,
    Verdict,
    by_mode,
    combine,
)

UNKNOWN_YET = Verdict("ask", "its words are known only when it comes to it", sticky=True)
# The default remotes of a host's repository.
ORIGIN = frozenset({"origin"})


def evaluate(
    policy: Policy,
    action: Action,
    *,
    now: float,
    workspace: str = WORKSPACE,
    session_id: str | None = None,
    forbidden_endpoints: frozenset[tuple[str, int]] = frozenset(),
    configured_remotes: frozenset[str] | None = None,
    uses: Mapping[str, int] | None = None,
    disputed: frozenset[str] = frozenset(),
    is_contained: bool = False,
    with_parts: bool = False,
) -> Verdict:
    """Return the verdict on an action. Pure, and never raises: an exception inside is a denial (law
    3).

    `now` is in seconds since the epoch. `workspace` is the folder that commands run in.
    `forbidden_endpoints` are Gatehouse's own listeners as (address, port), port 0 for all; they
    should include the addresses of the machine's own interfaces. `configured_remotes` are the git
    remotes that the host's repository knows, by name or URL; None means only `origin`. `uses` says
    how often each rule with a limit has matched so far, by rule id; None means that nobody counts,
    so such rules allow nothing. `disputed` and `is_contained`: see `Context`. `with_parts`: see
    `evaluate_in`.
    """
    remotes = ORIGIN if configured_remotes is None else configured_remotes
    context = Context(
        now, workspace, session_id, forbidden_endpoints, remotes, uses, disputed, is_contained
    )
    return evaluate_in(policy, action, context, with_parts=with_parts)


def evaluate_in(
    policy: Policy, action: Action, context: Context, *, with_parts: bool = False
) -> Verdict:
    """Evaluate in an existing context. Never raises.

    `with_parts`: return the strictest verdict on a command line and each push, fetch and install in
    it; else whether the line may start: its parts are asked when it comes to them, and only a
    denial of one counts already.
    """
    try:
        if policy.is_deny_all:
            remedy = "the operator must mend the policy file"
            return Verdict("deny", NOTHING_IN_FORCE, remedy=remedy, by_policy=False)
        category = category_of(action)
        if isinstance(action, Proposal):
            # Imported here: a proposal is rare, and its judge imports half of the package.
            from supervisor.core.policy.superfluous import judge_proposal

            return judge_proposal(policy, action, context.now)
        if isinstance(action, McpTools):
            return Verdict("ask", "tools that changed are used once a person saw them", sticky=True)
        if category == "budget":
            return Verdict("ask", "a limit of the budget is reached", sticky=True)
        verdict = policy.verdict(category, action, context)
        if isinstance(action, Exec):
            return _with_acts(policy, action, context, verdict, with_parts=with_parts)
        if isinstance(action, Git | Packages) and action.by_exec:
            return _as_command(policy, action, context, verdict)
        return verdict
    except Exception as error:
        return _not_evaluated(error)


def evaluate_program(policy: Policy, action: Exec, context: Context) -> Verdict:
    """Return the verdict of deny and ask exec rules on a program about to be executed; allow if
    none matches. The mode doesn't apply: it judged the command that started the program. Never
    raises."""
    try:
        if policy.is_deny_all:
            return Verdict("deny", NOTHING_IN_FORCE, by_policy=False)
        # Imported here, as by `Policy`: tree-sitter comes with it.
        from supervisor.core.policy.command_rules import CommandJudge

        judge = policy.judge_for("exec")
        assert isinstance(judge, CommandJudge)
        return judge.restrictions(action, context)
    except Exception as error:
        return _not_evaluated(error)


def _not_evaluated(error: Exception) -> Verdict:
    return Verdict(
        "deny",
        f"{NOT_EVALUATED}: {type(error).__name__}",
        remedy="report this as a bug",
        by_policy=False,
    )


def _with_acts(
    policy: Policy, action: Exec, context: Context, verdict: Verdict, *, with_parts: bool
) -> Verdict:
    """Return the stricter of the verdict on a command and those on each push, fetch and install in
    it that count."""
    acts = verdicts_on_acts(policy, action, context)
    counting = [one for _, one in acts if with_parts or one.decision == "deny"]
    return combine([verdict, *counting]) if counting else verdict


def verdicts_on_acts(
    policy: Policy, action: Exec, context: Context
) -> list[tuple[Git | Packages, Verdict]]:
    """Return every push, fetch and install in a command line, with its verdict. Words that aren't
    known before the line runs are denied by rules only: the act is judged with the real ones when
    it comes to it."""
    from supervisor.core.policy.outside_acts import outside_acts

    found = outside_acts(action)
    acts = [(one, policy.verdict(category_of(one), one, context)) for one in found.acts]
    for at in found.open:
        if acts[at][1].decision == "deny" and not acts[at][1].rule:
            acts[at] = (acts[at][0], UNKNOWN_YET)
    return acts


def _as_command(
    policy: Policy, action: Git | Packages, context: Context, verdict: Verdict
) -> Verdict:
    """Return the stricter of two verdicts: an act's own, and that of deny and ask rules on its
    command."""
    line = Exec(command=action.command or "", cwd=action.cwd)
    by_exec = policy.verdict("exec", line, context)
    holds = by_exec.decision == "deny" or (by_exec.decision == "ask" and by_exec.rule is not None)
    return combine([verdict, by_exec]) if holds else verdict


def evaluate_reaching(policy: Policy, action: Network, context: Context) -> Verdict | None:
    """Return the allow of a connection together with the addresses that it goes to
    (`Policy.reaching`); None if each needs a verdict of its own."""
    try:
        return (
            None if policy.is_deny_all or not action.resolved else policy.reaching(action, context)
        )
    except Exception:
        return None


def mode_verdict(policy: Policy, action: Action) -> Verdict:
    """Return the verdict that the action would get if no rule matched."""
    category = category_of(action)
    return by_mode(category, policy.mode_of(category))


def names_addresses(
    policy: Policy, action: Network, *, now: float, session_id: str | None = None
) -> bool:
    """Return whether rules name every private address that the action goes to, so that it may be
    dialled although it is private."""
    from supervisor.core.policy.network_rules import NetworkJudge

    judge = policy.judge_for("network")
    context = Context(now, "", session_id, frozenset(), frozenset(), None)
    return isinstance(judge, NetworkJudge) and judge.names_addresses(action, context)
