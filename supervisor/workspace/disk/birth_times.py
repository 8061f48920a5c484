"""Birth time of a folder by statx(2), which Python has no function for yet.

Only this tells a folder whose permissions changed from one that was deleted and made anew, as git
does it at every checkout: file systems give the new one the old one's inode at once. It must never
follow a symlink.
"""

import ctypes
import struct

from supervisor.workspace.disk.beneath import Root

# statx(2): the flag, the mask of the birth time, and the offsets of mask and time in the answer.
AT_SYMLINK_NOFOLLOW, STATX_BTIME = 0x100, 0x800
_ANSWER_BYTES, _MASK, _BTIME = 256, struct.Struct("=I"), struct.Struct("=80xqI")

_libc = ctypes.CDLL(None, use_errno=True)


def born_ns(root: Root, name: str) -> int | None:
    """Return a path's birth time, in nanoseconds since the epoch; None where the file system
    doesn't say. Raises OSError where the folder above is gone."""
    answer = ctypes.create_string_buffer(_ANSWER_BYTES)
    with root.parent(name) as (fd, leaf):
        path = ctypes.c_char_p(leaf.encode(errors="surrogateescape"))
        if _libc.statx(fd, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, answer):
            return None
    if not _MASK.unpack_from(answer)[0] & STATX_BTIME:
        return None
    seconds, nanoseconds = _BTIME.unpack_from(answer)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
