"""Index of rules by the literal text that all their matches start with.

Decides nothing: it only leaves out rules that can't match, so that a judge compares a few instead
of a hundred thousand. Git, package and exec rules are all found this way. INVARIANT: it never
leaves out a rule that could match.
"""

from bisect import bisect_right
from collections.abc import Iterable

# Longer prefixes are cut, so at most this many are nested.
MAX_PREFIX_CHARS = 100
# Fewer rules than this are looked at one by one.
FEW = 8


class Prefixes[T]:
    """Items, each under a prefix; under `""` for every text. `starting(texts)` returns those whose
    prefix starts one of the texts."""

    __slots__ = ("_by_letter", "_every")

    def __init__(self, items: Iterable[tuple[str, T]]) -> None:
        by_prefix: dict[str, list[T]] = {}
        for prefix, item in items:
            by_prefix.setdefault(prefix[:MAX_PREFIX_CHARS], []).append(item)
        self._every = by_prefix.pop("", [])
        # Most texts start like no rule at all, and often the first letter shows it.
        self._by_letter: dict[str, _Sorted[T]] = {}
        for prefix in sorted(by_prefix):
            self._by_letter.setdefault(prefix[0], _Sorted()).append(prefix, by_prefix[prefix])

    def starting(self, texts: Iterable[str]) -> list[T]:
        """Return the items whose prefix starts one of the texts, without duplicates."""
        parts: list[list[T]] = [self._every] if self._every else []
        by_letter = self._by_letter
        for text in texts:
            known = by_letter.get(text[:1])
            if known is not None:
                prefixes, outer = known.prefixes, known.outer
                # INVARIANT: each sorted prefix that a text starts with is the last one before the
                # text, or a prefix of that one.
                at = bisect_right(prefixes, text) - 1
                while at >= 0:
                    if text.startswith(prefixes[at]):
                        parts.append(known.items[at])
                    at = outer[at]
        if len(parts) <= 1:
            return parts[0] if parts else []
        # Two texts that start alike lead to the same list; an item is in one list only.
        return [item for part in {id(part): part for part in parts}.values() for item in part]


class _Sorted[T]:
    """Prefixes in order, the items of each, and for each the longest other prefix that starts it
    (-1: none)."""

    __slots__ = ("items", "outer", "prefixes")

    def __init__(self) -> None:
        self.prefixes: list[str] = []
        self.items: list[list[T]] = []
        self.outer: list[int] = []

    def append(self, prefix: str, items: list[T]) -> None:
        """Add the next prefix at the end."""
        outer = len(self.prefixes) - 1
        while outer >= 0 and not prefix.startswith(self.prefixes[outer]):
            outer = self.outer[outer]
        self.prefixes.append(prefix)
        self.items.append(items)
        self.outer.append(outer)
