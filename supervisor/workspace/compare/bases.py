"""Merge bases: what the host held when a change of the agent's was asked about, should the person
edit it, too.

It is separate because comparing keeps it and merging reads it. Losing one only means that there
is no suggestion; so it is bounded, and no error of its own stops a comparison.
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
    """Of one session. Blocking: call it in a thread."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._bytes = 0

    def learn(self, name: str, host: Seen | None) -> None:
        """What the host's file holds, where it is as both sides last agreed, is what both had:
        so that a file which the person only touches afterwards isn't taken for one with another
        content."""
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
