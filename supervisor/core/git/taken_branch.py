"""An agent's branch that the operator took into the host's repository."""

from collections.abc import Iterator

import msgspec

OURS = "gatehouse/"
MOST_NAMES = 50


class TakenBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch that was taken: `source` in the private copy, `branch` in the host's repository, at
    `commit`; `commits` are new there."""

    source: str
    branch: str
    commit: str
    commits: int


def names_for(source: str) -> Iterator[str]:
    """Yield the names that an agent's branch may get, in order: its own, then ours."""
    yield source
    yield f"{OURS}{source}"
    for number in range(2, MOST_NAMES):
        yield f"{OURS}{source}-{number}"
