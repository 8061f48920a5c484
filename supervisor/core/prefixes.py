"""An index of rules by the literal text that all which they match starts with.

Decides nothing: it only leaves out rules that can't match, so that a judge compares a handful instead of a hundred thousand. It is
apart from the judges because git, package and exec rules are all found this way. INVARIANT: what it hands out is never too little.
"""

# Longer beginnings are cut: they set no more apart, and each length costs a look-up.
MAX_PREFIX_CHARS = 40
_STEM_CHARS = 3


class Prefixes[T]:
    """Items, each under a prefix. `starting(text)` hands out those whose prefix the text starts with."""

    __slots__ = ("_by_stem", "_short", "is_empty")

    def __init__(self) -> None:
        # Most texts start like no rule at all: their first letters tell, in one look-up.
        self._by_stem: dict[str, dict[int, dict[str, list[T]]]] = {}
        self._short: dict[str, list[T]] = {}
        self.is_empty = True

    def add(self, prefix: str, item: T) -> None:
        """Put an item under a prefix; under `""` it is handed out for every text."""
        self.is_empty = False
        cut = prefix[:MAX_PREFIX_CHARS]
        if len(cut) < _STEM_CHARS:
            self._short.setdefault(cut, []).append(item)
        else:
            of_stem = self._by_stem.setdefault(cut[:_STEM_CHARS], {})
            of_stem.setdefault(len(cut), {}).setdefault(cut, []).append(item)

    def starting(self, text: str) -> list[T]:
        """The items whose prefix `text` starts with."""
        found: list[T] = []
        if self._short:
            for length in range(min(_STEM_CHARS, len(text) + 1)):
                if items := self._short.get(text[:length]):
                    found += items
        of_stem = self._by_stem.get(text[:_STEM_CHARS])
        if of_stem:
            for length, by_prefix in of_stem.items():
                if items := by_prefix.get(text[:length]):
                    found += items
        return found
