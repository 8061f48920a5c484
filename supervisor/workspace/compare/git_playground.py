"""Record as refused what would make git run programs in the copy's own `.git`.

That folder is never compared or asked about: it is the agent's playground. It must never read a
file in there, or follow a link out of it.
"""

import asyncio
import os

from supervisor.core.files.changes import Signature, Want, signature_of, to_action
from supervisor.gate.audit_lines import record_refusal
from supervisor.gate.gate import Gate
from supervisor.workspace.disk.beneath import DIRECTORY, Root

MOST_ATTEMPTS = 50
_FILES = ("config", "config.worktree", "info/attributes")


class SessionGit:
    """Git's own folder of one session's copy."""

    def __init__(self, copy: Root, gate: Gate, session_id: str) -> None:
        self._copy = copy
        self._gate = gate
        self._session_id = session_id
        self._seen: dict[str, Signature] | None = None
        self._attempts = 0

    async def look(self) -> None:
        """Put on record what changed since the last look; the first only remembers."""
        seen = await asyncio.to_thread(self._signatures)
        before, self._seen = self._seen, seen
        if before is None:
            return
        for name in sorted(seen):
            if seen[name] != before.get(name) and self._attempts < MOST_ATTEMPTS:
                self._attempts += 1
                action = to_action(name, Want("write", None))
                record_refusal(
                    self._gate.audit,
                    action,
                    self._session_id,
                    "git's own folder in the copy never leaves it",
                )

    def _signatures(self) -> dict[str, Signature]:
        out: dict[str, Signature] = {}
        try:
            git = os.open(".git", DIRECTORY, dir_fd=self._copy.fd)
        except OSError:
            return out
        try:
            for name in _FILES:
                try:
                    out[f".git/{name}"] = signature_of(
                        os.stat(name, dir_fd=git, follow_symlinks=False)
                    )
                except OSError:
                    continue
            hooks = os.open("hooks", DIRECTORY, dir_fd=git)
            try:
                with os.scandir(hooks) as listing:
                    for entry in listing:
                        out[f".git/hooks/{entry.name}"] = signature_of(
                            entry.stat(follow_symlinks=False)
                        )
            finally:
                os.close(hooks)
        except OSError:
            pass
        finally:
            os.close(git)
        return out
