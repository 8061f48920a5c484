"""The timeline of a session's page: what it asked, what came of it, and what it printed between.

Newest first, a page at a time, whatever the session's length. The database gives the short facts
of each request; a whole request is read for an entry's first ones only.
"""

import asyncio
import shlex
from collections.abc import Sequence
from itertools import groupby, islice
from pathlib import Path

import msgspec

from supervisor.core.actions import FileChange, category_of, title
from supervisor.core.approvals import Request, failure, last_printed, status
from supervisor.core.network.exchanges import Exchange, name_of
from supervisor.core.secrets.redact import Redactor
from supervisor.core.secrets.token_shapes import MARK
from supervisor.core.session_timeline import RequestFacts, RequestGroup, together
from supervisor.core.sessions import Session
from supervisor.core.text.display import visible
from supervisor.core.text.numbers import whole_number
from supervisor.core.text.terminal_screen import addresses_screen
from supervisor.errors import GatehouseError, UserError
from supervisor.parts import Parts
from supervisor.server.common import action_words
from supervisor.server.common.action_words import answer_words
from supervisor.server.common.request_views import state_of
from supervisor.server.common.views import shown
from supervisor.sessions import session_output
from supervisor.sessions.session_output import as_text
from supervisor.workspace.trees.journal import UndoBegun

# Entries of a page; short facts that are read for it at a time, and at most.
MOST_ENTRIES = 50
AT_ONCE, MOST_READ = 1000, 5000
# Requests of an entry whose titles are shown.
MOST_NAMED = 3
# Output of one entry: bytes that are read, and lines that are shown, from its end.
MOST_OUTPUT_BYTES = 4096
MOST_OUTPUT_LINES = 8
MOST_PRINTED_LINES, MOST_PRINTED_CHARS = 6, 2000
# Characters of a title or note that are read, and shown: the request's card has all of it.
MOST_READ_CHARS, MOST_TITLE_CHARS = 4096, 500
# Bytes on each side of an entry's output that are read with it, so that no secret is cut in two.
AROUND_BYTES = 4096


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened, at `at`, in seconds since the epoch. `kind` is its look, with the
    `icon` of that name or another;
    `state` and `words` where it stands. `titles` are its first actions, `more` counts the others.
    `notes` are said below it, `printed` is what came out. `answer`: the request to answer; `undo`:
    the id to undo; `until`: when a held one is no longer held."""

    key: str
    at: float
    kind: str
    icon: str = ""
    titles: list[str] = []
    more: int = 0
    state: str = ""
    words: str = ""
    until: float | None = None
    notes: list[str] = []
    printed: str = ""
    is_output: bool = False
    answer: str = ""
    undo: str = ""


class SessionTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """A page of entries, newest first. `next`: where the older ones begin; "" if there are none."""

    entries: list[TimelineEntry]
    next: str


class TimelineWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a timeline: only what came before `before`; with output, with what rules
    allowed."""

    before: str = ""
    output: bool = True
    rules: bool = False


async def session_timeline(
    parts: Parts, session: Session, wanted: TimelineWanted
) -> SessionTimeline:
    """Return a page of a session's timeline."""
    before = _place(wanted.before) if wanted.before else None
    groups, is_last = await asyncio.to_thread(_groups, parts, session, wanted, before)
    undos, rows = await _undos(parts, session, groups)
    held = parts.network_log.held(session.id).exchanges

    def made() -> SessionTimeline:
        newest = before[0] if before else None
        oldest = session.created_at if is_last or not groups else groups[-1].oldest_at
        ids = [one for group in groups for one in group.ids[:MOST_NAMED]]
        requests: dict[str, Request] = {one.id: one for one in parts.queue.get_all(ids)}
        found = [
            *(_entry(parts, requests, group, rows) for group in groups if group.ids[0] in requests),
            *(
                _undone(parts, one)
                for one in undos
                if oldest <= one.at and (newest is None or one.at < newest)
            ),
            *_by_network_rules(parts, held, wanted, oldest, newest),
            *([_end(session)] if session.ended_at is not None and newest is None else []),
            *([_start(parts, session)] if is_last else []),
        ]
        found.sort(key=lambda entry: -entry.at)
        if wanted.output:
            found = _with_output(parts, session, found, oldest, newest)
        more = "" if is_last or not groups else f"{groups[-1].oldest_at!r},{groups[-1].ids[-1]}"
        return SessionTimeline(entries=found, next=more)

    return await asyncio.to_thread(made)  # an agent chooses how long all of it is (law 14)


def _place(text: str) -> tuple[float, str]:
    at, _, request_id = text.partition(",")
    whole, _, part = at.partition(".")
    if whole_number(whole) is None or (part and whole_number(part, 20) is None):
        raise UserError(f"`{text[:64]}` is no place of the timeline", "reload the page")
    return float(at), request_id


def _groups(
    parts: Parts, session: Session, wanted: TimelineWanted, before: tuple[float, str] | None
) -> tuple[list[RequestGroup], bool]:
    """Return the entries of a page, and whether they are the last."""
    asked: list[RequestFacts] = []
    while len(asked) < MOST_READ:
        some = parts.queue.timeline_of(session.id, before, AT_ONCE, with_allowed=wanted.rules)
        asked += some
        is_last = len(some) < AT_ONCE
        found = list(together(asked))
        if is_last or len(found) > MOST_ENTRIES:
            break
        before = some[-1].asked_at, some[-1].id
    return found[:MOST_ENTRIES], is_last and len(found) <= MOST_ENTRIES


async def _undos(
    parts: Parts, session: Session, groups: list[RequestGroup]
) -> tuple[list[UndoBegun], dict[str, str]]:
    """Return the session's undos, and the ids by which groups of requests are undone together."""
    try:
        async with parts.undoing(session.id) as undo:
            return undo.undos(), undo.batches_of([one.ids[0] for one in groups])
    except GatehouseError:
        return [], {}


def _undone(parts: Parts, undo: UndoBegun) -> TimelineEntry:
    return TimelineEntry(
        key=undo.id,
        at=undo.at,
        kind="files",
        icon="undo",
        titles=[_brief(f"undo of {undo.what}", parts.redactor)],
        state="done",
        words="undone",
        notes=[shown(f"by {undo.by}", parts.redactor)],
    )


def _entry(
    parts: Parts, requests: dict[str, Request], group: RequestGroup, rows: dict[str, str]
) -> TimelineEntry:
    now, redactor = parts.clock.now(), parts.redactor
    named = [requests[one] for one in group.ids[:MOST_NAMED] if one in requests]
    first = named[0]
    icon = action_words.WORDS[category_of(first.action)].icon
    state, words = state_of(first, now)
    why = failure(first)
    reason = first.answer_reason if status(first) == "denied" else ""
    said = [
        answer_words(first),
        first.rule or first.why if first.decision == "deny" else "",
        f"“{reason}”" if reason else "",
        first.closed_why if state == "expired" else "",
        why,
    ]
    is_applied = isinstance(first.action, FileChange) and state == "done"
    alone = first.id if len(group.ids) == 1 else ""
    printed = last_printed(first.outcome)
    lines = shown(printed, redactor).splitlines()[-MOST_PRINTED_LINES:] if alone else []
    return TimelineEntry(
        key=group.ids[-1],
        at=group.newest_at,
        kind=icon,
        titles=[_brief(title(one.action), redactor) for one in named],
        more=len(group.ids) - len(named),
        state=state,
        words=shown(words, redactor),
        until=first.hold_until if state == "held" else None,
        notes=[_brief(one, redactor) for one in said if one],
        printed="\n".join(lines)[-MOST_PRINTED_CHARS:],
        answer=first.id if status(first) == "pending" else "",
        undo=rows.get(first.id, alone) if is_applied else "",
    )


def _by_network_rules(
    parts: Parts,
    held: Sequence[Exchange],
    wanted: TimelineWanted,
    oldest: float,
    newest: float | None,
) -> list[TimelineEntry]:
    """Return the connections that rules alone denied, and allowed where that is wanted; several to
    one host in a row are one entry. The Network tab has all of them."""
    here = (
        one
        for one in held
        if one.request_id is None
        and oldest <= one.at
        and (newest is None or one.at < newest)
        and (wanted.rules or one.verdict != "allow")
    )
    rows = groupby(here, lambda one: (name_of(one.action), one.verdict))
    return [_exchanges(parts, list(found)) for _, found in islice(rows, MOST_ENTRIES)]


def _exchanges(parts: Parts, found: list[Exchange]) -> TimelineEntry:
    newest = found[0]
    is_allowed = newest.verdict == "allow"
    rule = newest.rule or newest.why
    return TimelineEntry(
        key=f"network-{newest.number}",
        at=newest.at,
        kind="network",
        titles=[_brief(title(newest.action), parts.redactor)],
        more=len(found) - 1,
        state="done" if is_allowed else "denied",
        words=f"{'allowed' if is_allowed else 'denied'} by a rule",
        notes=[_brief(rule, parts.redactor)] if rule else [],
    )


def _start(parts: Parts, session: Session) -> TimelineEntry:
    command = shlex.join(session.command) or session.kind
    policy = session.policy_file.rpartition("/")[2]
    return TimelineEntry(
        key="start",
        at=session.created_at,
        kind="exec",
        icon="play",
        titles=[_brief(command, parts.redactor)],
        state="done",
        words="started",
        notes=[shown(f"under the policy {policy}", parts.redactor)] if policy else [],
    )


def _end(session: Session) -> TimelineEntry:
    failed = bool(session.exit_code)
    code = "" if session.exit_code is None else f", exit code {session.exit_code}"
    return TimelineEntry(
        key="end",
        at=session.ended_at or 0.0,
        kind="review",
        icon="stop",
        titles=["The session ended"],
        state="failed" if failed else "done",
        words=f"{session.end_reason}{code}",
    )


# -- output between entries (in a thread) ---------------------------------------------------------


def _with_output(
    parts: Parts,
    session: Session,
    entries: list[TimelineEntry],
    oldest: float,
    newest: float | None,
) -> list[TimelineEntry]:
    """Return the entries with what was printed after each, up to the next newer one."""
    folder = parts.sessions.folder(session.id)
    times, end = session_output.times(folder), session_output.size(folder)
    if newest is not None and (mark := times.since(newest)) is not None:
        end = mark[1]
    found: list[TimelineEntry] = []
    for entry in entries:
        mark = times.since(entry.at)
        if mark is not None and mark[1] < end:
            found.append(_output(parts, folder, *mark, end))
            end = mark[1]
        found.append(entry)
    return found


def _output(parts: Parts, folder: Path, at: float, begin: int, end: int) -> TimelineEntry:
    """Return the end of what was printed between two bytes."""
    first = max(begin, end - MOST_OUTPUT_BYTES)
    before = min(first, AROUND_BYTES)
    behind = before + end - first
    data = session_output.read(folder, first - before)[0][: behind + AROUND_BYTES]
    text = as_text(data, parts.redactor)
    if MARK in text:
        start = _end_of(as_text(data[:before], parts.redactor), text)
        text = text[start : _end_of(as_text(data[:behind], parts.redactor), text)]
    else:
        text = as_text(data[before:behind], parts.redactor)
    lines = [] if addresses_screen(data[before:behind]) else text.rstrip().split("\n")
    return TimelineEntry(
        key=f"output-{begin}",
        at=at,
        kind="review",
        icon="exec",
        titles=[] if lines else ["drew on its screen"],
        printed="\n".join(lines[-MOST_OUTPUT_LINES:]),
        is_output=True,
    )


# -- texts that are cut ---------------------------------------------------------------------------


def _brief(text: str, redactor: Redactor) -> str:
    """Return the beginning of a text as people may see it."""
    if len(text) <= MOST_TITLE_CHARS:
        return shown(text, redactor)
    clean = redactor.text(text[:MOST_READ_CHARS])
    return visible(f"{clean[: _end_of(redactor.text(text[:MOST_TITLE_CHARS]), clean)]}…")


def _end_of(part: str, whole: str) -> int:
    """Return where a beginning ends in the whole, both without secrets. A secret that goes on
    behind it belongs to the beginning, as its mark."""
    pairs = enumerate(zip(part, whole, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), min(len(part), len(whole)))
    for back in range(at == len(part), min(at + 1, len(MARK))):
        if whole.startswith(MARK, at - back):
            return at - back + len(MARK)
    return at
