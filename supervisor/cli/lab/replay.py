"""`gatehouse policy replay`: judge a recorded audit log under another policy.

It prints what changes and returns an exit code, so that a team can gate changes of its policy. The
same log and policy give the same text, byte for byte, without colours, at any time. The policy is
only the named file: rules saved from the inbox are in a separate file.
"""

import json
import sys
from typing import Any

import msgspec

from supervisor.cli.lab.inputs import read_policy, stream_record
from supervisor.core.lab.replay import ChangedVerdict, Kind, Reason, Replay, Said
from supervisor.core.lab.replay import replay as decide_anew
from supervisor.core.policy.policy_text import EFFECTS
from supervisor.core.text.display import visible
from supervisor.errors import RefusedError
from supervisor.settings import Settings

MOST_TITLE_CHARS = 200
_NOT_DECIDED: dict[Reason, str] = {
    "not_by_policy": "Gatehouse itself refused, whatever a policy says",
    "redacted": "a secret was cut out of the record",
}


def replay(
    against: str, audit: str | None, settings: Settings, *, fail_if_wider: bool, as_json: bool
) -> int:
    """Print what `against` changes. Return 0. Raise `RefusedError` (exit 2) where something gets
    wider and `fail_if_wider` is set."""
    policy = read_policy(against)
    found = decide_anew(stream_record(audit, settings), policy)
    if as_json:
        sys.stdout.write(
            json.dumps(_as_data(found, against)) + "\n"
        )  # escapes whatever a terminal could act on
    else:
        sys.stdout.writelines(f"{line}\n" for line in _lines(found, against))
    if fail_if_wider and found.wider:
        sys.stdout.flush()
        raise RefusedError(
            _wider(found), "narrow the rules that are named above, or leave --fail-if-wider out"
        )
    return 0


def _wider(found: Replay) -> str:
    changes = [change for change in found.changes if change.kind == "wider"]
    worst = changes[0]
    return f"wider than what was recorded: {_times(found.wider, 'judgement')}, first `{
        _title(worst)
    }` ({_steps(worst)})"


# -- text -----------------------------------------------------------------------------------------


def _lines(found: Replay, against: str) -> list[str]:
    left_out = sum(found.not_decided.values())
    lines = [
        f"{_times(found.judged, 'judgement')} under {visible(against, one_line=True)}: {
            found.same
        } same,"
        f" {found.wider} wider, {found.tighter} tighter, {left_out} not decided anew"
    ]
    lines += [
        f"  {found.not_decided[one]} not decided anew: {why}"
        for one, why in _NOT_DECIDED.items()
        if one in found.not_decided
    ]
    for answer, by_effect in found.answers.items():
        if sum(by_effect.values()):
            said = ", ".join(
                f"{by_effect[effect]} {word}"
                for effect, word in zip(EFFECTS, ("allowed", "asked", "denied"), strict=True)
            )
            lines.append(f"of {sum(by_effect.values())} that a person {answer}: {said}")
    for kind in ("wider", "tighter"):
        lines += _section(kind, [change for change in found.changes if change.kind == kind])
    return lines


def _section(kind: Kind, changes: list[ChangedVerdict]) -> list[str]:
    if not changes:
        return []
    lines = ["", f"{kind}:"]
    for change in changes:
        lines.append(f"  {change.count}x {change.category} {_title(change)}")
        lines.append(f"      {_steps(change)}")
        if change.approved or change.denied:
            mark = f"{change.contradicts.upper()}: " if change.contradicts else ""
            lines.append(f"      {mark}a person approved {change.approved}, denied {change.denied}")
    return lines


def _steps(change: ChangedVerdict) -> str:
    return f"{_said(change.before)} -> {_said(change.after)}"


def _said(said: Said) -> str:
    return f"{said.verdict} ({visible(said.rule or said.why, one_line=True)})"


def _title(change: ChangedVerdict) -> str:
    text = visible(change.action, one_line=True)
    return (
        text
        if len(text) <= MOST_TITLE_CHARS
        else f"{text[:MOST_TITLE_CHARS]}… ({len(text)} characters)"
    )


def _times(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


# -- JSON -----------------------------------------------------------------------------------------


def _as_data(found: Replay, against: str) -> dict[str, Any]:
    """Return the keys that docs/policy.md documents. Texts are complete, and as they were
    recorded."""
    return {
        "against": against,
        "judged": found.judged,
        "same": found.same,
        "wider": found.wider,
        "tighter": found.tighter,
        "not_decided": {reason: found.not_decided.get(reason, 0) for reason in _NOT_DECIDED},
        "answers": found.answers,
        "changes": [
            msgspec.to_builtins(change) | {"contradicts": change.contradicts}
            for change in found.changes
        ],
    }
