"""Table of protected names: each name, its reason and its source.

Read from `data/protected.yaml`. `file_rules` judges changes by it; pages and
cards show it. It must never be read from a workspace.
"""

import re
from functools import cache
from typing import Literal, NamedTuple

import msgspec

from supervisor.core.actions import Effect, FileChange
from supervisor.core.text.data_tables import table
from supervisor.core.text.globs import inner_expression
from supervisor.core.text.paths import fold

type ProtectionLevel = Literal["deny", "ask", "mark"]
MARK = "runs when you run tests or a build"


class ProtectedEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names that are protected for the same reason. `source`: a page, or a file of this
    repository."""

    names: tuple[str, ...]
    why: str
    source: str


class Protected(NamedTuple):
    """A protected name: its reason; its effect, unless a rule spells the path out; and its remedy
    (the alternative, if it denies)."""

    pattern: str
    why: str
    decision: Effect
    remedy: str = "only a rule that spells the path out lifts this"


class Protection:
    """Protected names: a policy's additions to the built-in table (`protected`), and its removals
    from the table's ask part (`unprotected`)."""

    __slots__ = ("ask", "deny", "lifted")

    def __init__(
        self,
        ask: frozenset[str] = frozenset(),
        deny: frozenset[str] = frozenset(),
        lifted: frozenset[str] = frozenset(),
    ) -> None:
        self.ask, self.deny, self.lifted = ask, deny, lifted

    def joined(self, other: "Protection") -> "Protection":
        """Combine the additions and the removals of both."""
        return Protection(self.ask | other.ask, self.deny | other.deny, self.lifted | other.lifted)


@cache
def entries() -> dict[ProtectionLevel, tuple[ProtectedEntry, ...]]:
    """Return the table as it is written."""
    return msgspec.convert(
        table("protected"), dict[ProtectionLevel, tuple[ProtectedEntry, ...]], strict=True
    )


@cache
def built_in() -> dict[ProtectionLevel, dict[str, str]]:
    """Return each built-in name with its reason, in three groups: denied, asked, and only
    marked."""
    return {
        part: {name: entry.why for entry in found for name in entry.names}
        for part, found in entries().items()
    }


@cache
def sources() -> dict[str, str]:
    """Return the source of each name."""
    return {
        name: entry.source
        for found in entries().values()
        for entry in found
        for name in entry.names
    }


@cache
def _marked() -> re.Pattern[str]:
    names = [fold(name).removesuffix("/**") for name in built_in()["mark"]]
    folders = [
        fold(name).removesuffix("/**") for name in built_in()["mark"] if name.endswith("/**")
    ]
    files, below = ("|".join(map(inner_expression, found)) for found in (names, folders))
    return re.compile(rf"(?:\A|/)(?:(?:{files})\Z|(?:{below})/)", re.DOTALL)


def mark_of(action: FileChange) -> str:
    """Return a card's mark for a file that runs with a person's tests or build; empty for other
    files and for deletions."""
    to = [] if action.operation == "delete" else [action.to or action.path]
    made = [*to, *(step.path for step in action.steps if step.operation != "delete")]
    return MARK if any(_marked().search(fold(path)) for path in made) else ""
