"""Reads the card of a push out of its staging repository.

It only reads objects that are there already. Everything is bounded: commits, files, and the bytes
that are read of them.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from supervisor.channels.git_staging import Staging
from supervisor.core.actions import Git, RefUpdate
from supervisor.core.files.change_card import ChangeCard
from supervisor.core.files.content_flags import Flags, flags_of
from supervisor.core.files.text_diff import MOST_TEXT_BYTES
from supervisor.core.git.push_card import (
    GITLINK,
    Commit,
    Entry,
    NamedFile,
    PushCard,
    RefMove,
    commits_in,
    entries_in,
    file_card,
    flags,
    has_content,
    move_of,
    named_file,
    objects_in,
    passing_in,
)
from supervisor.core.secrets.redact import Redactor

MOST_COMMITS = 50
# Whose messages and contents are looked at for what must not be overlooked.
MOST_LOOKED_AT = 2000
# Whose contents are shown; of others the names.
MOST_FILES = 100
MOST_READ_BYTES = 16 * 1024 * 1024
# What showing a file counts at least, of the same number of bytes.
_LEAST_SHOWN_BYTES = 16 * 1024


class _Seen(NamedTuple):
    """What was found of one ref: its card, and what is flagged of it, shown or not."""

    move: RefMove
    entries: Sequence[Entry] = ()
    passing: Sequence[Entry] = ()
    found_in: Sequence[tuple[str, Flags]] = ()
    cut: Sequence[str] = ()
    unread: int = 0


async def push_card(staging: Staging, action: Git, redactor: Redactor) -> PushCard:
    """Return the card of a planned push."""
    reader = _Reader(staging, redactor)
    seen = [await _move(staging, update, reader, action.url) for update in action.updates]
    return await asyncio.to_thread(_card, action.url, seen, reader)


def _card(url: str, seen: Sequence[_Seen], reader: "_Reader") -> PushCard:
    moves = [one.move for one in seen]
    entries = [entry for one in seen for entry in one.entries]
    passing = [entry for one in seen for entry in one.passing]
    new = {one.new_id for one in (*entries, *passing) if has_content(one)}
    return PushCard(
        url=url,
        moves=tuple(moves),
        size=sum(reader.sizes.get(one, 0) for one in new),
        flags=flags(
            moves,
            entries,
            [found for one in seen for found in one.found_in],
            reader.sizes,
            passing=passing,
            unsearched=[
                *(one.path for one in (*entries, *passing) if not reader.has_read(one)),
                *(name for one in seen for name in one.cut),
            ],
            unread=sum(one.unread for one in seen),
        ),
    )


class _Reader:
    """Reads contents for the cards of one push, each once and so many bytes together."""

    def __init__(self, staging: Staging, redactor: Redactor) -> None:
        self._staging = staging
        self.redactor = redactor
        self._left = MOST_READ_BYTES
        self._left_to_show = MOST_READ_BYTES
        self._read = dict[str, bytes]()
        self._flags = dict[tuple[str, str], Flags]()
        self.sizes = dict[str, int]()

    async def measure(self, entries: Iterable[Entry]) -> None:
        """Find out the sizes of all contents."""
        ids = {
            one
            for entry in entries
            for mode, one in ((entry.old_mode, entry.old_id), (entry.new_mode, entry.new_id))
            if mode not in (0, GITLINK)
        }
        self.sizes |= await self._staging.sizes(sorted(ids - self.sizes.keys()))

    async def read(self, ids: Iterable[str]) -> None:
        """Read contents, in this order, that are short enough to be shown and for which there is
        room."""
        wanted = list[str]()
        room = self._left
        for one in dict.fromkeys(ids):
            size = self.sizes.get(one, MOST_TEXT_BYTES + 1)
            if one not in self._read and size <= min(MOST_TEXT_BYTES, self._left):
                self._left -= size
                wanted.append(one)
        told = await self._staging.read(
            *("cat-file", "--batch"),
            stdin="".join(f"{one}\n" for one in wanted).encode(),
            limit_bytes=room + 100 * len(wanted),
        )
        self._read |= objects_in(told)

    def may_show(self, entry: Entry) -> bool:
        """Return whether there is room to show a path, whose contents others may have, too."""
        sizes = (self.sizes.get(one, 0) for one in (entry.old_id, entry.new_id))
        cost = sum(size for size in sizes if size <= MOST_TEXT_BYTES)
        self._left_to_show -= max(cost, _LEAST_SHOWN_BYTES)
        return self._left_to_show >= 0

    def has_read(self, entry: Entry) -> bool:
        """Return whether the new content was read, where there is one."""
        return not has_content(entry) or entry.new_id in self._read

    def card(self, entry: Entry, commit: str = "") -> ChangeCard:
        """Return the card of one path."""
        return file_card(entry, self._read, self.sizes, self.redactor, commit)

    def flags(self, entry: Entry, *, with_old: bool) -> Flags:
        """Return what stands out in a path's new content, of what was read."""
        ids = (entry.old_id if with_old else "", entry.new_id)
        if not has_content(entry):
            return Flags()
        if ids not in self._flags:
            old, new = (self._read.get(one, b"") for one in ids)
            self._flags[ids] = flags_of(old, new, self.redactor, is_text=b"\0" not in new)
        return self._flags[ids]


async def _move(staging: Staging, update: RefUpdate, reader: _Reader, url: str) -> _Seen:
    old, new = update.old, update.new
    rewrites = bool(old and new) and not await staging.is_ancestor(old, new)
    how = move_of(update, rewrites=rewrites)
    if how == "deleted":
        return _Seen(RefMove(ref=update.ref, old=old, new=new, how=how))
    base = old or await staging.base_of(new, url)
    gained, gained_count = await _commits(staging, new, base)
    lost, lost_count = await _commits(staging, old, new) if rewrites else ((), 0)
    words = ("diff-tree", "-r", "-z", "--raw", "-M", "--no-commit-id", base, new)
    raw = await staging.read(*words, limit_bytes=MOST_READ_BYTES)
    entries = await asyncio.to_thread(entries_in, raw)
    passing = await _passing(staging, gained, entries)
    by_the_way = [entry for _, entry in passing]
    await reader.measure([*entries, *by_the_way])
    at_end = len([*takewhile(reader.may_show, entries[:MOST_FILES])])
    on_way = len([*takewhile(reader.may_show, by_the_way[:MOST_FILES])])
    shown = [*(("", one) for one in entries[:at_end]), *passing[:on_way]]
    await reader.read(one for _, entry in shown for one in (entry.old_id, entry.new_id))
    await reader.read(one.new_id for one in (*entries, *by_the_way) if has_content(one))
    tag = await _tag(staging, new)
    messages = [(_message_of(one.id), f"{one.subject}\n{one.body}") for one in gained]
    messages += [(f"the message of {update.ref}", tag)] if tag else []
    found_in = await _found_in(reader, [*entries, *by_the_way], messages)
    cards = await asyncio.to_thread(lambda: [reader.card(one, commit) for commit, one in shown])
    move = RefMove(
        ref=update.ref,
        old=old,
        new=new,
        how=how,
        base=base,
        commits=gained[:MOST_COMMITS],
        commit_count=gained_count,
        lost=lost[:MOST_COMMITS],
        lost_count=lost_count,
        files=tuple(cards[:at_end]),
        more_files=_named(reader, entries[at_end:]),
        passing=tuple(cards[at_end:]),
        more_passing=_named(reader, by_the_way[on_way:]),
        tag=tag,
    )
    cut = [_message_of(one.id) for one in gained if one.is_cut]
    return _Seen(move, entries, by_the_way, found_in, cut, gained_count - len(gained))


def _message_of(commit: str) -> str:
    return f"the message of {commit[:12]}"


def _named(reader: _Reader, entries: Iterable[Entry]) -> tuple[NamedFile, ...]:
    return tuple(named_file(one, was_searched=reader.has_read(one)) for one in entries)


async def _found_in(
    reader: _Reader, entries: Sequence[Entry], messages: Sequence[tuple[str, str]]
) -> list[tuple[str, Flags]]:
    """Return the paths and messages in which something stands out that the old content hasn't."""

    def search(some: Sequence[Entry], *, with_old: bool) -> list[tuple[Entry, Flags]]:
        found = ((one, reader.flags(one, with_old=with_old)) for one in some)
        return [(one, seen) for one, seen in found if seen.names]

    def search_messages() -> list[tuple[str, Flags]]:
        redactor = reader.redactor
        return [(name, flags_of(b"", said.encode(), redactor)) for name, said in messages]

    odd = [one for one, _ in await asyncio.to_thread(search, entries, with_old=False)]
    await reader.read(one.old_id for one in odd if one.old_mode not in (0, GITLINK))
    found = await asyncio.to_thread(search, odd, with_old=True)
    said = await asyncio.to_thread(search_messages)
    return [*((one.path, seen) for one, seen in found), *said]


async def _commits(staging: Staging, tip: str, without: str) -> tuple[tuple[Commit, ...], int]:
    """Return the newest commits of a tip that `without`, which may be no commit, hasn't; and how
    many there are."""
    span = [tip, "--not", f"{without}^{{commit}}"] if await staging.is_commit(without) else [tip]
    ids = await staging.read("rev-list", f"-{MOST_LOOKED_AT}", *span)
    told = await staging.read("cat-file", "--batch", stdin=ids, limit_bytes=MOST_READ_BYTES)
    count = await staging.read("rev-list", "--count", *span)
    return commits_in(told), int(count or 0)


async def _passing(
    staging: Staging, commits: Sequence[Commit], entries: Sequence[Entry]
) -> tuple[tuple[str, Entry], ...]:
    """Return the contents that commits on the way have and the end hasn't."""
    raw = await staging.read(
        *("diff-tree", "--stdin", "-r", "-c", "-z", "--raw", "--root", "--no-renames"),
        stdin="".join(f"{one.id}\n" for one in commits).encode(),
        limit_bytes=MOST_READ_BYTES,
    )
    return await asyncio.to_thread(passing_in, raw, entries)


async def _tag(staging: Staging, oid: str) -> str:
    """Return the text of a tag's own object, empty for a commit."""
    if (await staging.read("cat-file", "-t", oid)).strip() != b"tag":
        return ""
    return (await staging.read("cat-file", "tag", oid)).decode(errors="replace")
