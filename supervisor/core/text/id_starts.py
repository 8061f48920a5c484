"""Starts of ids: people type as much of an id as says which is meant."""

from collections.abc import Iterable

from supervisor.errors import UserError


def only_of(text: str, ids: Iterable[str]) -> str:
    """Return the only one of these ids that begins with a text; the text itself where it is one,
    or none begins so. `UserError` where several do."""
    begun = sorted({one for one in ids if one.startswith(text)})
    if len(begun) < 2 or text in begun:
        return begun[0] if len(begun) == 1 else text
    raise UserError(
        f"`{text[:64]}` is the start of several ids", f"say more of it: {', '.join(begun)}"
    )
