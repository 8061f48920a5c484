"""Check whether an overlay can stand for a workspace: its file system and owner.

The reasons are the kernel's and the file systems', not ours. It must never say yes to a file system
whose change times come from another machine's clock: they tell what the session began with.
"""

import ctypes
import os
from pathlib import Path

# statfs(2), linux/magic.h: local file systems whose change times are this kernel's. All can be an
# overlay's lower one.
LOCAL = {
    0xEF53: "ext4",
    0x58465342: "XFS",
    0x9123683E: "Btrfs",
    0x01021994: "tmpfs",
    0xF2F52010: "F2FS",
    0xCA451A4E: "bcachefs",
    0x2FC12FC1: "ZFS",
    0x794C7630: "overlayfs",
}
_STATFS_WORDS = 32
_libc = ctypes.CDLL(None, use_errno=True)


def why_unfit(workspace: Path, folder: Path) -> str:
    """Return why an overlay in `folder` can't stand for the workspace; empty where nothing speaks
    against trying."""
    if folder.resolve().is_relative_to(workspace):
        return "the data folder lies in it (set GATEHOUSE_DATA to another place)"
    if workspace.is_relative_to(folder.resolve()):
        return "it lies in the session's own folder"
    if workspace.stat().st_uid != os.geteuid():
        return (
            "it belongs to another user than the one that Gatehouse runs as, so the agent could"
            " change nothing"
        )
    kind = kind_of(workspace)
    if kind not in LOCAL:
        return (
            f"its file system (type 0x{kind:x}) isn't a local one that is known to keep exact"
            " change times"
        )
    return ""


def kind_of(path: Path) -> int:
    """Return the type that statfs(2) gives, which Python's own `statvfs` leaves out."""
    words = (ctypes.c_long * _STATFS_WORDS)()
    if _libc.statfs(os.fsencode(path), ctypes.byref(words)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    return words[0] & 0xFFFFFFFF
