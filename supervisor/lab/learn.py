"""`gatehouse policy learn`."""

from supervisor.errors import UserError
from supervisor.settings import Settings


def learn(audit: str | None, policy_file: str | None, session: str | None, settings: Settings) -> int:
    """Being built."""
    raise UserError("not built yet", "")
