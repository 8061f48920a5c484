"""Record what never leaves the copy: impossible paths, and git changes that run programs.

The latter are changes in the copy's `.git` that would make git run programs. They get no cards:
nobody could approve them. Git's folder is the agent's playground, and never compared. It must never
read a file in there, or follow a link out of it.
"""

import asyncio
import os
from typing import NamedTuple

from supervisor.core.actions import FileChange
from supervisor.core.files.changes import Signature, Want, signature_of, to_action
from supervisor.gate.audit_lines import record_refusal
from supervisor.gate.gate import Gate
from supervisor.workspace.disk.beneath import DIRECTORY, Root
from supervisor.workspace.disk.scan import signature_at

# Changes in git's own folder that one session may record.
MOST_ATTEMPTS = 50
_FILES = ("config", "config.worktree", "info/attributes")


class RefusedPath(NamedTuple):
    """A path that is never carried over in its present state: its signature then, and why."""

    signature: Signature | None
    why: str


class Refusals:
    """Refused paths of one session's copy; each is recorded once per state. `compared` is what the
    comparison has examined."""

    def __init__(
        self, copy: Root, gate: Gate, session_id: str, compared: dict[str, Signature]
    ) -> None:
        self._copy = copy
        self._gate = gate
        self._session_id = session_id
        self._compared = compared
        self._refused: dict[str, RefusedPath] = {}

    def refuse(self, name: str, action: FileChange, why: str) -> None:
        """Record that a path is never carried over in its present state."""
        now = signature_at(self._copy, name)
        before = self._refused.get(name)
        if before == RefusedPath(now, why):
            return
        self._refused[name] = RefusedPath(now, why)
        if now is not None:
            self._compared[name] = now
        record_refusal(self._gate.audit, action, self._session_id, why)

    def forget(self, name: str) -> None:
        """Record the path again if it is refused again."""
        self._refused.pop(name, None)

    def clear(self) -> None:
        """Forget all of them, since the rules changed."""
        self._refused.clear()

    def reasons(self) -> dict[str, str]:
        """Return the refused paths, with reasons."""
        return {name: refusal.why for name, refusal in self._refused.items()}


class SessionGit:
    """Watches git's own folder of one session's copy."""

    def __init__(self, copy: Root, gate: Gate, session_id: str) -> None:
        self._copy = copy
        self._gate = gate
        self._session_id = session_id
        self._seen: dict[str, Signature] | None = None
        self._attempts = 0

    async def look(self) -> None:
        """Record what changed since the last look; the first look only remembers."""
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
