"""Facts of an overlay session that survive a crash: start and hidden paths.

Making an overlay writes them and `trees` reads them. Where this file exists, the session's copy is
an overlay, and `merged` is only its mount point.
"""

import os
from pathlib import Path

import msgspec

from supervisor.base import whole_files

FACTS = "overlay.msgpack"


class OverlayFacts(msgspec.Struct, frozen=True):
    """`start_ns` is a change time right before the start, 0 once the baseline is written down
    whole; `apart` are paths that neither direction compares (hidden, or ignored by git and the
    agent's own), in the file system's bytes."""

    start_ns: int
    apart: tuple[bytes, ...]
    include_ignored: bool = False

    @property
    def apart_names(self) -> frozenset[str]:
        """As the file system names them."""
        return frozenset(os.fsdecode(name) for name in self.apart)


def read_facts(folder: Path) -> OverlayFacts | None:
    """Those of a session's folder; None where its copy is no overlay."""
    try:
        return msgspec.msgpack.decode((folder / FACTS).read_bytes(), type=OverlayFacts)
    except FileNotFoundError:
        return None


def write_facts(folder: Path, facts: OverlayFacts) -> None:
    """Durably and whole, or not at all."""
    whole_files.replace(folder / FACTS, msgspec.msgpack.encode(facts))
