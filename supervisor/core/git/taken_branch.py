"""An agent's branch that the operator took into the host's repository."""

import msgspec


class TakenBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch that was taken: `source` in the private copy, `branch` in the host's repository, at
    `commit`; `commits` are new there."""

    source: str
    branch: str
    commit: str
    commits: int
