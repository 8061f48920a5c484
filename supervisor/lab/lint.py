"""`gatehouse policy lint`."""

from supervisor.errors import UserError
from supervisor.settings import Settings


def lint(policy_file: str | None, audit: str | None, settings: Settings, *, as_json: bool) -> int:
    """Being built."""
    raise UserError("not built yet", "")
