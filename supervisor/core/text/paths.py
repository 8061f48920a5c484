"""Workspace paths: canonical spelling, refused paths, and hazards to look at.

Decides from the bytes of a name alone; nothing here looks at a disk (the code that opens a path
checks symlinks: law 4). It must never resolve `..`: a path that holds one is refused, because its
meaning depends on links that this module can't see.
"""

import base64
import binascii
import re
import unicodedata
from functools import lru_cache

import msgspec

from supervisor.core.text.display import first_hidden

MAX_PATH_CHARS = 4096
# Most paths match this: ASCII names, none of them `.`, `..` or empty.
_PLAIN = re.compile(r"(?:\.?[A-Za-z0-9_+@][A-Za-z0-9_.+@-]*/)*\.?[A-Za-z0-9_+@][A-Za-z0-9_.+@-]*\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")
# Code points that HFS+ ignores in names (the list of git's `is_hfs_dotgit`), and a few more
# invisible ones.
_IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0]"
)
# NTFS short names of `.git` (git's `is_ntfs_dotgit`).
_SHORT_GIT = re.compile(r"git~[0-9]+\Z")


class WorkspacePath(msgspec.Struct, frozen=True):
    """A canonical path: relative, `/`-separated, without `.` or empty segments.

    `is_odd` says why no rule may allow it (a name that isn't UTF-8 or that holds control
    characters); empty for all others. `folded` is what deny and ask rules also compare: it is the
    same for all spellings that some file system treats as one name.
    """

    text: str
    is_odd: str = ""

    @property
    def folded(self) -> str:
        return fold(self.text)


def canonical(path: str, path_b64: str | None = None) -> WorkspacePath:
    """Return the canonical path. Raise `ValueError` (a complete reason) for a path that leaves the
    workspace, or isn't a path. `path_b64` takes precedence if given."""
    if path_b64 is None and _PLAIN.match(path) and len(path) <= MAX_PATH_CHARS:
        return WorkspacePath(path)
    odd = ""
    if path_b64 is not None:
        try:
            data = base64.b64decode(path_b64, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("`path_b64` is not base64") from None
        path = data.decode("utf-8", "surrogateescape")
    if len(path) > MAX_PATH_CHARS:
        raise ValueError("the path is too long")
    if "\x00" in path:
        raise ValueError("the path holds a NUL")
    if path.startswith("/"):
        raise ValueError(f"`{shown(path)}` is absolute, so it leaves the workspace")
    if _SURROGATE.search(path):
        odd = "a name that isn't UTF-8"
    elif first_hidden(path) is not None:
        odd = "a name with control or invisible characters"
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    if ".." in segments:
        raise ValueError(f"`{shown(path)}` holds `..`, so it could leave the workspace")
    if not segments:
        raise ValueError(
            "the path is empty" if not path else "the workspace itself can't be changed"
        )
    return WorkspacePath("/".join(segments), odd)


def leaves(path: str, link_target: str) -> bool:
    """Return whether a symlink at canonical `path` with this target points out of the workspace,
    judged by its text alone.

    `..` counts only at the beginning of a target, since all parents in `path` are real folders;
    after a name, which may be a link itself, nobody can tell where it leads.
    """
    if link_target.startswith("/") or "\x00" in link_target:
        return True
    depth, is_named = path.count("/"), False
    for segment in link_target.split("/"):
        if segment == "..":
            depth -= 1
            if is_named or depth < 0:
                return True
        elif segment not in ("", "."):
            is_named = True
    return False


@lru_cache(maxsize=8192)
def fold(path: str) -> str:
    """Return the path with differences of case, Unicode composition, invisible characters, and
    trailing dots and spaces removed."""
    if (
        path.isascii()
        and ". " not in path
        and not path.endswith((".", " "))
        and "./" not in path
        and " /" not in path
    ):
        return path.lower()
    return "/".join(_fold_name(segment) for segment in path.split("/"))


def _fold_name(name: str) -> str:
    plain = unicodedata.normalize(
        "NFKC", unicodedata.normalize("NFKC", _IGNORED.sub("", name)).casefold()
    )
    # A compatibility form of a slash stays an ordinary character: no file system treats it as a
    # separator.
    if "/" in plain:
        plain = unicodedata.normalize("NFC", name).casefold()
    return plain.rstrip(". ") or plain


def is_git_name(name: str) -> bool:
    """Return whether some file system treats this name as `.git`: case, trailing dots and spaces,
    short names, streams, invisible characters."""
    for part in name.split("\\"):
        plain = _fold_name(part.split(":", 1)[0])
        if plain == ".git" or _SHORT_GIT.match(plain):
            return True
    return False


def shown(path: str) -> str:
    """Return a path for a message: ASCII, at most 200 characters."""
    return path[:200].encode("ascii", "backslashreplace").decode()
