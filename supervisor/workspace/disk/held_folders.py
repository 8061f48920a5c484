"""Folders of temporary files, held open until each file is placed or removed.

A person may move a folder away in the middle of an effect: its path then leads nowhere, or to
another folder, but the descriptor still leads here. Files prepared later beside these use the same
descriptor; placing opens the path anew, and finds them there or nothing. It is separate from
`placing` because it knows no paths. It must never remove anything but a temporary file that was
made here.
"""

import contextlib
import os

from supervisor.workspace.disk.swap import discard

# Of more folders at once the rest is found by their paths alone: the supervisor has other uses for
# descriptors.
MOST_HELD = 200


class HeldFolders:
    """Held folders of one side. Blocking: call it in a thread, one at a time. Nothing is held once
    no temporary file is left."""

    def __init__(self) -> None:
        self._fds: dict[str, int] = {}
        self._folders: dict[str, str] = {}

    def opened(self, folder: str) -> int | None:
        """Return the descriptor of the folder that had this path when a file was made in it, if it
        is held."""
        return self._fds.get(folder)

    def keep(self, temporary: str, folder: str, fd: int) -> None:
        """A temporary file is in this folder: `fd`, which is this object's from now on, if it
        isn't already."""
        if folder not in self._fds:
            if len(self._fds) >= MOST_HELD:
                os.close(fd)
                return
            self._fds[folder] = fd
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
        with contextlib.suppress(
            OSError
        ):  # it is gone with its folder, or can't be: the next start tries again
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
