"""Prints a push for `gatehouse show`: refs, commits, changed files, and what not to overlook.

What is printed was written by an agent: each piece goes through `visible`.
"""

from typing import Any

from supervisor.core.text.display import visible

_HOW = {"new": "is new", "moved": "moves on", "rewritten": "is rewritten", "deleted": "is deleted"}
_MARKS = {"added": "+", "removed": "-", "context": " ", "note": ""}


def push_lines(card: dict[str, Any]) -> list[str]:
    """Return the lines of a push as `GET /api/requests/{id}/push` tells it."""
    lines = [f"    ! {_one(name)}: {_one(note)}" for name, note in card["flags"]]
    for move in card["moves"]:
        span = " to ".join(one[:12] for one in (move["old"], move["new"]) if one)
        lines.append(f"    {_one(move['ref'])} {_HOW[move['how']]} at {_one(card['url'])}: {span}")
        lines += _commit_lines("+", move["commits"], move["commit_count"])
        lines += _commit_lines("-", move["lost"], move["lost_count"])
        lines += [f"      {_one(line)}" for line in move["tag"].splitlines()]
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
        lines.append(f"    {mark} {one['id'][:12]} {_one(one['subject'])} ({_one(one['author'])})")
        lines += [f"      {_one(line)}" for line in one["body"].splitlines()]
    more = count - len(commits)
    return [*lines, *([f"    {mark} and {more} more commits"] if more > 0 else [])]


def _file_lines(file: dict[str, Any]) -> list[str]:
    diff = file["diff"]
    lines = [f"    {_one(file['path'])}  +{diff['added']} -{diff['removed']}"]
    lines += [f"      ({_one(note)})" for note in file["notes"]]
    for hunk in diff["hunks"]:
        lines += [
            f"      {_MARKS[line['kind']]}{_one(''.join(text for text, _ in line['spans']))}"
            for line in hunk["lines"]
        ]
    return lines


def _name_lines(title: str, files: list[dict[str, Any]]) -> list[str]:
    lines = [f"    and {len(files)} {title}, by name"] if files else []
    for one in files:
        unread = "" if one["was_searched"] else ", not searched for secrets"
        lines.append(f"      {_one(one['path'])}  {one['what']}{unread}")
    return lines


def _one(text: str) -> str:
    return visible(text, one_line=True)
