"""The verbs about cards: `gatehouse show`, `approve`, `deny`, `--hunks` and `--changes`.

A change within a file is named by the number that `show` prints. `terminal` has one-line texts. An
agent or a registry wrote what is printed, so each line of it goes through `visible` or `folding`.
`show` prints all of a request. A request that lists or pages fold is approved with the word that
`show` ends in, which identifies what was read.
"""

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from supervisor.base.clock import RealClock
from supervisor.cli.terminal import (
    agrees,
    approval_lines,
    change_lines,
    changes_answered_line,
    has_folds,
    is_under_way,
    outcome_line,
    rule_preview_lines,
    shown_id,
    waiting,
    whole,
)
from supervisor.core.text.display import visible
from supervisor.core.text.folding import line
from supervisor.core.text.numbers import whole_number
from supervisor.errors import ChangedError, RefusedError, UserError

if TYPE_CHECKING:
    from supervisor.cli.common.client import Client

import msgspec

from supervisor.core.actions import Packages
from supervisor.server.common.action_words import install_words

# An answered request is mostly carried out at once, but a command may take longer than anybody
# waits.
PATIENCE_S = 30.0
LOOK_EVERY_S = 0.2
ENDED = "Gatehouse has ended meanwhile: `gatehouse audit` says what came of it"
_MARKS = {"added": "+", "removed": "-", "context": " ", "note": ""}
_SAID = {
    "secret": "adds something that looks like a secret",
    "hidden": "has characters that don't show",
    "long": "has very long lines",
    "blank": "has runs of blanks that push text far to the right",
}
_HOW = {"new": "is new", "moved": "moves on", "rewritten": "is rewritten", "deleted": "is deleted"}


def show(client: "Client", request_id: str) -> int:
    """Print a complete request with its outcome. Return 2 where it failed."""
    seen = _seen(client, f"/api/requests/{request_id}")
    print(request_text(seen))
    return 2 if seen["request"]["failure"] else 0


def only_waiting(client: "Client", options: argparse.Namespace) -> str:
    """Return the id of the only request that waits; with --changes, of the only session with
    changed files that wait. Raise `UserError` where it isn't the only one."""
    waits, sets = waiting(client)
    changes = [*sets, *(one for one in waits if one["category"] == "filesystem")]
    sessions = sorted({one["session_id"] for one in changes})
    found = sessions if options.changes else [one["id"] for one in waits]
    if len(found) == 1 and (options.changes or not sets):
        return str(found[0])
    if not found and not sets:
        raise UserError("nothing waits", "`gatehouse approvals --watch` says when something does")
    raise UserError(
        "more than one thing waits", "say which: `gatehouse approvals` lists them with their ids"
    )


def answer(client: "Client", any_id: str, options: argparse.Namespace, verb: str) -> int:
    """Approve or deny a request, and save a rule if one is wanted; with --changes, answer for a
    session's changed files.

    The request is printed first, and its fingerprint is sent with the answer: a request that
    changed in between isn't answered. Return 2 where the approved action failed.
    """
    if options.always and options.lasts:
        raise UserError("--always and --for contradict each other", "say one of them")
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
                "no rule can be made of this request",
                "answer it once, or write the rule with `gatehouse rules add`",
            )
        rule = candidates[0]["rule"]
    seen = _seen(client, path)
    if verb == "approve":
        _must_be_seen(seen, options.seen)
    print(request_text(seen, with_ways=False))
    if rule is not None and options.rule is None:
        _must_be_agreed(client, effect, rule)
    lasts, mark = options.lasts or "always", seen["request"]["fingerprint"]
    further = {"with_scripts": True} if getattr(options, "with_scripts", False) else {}
    done = client.post(
        f"{path}/{verb}",
        reason=options.reason,
        always=rule,
        lasts=lasts,
        fingerprint=mark,
        seen=options.seen if verb == "approve" else None,
        **further,
    )
    if rule is not None:
        span = (
            ""
            if lasts == "always"
            else " for this session"
            if lasts == "session"
            else f" for {lasts}"
        )
        also = f"{done['also_count']} other waiting requests answered"
        print(f"saved{span}: {effect} {rule} (id {done['rule_id']}) in {done['saved_in']}; {also}")
    return _told(client, done["request"])


def _must_be_agreed(client: "Client", effect: str, rule: str) -> None:
    """Print a suggested rule, and what it would have answered, before it is saved; ask a person at
    a terminal. Raise `RefusedError` where they say no."""
    seen = client.get("/api/rules/preview", effect=effect, rule=rule)
    print(f"    the rule: {effect} {rule}\n    {rule_preview_lines(seen)}")
    if sys.stdin.isatty() and not agrees("Save it, and answer?"):
        raise RefusedError("nothing was answered", "name another rule with --rule")


def _told(client: "Client", request: dict[str, Any]) -> int:
    """Print the outcome of an answered request, once it is known or after a while. Return the exit
    code."""
    clock = RealClock()
    until = clock.monotonic() + PATIENCE_S
    while is_under_way(request) and clock.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
        try:
            request = client.get(f"/api/requests/{request['id']}")["request"]
        except UserError:  # the last answer may end a `run`, and its supervisor with it
            print(f"{outcome_line(request)} ({ENDED})")
            return 0
    later = (
        f" (see later: gatehouse show {shown_id(request['id'])})" if is_under_way(request) else ""
    )
    print(f"{outcome_line(request)}{later}")
    if request["failure"] and request["printed"]:
        print(_printed(request))
    has_come_to_nothing = request["answer"] == "approved" and request["status"] == "expired"
    return 2 if request["failure"] or has_come_to_nothing else 0


def lift(client: "Client", request_id: str) -> int:
    """Let a denied request be asked again at once."""
    lifted = client.post(f"/api/requests/{request_id}/lift")
    for one in lifted:
        print(f"may be asked again: {line(one['title'])}")
    return 0


def approve_hunks(client: "Client", request_id: str, options: argparse.Namespace) -> int:
    """Approve the changes with these numbers; the rest keeps waiting, or is denied."""
    numbers, drop_rest = options.hunks, options.drop_rest
    if numbers is None:
        raise UserError(
            "--drop-rest is about the changes that --hunks leaves", "say which: --hunks 1,3"
        )
    if options.always or options.rule or options.changes or options.lasts:
        raise UserError(
            "--hunks answers for one file, once", "leave out --always, --for, --rule and --changes"
        )
    path = f"/api/requests/{request_id}"
    seen = client.get(path)
    _must_be_seen(seen, options.seen)
    ids = chosen_ids(seen["card"], numbers)
    print("\n".join([approval_lines(seen["request"]), *_hunk_lines(seen["card"], frozenset(ids))]))
    rest = "drop" if drop_rest else "pending"
    done = client.post(
        f"{path}/approve-part",
        fingerprint=seen["request"]["fingerprint"],
        hunks=ids,
        rest=rest,
        seen=options.seen,
    )
    left = (
        ""
        if done["taken"] == done["hunks"]
        else "; the rest is denied"
        if drop_rest
        else "; the rest waits"
    )
    of = f"{done['taken']} of {done['hunks']} changes of {_one(seen['card']['path'])}"
    print(f"{outcome_line(done['request'])}: {of}{left}")
    return 2 if done["request"]["failure"] else 0


def answer_changes(
    client: "Client", session_id: str, options: argparse.Namespace, verb: str
) -> int:
    """Answer for the changed files of a session, or of a folder: exactly the printed ones."""
    if options.always or options.rule or options.lasts:
        raise UserError("--changes answers once", "save a rule with `gatehouse rules add`")
    path, below = f"/api/sessions/{session_id}/changes", (options.below or "").strip("/")
    answer = "approved" if verb == "approve" else "denied"
    seen = client.get(path, below=below)
    shown = seen["level"]["folder"]["shown"]
    print(change_lines(seen, answer))
    done = client.post(path, answer=answer, below=below, shown=shown, reason=options.reason)
    print(changes_answered_line(seen, done, answer))
    return _told_of_all(client, path, done["changes"]) if answer == "approved" else 0


def _told_of_all(client: "Client", path: str, view: dict[str, Any]) -> int:
    """Do as `_told` for many changed files, which are applied together."""
    clock = RealClock()
    until = clock.monotonic() + PATIENCE_S
    while (
        (last := view["last"])
        and last["done"] + last["failed"] < last["number"]
        and clock.monotonic() < until
    ):
        time.sleep(LOOK_EVERY_S)
        try:
            view = client.get(path)
        except UserError:
            print(f"approved ({ENDED})")
            return 0
    if last and last["failed"]:
        print(f"approved; failed: {last['failed']} of {last['number']}: {_one(last['problem'])}")
        return 2
    is_done = last and last["done"] == last["number"]
    print(
        f"approved; applied: {last['number']}"
        if is_done
        else "approved; being carried out: see `gatehouse approvals`"
    )
    return 0


def chosen_ids(card: dict[str, Any] | None, numbers: str) -> list[str]:
    """Return the ids of the changes with these numbers, such as `1,3`."""
    hunks = card["diff"]["hunks"] if card is not None else []
    if not hunks:
        raise UserError(
            "this request has no changes to choose from", "approve or deny it as a whole"
        )
    ids = []
    for word in numbers.split(","):
        number = whole_number(word.strip())
        if number is None or not 1 <= number <= len(hunks):
            raise UserError(
                f"`{word.strip()}` is not one of its {len(hunks)} changes",
                "see their numbers: `gatehouse show ID`",
            )
        ids.append(hunks[number - 1]["id"])
    return list(dict.fromkeys(ids))


def _seen(client: "Client", path: str) -> dict[str, Any]:
    """Return a request from the operator's API; a push comes with its card."""
    seen: dict[str, Any] = client.get(path)
    if seen["request"]["action"].get("updates"):
        seen["push"] = client.get(f"{path}/push")
    return seen


def _printed(request: dict[str, Any]) -> str:
    """Return the last output of a failed effect, for a person."""
    return f"    it printed last:\n    | {whole(request['printed'])}"


def request_text(seen: dict[str, Any], *, with_ways: bool = True) -> str:
    """Return a request with its changes and outcome, for a person; `with_ways`: also how to approve
    parts of it."""
    request, card = seen["request"], seen["card"]
    lines = [approval_lines(request, is_whole=True), f"    status: {outcome_line(request)}"]
    if request["printed"]:
        lines.append(_printed(request))
    if seen.get("preview") is not None:
        lines.append(f"    on record: {rule_preview_lines(seen['preview'])}")
    if "push" in seen:
        lines += push_lines(seen["push"])
    elif request["category"] == "packages" and request["action"].get("index"):
        lines += install_lines(request["action"], RealClock().now())
    elif card is None:
        lines += _action_lines(request["action"])
    else:
        lines += [*(f"    {fact}" for fact in _facts(card)), *_hunk_lines(card)]
        if with_ways and card["may_choose"] and request["status"] == "pending":
            word = f" --seen {seen['seen']}" if _is_folded(seen) else ""
            lines.append(
                f"approve some of it: gatehouse approve {shown_id(request['id'])} --hunks 1,2"
                f" [--drop-rest]{word}"
            )
    return "\n".join([*lines, *(_approved_by(seen) if with_ways else ())])


def _action_lines(action: dict[str, Any], indent: int = 4) -> list[str]:
    """Return an action's fields, one per line; nested fields are indented below."""
    lines, pad = list[str](), " " * indent
    for name, value in action.items():
        parts = value if isinstance(value, list) else [value]
        if value in (None, "", [], {}, False):
            continue
        if all(isinstance(one, dict) for one in parts):
            for one in parts:
                lines += [f"{pad}{name}:", *_action_lines(one, indent + 2)]
        else:
            said = "yes" if value is True else ", ".join(str(one) for one in parts)
            lines.append(f"{pad}{name}: {whole(said)}")
    return lines


def _hunk_lines(card: dict[str, Any], only: frozenset[str] | None = None) -> list[str]:
    """Return a file's changes, each with its number; `only` those with these ids."""
    lines = []
    for number, hunk in enumerate(card["diff"]["hunks"], 1):
        if only is not None and hunk["id"] not in only:
            continue
        lines.append(
            f"{number:>3}  @@ -{hunk['old_start']},{hunk['old_count']}"
            f" +{hunk['new_start']},{hunk['new_count']} @@"
        )
        lines += [f"     {_MARKS[line['kind']]}{_text(line)}" for line in hunk["lines"]]
    return lines


def _approved_by(seen: dict[str, Any]) -> list[str]:
    """Return how to approve a request that lists or pages fold."""
    request = seen["request"]
    if request["status"] != "pending" or not _is_folded(seen):
        return []
    return [
        "this is long; once you have read all of it: gatehouse approve"
        f" {shown_id(request['id'])} --seen {seen['seen']}"
    ]


def _must_be_seen(seen: dict[str, Any], word: str | None) -> None:
    """Raise `UserError` where a folded request is approved without the word from `show`, or differs
    from what was shown."""
    request = seen["request"]
    if request["status"] != "pending":
        raise ChangedError.already(request["status"])
    look = f"gatehouse show {shown_id(request['id'])} prints all of it, and what to approve it with"
    if word is None and _is_folded(seen):
        raise UserError("this request is long, so it has to be shown whole first", look)
    if word is not None and word != seen["seen"]:
        raise UserError(f"`{line(word)}` is not this request as it is now", look)


def _is_folded(seen: dict[str, Any]) -> bool:
    """Return whether lists or pages fold a request."""
    return has_folds(seen["request"]) or bool(seen["is_folded"])


def _facts(card: dict[str, Any]) -> list[str]:
    """Return the facts that aren't text: notes, types, sizes, hashes, modes."""
    found = [_one(note) for note in (*card["notes"], card["mark"]) if note]
    for name, lines in (card["flags"] | card["layout"]).items():
        if lines:
            found.append(f"warning: {_SAID[name]}, in line {', '.join(map(str, lines))}")
    if card["content"] in ("binary", "large"):
        for label, side, digest in (("before", "old", "before"), ("after", "new", "after")):
            if card[f"{side}_size"] is not None:
                found.append(
                    f"{label}: {card[f'{side}_type'] or 'not read'}, {card[f'{side}_size']:,}"
                    f" bytes, BLAKE2b {card[digest]}"
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
    return line(text)


def install_lines(action: dict[str, Any], now: float) -> list[str]:
    """Return the lines of an install's action from the API. `now` is in seconds since the epoch."""
    said = install_words(msgspec.convert(action, Packages), now)
    lines = [f"    ! {_visible(note)}" for note in said.flags]
    lines.append(f"    {_visible(said.summary)} {_visible(said.source)}".rstrip())
    for row in said.rows:
        facts = f"  ({_visible(row.facts)})" if row.facts else ""
        lines.append(f"      {_visible(row.name)} {_visible(row.change)}{facts}")
        lines += [f"        ! {_visible(note)}" for note in row.notes]
    if said.unknown:
        lines.append(f"    unknown: {_visible(said.unknown)}")
    return lines


def push_lines(card: dict[str, Any]) -> list[str]:
    """Return the lines of a push from `GET /api/requests/{id}/push`."""
    lines = [f"    ! {_visible(name)}: {_visible(note)}" for name, note in card["flags"]]
    for move in card["moves"]:
        span = " to ".join(one[:12] for one in (move["old"], move["new"]) if one)
        lines.append(
            f"    {_visible(move['ref'])} {_HOW[move['how']]} at {_visible(card['url'])}: {span}"
        )
        lines += _commit_lines("+", move["commits"], move["commit_count"])
        lines += _commit_lines("-", move["lost"], move["lost_count"])
        lines += [f"      {_visible(line)}" for line in move["tag"].splitlines()]
        for file in move["files"]:
            lines += _file_lines(file)
        lines += _name_lines("more changed files", move["more_files"])
        for file in move["passing"]:
            lines += _file_lines(file)
        lines += _name_lines("more contents on the way", move["more_passing"])
    return lines


def _commit_lines(mark: str, commits: list[dict[str, Any]], count: int) -> list[str]:
    lines = []
    for one in commits:
        lines.append(
            f"    {mark} {one['id'][:12]} {_visible(one['subject'])} ({_visible(one['author'])})"
        )
        lines += [f"      {_visible(line)}" for line in one["body"].splitlines()]
    more = count - len(commits)
    return [*lines, *([f"    {mark} and {more} more commits"] if more > 0 else [])]


def _file_lines(file: dict[str, Any]) -> list[str]:
    diff = file["diff"]
    lines = [f"    {_visible(file['path'])}  +{diff['added']} -{diff['removed']}"]
    lines += [f"      ({_visible(note)})" for note in file["notes"]]
    for hunk in diff["hunks"]:
        lines += [
            f"      {_MARKS[line['kind']]}{_visible(''.join(text for text, _ in line['spans']))}"
            for line in hunk["lines"]
        ]
    return lines


def _name_lines(title: str, files: list[dict[str, Any]]) -> list[str]:
    lines = [f"    and {len(files)} {title}, by name"] if files else []
    for one in files:
        unread = "" if one["was_searched"] else ", not searched for secrets"
        lines.append(f"      {_visible(one['path'])}  {one['what']}{unread}")
    return lines


def _visible(text: str) -> str:
    return visible(text, one_line=True)
