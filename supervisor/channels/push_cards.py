"""Reads the card of a push out of its staging repository.

It is separate from `git`, which pushes: this only reads objects that are there already. Everything
is bounded: commits, files, and the bytes that are read of them.
"""

from collections.abc import Sequence

from supervisor.channels.git_staging import Staging
from supervisor.core.actions import Git, RefUpdate
from supervisor.core.files.text_diff import MOST_TEXT_BYTES
from supervisor.core.git.push_card import (
    GITLINK,
    LOG_FORMAT,
    Commit,
    Entry,
    PushCard,
    RefMove,
    commits_in,
    entries_in,
    file_card,
    flags,
    move_of,
)
from supervisor.core.secrets.redact import Redactor

MOST_COMMITS = 50
MOST_FILES = 100
MOST_READ_BYTES = 16 * 1024 * 1024


async def push_card(staging: Staging, action: Git, redactor: Redactor) -> PushCard:
    """Return the card of a planned push."""
    moves, every, sizes = [], list[Entry](), dict[str, int]()
    for update in action.updates:
        move, entries, found = await _move(staging, update, redactor)
        moves.append(move)
        every += entries
        sizes |= found
    cards = [card for move in moves for card in move.files]
    new = {one.new_id for one in every if one.new_mode not in (0, GITLINK)}
    return PushCard(
        url=action.url,
        moves=tuple(moves),
        size=sum(sizes.get(one, 0) for one in new),
        flags=flags(moves, every, cards, sizes),
    )


async def _move(
    staging: Staging, update: RefUpdate, redactor: Redactor
) -> tuple[RefMove, Sequence[Entry], dict[str, int]]:
    old, new = update.old, update.new
    rewrites = bool(old and new) and not await staging.is_ancestor(old, new)
    how = move_of(update, rewrites=rewrites)
    if how == "deleted":
        return RefMove(ref=update.ref, old=old, new=new, how=how), (), {}
    base = old or await staging.base_of(new)
    gained, gained_count = await _commits(staging, new, base)
    lost, lost_count = await _commits(staging, old, new) if rewrites else ((), 0)
    words = ("diff-tree", "-r", "-z", "--raw", "-M", "--no-commit-id", base, new)
    entries = entries_in(await staging.read(*words, limit_bytes=MOST_READ_BYTES))
    ids = {
        one
        for entry in entries
        for mode, one in ((entry.old_mode, entry.old_id), (entry.new_mode, entry.new_id))
        if mode not in (0, GITLINK)
    }
    sizes = await staging.sizes(sorted(ids))
    shown, read = entries[:MOST_FILES], dict[str, bytes]()
    left = MOST_READ_BYTES
    for entry in shown:
        for one in (entry.old_id, entry.new_id):
            size = sizes.get(one, MOST_TEXT_BYTES + 1)
            if one not in read and size <= min(MOST_TEXT_BYTES, left):
                read[one] = await staging.read("cat-file", "blob", one, limit_bytes=size + 1)
                left -= size
    move = RefMove(
        ref=update.ref,
        old=old,
        new=new,
        how=how,
        base=base,
        commits=gained,
        commit_count=gained_count,
        lost=lost,
        lost_count=lost_count,
        files=tuple(file_card(one, read, sizes, redactor) for one in shown),
        more_files=len(entries) - len(shown),
    )
    return move, entries, sizes


async def _commits(staging: Staging, tip: str, without: str) -> tuple[tuple[Commit, ...], int]:
    """Return the newest commits of a tip that `without`, which may be no commit, hasn't; and how
    many there are."""
    span = [tip, "--not", f"{without}^{{commit}}"] if await staging.is_commit(without) else [tip]
    log = await staging.read("log", "-z", f"--format={LOG_FORMAT}", f"-{MOST_COMMITS}", *span)
    count = await staging.read("rev-list", "--count", *span)
    return commits_in(log), int(count or 0)
