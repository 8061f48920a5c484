"""Build the card of a file change from the contents that the request is bound to.

It must never show a content that an approval wouldn't apply; `change_card` checks each side against
the hash in the request.
"""

from typing import Literal

import msgspec

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.files.change_card import ChangeCard, Side, make_card
from supervisor.core.files.changes import PERMISSIONS, is_content, name_of, names_of
from supervisor.core.files.swaps import single_changes
from supervisor.core.files.text_diff import MOST_TEXT_BYTES
from supervisor.core.secrets.redact import Redactor
from supervisor.core.text.content_types import MOST_IMAGE_BYTES, Image, image_of
from supervisor.errors import GatehouseError
from supervisor.workspace.disk.scan import look_quietly, read_file
from supervisor.workspace.trees.trees import Sides

# Steps of a swap that are read for its card.
MOST_BELOW = 40


def card_of(sides: Sides, action: FileChange, redactor: Redactor) -> ChangeCard:
    """Return the card of an action. Reads at most a megabyte of each side, and of each of a swap's
    first steps."""
    whole, *steps = single_changes(action)
    card = _card(sides, whole, redactor)
    if not steps:
        return card
    below = tuple(_card(sides, step, redactor) for step in steps[:MOST_BELOW])
    is_stale = card.is_stale or any(one.is_stale for one in below)
    return msgspec.structs.replace(
        card, below=below, more_below=len(steps) - len(below), is_stale=is_stale
    )


def _card(sides: Sides, action: FileChange, redactor: Redactor) -> ChangeCard:
    host = look_quietly(sides.host, name_of(action))
    old = new = None
    if action.to is not None:  # nothing of the content changes
        is_free = look_quietly(sides.host, names_of(action)[1]) is None
        return make_card(action, None, None, host.token if host and is_free else None, redactor)
    if host is not None and host.kind == "file":
        old = Side(_read(sides, name_of(action)), host.signature[0], host.mode)
    elif host is not None and action.operation == "chmod":
        old = Side(None, None, host.mode & PERMISSIONS)
    if action.after is not None and is_content(action.after) and action.operation != "delete":
        new = Side(
            sides.blobs.read(action.after, MOST_TEXT_BYTES),
            sides.blobs.size(action.after),
            action.mode,
        )
    return make_card(action, old, new, host.token if host else None, redactor)


def image_in(
    sides: Sides, action: FileChange, side: Literal["old", "new"]
) -> tuple[Image, bytes] | None:
    """Return one side of a change, if it is an image that may be shown and still the one in the
    action."""
    data = _content(sides, action, side, MOST_IMAGE_BYTES)
    found = image_of(data or b"", len(data or b""))
    return (found, data) if found is not None and data is not None else None


def contents_in(sides: Sides, action: FileChange) -> tuple[bytes, bytes] | None:
    """Return a file's content before and after, empty for a side without one. None where either
    isn't the one in the action any more, or is larger than what is compared."""
    old = _content(sides, action, "old", MOST_TEXT_BYTES)
    new = _content(sides, action, "new", MOST_TEXT_BYTES)
    return None if old is None or new is None else (old, new)


def _content(
    sides: Sides, action: FileChange, side: Literal["old", "new"], most_bytes: int
) -> bytes | None:
    digest = action.before if side == "old" else action.after
    if digest is None or not is_content(digest):
        return b""
    if side == "old":
        try:
            data = read_file(sides.host, name_of(action), most_bytes)
        except (OSError, GatehouseError):
            return None
    else:
        data = sides.blobs.read(digest, most_bytes) or b""
    return data if content_hash(data) == digest else None


def _read(sides: Sides, name: str) -> bytes | None:
    try:
        return read_file(sides.host, name, MOST_TEXT_BYTES + 1, cut=True)
    except (OSError, GatehouseError):
        return None
