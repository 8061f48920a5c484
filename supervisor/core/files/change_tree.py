"""Tree of a session's changed files: which need their own look, and exactly what was shown.

A person answers for a folder, or for all, without opening each file. So a digest over the ids and
fingerprints that were shown names what an answer applies to: any change that came, went or got a
new version since makes another digest. It must be right whatever the pages look like. It must never
count a change as shown that isn't in the digest, nor approve a change that needs its own look
(`careful`) together with others.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from supervisor.core.actions import FileChange, title
from supervisor.core.files.change_card import HAZARD_NOTES, note_of_repository
from supervisor.core.policy.protected_names import mark_of
from supervisor.core.text.folding import LINE, is_folded
from supervisor.core.text.generated import generated_as

# If a session has more changed files than this, they are shown as one card.
FEW_CHANGES = 10
# The number of entries of a folder that are listed at once.
MOST_LISTED = 200
# The number of files whose changes are shown at once.
MOST_FILES = 60

# The findings of `content_flags` in new content, and the note that it couldn't be searched.
FLAG_NOTES = {
    "secret": "its new content looks as if it held a secret",
    "hidden": "its new content has characters that don't show",
    "unread": "its new content could not be looked at",
}
LONG_NAME = "its name is too long to be shown whole in a list"

What = Literal["created", "changed", "deleted", "renamed"]
WHATS: tuple[What, ...] = ("created", "changed", "deleted", "renamed")


class Waiting(NamedTuple):
    """A changed file that waits for an answer. `problem`: why an earlier attempt to carry it out
    failed; empty if it wasn't tried."""

    id: str
    fingerprint: str
    asked_at: float
    action: FileChange
    sticky: bool
    problem: str = ""

    @property
    def what(self) -> What:
        """Return what the change does to the path, in a word."""
        action = self.action
        if action.operation == "rename":
            return "renamed"
        if action.operation == "delete":
            return "deleted"
        return "created" if action.before is None else "changed"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The state that a person saw, to be given back with the answer: the changes that were asked up
    to `until` (seconds since the epoch), the digest of those that an approval covers, and the
    digest of those that need their own look."""

    until: float
    plain: str
    careful: str


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with changes in it, at any depth. `files` counts all of them, `careful` those that
    need their own look; `added` and `removed` sum the lines of the files whose line counts are
    known."""

    path: str
    name: str
    files: int
    counts: dict[What, int]
    careful: int
    shown: Shown
    added: int = 0
    removed: int = 0


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """One changed path; `to` is a rename's new path. `notes` say why it needs its own look, `mark`
    is a short remark that asks for nothing, `generated` the kind of a generated file. `added` and
    `removed` are numbers of lines, None if unknown."""

    id: str
    fingerprint: str
    path: str
    name: str
    what: What
    operation: str
    to: str | None = None
    notes: tuple[str, ...] = ()
    added: int | None = None
    removed: int | None = None
    mark: str = ""
    generated: str = ""


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with its direct contents; `more` changed paths in it are left out here.
    `folder.path` is empty for the whole workspace."""

    folder: Folder
    folders: tuple[Folder, ...]
    files: tuple[Leaf, ...]
    more: int


class ChangeSet:
    """A session's waiting changes, as they are shown. `found` holds notes by id on what new
    contents hold (`FLAG_NOTES`); `until` leaves out what was asked later; `lines` holds added and
    removed lines by id."""

    def __init__(
        self,
        waiting: Iterable[Waiting],
        found: Mapping[str, Sequence[str]],
        until: float | None = None,
        lines: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self._lines = lines or {}
        self.waiting = [one for one in waiting if until is None or one.asked_at <= until]
        self.until = (
            max((one.asked_at for one in self.waiting), default=0.0) if until is None else until
        )
        # If a rule always asks for everything, it doesn't distinguish any of them.
        tells = not all(one.sticky for one in self.waiting)
        self.notes: dict[str, tuple[str, ...]] = {
            one.id: notes
            for one in self.waiting
            if (notes := _notes(one, found.get(one.id, ()), tells))
        }

    def level(self, below: str = "") -> Level:
        """Return the contents of a folder."""
        inside = self.below(below)
        start = len(below) + 1 if below else 0
        folders: dict[str, list[Waiting]] = {}
        files: list[Waiting] = []
        for one in inside:
            first, slash, _ = one.action.path[start:].partition("/")
            if slash and one.action.path != below:
                folders.setdefault(first, []).append(one)
            else:
                files.append(one)
        files.sort(key=lambda one: one.action.path)
        prefix = f"{below}/" if below else ""
        return Level(
            folder=self._folder(below, below.rpartition("/")[2], inside),
            folders=tuple(
                self._folder(f"{prefix}{name}", name, found)
                for name, found in sorted(folders.items())
            ),
            files=tuple(map(self.leaf, files[:MOST_LISTED])),
            more=max(0, len(files) - MOST_LISTED),
        )

    def careful(self) -> list[Leaf]:
        """Return the changes that need their own look, by path."""
        return sorted(
            (self.leaf(one) for one in self.waiting if one.id in self.notes),
            key=lambda leaf: leaf.path,
        )

    def plain(self, start: int = 0) -> list[Leaf]:
        """Return changes that need no look of their own, by path: as many as are listed at once."""
        found = sorted(
            (one for one in self.waiting if one.id not in self.notes),
            key=lambda one: one.action.path,
        )
        return [self.leaf(one) for one in found[start : start + MOST_FILES]]

    def left_out(
        self, ids: Iterable[str], folders: Iterable[str], but: Iterable[str] = ()
    ) -> frozenset[str]:
        """Return the ids that a person took the tick from: of files, and of all in folders, `but`
        what they ticked again further in. The nearest folder decides."""
        is_left = dict.fromkeys(but, False) | dict.fromkeys(folders, True)
        inside = (one.id for one in self.waiting if _nearest(one.action.path, is_left))
        return frozenset([*ids, *inside])

    def below(self, folder: str) -> list[Waiting]:
        """Return the changes of a folder, at any depth, or of a path itself; all for the empty
        name."""
        if not folder:
            return self.waiting
        prefix = f"{folder}/"
        return [
            one
            for one in self.waiting
            if one.action.path == folder or one.action.path.startswith(prefix)
        ]

    def shown(self, inside: Sequence[Waiting]) -> Shown:
        """Return the state that identifies these changes."""
        plain = digest(one for one in inside if one.id not in self.notes)
        careful = digest(one for one in inside if one.id in self.notes)
        return Shown(until=self.until, plain=plain, careful=careful)

    def leaf(self, one: Waiting) -> Leaf:
        """Return a change as one line."""
        path = one.action.path
        added, removed = self._lines.get(one.id, (None, None))
        return Leaf(
            id=one.id,
            fingerprint=one.fingerprint,
            path=path,
            name=path.rpartition("/")[2],
            what=one.what,
            operation=one.action.operation,
            to=one.action.to,
            added=added,
            removed=removed,
            notes=self.notes.get(one.id, ()),
            mark=mark_of(one.action),
            generated=generated_as(path),
        )

    def approved_by(
        self,
        below: str,
        seen: Shown,
        ticked: Mapping[str, str],
        left: Collection[str] = frozenset(),
    ) -> list[str] | None:
        """Return the ids that approving a folder covers: the changes that need no look of their
        own, but those that are `left` out, and the ticked ones (id to fingerprint) wherever they
        are. None if this isn't what was shown."""
        inside = self.below(below)
        if self.shown(inside).plain != seen.plain:
            return None
        known = {one.id: one.fingerprint for one in self.waiting}
        if any(known.get(one) != mark for one, mark in ticked.items()):
            return None
        plain = [one.id for one in inside if one.id not in self.notes and one.id not in left]
        return list(dict.fromkeys([*plain, *ticked]))

    def denied_by(self, below: str, seen: Shown) -> list[str] | None:
        """Return the ids that denying a folder covers: every change in it. None if this isn't what
        was shown."""
        inside = self.below(below)
        return [one.id for one in inside] if self.shown(inside) == seen else None

    def _folder(self, path: str, name: str, inside: Sequence[Waiting]) -> Folder:
        counts: dict[What, int] = dict.fromkeys(WHATS, 0)
        for one in inside:
            counts[one.what] += 1
        careful = sum(one.id in self.notes for one in inside)
        lines = [self._lines.get(one.id, (0, 0)) for one in inside]
        return Folder(
            path=path,
            name=name,
            files=len(inside),
            counts=counts,
            careful=careful,
            shown=self.shown(inside),
            added=sum(one[0] for one in lines),
            removed=sum(one[1] for one in lines),
        )


def _nearest(path: str, is_left: Mapping[str, bool]) -> bool:
    """Return what is said of a path, or of the nearest folder above it."""
    while path and path not in is_left:
        path = path.rpartition("/")[0]
    return is_left.get(path, False)


def digest(waiting: Iterable[Waiting]) -> str:
    """Return a digest of exactly these requests, each with exactly this content."""
    pairs = sorted((one.id, one.fingerprint) for one in waiting)
    return hashlib.blake2b(msgspec.msgpack.encode(pairs), digest_size=32).hexdigest()


def _notes(one: Waiting, found: Sequence[str], sticky_tells: bool) -> tuple[str, ...]:
    notes = [title(one.action)] if one.action.operation == "swap" else []
    notes += [note_of_repository(folder) for folder in one.action.repositories]
    notes += [
        f"{hazard}: {HAZARD_NOTES.get(hazard, 'never allowed by a rule')}"
        for hazard in one.action.hazards
    ]
    # Names that the rules already note aren't repeated.
    notes += [
        note for note in found if note != FLAG_NOTES["secret"] or "secret" not in one.action.hazards
    ]
    # A change with a problem would again keep all others from being carried out: it is left out
    # unless a person includes it.
    notes += [one.problem] if one.problem else []
    notes += [LONG_NAME] if is_folded(title(one.action), LINE) else []
    if one.sticky and sticky_tells and not notes:
        notes.append("a rule asks for it every time, or it is protected")
    return tuple(notes)
