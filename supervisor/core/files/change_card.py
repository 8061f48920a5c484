"""Card of a file change: the operation, the bytes it is bound to, and the difference.

Pure. A card also shows what a diff can't: sizes, hashes, modes, hazards, and that the host has
changed since. INVARIANT: the new side of a card is the content that an approval would apply. The
caller redacts secrets. Agent text is treated as data only.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.files.content_flags import Flags, Layout, flags_of, layout_of
from supervisor.core.files.new_folders import notes as notes_of_folders
from supervisor.core.files.text_diff import MOST_TEXT_BYTES, TextDiff, diff
from supervisor.core.policy.git_folders import WORKSPACE_ITSELF
from supervisor.core.policy.protected_names import mark_of
from supervisor.core.secrets.redact import Redactor
from supervisor.core.text.content_types import Image, image_of, type_of

# Notes on hazards, for a person about to approve.
HAZARD_NOTES = {
    "conflict": (
        "this path changed on the host since the session's copy was made; approving replaces what"
        " is there now"
    ),
    "symlink": "a symbolic link: whoever follows it ends up where it points",
    "hardlink": (
        "the file has several names in the copy; only this one is changed, with its content"
    ),
    "setuid": "the file has a set-id bit in the copy; it is never set on the host",
    "new-executable": "the file becomes executable",
    "wider": "others than the owner may read or change what they couldn't",
    "secret": "the new text holds what looks like a secret, or is too long to be searched for one",
    "fifo": "a fifo never leaves the copy",
    "socket": "a socket never leaves the copy",
    "device": "a device never leaves the copy",
}

# Reads the start of a content by its hash: up to that many bytes plus one; None if it isn't kept.
type ReadContent = Callable[[str, int], bytes | None]


class Side(msgspec.Struct, frozen=True):
    """A file's content before or after. `data`: at most MOST_TEXT_BYTES + 1 bytes of it; None if it
    isn't available."""

    data: bytes | None
    size: int | None
    mode: int | None = None


class ChangeCard(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a file card shows. `content`: `text` has hunks, `binary` and `large` only sizes
    and hashes, `none` nothing to show (a folder, a link).

    `is_stale`: the host changed since this was asked, so an approval would not be carried out.
    Types name the content by its first bytes; images are set if it may be shown as one.
    `may_choose`: hunks can be approved alone. `flags.names` keep the file from being approved
    unseen among others; `layout` only notes oddities.
    """

    path: str
    operation: str
    content: Literal["text", "binary", "large", "none"]
    diff: TextDiff
    before: str | None
    after: str | None
    old_size: int | None = None
    new_size: int | None = None
    old_mode: int | None = None
    new_mode: int | None = None
    link_target: str | None = None
    hazards: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    truncated: bool = False
    is_stale: bool = False
    old_type: str = ""
    new_type: str = ""
    old_image: Image | None = None
    new_image: Image | None = None
    may_choose: bool = False
    flags: Flags = Flags()
    layout: Layout = Layout()
    # A short remark about the file, which asks for nothing.
    mark: str = ""
    # For a swap: a card for each change below the path, and the number of further changes that
    # aren't read here.
    below: tuple["ChangeCard", ...] = ()
    more_below: int = 0


def make_card(
    action: FileChange,
    old: Side | None,
    new: Side | None,
    host_token: str | None,
    redactor: Redactor | None = None,
) -> ChangeCard:
    """Return the card of an action. `old` and `new` are None if there is no file; `host_token`
    names the host's current state. Without a `redactor` only the shapes of secrets are known."""
    notes = [HAZARD_NOTES[hazard] for hazard in action.hazards if hazard in HAZARD_NOTES]
    notes += notes_of_folders(action.folders)
    notes += [note_of_repository(one) for one in action.repositories]
    is_stale = host_token != action.before
    if is_stale:
        # Only the content to which the request is bound is shown, not the host's present content.
        notes.append(
            "the host's file is not as it was when this was asked; it would not be overwritten"
        )
    content, compared, missing = _compare(action, old, new, is_stale)
    shown_old = None if is_stale else old
    is_bytes = content in ("binary", "large")
    return ChangeCard(
        path=action.path,
        operation=action.operation,
        content=content,
        diff=compared,
        before=action.before,
        after=action.after,
        old_size=old.size if old else None,
        new_size=new.size if new else None,
        old_mode=old.mode if old else None,
        new_mode=action.mode,
        link_target=action.link_target,
        hazards=action.hazards,
        notes=(*notes, *missing),
        truncated=content == "large",
        is_stale=is_stale,
        old_type=_type(shown_old) if is_bytes else "",
        new_type=_type(new) if is_bytes else "",
        old_image=_image(shown_old) if is_bytes else None,
        new_image=_image(new) if is_bytes else None,
        may_choose=_may_choose(action, compared, is_stale),
        flags=_flags(shown_old, new, redactor or Redactor(), is_text=content == "text"),
        layout=_layout(shown_old, new) if content == "text" else Layout(),
        mark=mark_of(action),
    )


def note_of_repository(folder: str) -> str:
    """Return a note on a change in a folder that git takes for a repository's own folder."""
    where = "the workspace itself" if folder == WORKSPACE_ITSELF else folder
    return f"git takes {where} for a repository's own folder: what is in there can run programs"


def _may_choose(action: FileChange, compared: TextDiff, is_stale: bool) -> bool:
    """Return whether there is more than one answer to give."""
    if is_stale or action.operation not in ("write", "edit") or action.before is None:
        return False
    return len(compared.hunks) > 1


def _flags(old: Side | None, new: Side | None, redactor: Redactor, *, is_text: bool) -> Flags:
    data = new.data if new is not None else None
    before = (old.data if old is not None else None) or b""
    return Flags() if data is None else flags_of(before, data, redactor, is_text=is_text)


def _layout(old: Side | None, new: Side | None) -> Layout:
    data = new.data if new is not None else None
    return (
        Layout()
        if data is None
        else layout_of((old.data if old is not None else None) or b"", data)
    )


def _type(side: Side | None) -> str:
    return "" if side is None or side.data is None else type_of(side.data)


def _image(side: Side | None) -> Image | None:
    return (
        None
        if side is None or side.data is None or side.size is None
        else image_of(side.data, side.size)
    )


def _compare(
    action: FileChange, old: Side | None, new: Side | None, is_stale: bool
) -> tuple[Literal["text", "binary", "large", "none"], TextDiff, tuple[str, ...]]:
    if is_stale:
        old = None
    if action.after == "dir" or (old is None and new is None):
        return "none", TextDiff(), ()
    for side in (old, new):
        if side is not None and side.data is None:
            return "large", TextDiff(too_large=True), ("the content is no longer kept",)
        if side is not None and len(side.data or b"") > MOST_TEXT_BYTES:
            return "large", TextDiff(too_large=True), ()
    if new is not None and new.data is not None and content_hash(new.data) != action.after:
        return "large", TextDiff(too_large=True), ("the snapshot of this request is damaged",)
    compared = diff(old.data or b"" if old else b"", new.data or b"" if new else b"")
    return (
        ("binary" if compared.binary else "large" if compared.too_large else "text"),
        compared,
        (),
    )
