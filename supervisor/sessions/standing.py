"""Standing sessions, one per repository, for acts on a forge. They have no agent and no sandbox,
and last until the repository is removed, so that gate, record and History know where an act
belongs.
"""

import secrets
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from supervisor.core.sessions import Session, SessionId
from supervisor.records.audit import Audit
from supervisor.store import sessions as store

# Nothing ends them by time.
_CENTURY_S = 100 * 365 * 86_400.0


def open_standing(
    engine: Engine, audit: Audit, name: str, *, folder: Path, now: float, policy: dict[str, Any]
) -> Session:
    """Record a standing session, and return it. `folder`: a place of its own that nothing is in;
    `policy`: as `PolicySets.wanted` gives it."""
    session = Session(
        id=SessionId(secrets.token_hex(16)),
        kind="standing",
        workspace=str(folder / name.replace("/", "--")),
        command=("gatehouse-reviews", name),
        token_hash="",
        created_at=now,
        deadline_at=now + _CENTURY_S,
        started_at=now,
        **policy,
    )
    audit.record("repository_added", session=session.id, repository=name, **policy)
    with engine.begin() as connection:
        store.add(connection, session)
    return session


def standing(engine: Engine) -> list[Session]:
    """Return those that haven't ended."""
    with engine.connect() as connection:
        return store.standing(connection)
