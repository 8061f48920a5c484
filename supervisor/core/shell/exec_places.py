"""Working folders of commands, and operands that certainly stay in the workspace.

Decides where `cd DIR` is free, and what the last word `{workspace}` of a rule covers (`exec(rm
{workspace})`: any further arguments, none of which can name anything outside). It looks at names
alone; the sandbox stops links that lead out. It must never count a folder or word as inside if an
expansion, a pattern or `..` could lead out.
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Sequence

from supervisor.core.shell.shell import Command
from supervisor.core.shell.shell_words import Word

# A part of a pattern that may turn out to be `..` (`.*` and `.?` find it, a wildcard in front never
# finds a dot), or an expansion.
_CLIMBS = re.compile(r"(?:\A|[/,{])\.[.*?\[{]|[$`]")


def outside_words(
    words: Sequence[Word], places: Collection[str], roots: Sequence[str]
) -> frozenset[int]:
    """Return the positions (from 1) of the words that may name the workspace itself or something
    outside it.

    `places`: every folder that the command may run in.
    """
    if not places or not all(within(place, roots) for place in places):
        return frozenset(range(1, len(words)))
    return frozenset(i for i in range(1, len(words)) if not _is_inside(words[i], roots))


def _is_inside(word: Word, roots: Sequence[str]) -> bool:
    if word.is_literal:
        return ".." not in re.split("[/=]", word.text) and _lies_inside(word.text, roots)
    if not word.globs or word.splits or _CLIMBS.search(word.raw) or _CLIMBS.search(word.text):
        return False
    if not word.prefix:
        # Only a wildcard at the start, which finds names in the current folder. A brace could hold
        # a path of any kind.
        return word.raw[:1] in ("*", "?", "[") and "{" not in word.raw
    return _lies_inside(f"{word.prefix}x", roots)


def _lies_inside(path: str, roots: Sequence[str]) -> bool:
    if path.startswith("-"):
        # An option may hold a path after `=` or right after its letter.
        return "/" not in path and "~" not in path
    if path.startswith("/"):
        return _below(posixpath.normpath(path), roots)
    return not path.startswith("~") and (not path or posixpath.normpath(path) != ".")


def _below(path: str, roots: Sequence[str]) -> bool:
    return any(path.startswith(root.rstrip("/") + "/") for root in roots)


def normal(roots: tuple[str, ...]) -> tuple[str, ...]:
    """Return the roots in the form in which folders are compared with them."""
    return tuple([posixpath.normpath(root) for root in roots])


def join(base: str, path: str) -> str:
    """Return the folder that `path` means when read in folder `base`."""
    return posixpath.normpath(posixpath.join(base, path))


def path_from_root(name: str, place: str, roots: Sequence[str]) -> str | None:
    """Return a program's relative name, used in folder `place`, as a path from the workspace's
    root; None if it isn't below the root."""
    path = join(place, name)
    return "./" + posixpath.relpath(path, roots[0]) if within(path, roots[:1]) else None


def within(path: str, roots: Sequence[str]) -> bool:
    """Return whether the path is one of the roots or below one."""
    for root in roots:  # noqa: SIM110 (asked for every command line: a generator would take longer than the rest)
        if path == root or path.startswith(root.rstrip("/") + "/"):
            return True
    return False


# Commands that change the folder, and wrappers that run one in the same shell.
MOVES = frozenset({"cd", "pushd", "popd"})
_SAME_SHELL = frozenset({"command", "builtin", "time", "noglob"})


_MAY_MOVE = MOVES | _SAME_SHELL


def may_move(commands: Iterable[Command]) -> bool:
    """Return whether any of the commands could change the folder. If none does, they all run in the
    same folder as the first."""
    for command in commands:  # noqa: SIM110 (asked for every command line)
        if command.words[0].text in _MAY_MOVE:
            return True
    return False


class Places:
    """Every folder that a script may be in at some point. `cd DIR` is free only if it surely stays
    inside.

    `sure` is the folder after an unbroken chain of `&&`; `maybe` are all folders that were ever
    possible. This looks at names only: the sandbox handles links that lead out of the workspace.
    """

    def __init__(self, start: Iterable[str], roots: Sequence[str]) -> None:
        self.roots = roots
        self.sure = set(start)
        self.maybe = set(self.sure)

    def get_lost(self) -> None:
        """Record that the script may be anywhere from here on."""
        self.maybe.add("/")
        self.sure.add("/")

    def before(self, command: Command) -> None:
        """Record that `command` comes next."""
        if not command.is_joined:
            self.sure = set(self.maybe)

    def is_free(self, command: Command) -> bool:
        """Return whether the command is a `cd` that surely stays inside, and record where it
        leads."""
        words = command.words
        if words[0].text != "cd" or not words[0].is_literal:
            if words[0].text in MOVES or (
                words[0].text in _SAME_SHELL and any(word.text in MOVES for word in words)
            ):
                self.get_lost()
            return False
        self.before(command)
        target = words[-1]
        is_plain = len(words) == 2 or (len(words) == 3 and words[1].text in ("--", "-P", "-L"))
        if not is_plain or not target.is_literal or not target.text or target.text[0] in "-~":
            self.get_lost()
            return False
        if command.in_loop and ".." in target.text.split("/"):
            self.get_lost()
            return False
        places = {join(place, target.text) for place in self.sure}
        if len(places) + len(self.maybe) > 50:
            self.get_lost()
            return False
        if not all(within(place, self.roots) for place in places):
            self.get_lost()
            self.maybe |= places
            self.sure |= places
            return False
        self.maybe |= places
        self.sure = places
        return True
