"""`gatehouse policy replay`."""

from supervisor.errors import UserError
from supervisor.settings import Settings


def replay(against: str, audit: str | None, settings: Settings, *, fail_if_wider: bool, as_json: bool) -> int:
    """Being built."""
    raise UserError("not built yet", "")
