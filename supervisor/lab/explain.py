"""`gatehouse policy explain`."""

from supervisor.errors import UserError
from supervisor.settings import Settings


def explain(
    action: list[str], policy_file: str | None, workspace: str | None, settings: Settings, *, as_json: bool
) -> int:
    """Being built."""
    raise UserError("not built yet", "")
