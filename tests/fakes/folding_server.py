"""The process that serves such a file system (`folding_files`): names are found as its kind finds
them, all else is passed on.

    python -m tests.fakes.folding_server case FOLDER MOUNTPOINT

It must never be more lenient than those disks: two spellings of one name are never there at once.
"""

import contextlib
import ctypes
import os
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import mfusepy


def _normal(form: Any) -> Callable[[str], str]:
    # A name that isn't UTF-8 has no forms.
    return lambda name: unicodedata.normalize(form, name) if name.isprintable() else name


# How names are compared, and how they are kept.
COMPARED: dict[str, Callable[[str], str]] = {
    "case": str.casefold,
    "apfs": lambda name: _normal("NFD")(_normal("NFD")(name).casefold()),
    "nfc": _normal("NFC"),
    "nfd": _normal("NFD"),
}
KEPT: dict[str, Callable[[str], str]] = {
    "case": str,
    "apfs": str,
    "nfc": _normal("NFC"),
    "nfd": _normal("NFD"),
}


def main(kind: str, source: str, place: str) -> None:
    """Serve until it is unmounted."""
    try:
        Served(
            Files(kind, source),
            place,
            foreground=True,
            nothreads=True,
            fsname=f"folding-{kind}",
            use_ino=True,
        )
    except RuntimeError as error:
        sys.exit(f"mounting failed: {error}")


class Files(mfusepy.Operations):
    """Blocking and one at a time: a look at a name and what follows from it can't be torn apart."""

    use_ns = True

    def __init__(self, kind: str, source: str) -> None:
        self._source = source
        self._compared, self._kept = COMPARED[kind], KEPT[kind]
        self._libc = ctypes.CDLL(None, use_errno=True)

    def init_with_config(self, conn_info: Any, config: Any) -> None:
        if config is not None:
            config.use_ino = 1
            # Nothing is remembered: another spelling of a name may be what was asked for last.
            config.entry_timeout = config.negative_timeout = config.attr_timeout = 0.0

    def _real(self, path: str) -> str:
        """Where it is, or would be."""
        real = self._source
        for part in path.split("/"):
            if part:
                real = os.path.join(real, self._spelt(real, part))
        return real

    def _spelt(self, folder: str, part: str) -> str:
        if not os.path.lexists(os.path.join(folder, part)) or self._compared(part) != part:
            wanted = self._compared(part)
            with contextlib.suppress(OSError):
                for name in os.listdir(folder):
                    if self._compared(name) == wanted:
                        return name
        return self._kept(part)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        status = os.fstat(fh) if fh else os.lstat(self._real(path))
        names = ("mode", "ino", "nlink", "uid", "gid", "size", "blocks", "blksize", "rdev")
        found = {f"st_{name}": getattr(status, f"st_{name}") for name in names}
        return found | {f"st_{name}time": getattr(status, f"st_{name}time_ns") for name in "amc"}

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        with os.scandir(self._real(path)) as listing:
            found = [(entry.name, {"st_ino": entry.inode()}, 0) for entry in listing]
        return [(".", {"st_ino": 1}, 0), ("..", {"st_ino": 1}, 0), *found]

    def access(self, path: str, amode: int) -> int:
        return 0

    def open(self, path: str, flags: int) -> int:
        return os.open(self._real(path), flags & ~os.O_NOFOLLOW)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        flags = fi if isinstance(fi, int) else os.O_CREAT | os.O_RDWR
        return os.open(self._real(path), flags | os.O_CREAT, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(fh or self._real(path), length)
        return 0

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0

    def flush(self, path: str, fh: int) -> int:
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        os.fsync(fh)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._real(path), mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        os.lchown(self._real(path), uid, gid)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        if times is None:
            os.utime(self._real(path), follow_symlinks=False)
        else:
            os.utime(self._real(path), ns=times, follow_symlinks=False)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._real(path), mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._real(path))
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._real(path))
        return 0

    def symlink(self, target: str, source: str) -> int:
        os.symlink(source, self._real(target))
        return 0

    def readlink(self, path: str) -> str:
        return os.readlink(self._real(path))

    def link(self, target: str, source: str) -> int:
        os.link(self._real(source), self._real(target), follow_symlinks=False)
        return 0

    def mknod(self, path: str, mode: int, dev: int) -> int:
        os.mknod(self._real(path), mode, dev)
        return 0

    def rename(self, old: str, new: str, flags: int = 0) -> int:
        one, other = self._real(old), self._real(new)
        if one == other and not flags:  # another spelling of its own name: that is kept from now on
            other = os.path.join(os.path.dirname(one), self._kept(new.rpartition("/")[2]))
        if self._libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), flags):
            raise mfusepy.FuseOSError(ctypes.get_errno())
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._real(path))
        names = (
            "bavail",
            "bfree",
            "blocks",
            "bsize",
            "favail",
            "ffree",
            "files",
            "flag",
            "frsize",
            "namemax",
        )
        return {f"f_{name}": getattr(found, f"f_{name}") for name in names}


class Served(mfusepy.FUSE):
    """The flags of a rename are passed on."""

    def rename_fuse_3(self, old: bytes, new: bytes, flags: int) -> int:
        return self.operations.rename(os.fsdecode(old), os.fsdecode(new), flags)


if __name__ == "__main__":
    main(*sys.argv[1:])
