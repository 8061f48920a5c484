"""Names that are one file on the host and two in the copy.

That happens where the host's file system folds case or Unicode forms: the copy's spelling finds a
file that the host stores under another. A comparison of names would see a respelled file twice, as
deleted by the agent and as created by the host. It is neither. Both directions must ask this
module. It must never take two files for one: inodes decide, names only say where to look.
"""

import os
import unicodedata

from supervisor.errors import GatehouseError
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.disk.scan import signature_at


class Spellings:
    """Finds spellings on one session's two sides. Blocking."""

    def __init__(self, host: Root, copy: Root) -> None:
        self._host = host
        self._copy = copy
        self._folds: dict[str, bool] = {}

    def other(self, name: str) -> str | None:
        """Return another path of the copy's that is the same file on the host, or None where there
        is none."""
        parts = name.split("/")
        above = ["/".join(parts[:number]) for number in range(len(parts))]
        folds = [self._is_folding(folder, part) for folder, part in zip(above, parts, strict=True)]
        here = signature_at(self._host, name) if any(folds) else None
        if here is None:
            return None
        found = [""]
        for part, is_folding in zip(parts, folds, strict=True):
            found = [
                f"{folder}/{leaf}" if folder else leaf
                for folder in found
                for leaf in (self._spelt_like(folder, part) if is_folding else (part,))
            ]
        for other in found:
            if other != name and signature_at(self._copy, other) is not None:
                there = signature_at(self._host, other)
                if there is not None and there[3] == here[3]:
                    return other
        return None

    def _is_folding(self, folder: str, leaf: str) -> bool:
        """Return whether a host folder also finds an existing name by another spelling."""
        if folder not in self._folds:
            prefix = f"{folder}/" if folder else ""
            others = _variants(leaf)
            here = signature_at(self._host, prefix + leaf) if others else None
            if here is None:
                return False  # nothing to find out by
            there = [signature_at(self._host, prefix + other) for other in others]
            self._folds[folder] = any(one is not None and one[3] == here[3] for one in there)
        return self._folds[folder]

    def _spelt_like(self, folder: str, leaf: str) -> list[str]:
        try:
            with self._copy.directory(folder) as fd:
                return [name for name in os.listdir(fd) if folded(name) == folded(leaf)]  # noqa: PTH208  # of a descriptor
        except (OSError, GatehouseError):
            return []


def folded(name: str) -> str:
    """Return the common form of all spellings that some file system treats as equal."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def _variants(leaf: str) -> set[str]:
    swapped = leaf.swapcase()
    forms = (
        {unicodedata.normalize(form, leaf) for form in ("NFC", "NFD")}
        if not leaf.isascii()
        else set[str]()
    )
    return ({swapped} | forms) - {leaf}
