"""Keep owner, group and access list of a replaced file, as far as we may.

INVARIANT: nobody gets more than the file's permissions say. Where the group or the list can't be
kept, group and all others keep only the rights that both had, so that one group's rights never go
to another.
"""

import contextlib
import errno
import os
import stat

from supervisor.core.files.changes import Seen

_LIST = "system.posix_acl_access"
_NO_LIST = (errno.ENODATA, errno.ENOTSUP)
_OTHERS = 0o7


def keep_access(
    writing: int, mode: int, host: Seen | None, place: tuple[int, str], gid: int = -1
) -> int:
    """Give the new file the access of the file that it replaces at `place` (folder and leaf), if
    there is one. Return the permissions that it may have. `mode` was meant for the group `gid` if
    that is known, else for the present file's group."""
    has_list = True
    if host is not None and host.kind == "file":
        has_list = _keep_list(writing, *place)
        _own(writing, host.uid, host.gid)
        _own(writing, -1, host.gid)
        gid = gid if gid >= 0 else host.gid
    else:
        _own(writing, -1, gid)
    has_group = gid < 0 or os.fstat(writing).st_gid == gid
    return mode if has_list and has_group else closed(mode)


def closed(mode: int) -> int:
    """Return permissions that mean the same for any group: only rights that both the group and all
    others had."""
    both = mode & mode >> 3 & _OTHERS
    return mode & ~(0o077 | stat.S_ISGID) | both << 3 | both


def _own(writing: int, uid: int, gid: int) -> None:
    made = os.fstat(writing)
    if uid in (-1, made.st_uid) and gid in (-1, made.st_gid):
        return
    with contextlib.suppress(OSError):
        os.fchown(writing, uid, gid)


def _keep_list(writing: int, folder: int, leaf: str) -> bool:
    """Copy a file's access list, or its lack of one where its folder gives new files one. Return
    False where that isn't possible."""
    try:
        held = os.getxattr(f"/proc/self/fd/{folder}/{leaf}", _LIST, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LIST:
            return False
        with contextlib.suppress(OSError):
            os.removexattr(writing, _LIST)
        return True
    try:
        os.setxattr(writing, _LIST, held)
    except OSError:
        return False
    return True
