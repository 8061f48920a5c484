"""Conflicts: paths that both sides changed, the suggested merge, the answers.

    approve            the agent's version is taken (as for any request)
    deny               the host keeps its own, the copy keeps the agent's
    `apply_merge`      a new request for exactly the merged content, answered in the operator's name
                       and applied; the copy gets it, too
    `give_host`        a denial, and the agent's copy gets the host's version

It answers requests, so only the operator's door may call it: no agent route may lead here. It must
never apply content that wasn't shown (a hash names it), or that has conflict markers in it.
"""

import asyncio
import contextlib

import msgspec

from supervisor.base.event_loop import to_end
from supervisor.core.actions import FileChange, content_hash
from supervisor.core.approvals import Request, status
from supervisor.core.files.changes import PERMISSIONS, Known, Seen, Want, name_of, to_action
from supervisor.core.files.conflict_card import ConflictCard, ConflictContents, did, difference
from supervisor.core.files.swaps import single_changes
from supervisor.core.files.text_diff import MOST_TEXT_BYTES
from supervisor.errors import ChangedError, GatehouseError, UserError
from supervisor.gate.gate import Gate
from supervisor.workspace.apply.effects import Effects
from supervisor.workspace.disk.merging import merge_file
from supervisor.workspace.disk.scan import look, look_quietly, read_file
from supervisor.workspace.incoming.incoming import HostChanges
from supervisor.workspace.trees.repositories import Repositories
from supervisor.workspace.trees.trees import Sides

MERGED_REASON = "merged by git from the host's version and the agent's, at the operator's word"
GIVEN_REASON = "the host's version is kept, and the private copy now has it, too"


class _Merge(msgspec.Struct):
    """One conflict: the three contents, and their merge or the reason why there is none."""

    action: FileChange
    known: Known | None
    host: Seen | None
    contents: ConflictContents
    content: bytes | None = None
    why_not: str = ""

    @property
    def mode(self) -> int | None:
        """Return the agent's permissions where it changed them, else the host's."""
        if (
            self.host is None
            or self.known is None
            or self.action.mode != self.known.mode & PERMISSIONS
        ):
            return self.action.mode
        return self.host.mode & PERMISSIONS


class Conflicts:
    """Conflicts of one session. The caller of `apply_merge` or `give_host` holds the channel's
    turn; `card` needs none."""

    def __init__(
        self, sides: Sides, gate: Gate, session_id: str, effects: Effects, host_changes: HostChanges
    ) -> None:
        self._sides = sides
        self._gate = gate
        self._session_id = session_id
        self._effects = effects
        self._host_changes = host_changes

    async def card(self, request: Request) -> ConflictCard:
        """Return each side's change, and the merge. Reads at most a megabyte of each."""
        merge = await self._merge(request)
        action, known, host, contents = merge.action, merge.known, merge.host, merge.contents
        host_is_file = host is not None and host.kind == "file"
        merged = None if merge.content is None else content_hash(merge.content)
        pairs = (
            (contents.base, contents.host),
            (contents.base, contents.agent),
            (contents.host, merge.content),
        )
        diffs = await asyncio.to_thread(lambda: [difference(*pair) for pair in pairs])
        return ConflictCard(
            path=action.path,
            host_did=did(
                known is not None,
                host is not None,
                known is None or host is None or known.kind == host.kind,
            ),
            agent_did=did(
                known is not None,
                action.operation != "delete",
                action.operation in ("write", "edit", "chmod"),
            ),
            base=known.digest if known is not None else None,
            host=host.digest if host_is_file and host is not None else None,
            agent=action.after,
            host_diff=diffs[0],
            agent_diff=diffs[1],
            merged=merged,
            merged_diff=diffs[2],
            why_not=merge.why_not,
            is_stale=(host.token if host is not None else None) != action.before,
        )

    async def merged(
        self, request_id: str, shown: str, fingerprint: str
    ) -> tuple[bytes, int | None]:
        """Return the merged content with its permissions, if it is the one that was shown. Doesn't
        block: git gets a time limit."""
        self._pending(request_id, fingerprint)
        merge = await self._merge(self._gate.queue.get(request_id))
        if merge.content is None:
            raise UserError(
                f"there is no merge: {merge.why_not}", "approve the agent's version, or deny it"
            )
        if content_hash(merge.content) != shown:
            raise ChangedError(
                "this is not the merge that was shown", "look at the conflict again, then answer"
            )
        return merge.content, merge.mode

    async def apply_merge(
        self, request_id: str, content: bytes, mode: int | None, *, by: str, fingerprint: str
    ) -> Request:
        """Ask for exactly this content and approve it. Return the new request. Raise `UserError`
        where the old one is out of date."""
        action = self._pending(request_id, fingerprint)
        name = name_of(action)
        after = await asyncio.to_thread(self._sides.blobs.keep, content)
        wanted = Want("write", action.before, after, mode, hazards=action.hazards)
        noted = await asyncio.to_thread(Repositories(self._sides).noted, to_action(name, wanted))
        merged = self._gate.ask(
            noted, session_id=self._session_id, origin="workspace", reason=MERGED_REASON
        )
        self._effects.agreement.follow_with_copy(merged.id, action.after)
        if status(merged) != "pending":
            return merged  # what the gate allows or refuses by itself needs no answer
        return self._gate.resolve(
            merged.id, "approved", by=by, reason=MERGED_REASON, shown_fingerprint=merged.fingerprint
        )

    async def give_host(self, request_id: str, *, by: str, fingerprint: str) -> Request:
        """Deny the request, and bring the host's version into the copy."""
        action = self._pending(request_id, fingerprint)
        whole, *steps = single_changes(action)
        # Entries that the agent made in a folder's place are removed before it; the host's entries
        # in a folder come after it.
        gone = [step for step in reversed(steps) if step.operation == "delete"]
        parts = [*(step for step in reversed(steps) if step.operation != "delete"), whole, *gone]
        found = await asyncio.to_thread(lambda: [self._both(part) for part in parts])
        answered = self._gate.resolve(
            request_id, "denied", by=by, reason=GIVEN_REASON, shown_fingerprint=fingerprint
        )
        for part, (mine, host) in zip(parts, found, strict=True):
            await self._host_changes.give(name_of(part), mine, host)
        return answered

    def _both(self, action: FileChange) -> tuple[Seen | None, Seen | None]:
        """Return a path's state on both sides, if it is what the action is about."""
        name = name_of(action)
        mine, host = look(self._sides.copy, name), look(self._sides.host, name)
        if (mine.token if mine else None) != action.after:
            raise UserError("the agent has changed it again", "look at the new card")
        if (host.token if host else None) != action.before:
            raise UserError("it was changed on the host again", "look at the new card")
        return mine, host

    def _pending(self, request_id: str, fingerprint: str) -> FileChange:
        request = self._gate.queue.get(request_id)
        if fingerprint != request.fingerprint:
            raise ChangedError.other()
        if status(request) != "pending":
            raise ChangedError.already(status(request))
        action = self._effects.action_of(request)
        if "conflict" not in action.hazards:
            raise UserError("the host did not change this path", "approve or deny it")
        return action

    # -- merging ----------------------------------------------------------------------------------

    async def _merge(self, request: Request) -> _Merge:
        action = self._effects.action_of(request)
        merge = await to_end(lambda: self._look(action))
        merge.why_not = _why_not(merge)
        contents = merge.contents
        if (
            merge.why_not
            or contents.base is None
            or contents.host is None
            or contents.agent is None
        ):
            return merge
        done = await merge_file(contents.base, contents.host, contents.agent)
        merge.content, merge.why_not = done.content, done.why
        if done.content == contents.host:
            merge.content, merge.why_not = None, "the host holds all of the agent's change already"
        return merge

    def _look(self, action: FileChange) -> _Merge:
        name = name_of(action)
        known = self._sides.known(name)
        host = look_quietly(self._sides.host, name)
        base = agent = theirs = None
        if known is not None and known.kind == "file" and known.digest is not None:
            base = self._blob(known.digest)
        if action.operation in ("write", "edit", "chmod") and action.after is not None:
            agent = self._blob(action.after)
        if host is not None and host.kind == "file":
            with contextlib.suppress(OSError, GatehouseError):
                theirs = read_file(self._sides.host, name, MOST_TEXT_BYTES)
        if theirs is not None and content_hash(theirs) != action.before:
            theirs = None
        return _Merge(action, known, host, ConflictContents(base, theirs, agent))

    def _blob(self, digest: str) -> bytes | None:
        data = self._sides.blobs.read(digest, MOST_TEXT_BYTES)
        return data if data is not None and content_hash(data) == digest else None


def _why_not(merge: _Merge) -> str:
    """Return why these can't be merged by content; empty where git may try."""
    action, host, contents = merge.action, merge.host, merge.contents
    if (host.token if host is not None else None) != action.before:
        return "the host changed again since"
    if action.operation == "delete":
        return "the agent deleted it"
    if host is None:
        return "it was deleted on the host"
    if (
        host.kind != "file"
        or action.operation not in ("write", "edit", "chmod")
        or action.after == "dir"
    ):
        return "only files can be merged"
    if merge.known is None:
        return "both sides made it anew, so there is nothing that both began with"
    if contents.host is None or contents.agent is None:
        return f"it is larger than {MOST_TEXT_BYTES >> 20} MB, or can't be read"
    if contents.base is None:
        return "what both sides began with is not kept any more"
    return ""
