"""Examine one path on both sides, and derive the finding to ask about.

All of it is blocking and knows no requests. The examined bytes are kept, so that an approval
applies what was shown. It must never read a path other than below the two sides' descriptors, or
raise: a path that can't be examined is a finding that says why.
"""

import contextlib
import itertools
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from supervisor.core.actions import content_hash
from supervisor.core.files.changes import Known, Seen, Signature, Want, want
from supervisor.core.files.text_diff import MOST_TEXT_BYTES
from supervisor.core.secrets.redact import Redactor
from supervisor.errors import GatehouseError, StorageError
from supervisor.workspace.compare.path_findings import PathFinding, Renames
from supervisor.workspace.disk.beneath import PathError
from supervisor.workspace.disk.scan import (
    TooLargeError,
    UnsteadyError,
    digest_fd,
    look,
    read_file,
    signature_at,
)
from supervisor.workspace.trees.secrets_seen import hazards_of_kept
from supervisor.workspace.trees.trees import Sides, Ways

_OF_FILES = ("write", "chmod", "swap")
# All merge bases of a session together.
MOST_BYTES = 256 << 20
# Largest prefetched file: if it is written again before the copy is quiet, it was read in vain, and
# its snapshot stays for the history.
LARGEST_BYTES = 256 * 1024
# Most prefetched findings: the next comparison may be far off where much waits for answers.
MOST_FOUND = 2000


class Bases:
    """Merge bases of one session: the host's content when an agent's change was asked about. A
    merge starts from it if the person edits the file, too. A missing base only means no suggested
    merge, so the store is bounded and its errors stop nothing."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._bytes = 0

    def learn(self, name: str, host: Seen | None) -> None:
        """Record the host's content as agreed if the file is as both sides last agreed. Then a file
        that the person only touches later doesn't count as changed."""
        known = self._sides.known(name)
        if (
            known is not None
            and host is not None
            and host.digest
            and host.signature == known.host_signature
        ):
            self._sides.learn_digest(name, host.digest)

    def keep(self, name: str, host: Seen | None, wanted: Want) -> None:
        """Keep the host's file if it is as both sides last agreed. Never raises."""
        if (
            self._sides.known(name) is None
            or host is None
            or host.kind != "file"
            or "conflict" in wanted.hazards
        ):
            return
        size, digest = host.signature[0], host.digest or ""
        if size > MOST_TEXT_BYTES or self._bytes + size > MOST_BYTES:
            return
        with contextlib.suppress(OSError, GatehouseError):
            if not self._sides.blobs.has(digest):
                data = read_file(self._sides.host, name, MOST_TEXT_BYTES)
                if content_hash(data) == digest:
                    self._sides.blobs.keep(data, durable=False)
                    self._bytes += size


class _Circumstances(NamedTuple):
    """Inputs of a finding, with signatures in place of contents."""

    mine: Signature | None
    host: Signature | None
    known: Known | None
    holds_known: bool
    is_of_agent: bool


class LookedAhead:
    """Prefetched findings of one session: new files are read while waiting for the copy to be
    quiet. A finding counts only if both sides, and the known facts of the path, are unchanged. Call
    `look` and `take` with the channel's turn."""

    def __init__(self, sides: Sides, examine: Callable[[str], PathFinding]) -> None:
        self._sides = sides
        self._examine = examine
        self._found: dict[str, tuple[PathFinding, _Circumstances]] = {}

    def look(self, names: Iterable[str]) -> None:
        """Examine the small files among these, as the comparison would."""
        with self._sides.blobs.sharing_sync():
            for name in itertools.islice(names, max(0, MOST_FOUND - len(self._found))):
                before = self._circumstances(name)
                if (
                    before.mine is not None
                    and stat.S_ISREG(before.mine[4])
                    and before.mine[0] <= LARGEST_BYTES
                ):
                    finding = self._examine(name)
                    if not finding.unsteady and not finding.problem:
                        # Facts that the look itself recorded aren't a change.
                        self._found[name] = finding, before._replace(known=self._sides.known(name))

    def take(self, name: str) -> PathFinding | None:
        """Return a path's prefetched finding, once, if it still holds."""
        finding, before = self._found.pop(name, (None, None))
        return finding if finding is not None and before == self._circumstances(name) else None

    def forget(self) -> None:
        """Drop findings that weren't taken."""
        self._found.clear()

    def _circumstances(self, name: str) -> _Circumstances:
        sides = self._sides
        mine, host = signature_at(sides.copy, name), signature_at(sides.host, name)
        return _Circumstances(
            mine, host, sides.known(name), sides.holds_known(name), sides.is_of_agent(name)
        )


class Examiner:
    """Examines paths of one session. Blocking: call it in a thread, one at a time. `ahead` has the
    prefetched findings."""

    def __init__(self, sides: Sides, redactor: Redactor) -> None:
        self._sides = sides
        self._redactor = redactor
        self._bases = Bases(sides)
        self.ahead = LookedAhead(sides, lambda name: self.one(name, False, None))

    def all(self, names: Sequence[str], last: bool, renames: Renames | None) -> list[PathFinding]:
        """Return the finding of each path, except possible ends of a rename, which are held."""
        left: list[PathFinding] = []
        ways = Ways(self._sides)
        with self._sides.blobs.sharing_sync():
            for name in names:
                ready = None if last else self.ahead.take(name)
                finding = self.one(name, last, renames) if ready is None else ready
                # Computed for prefetched findings, too: a folder's permissions may have changed
                # since.
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
        # In the last comparison, a file that still grows is taken as it is: a snapshot is complete
        # in itself.
        digest_of = (lambda fd, before: digest_fd(fd)) if last else None
        keep = (
            (lambda fd, before: sides.blobs.keep_file(fd, None)) if last else sides.blobs.keep_file
        )
        finding.host = look(sides.host, name)
        self._bases.learn(name, finding.host)
        # A path new to both sides is asked about whatever its content, so it needn't be read
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
        # A deletion would remove what the copy still has in another spelling.
        is_there = (
            finding.mine is None
            and wanted is not None
            and self._sides.spellings.other(name) is not None
        )
        return None if is_there else wanted


def _is_file(seen: Seen | None) -> bool:
    return seen is not None and seen.kind == "file"
