"""Drop large snapshots that nobody needs, so that an agent can't fill the disk.

Small ones stay for the history. Level-triggered (law 8): it isn't told which request ended, or how,
but checks what is needed now. So a crash makes it forget nothing. A content may belong to one file,
or to one of two thousand in a swapped folder. The comparison and the agent's API both leave
snapshots behind. It must never drop what may still be applied, or what undo and merge read. A
snapshot is named only once its request exists, so the caller must hold the channel's turn.
"""

import re
from collections.abc import Iterable, Mapping

from supervisor.base import log
from supervisor.base.event_loop import to_end
from supervisor.errors import GatehouseError
from supervisor.gate.gate import Gate
from supervisor.workspace.disk.merging import MOST_MERGED_BYTES
from supervisor.workspace.trees.trees import Sides

# Check again after this much growth, however many are needed.
MOST_GROWTH_BYTES = 256 << 20
_hashes = re.compile("[0-9a-f]{64}").findall


class LargeSnapshots:
    """Large snapshots of one session. Calls must not overlap."""

    def __init__(self, sides: Sides, gate: Gate, session_id: str) -> None:
        self._sides = sides
        self._gate = gate
        self._session_id = session_id
        self._left_bytes = 0

    async def tidy(self, *, whole: bool = False) -> None:
        """Drop unneeded snapshots. Unless `whole`, do so only where there is much more than after
        the last time. Never raises for errors of disk or database: the next call does the rest."""
        large = self._sides.blobs.large()
        grown_bytes = sum(large.values()) - self._left_bytes
        if not large or not (whole or grown_bytes > min(self._left_bytes, MOST_GROWTH_BYTES)):
            return
        try:
            open_changes = self._gate.queue.open_changes(self._session_id)
            await to_end(lambda: self._drop(large, open_changes))
        except (OSError, GatehouseError) as error:
            log.warning(
                "large snapshots were not looked through",
                session=self._session_id,
                error=str(error),
            )
        self._left_bytes = sum(self._sides.blobs.large().values())

    def _drop(self, large: Mapping[str, int], open_changes: Iterable[str]) -> None:
        asked = {digest for action in open_changes for digest in _hashes(action)}
        read = self._sides.history.contents_made() | self._sides.agreed_contents()
        for digest, size_bytes in large.items():
            if digest not in asked and (size_bytes > MOST_MERGED_BYTES or digest not in read):
                self._sides.blobs.drop(digest)
