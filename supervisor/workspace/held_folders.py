"""The folders that temporary files were made in, held open until each file is placed or removed.

A person may move a folder away in the middle of an effect: its path leads nowhere then, or to another folder, but the
descriptor is still of this one. It is separate from `placing` because it knows no paths. It must never remove anything but a
temporary file that was made here.
"""

import contextlib
import os

from supervisor.workspace.swap import discard

# Of more folders at once the rest is found by their paths alone: the supervisor has other uses for descriptors.
MOST_HELD = 200

type _Folder = tuple[int, int]


class HeldFolders:
    """Of one side. Blocking: call it in a thread, one at a time. Nothing is held once no temporary file is left."""

    def __init__(self) -> None:
        self._fds: dict[_Folder, int] = {}
        self._folders: dict[str, _Folder] = {}

    def keep(self, temporary: str, fd: int) -> None:
        """A temporary file is in the folder of this descriptor, which is this object's from now on."""
        status = os.fstat(fd)
        folder = (status.st_dev, status.st_ino)
        if folder in self._fds or len(self._fds) >= MOST_HELD:
            os.close(fd)
        else:
            self._fds[folder] = fd
        if folder in self._fds:
            self._folders[temporary] = folder

    def forget(self, temporary: str) -> None:
        """The temporary name is gone."""
        self._folders.pop(temporary, None)
        self._close_if_unused()

    def remove(self, temporary: str) -> bool:
        """Remove the file, wherever its folder is by now; False where the folder isn't held."""
        folder = self._folders.pop(temporary, None)
        if folder is None:
            return False
        with contextlib.suppress(OSError):  # it is gone with its folder, or can't be: the next start tries again
            discard(self._fds[folder], temporary)
        self._close_if_unused()
        return True

    def clear(self) -> None:
        """Remove every file that is left."""
        for temporary in list(self._folders):
            self.remove(temporary)

    def _close_if_unused(self) -> None:
        if self._folders:
            return
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
