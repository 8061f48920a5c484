"""The two sides of a session's workspace and what they last agreed on: descriptors, baseline, journal, history, snapshots.

It decides nothing. It is separate because comparing and carrying out share exactly this. It must never forget an
agreement that the journal doesn't have.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from supervisor.core.changes import Known
from supervisor.errors import GatehouseError
from supervisor.workspace.beneath import Root
from supervisor.workspace.blobs import BlobStore
from supervisor.workspace.history import History
from supervisor.workspace.journal import Journal, replay
from supervisor.workspace.scan import TooLargeError, UnsteadyError, look

COPY = "merged"
BLOBS = "blobs"


class Sides:
    """`workspace` is the host's folder, `folder` the session's, with the copy in it. Raises OSError where one is missing."""

    def __init__(self, workspace: Path, folder: Path, out_of_bounds: Sequence[Path]) -> None:
        replayed = replay(folder)
        self.host = Root(workspace, out_of_bounds=(*out_of_bounds, folder))
        self.copy = Root(folder / COPY)
        self.blobs = BlobStore(folder / BLOBS)
        self.journal = Journal(folder)
        self.history = History(folder, self.journal, replayed, snapshots=self.blobs)
        self._baseline = replayed.baseline
        self.known = self._baseline.get
        """What both sides last agreed on about a path. An attribute, since each file of a pass is looked up by it."""
        self._children: dict[str, set[str]] = {}
        for name in self._baseline:
            self._children.setdefault(_folder(name), set()).add(name)

    def close(self) -> None:
        """Give all descriptors back."""
        self.host.close()
        self.copy.close()
        self.blobs.close()
        self.history.close()
        self.journal.close()

    def children(self, folder: str) -> set[str]:
        """The paths directly in a folder that both sides once agreed on."""
        return self._children.get(folder, set())

    def holds_known(self, name: str) -> bool:
        """Whether there are such paths in it."""
        return bool(self._children.get(name))

    def agreed(self, name: str, known: Known | None, request: str | None = None, *, journaled: bool = True) -> None:
        """Both sides agree on this from now on (None: on nothing being there); folders on the way with it.

        With `request` its effect is on record as done from now on, and can be undone. Not `journaled`: after a crash it is
        found again, because both sides hold the same then too; or one of them was changed, which then counts as a change.
        """
        if journaled:
            self.journal.agreed(name, known, request)
        if request is not None:
            self.history.confirm(request, name)
        self._set(name, known)
        parent = _folder(name)
        while known is not None and parent and parent not in self._baseline:
            self._set(parent, Known("dir", 0o755))
            parent = _folder(parent)

    def number_of_files(self) -> int:
        """How many files and links both sides agree on."""
        return sum(known.kind != "dir" for known in self._baseline.values())

    def without_digest(self) -> list[str]:
        """The files of which only signatures are known."""
        return [name for name, known in self._baseline.items() if known.kind == "file" and known.digest is None]

    def fill_digests(self, names: Sequence[str]) -> None:
        """Read those of the copy's files that still are as they were when both sides agreed, and remember their digests.

        Not in the journal: after a crash they are had again, or a path counts as changed on the host: the careful side.
        """
        for name in names:
            self._fill_digest(name)

    def learn_digest(self, name: str, digest: str) -> None:
        """What both sides agreed on is this content: a look at an unchanged side said so. Not in the journal, as above."""
        known = self._baseline.get(name)
        if known is not None and known.kind == "file" and known.digest is None:
            self._baseline[name] = msgspec.structs.replace(known, digest=digest)

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
