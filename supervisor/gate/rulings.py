"""Verdicts here and now: kill switch, the policy in force for a session, our own files.

Nothing here is recorded, and no result lets a channel act. Every failure is a denial (law 3).
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core.actions import WORKSPACE, Action, Exec, FileChange, Network
from supervisor.core.files.write_scope import WriteScope
from supervisor.core.policy.evaluate import (
    ORIGIN,
    evaluate_in,
    evaluate_program,
    evaluate_reaching,
)
from supervisor.core.policy.policy_text import merge
from supervisor.core.policy.rules import (
    InForce,
    Policy,
    Verdict,
    allowing_near,
    host_ports,
    open_near,
)
from supervisor.core.sessions import Session
from supervisor.core.text.paths import canonical, fold
from supervisor.core.verdicts import (
    NOT_EVALUATED,
    OUT_OF_SCOPE,
    OWN_FILE,
    SESSION_ENDED,
    STOPPED,
    Context,
    Passing,
)
from supervisor.records.kill_switch import KillSwitch
from supervisor.records.policy_files import PolicyFiles, PolicySets

_EACH_BY_ITSELF = Verdict(decision="ask", why="name and addresses are judged each by itself")


class Rulings:
    """The rulings of one gate. `policies` are the supervisor's, `policy_sets` those of sessions
    with others. `uses` is how often each rule matched so far, by rule id, read at each verdict.
    """

    def __init__(
        self,
        policies: PolicyFiles,
        kill_switch: KillSwitch,
        clock: Clock,
        uses: Mapping[str, int],
        own_files: Iterable[Path] = (),
    ) -> None:
        self.policies = policies
        self.policy_sets = PolicySets(policies, clock)
        self._kill_switch = kill_switch
        self._clock = clock
        self._uses = uses
        self._own_files = tuple(own_files)
        self._own_in: dict[str, frozenset[str]] = {}
        self._scopes: dict[str, WriteScope] = {}
        self._contained: set[str] = set()
        self._sessions: dict[str, Session] = {}
        self._set_of: dict[str, PolicyFiles] = {}
        self._own_endpoints: frozenset[tuple[str, int]] = frozenset()

    def open_session(self, session: Session) -> None:
        """Judge this session's actions from now on."""
        self._sessions[session.id] = session
        self._set_of[session.id] = self.policy_sets.of(session)
        if session.job is not None and session.job.scope:
            self._scopes[session.id] = WriteScope(session.job.scope)
        # A policy of one session may lie in the workspace of another.
        own = [
            *self._own_files,
            *(file for one in self.policy_sets.all() for file in (one.file, one.saved_file)),
        ]
        self._own_in = {
            one.id: own_paths(Path(one.workspace), own) for one in self._sessions.values()
        }

    def set_contained(self, session_id: str, *, is_contained: bool) -> None:
        """Set whether commands of this session are contained: they can change nothing outside."""
        (self._contained.add if is_contained else self._contained.discard)(session_id)

    def runs_contained(self, session_id: str) -> bool:
        """Return whether the session's policy lets contained commands run without a question."""
        session = self._sessions.get(session_id)
        if session is None:
            return False
        policy = self._set_of[session_id].known_for_session(session.policy_text)
        return policy.mode_of("exec") == "contained"

    def close_session(self, session_id: str) -> None:
        """Deny everything that this session asks from now on."""
        self._contained.discard(session_id)
        self._sessions.pop(session_id, None)
        self._set_of.pop(session_id, None)
        self._own_in.pop(session_id, None)
        self._scopes.pop(session_id, None)
        self.policy_sets.keep_only(self._sessions.values())

    def policies_of(self, session_id: str) -> PolicyFiles:
        """Return the policy files that judge a session; the supervisor's where it isn't open."""
        return self._set_of.get(session_id, self.policies)

    def is_open(self, session_id: str) -> bool:
        """Return whether the session is open, so that it may ask at all."""
        return session_id in self._sessions

    def forbid_endpoints(self, endpoints: frozenset[tuple[str, int]]) -> None:
        """Gatehouse's own listeners, as (address, port): no rule lets an agent reach them."""
        self._own_endpoints = endpoints

    def why_stopped(self) -> str | None:
        """Return why everything is denied just now; None while it isn't."""
        reason = self._kill_switch.reason()
        return None if reason is None else f"{STOPPED}: {reason}"

    def verdict(self, action: Action, session_id: str, *, is_running: bool = False) -> Verdict:
        """Return the verdict on an action now. `is_running`: it began when it was allowed, so
        the use it took doesn't count. Never raises."""
        return self.verdicts([action], session_id, is_running=is_running)[0]

    def verdicts(
        self,
        actions: Sequence[Action],
        session_id: str,
        *,
        is_running: bool = False,
        used: Callable[[str], None] = lambda rule_id: None,
    ) -> list[Verdict]:
        """Return the verdict on each at this one moment. `used` is told of the rule that allows
        one, by its id, before the next is looked at: a limit of its uses holds among them, too.
        Never raises."""
        stopped = self.why_stopped()
        if stopped is not None:
            return [_own_denial(stopped, "the operator can resume")] * len(actions)
        session = self._sessions.get(session_id)
        if session is None:
            return [_own_denial(SESSION_ENDED, "start a new session")] * len(actions)
        uses = {} if is_running else self._uses
        try:
            policy = self._set_of[session_id].for_session(session.policy_text)
            verdicts = []
            for action in actions:
                verdict = self.under(policy, action, session_id, uses)
                verdicts.append(verdict)
                if verdict.decision == "allow" and verdict.rule_id is not None:
                    used(verdict.rule_id)
            return verdicts
        except Exception as error:
            log.exception("verdict failed")
            return [_own_denial(f"{NOT_EVALUATED}: {type(error).__name__}")] * len(actions)

    def in_force(self, session_id: str) -> InForce:
        """Return what the verdicts on what a session has open depend on. Never raises."""
        session = self._sessions.get(session_id)
        try:
            policy = (
                None
                if session is None
                else self._set_of[session_id].for_session(session.policy_text)
            )
        except Exception:
            log.exception("what is in force was not found")
            policy = None
        if policy is None:
            return InForce(None, frozenset())
        context = self._context(policy, session_id)
        return InForce(
            policy, frozenset(rule.id for rule in policy.ending if context.is_over(rule))
        )

    def reaching(self, action: Action, session_id: str) -> Verdict:
        """Return the verdict on a connection together with the addresses that it goes to, where one
        rule allows both in the same words; else to ask, which says nothing but that each wants a
        verdict of its own. Never raises."""
        session = self._sessions.get(session_id)
        if not isinstance(action, Network) or session is None or self.why_stopped() is not None:
            return _EACH_BY_ITSELF
        try:
            policy = self._set_of[session_id].for_session(session.policy_text)
            return (
                evaluate_reaching(policy, action, self._context(policy, session_id))
                or _EACH_BY_ITSELF
            )
        except Exception:
            log.exception("verdict failed")
            return _EACH_BY_ITSELF

    def of_program(self, action: Exec, session_id: str) -> Verdict:
        """Return what deny and ask rules say of a program that is about to be executed
        (`evaluate_program`). Never raises."""
        session, stopped = self._sessions.get(session_id), self.why_stopped()
        if session is None or stopped is not None:
            return _own_denial(stopped or SESSION_ENDED)
        try:
            policy = self._set_of[session_id].for_session(session.policy_text)
            return evaluate_program(policy, action, self._context(policy, session_id))
        except Exception as error:
            log.exception("verdict failed")
            return _own_denial(f"{NOT_EVALUATED}: {type(error).__name__}")

    def of_server(self, own: Policy, action: Network, session_id: str) -> Verdict:
        """Return the verdict on a request of an operator's MCP server: its own rules must allow it,
        and the session's deny rules hold. Never raises."""
        session, stopped = self._sessions.get(session_id), self.why_stopped()
        if session is None or stopped is not None:
            return _own_denial(stopped or SESSION_ENDED)
        try:
            if self.under(own, action, session_id).decision != "allow":
                why = f"no rule of this server in mcp-servers.yaml allows `{action.host}`"
                return _own_denial(why, "the operator can name it there, in `network`")
            policy = self._set_of[session_id].for_session(session.policy_text)
            return self.under(merge(policy, own), action, session_id)
        except Exception as error:
            log.exception("verdict failed")
            return _own_denial(f"{NOT_EVALUATED}: {type(error).__name__}")

    def passing(self, host: str, rule: str | None, session_id: str) -> Passing:
        """Return what is to be known of a connection that was just allowed, by the rules that
        did; the stricter where that can't be said."""
        session = self._sessions.get(session_id)
        if session is None:
            return Passing(looks_inside=True, is_limited=True)
        return self._set_of[session_id].known_for_session(session.policy_text).passing(host, rule)

    def hold_s(self, session_id: str, otherwise: float) -> float:
        """Return how long an asked connection of the session is held for an answer: what its policy
        says, else its own limit, else `otherwise`."""
        session = self._sessions.get(session_id)
        if session is None:
            return otherwise
        said = self._set_of[session_id].for_session(session.policy_text).hold_s
        own = session.limits.hold_s if said is None else said
        return otherwise if own is None else own

    def open_near(self, action: Network, session_id: str) -> str:
        """Return what the rules allow near a request or connection that was denied; empty where
        that is nothing, or can't be said."""
        session = self._sessions.get(session_id)
        if session is None or self.why_stopped() is not None:
            return ""
        try:
            policy = self._set_of[session_id].for_session(session.policy_text)
            disputed = self.policies_of(session_id).ends.disputed(policy)
            rules = allowing_near(
                policy, action, now=self._clock.now(), session_id=session_id, disputed=disputed
            )
            return open_near(action, lambda other: self.under(policy, other, session_id), rules)
        except Exception:
            log.exception("what is open was not found")
            return ""

    def host_ports(self, session_id: str) -> list[int]:
        """Return the ports of this machine that the session's rules let or may let it reach."""
        session = self._sessions.get(session_id)
        if session is None:
            return []
        policy = self._set_of[session_id].for_session(session.policy_text)
        return sorted(host_ports(policy, self._context(policy, session_id)))

    def under(
        self, policy: Policy, action: Action, session_id: str, uses: Mapping[str, int] | None = None
    ) -> Verdict:
        """Return the verdict of `policy`, which need not be in force, on an action. `uses` as
        they were counted by default."""
        verdict = evaluate_in(policy, action, self._context(policy, session_id, uses))
        own = self._own_in.get(session_id)
        if (
            own
            and verdict.decision != "deny"
            and isinstance(action, FileChange)
            and touches(action, own)
        ):
            # INVARIANT: what decides over the agent is never changed by a rule, however wide.
            return Verdict(decision="ask", why=OWN_FILE, sticky=True, by_policy=False)
        scope = self._scopes.get(session_id)
        if (
            scope is not None
            and verdict.decision != "deny"
            and isinstance(action, FileChange)
            and not scope.covers(action)
        ):
            return Verdict(decision="ask", why=OUT_OF_SCOPE, sticky=True, by_policy=False)
        return verdict

    def _context(
        self, policy: Policy, session_id: str, uses: Mapping[str, int] | None = None
    ) -> Context:
        session = self._sessions.get(session_id)
        return Context(
            self._clock.now(),
            WORKSPACE,
            session_id,
            self._own_endpoints,
            frozenset(session.remotes) if session and session.remotes else ORIGIN,
            self._uses if uses is None else uses,
            self.policies_of(session_id).ends.disputed(policy),
            session_id in self._contained,
        )


def _own_denial(why: str, remedy: str = "") -> Verdict:
    return Verdict(decision="deny", why=why, remedy=remedy, by_policy=False)


def own_paths(workspace: Path, own_files: Iterable[Path]) -> frozenset[str]:
    """Those of the files and folders that lie in the workspace, relative to it, in folded spelling.

    A path that leads through links counts in each spelling: whoever replaces a link on the way
    replaces the file.
    """
    root = _real(workspace)
    found = set()
    for path in own_files:
        absolute = Path(os.path.normpath(path.absolute()))
        for above in (absolute, *absolute.parents):
            inside = _real(above) / absolute.relative_to(above)
            if inside.is_relative_to(root):
                found.add(fold(inside.relative_to(root).as_posix()))
    return frozenset(found)


def touches(action: FileChange, own: frozenset[str]) -> bool:
    """Return whether the change is of an own path, of something below one, or of a folder above
    one. `ValueError` for what is no path."""
    named = [canonical(action.path, action.path_b64).folded]
    if action.to is not None:
        named.append(canonical(action.to, action.to_b64).folded)
    return any(_overlap(one, mine) for one in named for mine in own)


def _overlap(path: str, mine: str) -> bool:
    return mine == "." or path == mine or path.startswith(f"{mine}/") or mine.startswith(f"{path}/")


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path
