"""Prefetch for the next comparison: read new files while the copy gets quiet.

It is separate from `compare` because nothing may depend on it: a finding counts only where both
sides, and what is known of the path, are as they were when it was made. Else, or without one, the
comparison looks for itself. It must never ask anybody anything, or hold content that is too large
to be read in vain.
"""

import itertools
import stat
from collections.abc import Callable, Iterable
from typing import NamedTuple

from supervisor.core.files.changes import Known, Signature
from supervisor.workspace.compare.findings import PathFinding
from supervisor.workspace.disk.scan import signature_at
from supervisor.workspace.trees.trees import Sides

# A file written again before it is quiet was read in vain, and its snapshot stays for the history.
LARGEST_BYTES = 256 * 1024
# Until the next comparison, which may be long in coming where too much waits for answers.
MOST_FOUND = 2000


class _Circumstances(NamedTuple):
    """Inputs of a finding, with signatures for the contents."""

    mine: Signature | None
    host: Signature | None
    known: Known | None
    holds_known: bool
    is_of_agent: bool


class LookedAhead:
    """Prefetched findings of one session. Blocking: call `look` and `take` in a thread, with the
    channel's turn."""

    def __init__(self, sides: Sides, examine: Callable[[str], PathFinding]) -> None:
        self._sides = sides
        self._examine = examine
        self._found: dict[str, tuple[PathFinding, _Circumstances]] = {}

    def look(self, names: Iterable[str]) -> None:
        """Examine the files of these that are small, as the comparison would."""
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
                        # Facts about the path that the look itself recorded aren't a change.
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
