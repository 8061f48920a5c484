"""Examine one path on both sides, and derive the finding to ask about.

The bytes looked at are kept, so that what is applied is what was shown. It is separate from
`compare`, which asks, because all of it is blocking and knows no requests. It must never read a
path other than below the two sides' descriptors, or raise: a path that can't be examined is a
finding that says why.
"""

from collections.abc import Sequence

import msgspec

from supervisor.core.files.changes import Seen, Want, want
from supervisor.core.secrets.redact import Redactor
from supervisor.errors import StorageError
from supervisor.workspace.compare.bases import Bases
from supervisor.workspace.compare.findings import PathFinding, Renames
from supervisor.workspace.compare.prefetch import LookedAhead
from supervisor.workspace.disk.beneath import PathError
from supervisor.workspace.disk.scan import TooLargeError, UnsteadyError, digest_fd, look
from supervisor.workspace.trees.missing_parents import Ways
from supervisor.workspace.trees.secrets_seen import hazards_of_kept
from supervisor.workspace.trees.trees import Sides

_OF_FILES = ("write", "chmod", "swap")


class Examiner:
    """Examines paths of one session. Blocking: call it in a thread, one at a time. `ahead` has the
    prefetched findings."""

    def __init__(self, sides: Sides, redactor: Redactor) -> None:
        self._sides = sides
        self._redactor = redactor
        self._bases = Bases(sides)
        self.ahead = LookedAhead(sides, lambda name: self.one(name, False, None))

    def all(self, names: Sequence[str], last: bool, renames: Renames | None) -> list[PathFinding]:
        """Return the finding of each path, but for possible ends of a rename: those are held."""
        left: list[PathFinding] = []
        ways = Ways(self._sides)
        with self._sides.blobs.sharing_sync():
            for name in names:
                ready = None if last else self.ahead.take(name)
                finding = self.one(name, last, renames) if ready is None else ready
                # Found out ahead or not: the permissions of a folder may have changed since.
                finding.way = (
                    ways.to(name) if finding.host is None and finding.mine is not None else ()
                )
                if renames is None or not renames.hold(finding):
                    left.append(finding)
        return left

    def one(self, name: str, last: bool, renames: Renames | None) -> PathFinding:
        """Return one path's finding."""
        finding = PathFinding(name)
        try:
            self._compare_sides(finding, last, renames)
        except UnsteadyError:
            finding.unsteady = True
        except TooLargeError:
            finding.problem = "the file is too large to be carried over"
        except PathError as error:
            finding.problem = str(error)
        except StorageError as error:
            finding.problem = str(error)
        except OSError as error:
            finding.problem = f"it can't be read: {error.strerror}"
        return finding

    def _compare_sides(self, finding: PathFinding, last: bool, renames: Renames | None) -> None:
        sides, name = self._sides, finding.name
        # At the very end a file that still grows is taken as it is: a snapshot is whole in itself.
        digest_of = (lambda fd, before: digest_fd(fd)) if last else None
        keep = (
            (lambda fd, before: sides.blobs.keep_file(fd, None)) if last else sides.blobs.keep_file
        )
        finding.host = look(sides.host, name)
        self._bases.learn(name, finding.host)
        # A path that is new to both is asked about whatever its content, so it needn't be read
        # before.
        is_new = (
            finding.host is None
            and sides.known(name) is None
            and (renames is None or not renames.holds_any)
        )
        finding.mine = sides.look_at_copy(name, digest_of=keep if is_new else digest_of)
        finding.wanted = self._want(finding)
        if renames is not None and renames.may_come_from(finding):
            return  # its content is on the host
        if (
            finding.wanted is not None
            and finding.wanted.operation in _OF_FILES
            and _is_file(finding.mine)
        ):
            if not is_new:
                finding.mine = sides.look_at_copy(name, digest_of=keep)
            finding.wanted = self._with_secrets(name, self._want(finding))
        if finding.wanted is not None:
            self._bases.keep(name, finding.host, finding.wanted)

    def _with_secrets(self, name: str, wanted: Want | None) -> Want | None:
        if wanted is None or wanted.operation == "chmod":
            return wanted
        hazards = hazards_of_kept(self._sides, name, wanted.hazards, wanted.after, self._redactor)
        return msgspec.structs.replace(wanted, hazards=hazards)

    def _want(self, finding: PathFinding) -> Want | None:
        name = finding.name
        if not self._sides.is_of_agent(name):
            return None
        known = self._sides.known(name)
        wanted = want(known, finding.mine, finding.host, holds_known=self._sides.holds_known(name))
        # To delete it would be to delete what the copy still has, in another spelling.
        is_there = (
            finding.mine is None
            and wanted is not None
            and self._sides.spellings.other(name) is not None
        )
        return None if is_there else wanted


def _is_file(seen: Seen | None) -> bool:
    return seen is not None and seen.kind == "file"
