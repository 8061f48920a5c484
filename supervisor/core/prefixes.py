"""An index of rules by the literal text that all which they match starts with.

Decides nothing: it only leaves out rules that can't match, so that a judge compares a handful instead of a hundred thousand. It is
apart from the judges because git, package and exec rules are all found this way. INVARIANT: what it hands out is never too little.
"""

from collections.abc import Iterable

# Longer beginnings are cut: they set no more apart, and each length costs a look-up.
MAX_PREFIX_CHARS = 40
_STEM_CHARS = 3
# Fewer rules than this are looked at one by one.
FEW = 8


class Prefixes[T]:
    """Items, each under a prefix. `starting(texts)` hands out those whose prefix one of the texts starts with."""

    __slots__ = ("_by_stem", "_every", "_short")

    def __init__(self) -> None:
        # Most texts start like no rule at all: their first letters tell, in one look-up.
        self._by_stem: dict[str, dict[int, dict[str, list[T]]]] = {}
        self._short: dict[str, list[T]] = {}
        self._every: list[T] = []

    def add(self, prefix: str, item: T) -> None:
        """Put an item under a prefix; under `""` it is handed out for every text."""
        cut = prefix[:MAX_PREFIX_CHARS]
        if not cut:
            self._every.append(item)
        elif len(cut) < _STEM_CHARS:
            self._short.setdefault(cut, []).append(item)
        else:
            of_stem = self._by_stem.setdefault(cut[:_STEM_CHARS], {})
            of_stem.setdefault(len(cut), {}).setdefault(cut, []).append(item)

    def starting(self, texts: Iterable[str]) -> list[T]:
        """The items whose prefix one of the texts starts with, none twice."""
        parts: list[list[T]] = [self._every] if self._every else []
        by_stem, short = self._by_stem, self._short
        for text in texts:
            if short:
                parts += [short[start] for start in (text[:1], text[:2]) if start in short]
            of_stem = by_stem.get(text[:_STEM_CHARS])
            if of_stem is not None:
                for length, by_prefix in of_stem.items():
                    part = by_prefix.get(text[:length])
                    if part is not None:
                        parts.append(part)
        if len(parts) <= 1:
            return parts[0] if parts else []
        # A list is met twice where two texts start alike; an item is in one list only.
        return [item for part in {id(part): part for part in parts}.values() for item in part]
