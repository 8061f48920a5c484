"""Texts of the CLI: one function per shape.

All of them are shown by `folding`; ids and words come first, so that tools can cut them.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from supervisor.base.clock import RealClock
from supervisor.core.text.display import visible
from supervisor.core.text.duration import format_duration
from supervisor.core.text.folding import TERMINAL, is_folded, line, marked
from supervisor.errors import UserError

if TYPE_CHECKING:
    from supervisor.cli.common.client import Client
    from supervisor.records.audit_check import Checked, Outside

POLL_S = 0.5
# Of an id at a terminal: a few thousand never begin alike.
ID_CHARS = 8
# What a person who never used Gatehouse may begin with.
FIRST_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "demo": "a pull request is reviewed, without account or key",
        "review": "review what changed in this folder",
        "claude": "Claude Code in this folder; codex and opencode, too",
        "run -- COMMAND": "any other agent",
        "up": "the page, until ^C",
        "--help": "all that there is",
    }
)
NOBODYS: Mapping[str, float] = MappingProxyType({})


def approval_lines(
    request: dict[str, Any], left_s: Mapping[str, float] = NOBODYS, *, is_whole: bool = False
) -> str:
    """Return a waiting request: id, category, exact action, why, the agent's reason (or remarks),
    its session, and how long it waits. `left_s`: the time that sessions have left, by id.

    Long text is folded, and says where to see all of it; with `is_whole` nothing is folded.
    """
    shown = whole if is_whole else _in_list
    lines = [
        f"{shown_id(request['id'])}  {request['category']:<10}  {shown(request['title'])}",
        f"    asked because: {shown(request['why'])}",
    ]
    if request.get("width"):
        lines.append(f"    how wide: {_one(request['width'])}")
    if request["reason"]:
        is_agent_s = request["origin"] in ("agent_api", "agent_tool")
        whose = "the agent says" if is_agent_s else "noticed"
        lines.append(f"    {whose}: {shown(request['reason'])}")
    lines.append(f"    session: {shown_id(request['session_id'])}")
    if request["status"] == "pending" and (countdown := _countdown(request, left_s)):
        lines.append(f"    {countdown}")
    if not is_whole and has_folds(request):
        lines.append(
            f"    all of it, before it can be approved: gatehouse show {shown_id(request['id'])}"
        )
    return "\n".join(lines)


def shown_id(whole: str) -> str:
    """Return an id as it is printed: at a terminal its start, which every verb takes."""
    return whole[:ID_CHARS] if sys.stdout.isatty() else whole


def has_folds(request: dict[str, Any]) -> bool:
    """Return whether a list leaves out part of a request."""
    return any(is_folded(request[name], TERMINAL) for name in ("title", "why", "reason"))


def whole(text: str) -> str:
    """Return a complete text. Its further lines begin with a bar, so that none passes for a line of
    ours."""
    first, *rest = (visible(one, one_line=True) for one in marked(text).split("\n"))
    return "\n    | ".join([first, *rest])


def agrees(question: str) -> bool:
    """Return whether the person says yes; without a terminal, nobody does."""
    if not sys.stdin.isatty():
        return False
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # ^D
        print()
        return False


def _in_list(text: str) -> str:
    return line(text, TERMINAL)


def _countdown(request: dict[str, Any], left_s: Mapping[str, float]) -> str:
    """Return how long there is to answer; empty where that isn't known."""
    if request["hold_until"] is not None:
        held_s = request["hold_until"] - RealClock().now()
        gone = "the agent stopped waiting; your answer counts at its next try"
        return f"held: {format_duration(held_s)} left to answer" if held_s > 0 else gone
    left = left_s.get(request["session_id"])
    return "" if left is None else f"waits until the session ends, in {format_duration(left)}"


def time_left(client: "Client") -> dict[str, float]:
    """Return the seconds that each session has left, by id."""
    return {
        one["id"]: one["remaining_s"]
        for one in client.get("/api/sessions")
        if one["state"] != "ended"
    }


def outcome_line(request: dict[str, Any]) -> str:
    """Return a request's answer and outcome."""
    answer = request["answer"] or request["status"]
    if request["status"] in ("expired", "superseded"):
        return f"{request['status']}: {_one(request['why'])}"
    return f"{answer}; {_one(request['delivery'])}" if request["delivery"] else str(answer)


def ready_line(request: dict[str, Any]) -> str:
    """Return an approved request that isn't carried out yet."""
    return f"{shown_id(request['id'])}  {outcome_line(request)}: {_one(request['title'])}"


def is_under_way(request: dict[str, Any]) -> bool:
    """Return whether an answer will have further effects by itself. What an agent waits for itself
    continues only when the agent tries again."""
    from supervisor.core.approvals import goes_on

    is_allowed = request["status"] in ("allowed", "approved", "used")
    return (
        is_allowed
        and not request["settled"]
        and not goes_on(request["origin"], request["category"])
    )


def waiting(client: "Client") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the waiting requests, and the sessions with so many changed files that these are one
    line."""
    sets = client.get("/api/changes")
    large = {one["session_id"] for one in sets}
    requests = client.get(
        "/api/requests", status="pending", without_large_sets="true" if large else None
    )
    return requests, sets


def change_set_lines(one: dict[str, Any]) -> str:
    """Return a session's many changed files: its id, how many of each kind, and how to answer."""
    lines = [
        f"{shown_id(one['session_id'])}  filesystem  {_counts(one['level']['folder'])} in"
        f" {_one(one['workspace'])}"
    ]
    if careful := one["level"]["folder"]["careful"]:
        lines.append(f"    {careful} of them are not approved with the rest:")
        lines += [
            f"    {shown_id(leaf['id'])}  {_one(_path(leaf))}  ({_one('; '.join(leaf['notes']))})"
            for leaf in one["careful"]
        ]
    lines.append(
        f"    all at once: gatehouse approve {shown_id(one['session_id'])} --changes [--below DIR]"
    )
    return "\n".join(lines)


def changes_answered_line(seen: dict[str, Any], done: dict[str, Any], answer: str) -> str:
    """Return what was answered, and what was left out."""
    folder = seen["level"]["folder"]
    said = f"{answer}: {done['answered']} of {_counts(folder)}"
    left = folder["careful"] if answer == "approved" else 0
    return (
        f"{said}; {left} need an answer of their own: see `gatehouse approvals`" if left else said
    )


def change_lines(seen: dict[str, Any], answer: str) -> str:
    """Return what an answer for changed files covers: the folders with their counts, and each file
    that is listed by name."""
    level = seen["level"]
    lines = [f"    {_one(one['path'])}/  {_counts(one)}" for one in level["folders"]]
    kept = [one for one in level["files"] if answer == "denied" or not one["notes"]]
    lines += [f"    {one['what']}  {_one(_path(one))}" for one in kept]
    return "\n".join([*lines, *([f"    and {level['more']} more files"] if level["more"] else [])])


def _path(leaf: dict[str, Any]) -> str:
    return f"{leaf['path']} -> {leaf['to']}" if leaf["to"] else str(leaf["path"])


def _counts(folder: dict[str, Any]) -> str:
    kinds = ", ".join(f"{number} {what}" for what, number in folder["counts"].items() if number)
    lines = (
        f", +{folder['added']} -{folder['removed']} lines"
        if folder["added"] or folder["removed"]
        else ""
    )
    return f"{folder['files']} changed files ({kinds}{lines})"


def session_line(session: dict[str, Any]) -> str:
    """Return a session: id, state, name, cost, time left or the reason of its end, workspace,
    command."""
    ended = session["state"] == "ended"
    until = session["end_reason"] if ended else f"{format_duration(session['remaining_s'])} left"
    return (
        f"{shown_id(session['id'])}  {session['state']:<8}  {_one(session['name'])} "
        f" {_spent(session['spend'])}  {_one(session['workspace'])} "
        f" {_one(' '.join(session['command']))}  ({_one(until)})"
    )


def _spent(spend: dict[str, Any]) -> str:
    of = f" of {spend['limit']}" if spend["limit"] else ""
    near = " (!)" if spend["notices"] else ""
    return f"{spend['cost']}{of}{near}"


def rule_line(rule: dict[str, Any]) -> str:
    """Return a rule: id, effect, text, source, matches."""
    hits = f"{rule['hits']} matches" if rule["hits"] else "never matched"
    return (
        f"{rule['id'] or '-':<8}  {rule['effect']:<5}  {_all(rule['rule'])} "
        f" ({_one(rule['source'])}; {hits})"
    )


def rule_preview_lines(seen: dict[str, Any]) -> str:
    """Return what a rule would have answered before, and by title what a person had answered the
    other way."""
    lines = [_one(seen["summary"])]
    said = "denied" if seen["effect"] == "allow" else "approved"
    for words, group in (
        (f"you {said}", seen["against"]),
        ("rules allowed", seen["past"]["by_rules"]),
    ):
        more = ["..."] if group["count"] > len(group["titles"]) else []
        if group["titles"]:
            lines.append(f"    {words}: {', '.join([*map(_one, group['titles']), *more])}")
    return "\n".join(lines)


def audit_line(record: dict[str, Any]) -> str:
    """Return an audit record for people: time, event, and the most telling fields."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.get("at", 0)))
    said = [
        f"{name}={_all(_text(record[name]))}"
        for name in record
        if name not in ("seq", "at", "event", "prev", "signed", "fingerprint")
    ]
    return f"{at}  {record.get('event', '?'):<18}  {' '.join(said)}"


def checked_lines(checked: "Checked", outside: "Outside") -> list[str]:
    """Return what `gatehouse audit --verify` says of a good log."""
    lines = [f"{checked.last.seq} records, unbroken"]
    if checked.signed_from is None or outside.key is None:
        lines.append("none of them is signed")
    else:
        lines.append(f"signed from record {checked.signed_from} on, with the key {outside.key.id}")
    if checked.before is not None:
        lines.append(f"another log was here before: {visible(checked.before, one_line=True)}")
    lines.append(f"head {checked.last.seq} {checked.last.hash}")
    return lines


def print_audit(path: Path, *, follow: bool, as_json: bool) -> int:
    """Print the log; with `follow`, continue until ^C."""
    offset = _print_audit_from(path, 0, as_json)
    while follow:
        time.sleep(POLL_S)
        offset = _print_audit_from(path, offset, as_json)
    return 0


def watch_approvals(client: "Client", *, as_json: bool = False) -> int:
    """Print requests as they come, and their outcomes, until ^C; as JSON, one per line."""
    shown: dict[str, dict[str, Any]] = {}
    answered: set[str] = set()
    while True:
        requests, sets = waiting(client)
        present = {request["id"]: request for request in requests}
        present |= {
            f"{one['session_id']} {one['level']['folder']['shown']['plain']}": one for one in sets
        }
        for request_id in [one for one in shown if one not in present]:
            if "level" not in shown[request_id]:
                answered.add(request_id)
            del shown[request_id]
        for request_id in list(answered):
            request = client.get(f"/api/requests/{request_id}")["request"]
            if not is_under_way(request):
                answered.discard(request_id)
                said = f"{shown_id(request_id)}  {outcome_line(request)} ({_one(request['why'])})"
                print(json.dumps(request) if as_json else said, flush=True)
        left_s = {} if as_json or not present.keys() - shown.keys() else time_left(client)
        for request_id, one in present.items():
            if request_id not in shown:
                text = change_set_lines(one) if "level" in one else approval_lines(one, left_s)
                print(json.dumps(one) if as_json else text, flush=True)
        shown = present
        time.sleep(POLL_S)


def _print_audit_from(path: Path, offset: int, as_json: bool) -> int:
    from supervisor.records.audit_chain import opened

    try:
        file = opened(path)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "put the log itself there") from error
    with file:
        file.seek(offset)
        for raw in file:
            if not raw.endswith(b"\n"):
                break  # being written
            offset += len(raw)
            text = raw.decode(errors="replace").rstrip("\n")
            print(text if as_json else _record_line(text))
    sys.stdout.flush()
    return offset


def _record_line(text: str) -> str:
    try:
        return audit_line(json.loads(text))
    except (ValueError, TypeError, AttributeError, OverflowError):
        return f"no record of ours (`gatehouse audit --verify` says more): {_all(text)}"


def _one(text: str) -> str:
    return line(text)


def _all(text: str) -> str:
    """Return a complete text on one line."""
    return marked(text, one_line=True)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
