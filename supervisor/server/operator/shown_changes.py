"""What a person is shown of a changed file, and must have been shown before they approve it.

Page, JSON API and command line look through here, and each approval of one is held against it:
what can't be shown can't be approved. It must never take a card that failed for an empty one.
"""

import structlog

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request
from supervisor.core.files.change_card import ChangeCard
from supervisor.errors import UserError
from supervisor.server.common.parts import Parts

log = structlog.get_logger("pages")


async def card_of(parts: Parts, request: Request) -> ChangeCard | None:
    """Return what a request would change in a file; None where it is about no file, or nothing of
    its session is left that could show it."""
    workspace = parts.workspace_of(request.session_id)
    if workspace is None or not isinstance(request.action, FileChange):
        return None
    try:
        return await workspace.card(request)
    except Exception as error:  # one that can't be compared must not take the inbox away
        log.warning("no change to show", request=request.id, error=str(error))
        return None


async def must_be_shown(parts: Parts, request: Request) -> None:
    """`UserError` where it is about a file, and can't be shown."""
    if isinstance(request.action, FileChange) and await card_of(parts, request) is None:
        raise UserError(
            "what this would change can't be shown, so it can't be approved",
            "deny it, or compare the session's copy with your folder yourself",
        )
