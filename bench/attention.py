"""How often a policy asks, and whether it asks rightly: recorded sessions of agents, judged again.

Each command of a recording is judged as the agent would ask for it, as a command line (one that the
recording files under git or packages also as that), and held against a judge that knows nothing of
the engine (`_worth_asking`). *Answered* are the commands that the policy allows by itself;
*wrongly* answered those among them that a person would want to be asked about, of which there must
be none.

A recording is JSON lines, one session each: `{"id", "project", "actions": [{"category",
"command", "cwd"}, ...]}`, with `/workspace` for the root. Name it in GATEHOUSE_SESSIONS, or lay
it at bench/data/sessions.jsonl; none comes with the project. A command whose body the recording
left out (`...`) is taken as it stands.
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
POLICIES = {"policy/default.yaml": 50.0, "policy/examples/maintainer.yaml": 80.0}
MOST_REASONS = 12


class Command(NamedTuple):
    """One recorded command. `worth`: why a person would want to be asked, empty for what is
    routine."""

    session: str
    text: str
    actions: tuple[Action, ...]
    worth: str
    is_elided: bool


class Answer(NamedTuple):
    """What a policy says of a command; `why` of the first action that it doesn't allow."""

    command: Command
    is_answered: bool
    why: str


def main() -> list[Figure] | None:
    """Print what each policy asks, and return the shares that they answer."""
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
    """The commands of a recording; what is no command (a file read or changed) is left out."""
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
    """What the policy says of each command. One that is allowed in any of its readings counts as
    answered."""
    return [_answer(policy, command) for command in commands]


def _answer(policy: Policy, command: Command) -> Answer:
    verdicts = [
        evaluate(policy, action, now=0.0, workspace=WORKSPACE) for action in command.actions
    ]
    others = [verdict for verdict in verdicts if verdict.decision != "allow"]
    return Answer(command, len(others) < len(verdicts), others[0].why if others else "")


def _policy(name: str) -> Policy:
    return parse_policy((HERE.parent / name).read_text(encoding="utf-8"), name)


def _share(answers: Sequence[Answer]) -> float:
    return sum(one.is_answered for one in answers) / len(answers) if answers else 0.0


def totals(answers: dict[str, list[Answer]]) -> str:
    """One line a policy. Pure."""
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
        wrong = sum(bool(one.command.worth) for one in given if one.is_answered)
        rows.append((
            name, str(len(given)), str(len(given) - len(asked)), f"{100 * _share(given):.1f} %",
            str(len(asked)), str(worth), str(len(asked) - worth), f"{wrong}{' !' if wrong else ''}",
        ))  # fmt: skip
    return _columns(rows)


def by_session(answers: dict[str, list[Answer]]) -> str:
    """How often each session is asked about what is routine, under each policy. Pure."""
    rows = [
        (
            "session",
            "commands",
            "worth asking",
            *(f"{Path(name).stem}: routine asked" for name in answers),
        )
    ]
    commands = [one.command for one in next(iter(answers.values()))]
    for session in dict.fromkeys(command.session for command in commands):
        own = [command for command in commands if command.session == session]
        asked = [
            sum(
                not (one.is_answered or one.command.worth)
                for one in given
                if one.command.session == session
            )
            for given in answers.values()
        ]
        rows.append(
            (
                session,
                str(len(own)),
                str(sum(bool(command.worth) for command in own)),
                *map(str, asked),
            )
        )
    return _columns(rows)


def reasons(name: str, answers: Sequence[Answer]) -> str:
    """What a policy still asks: each kind that is worth it, then the commonest reasons for the
    rest. Pure."""
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
    """A verdict's why, shortened to the program or the construct that it names."""
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
