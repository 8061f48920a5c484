"""Reads the card of a push out of its staging repository.

It is separate from `git`, which pushes: this only reads objects that are there already. Everything
is bounded: commits, files, and the bytes that are read of them.
"""

from collections.abc import Iterable, Sequence
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
    PushCard,
    RefMove,
    commits_in,
    entries_in,
    file_card,
    flags,
    move_of,
    passing_in,
)
from supervisor.core.secrets.redact import Redactor

MOST_COMMITS = 50
# Whose messages and contents are looked at for what must not be overlooked.
MOST_LOOKED_AT = 2000
MOST_FILES = 100
MOST_READ_BYTES = 16 * 1024 * 1024


class _Seen(NamedTuple):
    """What was found of one ref: its card, and what is flagged of it, shown or not."""

    move: RefMove
    entries: Sequence[Entry] = ()
    passing: Sequence[Entry] = ()
    messages: Sequence[tuple[str, Flags]] = ()
    unread: int = 0


async def push_card(staging: Staging, action: Git, redactor: Redactor) -> PushCard:
    """Return the card of a planned push."""
    reader = _Reader(staging, redactor)
    seen = [await _move(staging, update, reader, action.url) for update in action.updates]
    moves = [one.move for one in seen]
    entries = [entry for one in seen for entry in one.entries]
    passing = [entry for one in seen for entry in one.passing]
    new = {one.new_id for one in (*entries, *passing) if one.new_mode not in (0, GITLINK)}
    return PushCard(
        url=action.url,
        moves=tuple(moves),
        size=sum(reader.sizes.get(one, 0) for one in new),
        flags=flags(
            moves,
            entries,
            [card for move in moves for card in (*move.files, *move.passing)],
            reader.sizes,
            passing=passing,
            messages=[said for one in seen for said in one.messages],
            unread=sum(one.unread for one in seen),
        ),
    )


class _Reader:
    """Reads contents for the cards of one push, each once and so many bytes together."""

    def __init__(self, staging: Staging, redactor: Redactor) -> None:
        self._staging = staging
        self.redactor = redactor
        self._left = MOST_READ_BYTES
        self._read = dict[str, bytes]()
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

    async def card(self, entry: Entry, commit: str = "") -> ChangeCard:
        """Return the card of one path."""
        for one in (entry.old_id, entry.new_id):
            size = self.sizes.get(one, MOST_TEXT_BYTES + 1)
            if one not in self._read and size <= min(MOST_TEXT_BYTES, self._left):
                words = ("cat-file", "blob", one)
                self._read[one] = await self._staging.read(*words, limit_bytes=size + 1)
                self._left -= size
        return file_card(entry, self._read, self.sizes, self.redactor, commit)


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
    entries = entries_in(await staging.read(*words, limit_bytes=MOST_READ_BYTES))
    passing = await _passing(staging, gained, entries)
    await reader.measure([*entries, *(entry for _, entry in passing)])
    tag = await _tag(staging, new)
    messages = [(one.id[:12], f"{one.subject}\n{one.body}") for one in gained]
    messages += [(update.ref, tag)] if tag else []
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
        files=tuple([await reader.card(one) for one in entries[:MOST_FILES]]),
        more_files=max(0, len(entries) - MOST_FILES),
        passing=tuple([await reader.card(one, commit) for commit, one in passing[:MOST_FILES]]),
        more_passing=max(0, len(passing) - MOST_FILES),
        tag=tag,
    )
    return _Seen(
        move,
        entries,
        [entry for _, entry in passing],
        [(name, flags_of(b"", said.encode(), reader.redactor)) for name, said in messages],
        gained_count - len(gained),
    )


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
    return passing_in(raw, entries)


async def _tag(staging: Staging, oid: str) -> str:
    """Return the text of a tag's own object, empty for a commit."""
    if (await staging.read("cat-file", "-t", oid)).strip() != b"tag":
        return ""
    return (await staging.read("cat-file", "tag", oid)).decode(errors="replace")
