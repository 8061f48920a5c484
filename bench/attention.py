"""How often a policy asks, and whether rightly, on recorded sessions of agents.

Each recorded command is judged as the agent would ask for it, as a command line (one that the
recording files under git or packages also as that), with what a push, fetch or install in it asks
later. The verdict is compared with a judge that knows nothing of the engine (`_worth_asking`).
*Answered* are the commands that the policy allows by itself. *Wrongly* answered are those among
them that a person would want to be asked about; there must be none. If a policy's commands run
contained, a command can only spoil the private copy (`_INSIDE`), and its connections are asked
about (`_BY_CONNECTION`, counted as asked). Connections of routine commands aren't in the
recordings, so they aren't counted under any policy.

A recording is JSON lines, one session each: `{"id", "project", "actions": [{"category", "command",
"cwd"}, ...]}`, with `/workspace` for the root. Name it in GATEHOUSE_SESSIONS, or put it at
bench/data/sessions.jsonl; none comes with the project. A command whose body the recording left out
(`...`) is taken as it is.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import Figure
from bench._attention_learn import read_sessions, table
from bench._worth_asking import worth_asking
from supervisor.core.actions import Action, Exec
from supervisor.core.lab.check import action_of
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import parse_policy
from supervisor.core.policy.rules import Policy

HERE = Path(__file__).parent
WORKSPACE = "/workspace"
# Each policy, and the share of all commands that it is to answer by itself, in percent.
POLICIES = {"policy/examples/strict.yaml": 50.0, "policy/default.yaml": 80.0}
_BY_CONNECTION = {
    "a GitHub write",
    "an external download",
    "another machine, or a deployment",
}
_INSIDE = {
    "an install",  # by a script of the project; one by a package manager is asked as such
    "a secret",
    "SQL that alters",
    "git's configuration or credentials",
    "a delete outside of the project",
    "another user",
}
MOST_REASONS = 12


class Command(NamedTuple):
    """One recorded command. `worth`: why a person would want to be asked; empty if it is
    routine."""

    session: str
    text: str
    actions: tuple[Action, ...]
    worth: str
    is_elided: bool


class Answer(NamedTuple):
    """A policy's answer to a command. `why` is that of the first action that it doesn't allow.
    `is_wrong`: it is answered, though a person would want to be asked."""

    command: Command
    is_answered: bool
    why: str
    is_wrong: bool = False


def main() -> list[Figure] | None:
    """Print what each policy asks. Return the shares that they answer."""
    path = Path(os.environ.get("GATEHOUSE_SESSIONS") or HERE / "data" / "sessions.jsonl")
    if not path.is_file():
        print(
            "attention: no recorded sessions; name a JSON lines file in GATEHOUSE_SESSIONS"
            " (bench/attention.py says what is in it)"
        )
        return None
    lines = path.read_bytes().splitlines()
    commands = read_commands(lines)
    answers = {name: answered(_policy(name), commands) for name in POLICIES}
    print(
        f"{len(commands)} commands, {sum(one.is_elided for one in commands)} of them shortened by"
        " the recording"
    )
    print(totals(answers))
    print(by_session(answers))
    for name, given in answers.items():
        print(reasons(name, given))
    sessions = read_sessions(lines)
    for name in POLICIES:
        print(
            "\n".join(
                [
                    "",
                    f"what `policy learn` saves beside {name}: prompts of a project's next session",
                    *table(sessions, _policy(name)),
                ]
            )
        )
    return [
        Figure(
            f"{name} answers",
            100 * _share(given),
            "%",
            wanted,
            "the share aimed at",
            wanted=1.0,
            is_rate=True,
        )
        for (name, given), wanted in zip(answers.items(), POLICIES.values(), strict=True)
    ]


def read_commands(lines: Sequence[bytes]) -> list[Command]:
    """Return the commands of a recording, without other actions (a file read or changed)."""
    sessions = [json.loads(line) for line in lines if line.strip()]
    return [
        _command(session["id"], at, entry)
        for session in sessions
        for at, entry in enumerate(session["actions"])
        if "command" in entry
    ]


def _command(session: str, at: int, entry: dict[str, Any]) -> Command:
    text = entry["command"]
    actions: list[Action] = [Exec(command=text, cwd=entry.get("cwd") or ".")]
    if entry["category"] in ("git", "packages"):
        actions.append(action_of({"category": entry["category"], "command": text}))
    return Command(
        session,
        text,
        tuple(actions),
        worth_asking(text, WORKSPACE, (session, at)),
        "elided" in entry,
    )


def answered(policy: Policy, commands: Sequence[Command]) -> list[Answer]:
    """Return the policy's answer to each command. A command that is allowed in any of its readings
    counts as answered."""
    return [_answer(policy, command) for command in commands]


def _answer(policy: Policy, command: Command) -> Answer:
    verdicts = [
        evaluate(policy, action, now=0.0, workspace=WORKSPACE, is_contained=True, with_parts=True)
        for action in command.actions
    ]
    others = [verdict for verdict in verdicts if verdict.decision != "allow"]
    allowed = [verdict for verdict in verdicts if verdict.decision == "allow"]
    if not allowed:
        return Answer(command, False, others[0].why)
    is_contained = any(verdict.is_contained for verdict in allowed)
    if is_contained and command.worth in _BY_CONNECTION:
        return Answer(command, False, "its connection is asked")
    is_wrong = bool(command.worth) and not (is_contained and command.worth in _INSIDE)
    return Answer(command, True, others[0].why if others else "", is_wrong)


def _policy(name: str) -> Policy:
    return parse_policy((HERE.parent / name).read_text(encoding="utf-8"), name)


def _share(answers: Sequence[Answer]) -> float:
    return sum(one.is_answered for one in answers) / len(answers) if answers else 0.0


def totals(answers: dict[str, list[Answer]]) -> str:
    """Return one line per policy. Pure."""
    rows = [
        (
            "policy",
            "commands",
            "answered",
            "share",
            "asked",
            "worth it",
            "routine",
            "wrongly answered",
        )
    ]
    for name, given in answers.items():
        asked = [one.command for one in given if not one.is_answered]
        worth = sum(bool(command.worth) for command in asked)
        wrong = sum(one.is_wrong for one in given)
        rows.append((
            name, str(len(given)), str(len(given) - len(asked)), f"{100 * _share(given):.1f} %",
            str(len(asked)), str(worth), str(len(asked) - worth), f"{wrong}{' !' if wrong else ''}",
        ))  # fmt: skip
    return _columns(rows)


def by_session(answers: dict[str, list[Answer]]) -> str:
    """Return how often each session is asked under each policy, and how often about routine
    actions. Pure."""
    rows = [
        (
            "session",
            "commands",
            *(f"{Path(name).stem}: {what}" for name in answers for what in ("asked", "routine")),
        )
    ]
    every = dict.fromkeys(one.command.session for one in next(iter(answers.values())))
    counts = {
        name: [_asked_in(session, given) for session in every] for name, given in answers.items()
    }
    for at, session in enumerate(every):
        own = sum(one.command.session == session for one in next(iter(answers.values())))
        rows.append((session, str(own), *(str(n) for found in counts.values() for n in found[at])))
    for label, at_share in (("median", 0.5), ("p90", 0.9)):
        found = [
            sorted(pair[which] for pair in given)[int(at_share * (len(given) - 1) + 0.5)]
            for given in counts.values()
            for which in (0, 1)
        ]
        rows.append((label, "", *map(str, found)))
    return _columns(rows)


def _asked_in(session: str, answers: Sequence[Answer]) -> tuple[int, int]:
    """Return how many questions a session has, and how many of them are routine."""
    asked = [one for one in answers if one.command.session == session and not one.is_answered]
    return len(asked), sum(not one.command.worth for one in asked)


def reasons(name: str, answers: Sequence[Answer]) -> str:
    """Return what a policy still asks: each kind worth asking about, then the commonest reasons for
    the rest. Pure."""
    asked = [one for one in answers if not one.is_answered]
    worth = Counter(one.command.worth for one in asked if one.command.worth)
    routine = Counter(_reason(one.why) for one in asked if not one.command.worth)
    return _columns(
        [
            (f"{name} asks", "times"),
            *((kind, str(count)) for kind, count in worth.most_common()),
            *((f"routine: {why}", str(count)) for why, count in routine.most_common(MOST_REASONS)),
        ]
    )


def _reason(why: str) -> str:
    """Return a verdict's why, shortened to the program or the construct that it names."""
    head, _, quoted = why.partition(";")[0].partition("`")
    named = head.strip() in ("no rule allows", "no rule may allow")
    return f"{head}`{quoted.split('`')[0].split(' ')[0]}`" if named else head.rstrip(" (")


def _columns(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) if at else cell.ljust(width) for at, (cell,
        width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]  # fmt: skip
    return "\n".join(["", *lines])
