"""`gatehouse policy test`."""

from supervisor.errors import UserError
from supervisor.settings import Settings


def test(folder: str, policy_file: str | None, settings: Settings) -> int:
    """Being built."""
    raise UserError("not built yet", "")
