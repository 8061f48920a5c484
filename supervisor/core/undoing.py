"""What a path held before an effect and after it: pure values, enough to put back what was there.

It is separate because the journal, apply and undo must mean the same by "as it was". It must never call two states
equal that a person would see as different: content, link target and permissions all count.
"""

import base64
import os
import stat

import msgspec

from supervisor.core.changes import Kind, Seen, link_token


class Held(msgspec.Struct, frozen=True, array_like=True):
    """What was at a path. `target` is base64, so that any bytes survive; `mtime_ns` 0 and `uid` -1: not known.

    `mode` is what stat gives but for the kind: set-id bits are in it.
    """

    kind: Kind
    mode: int
    digest: str | None = None
    target: str | None = None
    mtime_ns: int = 0
    uid: int = -1

    @property
    def token(self) -> str:
        """As `Seen.token`."""
        if self.kind == "file":
            return self.digest or ""
        return link_token(self.link_target) if self.kind == "symlink" else self.kind

    @property
    def link_target(self) -> str:
        """Where a symlink points to, as the file system names it."""
        return os.fsdecode(base64.b64decode(self.target or ""))


def held_of(seen: Seen | None, uid: int = -1) -> Held | None:
    """What a look found, as a value that a journal can keep."""
    if seen is None:
        return None
    target = None if seen.target is None else _encoded(seen.target)
    return Held(seen.kind, seen.mode, seen.digest, target, seen.signature[1], uid)


def held_link(target: str) -> Held:
    """A symlink with this target."""
    return Held("symlink", 0o777, None, _encoded(target))


def is_as(seen: Seen | None, held: Held | None) -> bool:
    """Whether a path holds this: kind, content, target and permissions. Times and what is in a folder don't count."""
    if seen is None or held is None:
        return seen is None and held is None
    if seen.kind != held.kind or seen.token != held.token:
        return False
    return seen.kind == "symlink" or stat.S_IMODE(seen.mode) == stat.S_IMODE(held.mode)


def _encoded(target: str) -> str:
    return base64.b64encode(os.fsencode(target)).decode()
