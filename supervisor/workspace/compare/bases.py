"""Merge bases: the host's content when an agent's change was asked about.

A merge begins with it, should the person edit the file, too. Comparing keeps it and merging reads
it. Without one there is only no suggested merge; so the store is bounded, and its errors never stop
a comparison.
"""

import contextlib

from supervisor.core.actions import content_hash
from supervisor.core.files.changes import Seen, Want
from supervisor.core.files.text_diff import MOST_TEXT_BYTES
from supervisor.errors import GatehouseError
from supervisor.workspace.trees.one_file import read_file
from supervisor.workspace.trees.trees import Sides

MOST_BYTES = 256 << 20


class Bases:
    """Merge bases of one session. Blocking: call it in a thread."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._bytes = 0

    def learn(self, name: str, host: Seen | None) -> None:
        """Record the host's content as agreed where the file is as both sides last agreed: so a
        file that the person only touches later isn't taken for changed."""
        known = self._sides.known(name)
        if (
            known is not None
            and host is not None
            and host.digest
            and host.signature == known.host_signature
        ):
            self._sides.learn_digest(name, host.digest)

    def keep(self, name: str, host: Seen | None, wanted: Want) -> None:
        """Keep the host's file, where it is as both sides last agreed. Never raises."""
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
