"""Card of a conflict: what person and agent each did, and git's suggested merge.

A change has two sides; a conflict has three, and one more possible answer: the merge. INVARIANT:
`merged` names the content that approving the merge would apply, and `merged_diff` is the diff from
the host's content to exactly that.
"""

from typing import Literal

import msgspec

from supervisor.core.files.text_diff import TextDiff, diff

Did = Literal["edited", "created", "deleted", "replaced"]


class ConflictCard(msgspec.Struct, frozen=True, kw_only=True):
    """The two diffs and the merge. `host_diff` and `agent_diff` start from the common base; None if
    it isn't known or that side has no file.

    `merged` is the hash of the merged content, None if there is none; `why_not` then says why.
    `is_stale`: the host changed since this was asked, and a new card is on its way.
    """

    path: str
    host_did: Did
    agent_did: Did
    base: str | None = None
    host: str | None = None
    agent: str | None = None
    host_diff: TextDiff | None = None
    agent_diff: TextDiff | None = None
    merged: str | None = None
    merged_diff: TextDiff | None = None
    why_not: str = ""
    is_stale: bool = False


class ConflictContents(msgspec.Struct, frozen=True):
    """The three contents; None if there is no file, or its content isn't available."""

    base: bytes | None = None
    host: bytes | None = None
    agent: bytes | None = None


def did(was_there: bool, is_there: bool, same_kind: bool = True) -> Did:
    """Describe one side's change of the path, for a person."""
    if not is_there:
        return "deleted"
    if not was_there:
        return "created"
    return "edited" if same_kind else "replaced"


def difference(old: bytes | None, new: bytes | None) -> TextDiff | None:
    """Return the diff from one content to the other, if both are available."""
    return None if old is None or new is None else diff(old, new)
