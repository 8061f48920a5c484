"""Three-way comparison of a path, and edits of text.

A path is compared three ways: `known` (what host and copy last agreed on), `mine` (the agent's copy
now) and `host` (now). Comparing states instead of replaying events makes a lost or doubled event
harmless (law 8), and separates "the agent changed it" from "the person changed it on the host",
which sync must never undo.

It is pure, so that it can be tested without a file system. It must never mistake a host change for
one of the agent's, and never show a diff other than the one that would be applied.
"""

import base64
import os
import stat
from collections.abc import Sequence
from typing import Literal

import msgspec

from supervisor.core.actions import FileChange, FileOperation, content_hash

Kind = Literal["file", "dir", "symlink", "fifo", "socket", "device"]
# Size, mtime_ns, ctime_ns, inode, st_mode: if they are equal, nothing was changed in between. An
# agent can set a modification time at will, but not the change time.
Signature = tuple[int, int, int, int, int]
SPECIAL: tuple[Kind, ...] = ("fifo", "socket", "device")
PERMISSIONS = 0o777
# What the most generous usual umask (002) leaves a new file or folder; and what others may do with
# one: a folder's execute bits let them reach what is in it.
_MOST_OF_UMASK = {"file": 0o664, "dir": 0o775}
_FOR_OTHERS = {"file": 0o066, "dir": 0o077}
SET_ID = stat.S_ISUID | stat.S_ISGID
# The mode of a folder that is created above a file: set by the umask.
ANY_MODE = -1
# The bits that a folder's owner needs to read and change its entries.
OWNER = 0o700
# Usual modes of a new folder under a umask. Any other mode was set on purpose, for example to keep
# others out.
USUAL_MODES = frozenset((0o755, 0o775, 0o777))
MOST_EDITED_CHARS = 16 << 20


class Known(
    msgspec.Struct, frozen=True, array_like=True, gc=False
):  # many, and never part of a cycle
    """The state of a path on which host and copy last agreed.

    `digest` is `content_hash` of a file; None if it was never needed: it can be read from a side as
    long as that side's signature is unchanged. `mode` is the copy's, and may be ANY_MODE.

    For a folder only permissions count, and each side has its own: the host's are those of
    `host_signature`; without one nobody has looked yet.
    """

    kind: Kind
    mode: int
    digest: str | None = None
    target: str | None = None
    host_signature: Signature | None = None
    copy_signature: Signature | None = None


class Seen(msgspec.Struct, frozen=True, gc=False):
    """A path's state now, on one side. `digest` is set for every file that is compared. `is_anew`:
    a folder that was made in the copy after both sides agreed on a folder there, so its permissions
    come from its maker's umask."""

    kind: Kind
    mode: int
    signature: Signature
    digest: str | None = None
    target: str | None = None
    links: int = 1
    uid: int = -1
    gid: int = -1
    is_anew: bool = False

    @property
    def token(self) -> str:
        """Return this state's name in `before` and `after`. Kinds never share a token."""
        if self.kind == "file":
            assert self.digest is not None
            return self.digest
        return link_token(self.target or "") if self.kind == "symlink" else self.kind


class Want(msgspec.Struct, frozen=True):
    """The change that would bring the host to the copy's state."""

    operation: FileOperation
    before: str | None
    after: str | None = None
    mode: int | None = None
    link_target: str | None = None
    hazards: tuple[str, ...] = ()

    @property
    def never(self) -> bool:
        """Return whether nobody can approve this: only files, folders and symlinks leave the
        copy."""
        return any(kind in self.hazards for kind in SPECIAL)


def link_token(target: str) -> str:
    """Return the token of a symlink with this target, for `before` and `after`. Never equal to a
    file's hash."""
    return f"symlink:{content_hash(os.fsencode(target))}"


def is_content(token: str) -> bool:
    """Return whether a state's name stands for a file's content, not for a folder, a link or
    anything else."""
    return token not in ("dir", *SPECIAL) and ":" not in token


def kind_of(mode: int) -> Kind:
    """Return the kind that `st_mode` names."""
    kinds: dict[int, Kind] = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "dir",
        stat.S_IFLNK: "symlink",
        stat.S_IFIFO: "fifo",
        stat.S_IFSOCK: "socket",
    }
    return kinds.get(stat.S_IFMT(mode), "device")


def signature_of(status: os.stat_result) -> Signature:
    """Return the signature of a stat result."""
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode)


def want(
    known: Known | None, mine: Seen | None, host: Seen | None, *, holds_known: bool = False
) -> Want | None:
    """Return the change that the copy asks of the host for one path, or None.

    `holds_known`: files that both sides once agreed on are below this path, so a folder's own
    change waits for theirs.
    """
    if mine is None:
        if known is None or host is None or (host.kind == "dir" and holds_known):
            return None
        return Want("delete", host.token, hazards=conflict(known, host))
    if agree(known, mine, host) or (known is not None and is_still(mine, known)):
        return None
    return create_or_change(known, mine, host)


def is_usual(mode: int) -> bool:
    """Return whether a new folder's permissions come from its maker's umask alone."""
    return mode & PERMISSIONS in USUAL_MODES


def agree(known: Known | None, mine: Seen, host: Seen | None) -> bool:
    """Return whether both sides hold the same. Two folders agree if nobody chose their permissions,
    even if umask made them differ; from then on a change of permissions counts."""
    if host is None or mine.kind != host.kind or mine.kind in SPECIAL:
        return False
    if mine.kind == "dir":
        return (mine.mode ^ host.mode) & PERMISSIONS == 0 or _was_not_looked_at(known, mine)
    if mine.kind == "symlink":
        return mine.target == host.target
    return mine.digest == host.digest and mine.mode & (PERMISSIONS | SET_ID) == host.mode & (
        PERMISSIONS | SET_ID
    )


def _was_not_looked_at(known: Known | None, mine: Seen) -> bool:
    if known is None or known.kind != "dir":
        return is_usual(mine.mode)
    return known.host_signature is None and is_still(mine, known)


def is_still(mine: Seen, known: Known) -> bool:
    """Return whether the copy is unchanged since both sides agreed."""
    if mine.signature == known.copy_signature:
        return True
    if mine.kind != known.kind or mine.kind in SPECIAL:
        return False
    if mine.kind == "dir":
        return known.mode == mine.mode & PERMISSIONS or _is_by_umask(mine, known)
    if mine.kind == "symlink":
        return mine.target == known.target
    # A set-id bit never reaches the host. Once a person has seen it, `known.mode` has it, which is
    # enough.
    bit_is_known = not mine.mode & SET_ID or known.mode & SET_ID
    return (
        mine.digest == known.digest
        and (mine.mode ^ known.mode) & PERMISSIONS == 0
        and bool(bit_is_known)
    )


def _is_by_umask(mine: Seen, known: Known) -> bool:
    """Return whether a folder's permissions differ only because it is a new folder, or nobody has
    looked yet."""
    if known.mode == ANY_MODE and known.host_signature is None:
        return True
    return is_usual(mine.mode) and (mine.is_anew or known.mode == ANY_MODE)


def create_or_change(known: Known | None, mine: Seen, host: Seen | None) -> Want:
    """Return the change that gives the host the copy's state of a path. A folder that replaces
    something else, or the reverse, is a swap, with everything below it (`swaps`)."""
    wanted = _make(known, mine, host)
    return (
        msgspec.structs.replace(wanted, operation="swap") if _is_in_place_of(mine, host) else wanted
    )


def may_swap(known: Known | None, mine: Seen | None, host: Seen | None) -> bool:
    """Return whether `want` is a swap, without computing a digest. So a file that the agent puts in
    the place of the person's folder counts as changed as soon as its signature differs."""
    if mine is None or not _is_in_place_of(mine, host):
        return False
    if known is not None and mine.kind == known.kind == "file":
        return mine.signature != known.copy_signature
    return known is None or not is_still(mine, known)


def _is_in_place_of(mine: Seen, host: Seen | None) -> bool:
    return (
        host is not None
        and mine.kind not in SPECIAL
        and (host.kind == "dir") != (mine.kind == "dir")
    )


def _make(known: Known | None, mine: Seen, host: Seen | None) -> Want:
    before = host.token if host else None
    changed_there = conflict(known, host, mine)
    if mine.kind in SPECIAL:
        return Want("write", before, hazards=(mine.kind, *changed_there))
    if mine.kind == "symlink":
        return Want(
            "symlink",
            before,
            mine.token,
            link_target=mine.target,
            hazards=("symlink", *changed_there),
        )
    mode = mine.mode & PERMISSIONS
    replaces_link = ("symlink",) if host is not None and host.kind == "symlink" else ()
    if mine.kind == "dir":
        return Want(
            "chmod" if host else "mkdir",
            before,
            "dir",
            mode,
            hazards=(*replaces_link, *_wider(mine, host), *changed_there),
        )
    same_content = host is not None and host.kind == "file" and host.digest == mine.digest
    was_executable = host is not None and host.kind == "file" and host.mode & 0o111
    hazards = (
        *(("hardlink",) if mine.links > 1 else ()),
        *replaces_link,
        *(("setuid",) if mine.mode & SET_ID else ()),
        *(("new-executable",) if mode & 0o111 and not was_executable else ()),
        *_wider(mine, host),
        *changed_there,
    )
    return Want("chmod" if same_content else "write", before, mine.token, mode, hazards=hazards)


def _wider(mine: Seen, host: Seen | None) -> tuple[str, ...]:
    return ("wider",) if is_wider("dir" if mine.kind == "dir" else "file", mine.mode, host) else ()


def is_wider(kind: Literal["file", "dir"], mode: int, host: Seen | None) -> bool:
    """Return whether others than the owner gain rights by these permissions; for a new file or
    folder, whether everybody may write it."""
    had = host.mode if host is not None and host.kind == kind else _MOST_OF_UMASK[kind]
    return bool(mode & _FOR_OTHERS[kind] & ~had)


def conflict(known: Known | None, host: Seen | None, mine: Seen | None = None) -> tuple[str, ...]:
    """Return the hazard `conflict` if the person changed the path on the host since both sides last
    agreed.

    If the agreed content is unknown, equal content on both sides is no conflict.
    """
    if known is None:
        return ("conflict",) if host is not None else ()
    if host is None or host.kind != known.kind:
        return ("conflict",)
    if host.kind == "dir":
        before = known.host_signature
        return ("conflict",) if before is not None and (before[4] ^ host.mode) & PERMISSIONS else ()
    if host.kind == "symlink":
        return () if host.target == known.target else ("conflict",)
    if host.signature == known.host_signature and known.digest in (None, host.digest):
        return ()
    base = mine.digest if known.digest is None and mine is not None else known.digest
    same = base is not None and host.digest == base and (host.mode ^ known.mode) & PERMISSIONS == 0
    return () if same else ("conflict",)


# --- names ---------------------------------------------------------------------------------------


def to_action(name: str, wanted: Want) -> FileChange:
    """Return the action for a path as the system names it (`name`: surrogate escapes stand for
    bytes that aren't UTF-8)."""
    shown, encoded = name_fields(name)
    return FileChange(
        operation=wanted.operation,
        path=shown,
        path_b64=encoded,
        before=wanted.before,
        after=wanted.after,
        mode=wanted.mode,
        link_target=None if wanted.link_target is None else name_fields(wanted.link_target)[0],
        hazards=wanted.hazards,
    )


def name_fields(name: str) -> tuple[str, str | None]:
    """Return the `path` and `path_b64` of an action for a name of the file system."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raw = os.fsencode(name)
        return raw.decode("utf-8", "backslashreplace"), base64.b64encode(raw).decode()
    return name, None


def is_text(name: str) -> bool:
    """Return whether a name of the file system is UTF-8, as a link's target must be."""
    return name_fields(name)[1] is None


def name_of(action: FileChange) -> str:
    """Return the file system's name for an action's path. Raise ValueError for a broken
    `path_b64`."""
    return _name(action.path, action.path_b64)


def _name(shown: str, encoded: str | None) -> str:
    return shown if encoded is None else os.fsdecode(base64.b64decode(encoded, validate=True))


def rename_of(old: str, new: str, token: str, hazards: tuple[str, ...] = ()) -> FileChange:
    """Return the action that renames a path if it holds `token`. Names are as in `to_action`."""
    shown, encoded = name_fields(old)
    to, to_encoded = name_fields(new)
    return FileChange(
        operation="rename",
        path=shown,
        path_b64=encoded,
        to=to,
        before=token,
        after=token,
        hazards=hazards,
        to_b64=to_encoded,
    )


def names_of(action: FileChange) -> tuple[str, ...]:
    """Return the names of every path that an action changes: two for a rename, all of them for a
    swap."""
    below = [_name(step.path, step.path_b64) for step in action.steps]
    to = [] if action.to is None else [_name(action.to, action.to_b64)]
    return (name_of(action), *to, *below)


# --- edits ---------------------------------------------------------------------------------------


# An edit: old text, new text, whether to replace every occurrence.
type Edit = tuple[str, str, bool]


class EditError(ValueError):
    """An edit that doesn't fit the text; the message says why, for the agent."""


def apply_edit(text: str, old: str, new: str, replace_all: bool = False) -> str:
    """Return `text` with `old` replaced by `new`, all or nothing. Raise EditError.

    `old` must be there exactly once, or at least once with `replace_all`. Overlapping occurrences
    count as several, because which one was meant can't be known. The size of the result is checked
    before it is built: replacing a short text by a long one many times must not fill the memory.
    """
    if not old:
        raise EditError("the old text is empty")
    if old == new:
        raise EditError("the old and the new text are the same")
    first = text.find(old)
    if first < 0:
        raise EditError("the old text isn't in the file")
    number = text.count(old) if replace_all else 1
    if len(text) + number * (len(new) - len(old)) > MOST_EDITED_CHARS:
        raise EditError(
            f"the file would have more than {MOST_EDITED_CHARS >> 20} million characters"
        )
    if replace_all:
        return text.replace(old, new)
    if text.find(old, first + 1) >= 0:
        raise EditError(
            "the old text is in the file more than once; give more of its surroundings, or use"
            " replace_all"
        )
    return text[:first] + new + text[first + len(old) :]


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Apply edits in order, all or none. Raise EditError."""
    for number, edit in enumerate(edits, 1):
        try:
            text = apply_edit(text, *edit)
        except EditError as error:
            if len(edits) == 1:
                raise
            raise EditError(f"edit {number} of {len(edits)}: {error}") from error
    return text
