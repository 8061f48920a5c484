"""Replace or move a file without losing a last-moment save.

rename(2) over a path destroys whatever has that name at that moment, however recently it was
checked. renameat2(2) with RENAME_EXCHANGE destroys nothing: a file that the person saved in between
comes out under the temporary name, and is swapped back. A move goes only to a free name. It must
never leave the person's content under a temporary name.

What remains: a program that holds the old file open and writes to it after the swap writes to a
file without a name, as with every save by rename.
"""

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable

_RENAME_NOREPLACE = 1  # linux/fs.h
_RENAME_EXCHANGE = 2
# Errors of kernels and file systems without it (NFS, FUSE, some network file systems).
_NOT_HERE = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}
# File systems without hard links answer link(2) with one of these.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
# Each further round needs another save by somebody else between two system calls.
_MOST_ROUNDS = 8
_PIN = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

# Returns whether this name in the folder, with this stat, is the file to be replaced.
type Expected = Callable[[str, os.stat_result], bool]

_renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
_renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)


def replace(folder: int, temporary: str, leaf: str, is_expected: Expected) -> bool:
    """Rename the finished `temporary` to `leaf`, if the expected file is there. Return whether it
    was.

    Afterwards the old file is under the temporary name, for the caller to remove; after False it is
    our own file again. Where the file system can't swap, the old file is checked right before it is
    renamed over. Raise OSError, or FileNotFoundError where nothing has the name any more.
    """
    pin = os.open(temporary, _PIN, dir_fd=folder)
    try:
        try:
            _exchange(folder, temporary, leaf)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            return _is(is_expected, folder, leaf) and _replace_in_steps(
                folder, temporary, leaf, is_expected
            )
        if _is(is_expected, folder, temporary):
            return True
        _give_back(folder, temporary, leaf, os.fstat(pin).st_ino)
        return False
    finally:
        os.close(pin)


def _is(expected: Expected, folder: int, leaf: str) -> bool:
    return expected(leaf, os.stat(leaf, dir_fd=folder, follow_symlinks=False))


def aside_of(temporary: str, leaf: str) -> str:
    """Return a visible, unused name beside `leaf`, for a file that can't have that name."""
    return leaf + temporary


def _replace_in_steps(folder: int, temporary: str, leaf: str, is_expected: Expected) -> bool:
    """Replace without a swap. A file replaces a file in one step, so that a reader sees one of
    them; a save at that moment is lost. A folder and a file can't replace each other: there the old
    one is moved aside first, so nothing unchecked is replaced. INVARIANT: after a crash between two
    steps the old one has another name, or is on record if it was an empty folder."""
    try:
        os.rename(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder)
    except IsADirectoryError:
        os.rmdir(leaf, dir_fd=folder)
        move_new(folder, temporary, folder, leaf)
    except NotADirectoryError:
        return _make_room(folder, temporary, leaf, is_expected)
    return True


def _make_room(folder: int, temporary: str, leaf: str, is_expected: Expected) -> bool:
    """Put our folder in the place of a file or a link, which is moved aside first."""
    aside = aside_of(temporary, leaf)
    os.rename(leaf, aside, src_dir_fd=folder, dst_dir_fd=folder)
    is_same = _is(is_expected, folder, aside)
    if is_same:
        try:
            os.rename(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder)
        except NotADirectoryError:  # saved once more in that instant
            is_same = False
        else:
            os.rename(aside, temporary, src_dir_fd=folder, dst_dir_fd=folder)
            return True
    with contextlib.suppress(
        FileExistsError
    ):  # where there is a newer one the older keeps the name that it has
        move_new(folder, aside, folder, leaf)
    return False


def discard(folder: int, leaf: str) -> None:
    """Remove a file, a link or an empty folder. Raise OSError."""
    try:
        os.unlink(leaf, dir_fd=folder)
    except IsADirectoryError:
        os.rmdir(leaf, dir_fd=folder)


def drop_folder(folder: int, temporary: str, leaf: str, is_ours: Expected) -> bool:
    """Remove the folder that was swapped out for our own file. If something was put into it in the
    last moment, it gets its name back. If somebody has saved a file there by then, that stays, and
    the folder gets a visible name beside it."""
    try:
        os.rmdir(temporary, dir_fd=folder)
    except FileNotFoundError:
        return True  # gone already: there was no swap of the two
    except OSError:
        if not _swapped_back(folder, temporary, leaf, is_ours):
            move_new(folder, temporary, folder, aside_of(temporary, leaf))
        return False
    return True


def _swapped_back(folder: int, temporary: str, leaf: str, is_ours: Expected) -> bool:
    try:
        return replace(folder, temporary, leaf, is_ours)
    except FileNotFoundError:  # somebody took our own file away
        move_new(folder, temporary, folder, leaf)
        return True


def _give_back(folder: int, temporary: str, leaf: str, ours: int) -> None:
    """Swap until the temporary name is gone, or our own file, which is pinned, has it again."""
    with contextlib.ExitStack() as pins:
        older = None
        for _ in range(_MOST_ROUNDS):
            given = _pinned(folder, temporary, pins)
            try:
                _exchange(folder, temporary, leaf)
            except (
                FileNotFoundError
            ):  # somebody took our own file away, or is about to save once more
                with contextlib.suppress(FileExistsError):
                    move_new(folder, temporary, folder, leaf)
                    break
                continue
            if _pinned(folder, temporary, pins) in (ours, older):
                break
            # Another save came in between: it came out, and is the newest. It goes back in place of
            # the older one.
            older = given


def _pinned(folder: int, name: str, pins: contextlib.ExitStack) -> int:
    """Return the inode number, and keep the file open: the number isn't reused meanwhile."""
    fd = os.open(name, _PIN, dir_fd=folder)
    pins.callback(os.close, fd)
    return os.fstat(fd).st_ino


def link_new(folder: int, temporary: str, leaf: str) -> None:
    """Give our finished file its name. Raise FileExistsError where something has that name by now.

    On a file system with neither hard links nor a non-replacing rename, a file saved there at that
    moment is replaced.
    """
    try:
        os.link(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _move_without_link(folder, temporary, leaf)
    else:
        os.unlink(temporary, dir_fd=folder)


def _move_without_link(folder: int, temporary: str, leaf: str) -> None:
    try:
        _rename(folder, temporary, folder, leaf, _RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
        os.rename(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder)


def move_new(folder: int, leaf: str, to_folder: int, to_leaf: str) -> None:
    """Give a file another name, perhaps in another folder. Raise FileExistsError where something
    has that name.

    Where the file system can't do it in one step, the file has both names for a moment, and after a
    crash permanently.
    """
    try:
        _rename(folder, leaf, to_folder, to_leaf, _RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
        os.link(leaf, to_leaf, src_dir_fd=folder, dst_dir_fd=to_folder, follow_symlinks=False)
        os.unlink(leaf, dir_fd=folder)


def _exchange(folder: int, one: str, other: str) -> None:
    _rename(folder, one, folder, other, _RENAME_EXCHANGE)


def _rename(folder: int, one: str, other_folder: int, other: str, flags: int) -> None:
    if _renameat2(folder, os.fsencode(one), other_folder, os.fsencode(other), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), other)
