"""The two trees of a session, host and copy, and what they last agreed on.

It holds descriptors, baseline, journal, history and snapshots, which comparing and carrying out
share. It decides nothing. It must never forget an agreement that isn't in the journal.
"""

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from supervisor.core.files.changes import (
    ANY_MODE,
    PERMISSIONS,
    SPECIAL,
    Known,
    Seen,
    kind_of,
    signature_of,
)
from supervisor.core.files.new_folders import FolderModes, meant
from supervisor.errors import GatehouseError
from supervisor.workspace.disk.beneath import PathError, Root, is_git_name, split
from supervisor.workspace.disk.blobs import BlobStore
from supervisor.workspace.disk.overlay_changes import Upper
from supervisor.workspace.disk.scan import (
    TooLargeError,
    UnsteadyError,
    born_ns,
    each_entry,
    look,
    signature_at,
)
from supervisor.workspace.disk.spellings import Spellings
from supervisor.workspace.trees.history import History
from supervisor.workspace.trees.journal import Journal, replay, write_baseline
from supervisor.workspace.trees.overlay_facts import Since, read_facts, write_facts

COPY = "merged"
BLOBS = "blobs"


class Sides:
    """The two sides of one session. `workspace` is the host's folder, `folder` the session's, with
    the copy in it. Raise OSError where one is missing.

    If the copy is an overlay, `merged_fd` is its mounted folder; without one, the session has ended
    and only its history is of use. Both sides' first state is then inferred as needed (`Since`),
    and the upper folder holds the agent's changes.
    """

    def __init__(
        self,
        workspace: Path,
        folder: Path,
        out_of_bounds: Sequence[Path],
        merged_fd: int | None = None,
    ) -> None:
        replayed = replay(folder)
        self._folder = folder
        self.host = Root(workspace, out_of_bounds=(*out_of_bounds, folder))
        self.upper: Upper | None = None
        self._since: Since | None = None
        facts = read_facts(folder) if merged_fd is not None else None
        self.shows_ignored = facts is not None and facts.include_ignored
        if facts is not None and merged_fd is not None:
            self.upper = Upper(folder, merged_fd, facts.apart_names)
            self._since = (
                Since(self.host, facts.start_ns, self.upper.is_apart) if facts.start_ns else None
            )
        self.copy = self.upper.view if self.upper is not None else Root(folder / COPY)
        self.spellings = Spellings(self.host, self.copy)
        self.blobs = BlobStore(folder / BLOBS)
        self.journal = Journal(folder)
        self.history = History(folder, self.journal, replayed, snapshots=self.blobs)
        self._baseline = replayed.baseline
        self.known: Callable[[str], Known | None] = (
            self._baseline.get if self._since is None else self._known_since
        )
        """What both sides last agreed on about a path. An attribute, since each file of a pass
        is looked up by it."""
        # Paths of an overlay that the agent made and the host has by now: see `copy_gone`.
        self._made: dict[str, set[str]] = {}
        self.left_behind: dict[str, str] = {}
        """What is left on the host of effects that a crash cut short, and why: for the person to
        look through."""
        # Paths with nothing on either side: a whiteout over one isn't a new change of the agent's.
        self._nothing = replayed.nothing
        self._children: dict[str, set[str]] = {}
        for name in list(self._baseline):
            self._children.setdefault(_folder(name), set()).add(name)
            self._know_way_to(name)

    def close(self) -> None:
        """Close all descriptors."""
        self.host.close()
        self.copy.close()
        if self.upper is not None:
            self.upper.close()
        self.blobs.close()
        self.history.close()
        self.journal.close()

    def _known_since(self, name: str) -> Known | None:
        """Return what `known` would, as long as the complete first state isn't written down."""
        known = self._baseline.get(name)
        if known is None and self._since is not None:
            known = self._since.at(name)
            if known is not None:
                self._set(name, known)
        return known

    def children(self, folder: str) -> set[str]:
        """Return the paths directly in a folder that both sides once agreed on."""
        return self._children.get(folder, set())

    def holds_known(self, name: str) -> bool:
        """Return whether the folder has such paths in it."""
        return bool(self._children.get(name))

    def agreed(
        self,
        name: str,
        known: Known | None,
        request: str | None = None,
        *,
        journaled: bool = True,
        by_agent: bool = False,
    ) -> None:
        """Record that both sides now agree on this (None: nothing is there), and on the parent
        folders.

        With `request`, its effect is recorded as done, and can be undone. Unless `journaled`, a
        crash loses the record. It is then found again, because both sides still hold the same, or
        one of them was changed, which counts as a change. `by_agent`: the host was given the
        agent's version, so whatever is missing in the copy by now was deleted by the agent.
        """
        if journaled:
            self.journal.agreed(name, known, request)
        if request is not None:
            self.history.confirm(request, name)
        self._set(name, known)
        self._note_made(name, known, by_agent=by_agent)
        if known is not None:
            self._know_way_to(name)

    def _know_way_to(self, name: str) -> None:
        """Record the parent folders: where both sides have an entry, they have its parents, too."""
        parent = _folder(name)
        while parent and self.known(parent) is None:
            self._set(parent, Known("dir", ANY_MODE))
            parent = _folder(parent)

    def agreed_contents(self) -> set[str]:
        """Return the known digests of agreed files: merges start from these contents."""
        return {known.digest for known in self._baseline.values() if known.digest is not None}

    def number_of_files(self) -> int:
        """Return how many files and links both sides agree on."""
        return sum(known.kind != "dir" for known in self._baseline.values())

    def without_digest(self) -> list[str]:
        """Return files that are known by signature only; none where that would mean reading the
        host's whole folder."""
        if self.upper is not None:
            return []
        return [
            name
            for name, known in self._baseline.items()
            if known.kind == "file" and known.digest is None
        ]

    def fill_digests(self, names: Sequence[str]) -> None:
        """Read those of the copy's files that are unchanged since both sides agreed, and remember
        their digests.

        They aren't journaled. After a crash they are read again, or a path counts as changed on the
        host, which is the safe side.
        """
        for name in names:
            self._fill_digest(name)

    def learn_digest(self, name: str, digest: str) -> None:
        """Record the agreed content's digest after a look at an unchanged side. It isn't journaled,
        as above."""
        known = self._baseline.get(name)
        if known is not None and known.kind == "file" and known.digest is None:
            self._baseline[name] = msgspec.structs.replace(known, digest=digest)

    # -- what the agent touched -------------------------------------------------------------------

    def copy_entries(self, folder: str) -> Iterable[tuple[str, os.stat_result | None]]:
        """Yield the entries to compare in a folder of the copy; None for a folder that is gone.
        Raise OSError."""
        return each_entry(self.copy, folder) if self.upper is None else self.upper.entries(folder)

    def copy_gone(self, folder: str, seen: set[str], unseen: set[str]) -> set[str]:
        """Return a folder's paths that the copy doesn't have any more. `seen` and `unseen` are
        results of `copy_entries`."""
        if self.upper is None:
            return self.children(folder) - seen
        gone = {name for name in unseen if self.known(name) is not None or self._is_unspoken(name)}
        # INVARIANT: what the upper folder held when the host was given it can only be missing
        # because the agent removed it. No whiteout shows that, since for the kernel it was never in
        # the host's folder.
        gone |= {
            name
            for name in self._made.get(folder, ())
            if name not in seen and not self.upper.holds(name)
        }
        if not self.upper.covers(folder):
            return gone
        for leaf, status in each_entry(self.host, folder):
            name = f"{folder}/{leaf}" if folder else leaf
            self.met_on_host(name, status)
            if name not in seen and self._is_unspoken(name):
                gone.add(name)
        return gone | (self.children(folder) - seen)

    def _is_unspoken(self, name: str) -> bool:
        """Return whether the agent deleted something that both sides never agreed on: a new file of
        the host's that shone through. INVARIANT: any other reason to hide a path is recorded, in
        `apart` or as an agreement on nothing."""
        if (
            self.upper is None
            or is_git_name(name.rpartition("/")[2])
            or self.known(name) is not None
        ):
            return False
        found = self.upper.whiteout(name)
        if found is None or found.name in self._nothing or self.upper.is_apart(name):
            return False
        host = signature_at(self.host, name)
        # An entry newer than a folder's removal was not in it then. The folder's own whiteout needs
        # no time: the folder was there.
        return host is None or found.name == name or host[2] < found.before_ns

    def speak_of(self, name: str) -> None:
        """Note that a path isn't ignored. If the agent deleted it before both sides agreed on
        anything, a person is asked. Its old content is unknown, so it counts as changed on the host
        since."""
        if self.upper is None or not self._is_unspoken(name):
            return
        host = signature_at(self.host, name)
        if host is None:
            self.agreed(name, None)
        elif (kind := kind_of(host[4])) not in SPECIAL:
            self._set(name, Known(kind, 0))

    def look_at_copy(
        self,
        name: str,
        *,
        digest_of: Callable[[int, os.stat_result], str] | None = None,
        is_read: bool = True,
    ) -> Seen | None:
        """Return what `look` finds in the copy; nothing for a path that only shines through because
        the host was given the agent's own."""
        is_made = self.upper is not None and name in self._made.get(_folder(name), ())
        if is_made and self.upper is not None and not self.upper.holds(name):
            return None
        seen = look(self.copy, name, digest_of=digest_of, is_read=is_read)
        if seen is None or seen.kind != "dir":
            return seen
        self._doubt(name, seen)
        return msgspec.structs.replace(seen, is_anew=True) if self._is_anew(name, seen) else seen

    def _doubt(self, name: str, seen: Seen) -> None:
        """Note an overlay folder that copied the host's permissions, which have changed since. The
        old ones are unknown, so it counts as changed by both, and a person is asked."""
        if (
            self.upper is None
            or self.known(name) is not None
            or self.upper.covers(name)
            or not self.upper.holds(name)
        ):
            return
        host = signature_at(self.host, name)
        if host is not None and stat.S_ISDIR(host[4]) and (host[4] ^ seen.mode) & PERMISSIONS:
            was = (0, 0, 0, 0, host[4] ^ PERMISSIONS)
            self._set(
                name, Known("dir", (seen.mode ^ PERMISSIONS) & PERMISSIONS, host_signature=was)
            )

    def _is_anew(self, name: str, seen: Seen) -> bool:
        """See `Seen`. A host folder that an overlay copied into its upper one counts as the
        same."""
        known = self.known(name)
        if known is None or known.kind != "dir" or known.mode == seen.mode & PERMISSIONS:
            return False
        if self.upper is not None and not self.upper.covers(name):
            return False
        before = known.copy_signature
        if before is None:
            return self.upper is not None
        return before[3] != seen.signature[3] or (born_ns(self.copy, name) or 0) > before[2]

    def is_of_agent(self, name: str) -> bool:
        """Return whether the copy's state of a path may come from the agent. INVARIANT: other paths
        are never asked about. What shines through an overlay may be older than the host's, and
        would look like a change."""
        return (
            self.upper is None
            or name in self._made.get(_folder(name), ())
            or self.upper.holds(name)
        )

    def _note_made(self, name: str, known: Known | None, *, by_agent: bool) -> None:
        """Remember that the upper folder holds a path (and its parents) that both sides have; or
        forget it."""
        if self.upper is None:
            return
        self._nothing.discard(name)
        if known is None and self.upper.whiteout(name) is not None:
            self._nothing.add(name)
        is_held = self.upper.holds(name)
        if known is None or not (is_held or by_agent):
            self._made.get(_folder(name), set()).discard(name)
            return
        if not is_held:
            self.upper.hide([name])  # the agent deleted it, and sees the host's now
        while name and name not in self._made.setdefault(_folder(name), set()):
            self._made[_folder(name)].add(name)
            name = _folder(name)

    def standing(self, name: str, mine: Seen | None, host: Seen | None) -> Known | None:
        """Return `known`, for the direction from the host: a path that the agent didn't touch
        counts as agreed, whatever shines through."""
        known = self.known(name)
        if self.is_of_agent(name) or (mine is None and host is None):
            return known
        if mine is None:
            return None
        before = known.host_signature if known is not None else None
        return Known(
            mine.kind, mine.mode & PERMISSIONS, mine.digest, mine.target, before, mine.signature
        )

    def is_seen_by_agent(self, name: str) -> bool:
        """Return whether the agent's copy had a path from the beginning, or shows it now because
        the host has it."""
        return self.known(name) is not None or (
            self.upper is not None and signature_at(self.copy, name) is not None
        )

    def keep_from_agent(self, names: Iterable[str]) -> None:
        """Hide paths of the host's that no copy gets: an overlay shows them until they are
        hidden."""
        if self.upper is None:
            return
        for name in self.upper.hide(names):
            self.agreed(name, None)

    def pin(self, name: str, mine: Seen | None) -> None:
        """Pin a path before the host's new content replaces what shines through: see `Upper.pin`.
        It counts as agreed, not as the agent's. Raise OSError."""
        if (
            self.upper is None
            or mine is None
            or mine.kind not in ("file", "symlink")
            or self.upper.holds(name)
        ):
            return
        known = self._baseline.get(name)
        made = signature_of(self.upper.pin(name))
        before = known.host_signature if known is not None else None
        self._set(
            name, Known(mine.kind, mine.mode & PERMISSIONS, mine.digest, mine.target, before, made)
        )

    @property
    def is_meeting_host(self) -> bool:
        """Return whether a walk over the host must call `met_on_host`, and `met_all` at its end."""
        return self._since is not None

    def met_on_host(self, name: str, status: os.stat_result) -> None:
        """Note a path that a walk over the host met. If it is unchanged since the start, both sides
        began with it."""
        if self._since is None or name in self._baseline or is_git_name(name.rpartition("/")[2]):
            return
        known = self._since.met(name, status)
        if known is not None:
            self._set(name, known)

    def met_all(self) -> None:
        """Note that the whole host was walked, so an unknown path didn't exist. This is written to
        disk, so that it survives a crash."""
        facts = read_facts(self._folder)
        if self._since is None or facts is None:
            return
        write_baseline(self._folder, self._baseline)
        write_facts(self._folder, msgspec.structs.replace(facts, start_ns=0))
        self._since = None
        self.known = self._baseline.get

    def _fill_digest(self, name: str) -> None:
        known = self._baseline.get(name)
        if known is None or known.digest is not None or known.copy_signature is None:
            return
        try:
            seen = look(self.copy, name)
        except (OSError, GatehouseError, UnsteadyError, TooLargeError):
            return
        if seen is not None and seen.signature == known.copy_signature and name in self._baseline:
            self._baseline[name] = msgspec.structs.replace(known, digest=seen.digest)

    def _set(self, name: str, known: Known | None) -> None:
        siblings = self._children.setdefault(_folder(name), set())
        if known is None:
            self._baseline.pop(name, None)
            siblings.discard(name)
            if not siblings:
                del self._children[_folder(name)]
        else:
            self._baseline[name] = known
            siblings.add(name)


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


class Ways:
    """Parent folders that new paths need on the host, with the copy's permissions, for one run over
    many paths: each folder is examined once. It follows no link and changes nothing. Blocking: call
    it in a thread."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._ways: dict[str, FolderModes] = {"": ()}

    def to(self, name: str) -> FolderModes:
        """Return the folders that a path needs first."""
        folder = name.rpartition("/")[0]
        if folder not in self._ways:
            self._ways[folder] = self._look(folder)
        return self._ways[folder]

    def _look(self, folder: str) -> FolderModes:
        try:
            split(folder)
        except PathError:
            return ()  # nothing can be there
        if signature_at(self._sides.host, folder) is not None:
            return ()
        # A failed look-up would keep an overlay from showing the path later.
        mine = signature_at(self._sides.copy, folder) if self._sides.is_of_agent(folder) else None
        mode = meant(mine[4]) if mine is not None and stat.S_ISDIR(mine[4]) else ANY_MODE
        return (*self.to(folder), (folder, mode))
