"""`gatehouse policy import`."""

from supervisor.errors import UserError


def import_claude(file: str) -> int:
    """Being built."""
    raise UserError("not built yet", "")
