"""Which part of a changed file a person is shown, and must have been shown to approve it.

Page, JSON API and command line use this module, and each approval of a change is checked against
it. A long change is folded: the page shows its beginning and then the rest in parts; the last part
has the word (`seen_word`) that an approval needs. It must never take a card that failed for an
empty one.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from supervisor.base import log
from supervisor.core.actions import FileChange, content_hash
from supervisor.core.approvals import Request
from supervisor.core.files.change_card import ChangeCard
from supervisor.core.files.text_diff import TextDiff
from supervisor.errors import UserError
from supervisor.parts import Parts
from supervisor.server.common.diff_views import NO_TEXTS, Texts, rows_in, rows_of_hunk, texts_of

# Rows of a change on a card before "show the other lines", and of each part that follows.
FIRST_ROWS = 60
PART_ROWS = 1000
_WORD_CHARS = 12
# Such a word as it is sent back with an answer; see `seen_word`.
Seen = Annotated[str, msgspec.Meta(max_length=100)]
NOT_SHOWN = "it can't be shown"
FOLDED = "some of it is folded, and has to be shown whole first"


async def card_of(parts: Parts, request: Request) -> ChangeCard | None:
    """Return what a request would change in a file, or None where it isn't about a file, or its
    session has nothing left to show it with."""
    workspace = parts.workspace_of(request.session_id)
    if workspace is None or not isinstance(request.action, FileChange):
        return None
    try:
        return await workspace.card(request)
    except Exception as error:  # one that can't be compared must not take the inbox away
        log.warning("no change to show", request=request.id, error=str(error))
        return None


async def texts_in(parts: Parts, request: Request, card: ChangeCard) -> Texts:
    """Return both sides of a shown change with their colours; nothing where they are no text, or
    changed since."""
    workspace = parts.workspace_of(request.session_id)
    if workspace is None or card.content != "text" or card.is_stale or card.below:
        return NO_TEXTS
    found = await workspace.contents(request)
    return NO_TEXTS if found is None else await texts_of(parts.renderer, card.path, *found)


async def why_not_seen(parts: Parts, request: Request, seen: str = "") -> str:
    """Return why a person can't have seen everything that an approval of this would do; empty where
    they can, or it isn't about a file. `seen` is the word from the end of a folded change."""
    if not isinstance(request.action, FileChange):
        return ""
    card = await card_of(parts, request)
    if card is None:
        return NOT_SHOWN
    return FOLDED if is_folded(card) and seen != seen_word(request) else ""


async def must_be_seen(parts: Parts, request: Request, seen: str) -> None:
    """Raise `UserError` where a person can't have seen all of a change."""
    match await why_not_seen(parts, request, seen):
        case "":
            return
        case why if why == NOT_SHOWN:
            raise UserError(
                "what this would change can't be shown, so it can't be approved",
                "deny it, or compare the session's copy with your folder yourself",
            )
        case why:
            raise UserError(
                f"this change is long: {why}",
                "show the other lines on the page, or see `gatehouse show ID`, which ends in the"
                " word to approve it with",
            )


def seen_word(request: Request) -> str:
    """Return the word at the end of a change, which is sent back with its approval."""
    return content_hash(f"all of {request.fingerprint}".encode())[:_WORD_CHARS]


def diffs_of(card: ChangeCard) -> list[tuple[str, TextDiff]]:
    """Return each difference of a card with its path: one, or those below a swapped path."""
    return [(one.path, one.diff) for one in (card, *card.below) if one.diff.hunks]


def is_folded(card: ChangeCard) -> bool:
    """Return whether the page shows only the beginning of a change."""
    return sum(rows_in(diff) for _, diff in diffs_of(card)) > FIRST_ROWS


def part_from(diff: TextDiff, start: int) -> int:
    """Return the row at which a part ends that begins at row `start`. A hunk that fits into a part
    is never split, so that it can be ticked."""
    end = start + PART_ROWS
    for first, after in _places(diff):
        if start < first < end < after <= first + PART_ROWS:
            return first
    return end


def _places(diff: TextDiff) -> Iterator[tuple[int, int]]:
    """Yield the first row of each hunk, and the one after its last."""
    at = 0
    for hunk in diff.hunks:
        first, at = at, at + rows_of_hunk(hunk)
        yield first, at
