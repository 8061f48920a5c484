"""What a job of updates changed, told by what it commits: versions, ages, links, and mends."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from supervisor.channels.git_pack import CopiedCommits
from supervisor.core.actions import Packages
from supervisor.core.git.scoped_commit import CommittedFile
from supervisor.core.jobs import Updated
from supervisor.core.packages.updates import MOST_LOCKS, lock_of, update_lines, updated
from supervisor.core.review_markdown import in_message
from supervisor.core.sessions import Session
from supervisor.core.text.display import visible
from supervisor.gate.gate import Gate

MOST_ASKED = 1_000
MOST_NOTES, MOST_NOTE_LINES, MOST_NOTE_CHARS = 50, 12, 1_500


async def updated_by(
    session: Session, files: Iterable[CommittedFile], commits: CopiedCommits, gate: Gate
) -> tuple[Updated, ...]:
    """Return the versions that a job changed. `files` are what is to be committed."""
    named = {one.path.decode(errors="replace"): one.data or b"" for one in files}
    found = [path for path in named if lock_of(path)][:MOST_LOCKS]
    locks = {path: named[path].decode(errors="replace") for path in found}
    before = await commits.texts(session.id, session.base or "", locks)
    asked = map(gate.queue.action_of, gate.queue.of_session(session.id, MOST_ASKED))
    plans = [one for one in asked if isinstance(one, Packages)]
    texts = {path: (before[path], text) for path, text in locks.items()}
    return await asyncio.to_thread(updated, texts, plans)


def update_words(session: Session, changes: tuple[Updated, ...]) -> list[str]:
    """Return what a commit's message says of its updates, in parts: the versions, with the age that
    each had when the job began, and what was held back or mended in the agent's words."""
    lines = map(in_message, update_lines(changes, session.created_at))
    said = ["\n".join(f"- {line}" for line in lines)]
    for one in _findings(session.review):
        text = visible(str(one["body"])[-MOST_NOTE_CHARS:])
        kept = [line for line in text.split("\n") if line.strip()][-MOST_NOTE_LINES:]
        body = "\n".join(f"    {line}" for line in kept)
        note = in_message(f"{visible(str(one['title']), one_line=True)}\n{body}")
        # An address refers to an issue, too.
        said.append(note.replace("://", ": //"))
    return said


def _findings(review: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    return list((review or {}).get("findings", ()))[:MOST_NOTES]
