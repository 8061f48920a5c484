"""Rename detection: pair deletions and creations of identical files.

Pure and deterministic. Only files with the same bytes and mode are a rename; an edited file stays a
deletion and a creation, so that a card shows all that is new. If several files have the same
content, names decide: the longest common end first, then the order of the alphabet. It must never
name a path twice.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from supervisor.core.actions import content_hash

# Beyond this many parts the ends of two names aren't compared.
MOST_PARTS = 32
# Content so common that it proves nothing: only the same name in another folder counts.
_EMPTY = content_hash(b"")


class File(NamedTuple):
    """A regular file that disappeared or appeared: `digest` is its `content_hash`, `mode` its
    permissions."""

    name: str
    digest: str
    mode: int

    @property
    def content(self) -> tuple[str, int]:
        """Return the key that is equal for identical files."""
        return self.digest, self.mode


def pair(gone: Iterable[File], made: Iterable[File]) -> list[tuple[str, str]]:
    """Return old and new name of each renamed file."""
    olds, news = _by_content(gone), _by_content(made)
    found: list[tuple[str, str]] = []
    for content, names in olds.items():
        if content in news:
            fewest = 1 if content[0] == _EMPTY else 0
            found += _nearest(names, news[content], fewest)
    return sorted(found)


def _by_content(files: Iterable[File]) -> dict[tuple[str, int], list[str]]:
    found: dict[tuple[str, int], list[str]] = {}
    for file in sorted(files):
        found.setdefault(file.content, []).append(file.name)
    return found


def _nearest(olds: list[str], news: list[str], fewest: int) -> Iterator[tuple[str, str]]:
    """Pair each name with the one that has the longest common end, of at least `fewest` parts."""
    for number in range(min(MOST_PARTS, *map(_most_parts, (olds, news))), fewest - 1, -1):
        by_end: dict[str, list[str]] = {}
        for name in reversed(news):
            by_end.setdefault(_end(name, number), []).append(name)
        found = {old: alike.pop() for old in olds if (alike := by_end.get(_end(old, number)))}
        yield from found.items()
        taken = set(found.values())
        olds, news = (
            [name for name in olds if name not in found],
            [name for name in news if name not in taken],
        )


def _most_parts(names: list[str]) -> int:
    return max(name.count("/") for name in names) + 1


def _end(name: str, number: int) -> str:
    """Return the last `parts` parts of a name; for a shorter name, an end that equals no other
    name's."""
    parts = name.split("/")
    return "/".join(parts[len(parts) - number :]) if number <= len(parts) else f"/{name}"
