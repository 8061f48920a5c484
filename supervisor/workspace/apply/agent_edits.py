"""The agent's waiting edits of a file, to which a further edit is added.

Effects need it to say why edits no longer fit, and to repeat them in a copy that has changed. It
lives in memory only: an approval applies the request's content, not this. Its size must never
depend on how much an agent sends.
"""

from typing import NamedTuple

from supervisor.core.files.changes import Edit

MOST_CHARS = 64 << 20
MOST_CHARS_OF_ONE = 16 << 20
MOST_REASON_CHARS = 1500


class Edits(NamedTuple):
    """A request's edits in order, with the agent's reasons."""

    request_id: str
    edits: tuple[Edit, ...]
    reasons: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Return the text for a person: how many edits, and their reasons, newest first."""
        said = "; ".join(dict.fromkeys(reason for reason in reversed(self.reasons) if reason))[
            :MOST_REASON_CHARS
        ]
        if len(self.edits) == 1:
            return said
        return (
            f"{len(self.edits)} edits of this file: {said}"
            if said
            else f"{len(self.edits)} edits of this file"
        )

    @property
    def chars(self) -> int:
        return sum(len(old) + len(new) for old, new, _ in self.edits)


class AgentEdits:
    """The newest edits of each file in one session. Bounded: the oldest are forgotten first."""

    def __init__(self) -> None:
        self._by_name: dict[str, Edits] = {}

    def remember(self, name: str, edits: Edits) -> None:
        """Store the file's waiting edits."""
        self._by_name.pop(name, None)
        if edits.chars <= MOST_CHARS_OF_ONE:
            self._by_name[name] = edits
        while sum(one.chars for one in self._by_name.values()) > MOST_CHARS:
            del self._by_name[next(iter(self._by_name))]

    def of(self, name: str, request_id: str) -> Edits | None:
        """Return a request's edits, or None where it has none or they are forgotten."""
        found = self._by_name.get(name)
        return found if found is not None and found.request_id == request_id else None

    def forget(self, name: str) -> None:
        """Forget a file's edits, which were made."""
        self._by_name.pop(name, None)
