"""Conversations of named agents, kept by workspace and agent for a later session's `--resume`.

A folder in the data folder, outside of every copy, is shown in the home of the agent's own sandbox
and nowhere else. Its content is the agent's: nothing here reads it, or follows a link in it.
"""

import hashlib
from pathlib import Path
from typing import cast

from supervisor.core.agents.agents import AGENTS, AgentName
from supervisor.core.sessions import Session
from supervisor.errors import UserError
from supervisor.sandbox.session_home import make_folders
from supervisor.sessions.kept_copies import remove_all
from supervisor.settings import Settings

FOLDER = "conversations"


def folder_of(session: Session, settings: Settings) -> Path | None:
    """Return where a session's conversations are kept; None for one that keeps none: a job's would
    be the latest one that a person continues."""
    if session.kind != "agent" or not session.agent or settings.backend != "bubblewrap":
        return None
    return settings.data_dir / FOLDER / key_of(session.workspace) / session.agent


def key_of(workspace: str) -> str:
    """Return the name of a folder for what is kept of a workspace."""
    return hashlib.sha256(workspace.encode()).hexdigest()[:24]


def prepare(session: Session, settings: Settings) -> None:
    """Make the folder, and the mount points in it for what is no conversation."""
    folder = folder_of(session, settings)
    if folder is not None:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        make_folders(folder, AGENTS[cast("AgentName", session.agent)].conversations.forgotten)


async def forget(settings: Settings, agent: AgentName | None) -> int:
    """Remove an agent's conversations, or all. Return of how many workspaces there were some."""
    kept = settings.data_dir / FOLDER
    found = [one for one in kept.glob("*/*") if agent in (None, one.name)]
    for one in found:
        if not await remove_all(one.parent, (one.name,)):
            raise UserError(f"not all of `{one}` could be removed", "remove it by hand")
    return len({one.parent for one in found})
