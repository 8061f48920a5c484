"""Measure what `policy learn` saves: learn from a session, then count the next one's prompts.

Sessions are recorded ones of the same project. A simulated person approves routine actions and
denies those worth asking about (`_worth_asking`, never the measured engine). `bench.attention`
prints it.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from bench._worth_asking import worth_asking
from supervisor.core.actions import Action, title
from supervisor.core.lab.check import action_of
from supervisor.core.lab.learn import Learned, learn
from supervisor.core.lab.past import Past
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import merge
from supervisor.core.policy.rules import Policy, Verdict

WORKSPACE = "/workspace"
_REMOTES = ("origin", "fork", "upstream")
_FIELDS = ("category", "command", "cwd", "operation", "path", "method", "url")


class Session(NamedTuple):
    """One recorded session: its actions, and for each why it is worth asking about; empty if it is
    routine."""

    id: str
    project: str
    actions: tuple[Action, ...]
    worth: tuple[str, ...]


class Prompt(NamedTuple):
    """A remaining prompt: why it is worth asking (empty: routine), the action, and why it is
    asked."""

    worth: str
    title: str
    why: str


class Pair(NamedTuple):
    """What was learned from the first session, and the prompts of the second: `before` with the
    base alone, `left` with the rules.

    `wrong`: what the rules answer, in any session, though it is worth asking about.
    """

    first: Session
    second: Session
    learned: Learned
    before: int
    left: tuple[Prompt, ...]
    wrong: tuple[str, ...]

    @property
    def routine(self) -> int:
        """Return the prompts that nobody would want."""
        return sum(not prompt.worth for prompt in self.left)


def read_sessions(lines: Iterable[bytes]) -> tuple[Session, ...]:
    """Return the sessions of a JSON lines file, without actions in which an agent only read a
    file."""
    return tuple(_session(msgspec.json.decode(line)) for line in lines if line.strip())


def _session(data: dict[str, Any]) -> Session:
    entries = [
        (at, entry) for at, entry in enumerate(data["actions"]) if entry.get("operation") != "read"
    ]
    actions = [
        action_of({key: entry[key] for key in _FIELDS if key in entry}) for _, entry in entries
    ]
    worth = [
        worth_asking(entry.get("command") or "", WORKSPACE, (data["id"], at))
        for at, entry in entries
    ]
    return Session(data["id"], data["project"], tuple(actions), tuple(worth))


def pairs(sessions: Iterable[Session]) -> Iterator[tuple[Session, Session]]:
    """Yield each session with the next one of its project."""
    last: dict[str, Session] = {}
    for session in sessions:
        if session.project in last:
            yield last[session.project], session
        last[session.project] = session


def answered(session: Session, base: Policy) -> tuple[Past, ...]:
    """Return the session as a history: the person approves what the base asks, or denies it if it
    is worth asking about."""
    found = []
    for at, (action, worth) in enumerate(zip(session.actions, session.worth, strict=True)):
        verdict = _verdict(base, action)
        past = Past(
            at=float(at),
            session=session.id,
            action=action,
            verdict=verdict.decision,
            remotes=_REMOTES,
        )
        if verdict.decision == "ask":
            past = msgspec.structs.replace(
                past, answer="denied" if worth else "approved", answered_by="simulated"
            )
        found.append(past)
    return tuple(found)


def measure(first: Session, second: Session, every: Sequence[Session], base: Policy) -> Pair:
    """Learn from the first, ask the second. Wrong answers are searched in all sessions."""
    learned = learn(answered(first, base), base, now=0.0, workspace=WORKSPACE)
    policy = merge(base, learned.policy())
    wrong = [
        title(action)
        for session in every
        for action, worth in zip(session.actions, session.worth, strict=True)
        if worth
        and _verdict(policy, action).decision == "allow"
        and _verdict(base, action).decision != "allow"
    ]
    return Pair(
        first, second, learned, len(prompts(second, base)), prompts(second, policy), tuple(wrong)
    )


def prompts(session: Session, policy: Policy) -> tuple[Prompt, ...]:
    """Return the actions of a session that a policy doesn't allow by itself."""
    judged = [(_verdict(policy, action), action) for action in session.actions]
    return tuple(
        Prompt(worth, title(action), verdict.why)
        for (verdict, action), worth in zip(judged, session.worth, strict=True)
        if verdict.decision != "allow"
    )


def _verdict(policy: Policy, action: Action) -> Verdict:
    return evaluate(
        policy,
        action,
        now=0.0,
        workspace=WORKSPACE,
        configured_remotes=frozenset(_REMOTES),
        with_parts=True,
    )


def table(sessions: Sequence[Session], base: Policy) -> list[str]:
    """Return a line for each pair, and the medians: prompts of the next session before, after, and
    after without those worth asking."""
    found = [measure(first, second, sessions, base) for first, second in pairs(sessions)]
    lines = [
        f"{'project':8} {'learned from':12} {'next':5} {'rules':>5} {'before':>6} {'after':>6}"
        f" {'routine':>7} {'wrong':>5}"
    ]
    lines += [
        f"{one.first.project:8} {one.first.id:12} {one.second.id:5} {len(one.learned.rules):5}"
        f" {one.before:6} {len(one.left):6} {one.routine:7} {len(one.wrong):5}"
        for one in found
    ]
    if found:
        before, after, routine = (
            statistics.median(numbers)
            for numbers in (
                [one.before for one in found],
                [len(one.left) for one in found],
                [one.routine for one in found],
            )
        )
        lines.append(
            f"{'median':33} {before:6g} {after:6g} {routine:7g}"
            f" {sum(len(one.wrong) for one in found):5}"
        )
    return lines
