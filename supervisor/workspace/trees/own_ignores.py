"""Parser and matcher of `.gatehouseignore`.

The file names what the agent never gets, and what it gets though git ignores it. Its syntax is
.gitignore's: a file counts for its folder and everything below; the innermost file and the last
line win. It is stronger than any .gitignore and than git's index: a tracked file that it names
stays out, too. A left-out folder is left out completely. A folder named with `!` is included
completely, except what other lines name.

It decides what is copied and synced. It hides nothing: an agent can read the host's folder at
`/workspace/lower` all the same. It must never read an ignore file of the copy, nor through a
symlink.
"""

import os
import re
import unicodedata
from typing import NamedTuple

from supervisor.core.text.globs import GlobStep, ignore_step, steps_fit
from supervisor.workspace.disk.beneath import FILE, PathError, Root, is_regular
from supervisor.workspace.disk.scan import signature_at

FILE_NAME = ".gatehouseignore"
LARGEST_BYTES = 1 << 20
# A file with more patterns leaves everything out: every path is matched against each of them.
MOST_LINES = 2_000


class _Line(NamedTuple):
    """One pattern. `is_anchored`: it matches the path below its file's folder, not a name in any
    folder."""

    steps: tuple[GlobStep, ...]
    leaves_out: bool
    is_anchored: bool
    is_of_folders: bool

    def matches(self, path: list[str], *, is_folder: bool) -> bool:
        """Return whether it matches this very path, not a parent folder."""
        if self.is_of_folders and not is_folder:
            return False
        return steps_fit(self.steps, path if self.is_anchored else path[-1:])


class OwnIgnores:
    """Ignore rules of one host folder, which stays open as long as this is used. Blocking: it reads
    small files, each once."""

    def __init__(self, host: Root) -> None:
        self._host = host
        self._lines: dict[str, list[_Line]] = {}
        self._folders: dict[str, bool | None] = {"": None}

    def forget(self) -> None:
        """Forget the files, which may have changed. May be called while a thread asks: that thread
        continues with what it has read."""
        self._lines, self._folders = {}, {"": None}

    def verdict(self, name: str) -> bool | None:
        """Return whether the path stays out: True if so, False if it belongs whatever git says,
        None where no line matches. A folder's name ends with a slash."""
        name = composed(name)
        path = name.rstrip("/")
        folder = path.rpartition("/")[0]
        above = self._of_folder(folder)
        if above:
            return True
        said = self._said(path, folder, is_folder=name.endswith("/"))
        return above if said is None else said

    def keeps_all(self, folder: str) -> bool:
        """Return whether no line concerns anything directly in a folder, so that its names needn't
        be checked."""
        return self._of_folder(folder) is None and not any(
            self._read(base) for base in _bases(folder)
        )

    def says_to_keep(self) -> bool:
        """Return whether any file read so far has a line that begins with `!`."""
        return any(not line.leaves_out for lines in self._lines.values() for line in lines)

    def _of_folder(self, folder: str) -> bool | None:
        known = self._folders
        if folder not in known:
            known[folder] = self.verdict(f"{folder}/")
        return known[folder]

    def _said(self, path: str, folder: str, *, is_folder: bool) -> bool | None:
        for base in _bases(folder):
            below = (path[len(base) + 1 :] if base else path).split("/")
            for line in reversed(self._read(base)):
                if line.matches(below, is_folder=is_folder):
                    return line.leaves_out
        return None

    def _read(self, folder: str) -> list[_Line]:
        known = self._lines
        if folder not in known:
            text, is_folding = self._text(folder)
            known[folder] = _parse(text, re.IGNORECASE if is_folding else re.NOFLAG)
        return known[folder]

    def _text(self, folder: str) -> tuple[str, bool]:
        """Return the text of a folder's file, and whether names there ignore case."""
        try:
            with self._host.directory(folder) as fd:
                opened = os.open(FILE_NAME, FILE, dir_fd=fd)
        except (OSError, PathError):
            return "", False
        with os.fdopen(opened, "rb") as file:
            status = os.fstat(opened)
            other = signature_at(self._host, f"{folder}/{FILE_NAME.upper()}".removeprefix("/"))
            data = file.read(LARGEST_BYTES) if is_regular(status) else b""
        text = composed(data.decode("utf-8", "surrogateescape").removeprefix("\ufeff"))
        return text, other is not None and other[3] == status.st_ino


def _bases(folder: str) -> list[str]:
    """Return the folder and all its parents, innermost first."""
    found = [folder]
    while folder:
        folder = folder.rpartition("/")[0]
        found.append(folder)
    return found


def composed(name: str) -> str:
    """Return a name in the Unicode form used to compare names and patterns: the forms look the
    same."""
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def _parse(text: str, flags: re.RegexFlag) -> list[_Line]:
    found = [line for one in text.split("\n") if (line := _line(one, flags)) is not None]
    return found if len(found) <= MOST_LINES else [_Line((None,), True, True, False)]


def _line(text: str, flags: re.RegexFlag) -> _Line | None:
    """Parse a line. Return None where git ignores it, too."""
    text = text.removesuffix("\r")
    body = text.rstrip(" ")
    if body != text and (len(body) - len(body.rstrip("\\"))) % 2:
        body += " "  # escaped
    if body.startswith("#"):
        return None
    pattern = body.removeprefix("!")
    is_anchored = "/" in pattern.rstrip("/")
    segments = pattern.removesuffix("/").removeprefix("/").split("/")
    if segments == [""]:
        return None
    if len(segments) > 1 and segments[-1] == "**":
        segments.append("*")  # `a/**` is about what is in `a`, not about `a`
    try:
        steps = tuple(ignore_step(segment, flags) for segment in segments)
    except ValueError:
        return None
    return _Line(steps, pattern is body, is_anchored, pattern.endswith("/"))
