"""Findings of a comparison, and pairs of them that are one renamed file.

A rename is known only with all deletions and creations of a comparison. It must never pair what the
person changed, what has a hazard of its own, or what was asked about as something else and still is
that.
"""

from collections.abc import Callable, Iterable

import msgspec

from supervisor.core.files.changes import PERMISSIONS, SET_ID, Seen, Want
from supervisor.core.files.new_folders import FolderModes
from supervisor.core.files.renames import File, pair


class PathFinding(msgspec.Struct):
    """One examined path: its state on both sides, and the resulting change. `problem`: why it can't
    be carried over. `way`: its new parent folders."""

    name: str
    mine: Seen | None = None
    host: Seen | None = None
    wanted: Want | None = None
    problem: str = ""
    unsteady: bool = False
    way: FolderModes = ()

    @property
    def is_creation(self) -> bool:
        """Return whether it is a new file, with nothing on the host."""
        wanted, mine = self.wanted, self.mine
        return (
            mine is not None
            and mine.kind == "file"
            and wanted is not None
            and wanted.before is None
        )


class Renames:
    """The ends of renames in one comparison. `hold` takes the findings that may be one, deletions
    first; `pairs` returns the pairs.

    `asked(name)` is the other end of the rename that a path was last asked about as; empty where it
    was asked about as something else, None where it wasn't asked about.
    """

    def __init__(self, asked: Callable[[str], str | None]) -> None:
        self._asked = asked
        self._gone: dict[str, File] = {}
        self._made: dict[str, PathFinding] = {}
        self._contents: set[tuple[str, int]] = set()

    @property
    def holds_any(self) -> bool:
        """Return whether a new file may match a held deletion."""
        return bool(self._gone)

    def may_come_from(self, finding: PathFinding) -> bool:
        """Return whether a new file has a deleted file's content: then it needs no snapshot yet."""
        mine = finding.mine
        if mine is None or not finding.is_creation or mine.mode & SET_ID or mine.links > 1:
            return False
        return _file(finding.name, mine).content in self._contents

    def hold(self, finding: PathFinding) -> bool:
        """Return whether it is held back until its other half is known."""
        host, wanted = finding.host, finding.wanted
        if wanted is None or finding.problem or finding.unsteady:
            return False
        if self.may_come_from(finding):
            if self._asked(finding.name) == "":
                return False
            self._made[finding.name] = finding
            return True
        if finding.mine is not None or host is None or host.kind != "file" or host.mode & SET_ID:
            return False
        if wanted.operation != "delete" or wanted.hazards or self._asked(finding.name) == "":
            return False
        file = self._gone[finding.name] = _file(finding.name, host)
        self._contents.add(file.content)
        return True

    def pairs(self) -> list[tuple[str, PathFinding]]:
        """Return each rename's old name, and the finding at the new one. Existing requests stay as
        they are."""
        kept: dict[str, str] = {}
        for name, file in self._gone.items():
            new = self._made.get(self._asked(name) or "")
            if (
                new is not None
                and new.mine is not None
                and _file(new.name, new.mine).content == file.content
            ):
                kept[name] = new.name
        taken = set(kept.values())
        gone = [file for name, file in self._gone.items() if name not in kept]
        made = [
            _file(name, one.mine)
            for name, one in self._made.items()
            if name not in taken and one.mine is not None
        ]
        return [(old, self._made[new]) for old, new in sorted([*kept.items(), *pair(gone, made)])]

    def without(self, pairs: Iterable[tuple[str, PathFinding]]) -> list[str]:
        """Return the names outside these pairs, deletions first and innermost first."""
        taken = {name for old, new in pairs for name in (old, new.name)}
        return [
            name
            for name in (*sorted(self._gone, reverse=True), *sorted(self._made))
            if name not in taken
        ]


def _file(name: str, seen: Seen) -> File:
    return File(name, seen.digest or "", seen.mode & PERMISSIONS)
