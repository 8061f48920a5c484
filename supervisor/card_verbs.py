"""What is done with cards, as verbs: `gatehouse show`, `approve` and `deny`, `--hunks`, and `--changes` for many files at once.

A change within a file is named by the number that `show` prints. It is separate from `cli` because it reads cards; `terminal`
has what is one line. What is printed was written by an agent: each line of it goes through `visible`.
"""

import argparse
from typing import TYPE_CHECKING, Any

from supervisor.core.display import visible
from supervisor.errors import UserError
from supervisor.terminal import approval_lines, changes_answered_line, rule_preview_lines

if TYPE_CHECKING:
    from supervisor.client import Client

_MARKS = {"added": "+", "removed": "-", "context": " ", "note": ""}
_SAID = {"secret": "adds something that looks like a secret", "hidden": "has characters that don't show"}


def show(client: "Client", request_id: str) -> int:
    """Print a request whole."""
    seen = client.get(f"/api/requests/{request_id}")
    print(request_text(seen))
    return 0


def answer(client: "Client", any_id: str, options: argparse.Namespace, verb: str) -> int:
    """Approve or deny a request, saving a rule where one is wanted; with --changes, the changed files of a session."""
    if options.changes:
        return answer_changes(client, any_id, options, verb)
    if options.below:
        raise UserError("--below is about changed files", "say --changes, and a session's id")
    path, effect = f"/api/requests/{any_id}", "allow" if verb == "approve" else "deny"
    rule = options.rule
    if rule is None and (options.always or options.lasts):
        candidates = client.get(f"{path}/suggestions", effect=effect)
        if not candidates:
            raise UserError(
                "no rule can be made of this request", "answer it once, or write the rule with `gatehouse rules add`"
            )
        rule = candidates[0]["rule"]
    shown = client.get(path)["request"]
    lasts = options.lasts or "always"
    done = client.post(
        f"{path}/{verb}", reason=options.reason, always=rule, lasts=lasts, fingerprint=shown["fingerprint"]
    )
    print(f"{done['request']['status']}: {done['request']['title']}")
    if rule is not None:
        span = "" if lasts == "always" else " for this session" if lasts == "session" else f" for {lasts}"
        also = f"{len(done['also'])} other waiting requests answered by it"
        print(f"saved{span}: {effect} {rule} (id {done['rule_id']}) in {done['saved_in']}; {also}")
    return 0


def lift(client: "Client", request_id: str) -> int:
    """Let what was denied be asked again at once."""
    lifted = client.post(f"/api/requests/{request_id}/lift")
    for one in lifted:
        print(f"may be asked again: {visible(one['title'], one_line=True)}")
    return 0


def approve_hunks(client: "Client", request_id: str, options: argparse.Namespace) -> int:
    """Approve the changes with these numbers; the rest waits on, or is denied."""
    numbers, drop_rest = options.hunks, options.drop_rest
    if numbers is None:
        raise UserError("--drop-rest is about the changes that --hunks leaves", "say which: --hunks 1,3")
    if options.always or options.rule or options.changes or options.lasts:
        raise UserError("--hunks answers for one file, once", "leave out --always, --for, --rule and --changes")
    path = f"/api/requests/{request_id}"
    seen = client.get(path)
    ids = chosen_ids(seen["card"], numbers)
    rest = "drop" if drop_rest else "pending"
    done = client.post(f"{path}/approve-part", fingerprint=seen["request"]["fingerprint"], hunks=ids, rest=rest)
    left = "" if done["taken"] == done["hunks"] else "; the rest is denied" if drop_rest else "; the rest waits"
    outcome = done["request"]["outcome"] or {}
    failed = "" if outcome.get("ok") else f", but not applied: {visible(str(outcome.get('error', '')), one_line=True)}"
    print(f"approved{failed}: {done['taken']} of {done['hunks']} changes of {_one(seen['card']['path'])}{left}")
    return 0


def answer_changes(client: "Client", session_id: str, options: argparse.Namespace, verb: str) -> int:
    """Answer for the changed files of a session, or of a folder: exactly those that are printed."""
    if options.always or options.rule or options.lasts:
        raise UserError("--changes answers once", "save a rule with `gatehouse rules add`")
    path, below = f"/api/sessions/{session_id}/changes", (options.below or "").strip("/")
    answer = "approved" if verb == "approve" else "denied"
    seen = client.get(path, below=below)
    shown = seen["level"]["folder"]["shown"]
    done = client.post(path, answer=answer, below=below, shown=shown, reason=options.reason)
    print(changes_answered_line(seen, done, answer))
    return 0


def chosen_ids(card: dict[str, Any] | None, numbers: str) -> list[str]:
    """The ids of the changes with these numbers, such as `1,3`."""
    hunks = card["diff"]["hunks"] if card is not None else []
    if not hunks:
        raise UserError("this request has no changes to choose from", "approve or deny it as a whole")
    ids = []
    for word in numbers.split(","):
        number = word.strip()
        if not (number.isascii() and number.isdigit() and 1 <= int(number[:6]) <= len(hunks)):
            raise UserError(
                f"`{number}` is not one of its {len(hunks)} changes", "see their numbers: `gatehouse show ID`"
            )
        ids.append(hunks[int(number) - 1]["id"])
    return list(dict.fromkeys(ids))


def request_text(seen: dict[str, Any]) -> str:
    """A request with what it would change, for a person."""
    request, card = seen["request"], seen["card"]
    lines = [approval_lines(request), f"    status: {request['status']}"]
    if seen.get("preview") is not None:
        lines.append(f"    on record: {rule_preview_lines(seen['preview'])}")
    if card is None:
        facts = [(name, value) for name, value in request["action"].items() if value not in (None, "", [], False)]
        return "\n".join([*lines, *(f"    {name}: {_one(str(value))}" for name, value in facts)])
    lines += [f"    {fact}" for fact in _facts(card)]
    for number, hunk in enumerate(card["diff"]["hunks"], 1):
        cut = "" if hunk["is_whole"] else "  (too long to be shown whole: it can't be chosen)"
        lines.append(
            f"{number:>3}  @@ -{hunk['old_start']},{hunk['old_count']} +{hunk['new_start']},{hunk['new_count']} @@{cut}"
        )
        lines += [f"     {_MARKS[line['kind']]}{_text(line)}" for line in hunk["lines"]]
    if card["may_choose"] and request["status"] == "pending":
        lines.append(f"approve some of it: gatehouse approve {request['id']} --hunks 1,2 [--drop-rest]")
    return "\n".join(lines)


def _facts(card: dict[str, Any]) -> list[str]:
    """What isn't text: notes, types, sizes, hashes, modes."""
    found = [_one(note) for note in (*card["notes"], card["mark"]) if note]
    for name, lines in card["flags"].items():
        if lines:
            found.append(f"warning: {_SAID[name]}, in line {', '.join(map(str, lines))}")
    if card["content"] in ("binary", "large"):
        for label, side, digest in (("before", "old", "before"), ("after", "new", "after")):
            if card[f"{side}_size"] is not None:
                found.append(
                    f"{label}: {card[f'{side}_type'] or 'not read'}, {card[f'{side}_size']:,} bytes, BLAKE2b {card[digest]}"
                )
    modes = [card["old_mode"], card["new_mode"]]
    if None not in modes and modes[0] & 0o7777 != modes[1] & 0o7777:
        found.append(f"mode {modes[0] & 0o7777:o} becomes {modes[1] & 0o7777:o}")
    if card["is_stale"]:
        found.append("out of date: approving it would change nothing")
    return found


def _text(line: dict[str, Any]) -> str:
    return visible("".join(text for text, _ in line["spans"]), one_line=True)


def _one(text: str) -> str:
    return visible(text, one_line=True)
