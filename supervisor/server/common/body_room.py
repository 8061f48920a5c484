"""Bounds what the agents' doors hold of bodies at once: of one session's, and of all sessions'.

A body counts from its arrival until its call was answered: until then it lies in memory, however
many connections bring others. It knows no requests: the door (`request_guard`) asks it.
"""

MOST_OF_SESSION = 48 * 1024 * 1024
MOST_OF_ALL = 192 * 1024 * 1024


class BodyRoom:
    """So many bytes, in a larger room that is shared with others."""

    def __init__(self, most_bytes: int, shared: "BodyRoom | None" = None) -> None:
        self._left = most_bytes
        self._shared = shared

    def take(self, count: int) -> bool:
        """Return whether there was room for so many bytes more, which are then held."""
        if count > self._left or (self._shared is not None and not self._shared.take(count)):
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        """So many bytes are held no longer."""
        self._left += count
        if self._shared is not None:
            self._shared.give_back(count)


_of_all = BodyRoom(MOST_OF_ALL)


def of_session() -> BodyRoom:
    """Return the room of one session's door."""
    return BodyRoom(MOST_OF_SESSION, _of_all)
