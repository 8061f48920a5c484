"""Partial approval: the hunks that a person ticked become a request of their own.

    the chosen hunks   a new request for exactly the content that they make; it supersedes the old
                       one, is answered in the operator's name in the same transaction, and applied
                       from its own snapshot
    the rest           `pending`: asked anew. The comparison itself finds what differs in the copy;
                       a request from the agent's API is asked again here, once the part is applied
                       `drop`: its request is made and denied in that same transaction

It answers requests, so only the operator's door may call it: no agent route may lead here. It must
never apply what wasn't shown: the hunks come from the request's own two contents, and the host must
still hold the first of them.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Literal, NamedTuple

import msgspec

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.approvals import Request, explanation, status
from supervisor.core.files.changes import PERMISSIONS, name_of
from supervisor.core.files.hunks import choose, pieces
from supervisor.core.files.text_diff import MOST_TEXT_BYTES
from supervisor.errors import ChangedError, RefusedError, UserError
from supervisor.gate.gate import Gate
from supervisor.workspace.apply.effects import Effects
from supervisor.workspace.disk.scan import TooLargeError, UnsteadyError, look, read_file
from supervisor.workspace.trees.repositories import Repositories
from supervisor.workspace.trees.secrets_seen import hazards_with
from supervisor.workspace.trees.trees import Sides

type Rest = Literal["pending", "drop"]

# Mode changes in a request; the part leaves the mode unchanged.
_OF_THE_MODE = ("new-executable", "setuid", "wider")


class PartAnswered(msgspec.Struct, frozen=True):
    """`part` is the approved and applied request for the chosen hunks; `rest` the one for the
    others, where it was made here. `taken` of `hunks` were chosen."""

    part: Request
    rest: Request | None
    taken: int
    hunks: int


class _Chosen(NamedTuple):
    """The resulting file, with its permissions, hazards and number of hunks; and the hazards of the
    rest."""

    content: bytes
    mode: int | None
    taken: int
    hunks: int
    hazards: tuple[str, ...]
    left_hazards: tuple[str, ...]

    @property
    def in_words(self) -> str:
        return f"{self.taken} of {self.hunks} changes of this file"

    def answer(self, rest: Rest) -> str:
        """Return the text about the part, for the pages and for the agent."""
        left = self.hunks - self.taken
        others = "the other" if left == 1 else f"the other {left}"
        became = (
            ("was dropped" if left == 1 else "were dropped")
            if rest == "drop"
            else "waits"
            if left == 1
            else "wait"
        )
        return f"in part, {self.taken} of {self.hunks} changes; {others} {became}"

    def rest_of(self, action: FileChange, part: Request) -> FileChange:
        """Return what the action still asks once the part is applied. INVARIANT: the comparison
        will find the same then, so a denial of it holds."""
        assert isinstance(part.action, FileChange)
        return msgspec.structs.replace(
            action, before=part.action.after, hazards=self.left_hazards, folders=()
        )


class PartialAnswers:
    """Partial answers of one session. The caller of `answer` holds the channel's turn.
    `ask_again(name)` is called where an answer had no effect; `at` is `Applier`'s, for tests."""

    def __init__(
        self,
        sides: Sides,
        gate: Gate,
        session_id: str,
        effects: Effects,
        ask_again: Callable[[str], None],
        at: Callable[[str], None],
    ) -> None:
        self._sides = sides
        self._gate = gate
        self._session_id = session_id
        self._effects = effects
        self._ask_again = ask_again
        self._at = at

    async def answer(
        self, request_id: str, hunks: Collection[str], rest: Rest, *, by: str, fingerprint: str
    ) -> PartAnswered:
        """Approve these hunks of a card, and apply them. Raise `UserError` where it isn't the card
        that was shown, or the host has changed; then nothing was answered or applied. Raise
        `RefusedError` where the gate refuses the result."""
        request, action = self._pending(request_id, fingerprint)
        chosen = await asyncio.to_thread(self._choose, action, frozenset(hunks))
        left = None
        if chosen.taken == chosen.hunks:
            part = self._gate.resolve(request_id, "approved", by=by, shown_fingerprint=fingerprint)
        else:
            after = await asyncio.to_thread(self._sides.blobs.keep, chosen.content)
            self._at("part kept")
            derived = await asyncio.to_thread(self._derived, action, after, chosen)
            self._pending(request_id, fingerprint)
            part, left = self._answer_together(request, action, derived, chosen, rest, by)
            self._at("part answered")
        await self._effects.carry_out(part)
        part = self._gate.queue.get(part.id)
        if part.outcome is None or not part.outcome.get("ok"):
            self._ask_again(name_of(action))
        elif chosen.taken < chosen.hunks and rest == "pending" and request.origin == "agent_api":
            noted = await asyncio.to_thread(
                Repositories(self._sides).noted, chosen.rest_of(action, part)
            )
            left = self._ask(noted, request, request.reason)
        return PartAnswered(part, left, chosen.taken, chosen.hunks)

    def _answer_together(
        self,
        request: Request,
        action: FileChange,
        derived: FileChange,
        chosen: _Chosen,
        rest: Rest,
        by: str,
    ) -> tuple[Request, Request | None]:
        """Make and approve the part's request, and make and deny the rest's. INVARIANT: nothing
        awaits in here, and it is one transaction: after a crash either the old card still waits, or
        everything is answered."""
        left = None
        with self._gate.queue.together():
            part = self._ask(derived, request, f"{chosen.in_words}, chosen by the operator")
            if status(part) == "pending":
                said = chosen.answer(rest)
                part = self._gate.resolve(
                    part.id,
                    "approved",
                    by=by,
                    reason=said,
                    shown_fingerprint=part.fingerprint,
                    in_part=True,
                )
            if rest == "drop" and status(part) == "approved":
                left = self._drop(chosen.rest_of(action, part), request, chosen, by)
        if status(part) not in ("approved", "allowed"):
            raise RefusedError(
                f"this can't be approved in part: {explanation(part)}", part.remedy or "deny it"
            )
        return part, left

    def _derived(self, action: FileChange, after: str, chosen: _Chosen) -> FileChange:
        """Return the action of the chosen hunks alone."""
        hazards = tuple(hazard for hazard in chosen.hazards if hazard not in _OF_THE_MODE)
        derived = msgspec.structs.replace(action, after=after, mode=chosen.mode, hazards=hazards)
        return Repositories(self._sides).noted(derived)

    def _drop(self, action: FileChange, request: Request, chosen: _Chosen, by: str) -> Request:
        left = self._ask(action, request, request.reason)
        if status(left) != "pending":
            return left
        said = f"left out: only {chosen.in_words} were approved"
        return self._gate.resolve(
            left.id, "denied", by=by, reason=said, shown_fingerprint=left.fingerprint
        )

    def _ask(self, action: FileChange, request: Request, reason: str) -> Request:
        return self._gate.ask(
            action, session_id=self._session_id, origin=request.origin, reason=reason
        )

    def _pending(self, request_id: str, fingerprint: str) -> tuple[Request, FileChange]:
        request = self._gate.queue.get(request_id)
        if request.session_id != self._session_id:
            raise UserError("this request is another session's", "reload the inbox")
        if fingerprint != request.fingerprint:
            raise ChangedError.other()
        if status(request) != "pending":
            raise ChangedError.already(status(request))
        return request, self._effects.action_of(request)

    # -- contents (in a thread) -------------------------------------------------------------------

    def _choose(self, action: FileChange, hunks: frozenset[str]) -> _Chosen:
        """Return the host's file with these hunks. Everything is read again from the contents that
        the request names."""
        if not hunks:
            raise UserError("no change was chosen", "tick at least one, or deny the request")
        if action.operation not in ("write", "edit"):
            raise UserError(
                "only a change of a file's text has parts", "approve or deny it as a whole"
            )
        new = self._sides.blobs.read(action.after or "", MOST_TEXT_BYTES)
        if new is None or len(new) > MOST_TEXT_BYTES or content_hash(new) != action.after:
            raise UserError(
                "this file is too large to be approved in part", "approve or deny it as a whole"
            )
        old, mode = self._host_file(action)
        if not hunks <= {piece.id for piece in pieces(old, new)}:
            raise ChangedError(
                "these are not the changes that were shown", "look at the card again, then answer"
            )
        content, redactor = choose(old, new, hunks), self._gate.redactor
        hazards = hazards_with(action.hazards, old, content, redactor)
        left = hazards_with(action.hazards, content, new, redactor)
        return _Chosen(content, mode, len(hunks), len(pieces(old, new)), hazards, left)

    def _host_file(self, action: FileChange) -> tuple[bytes, int | None]:
        """Return the content that the request will replace, and its permissions, which the part
        keeps."""
        name = name_of(action)
        try:
            host = look(self._sides.host, name)
            if (host.token if host else None) != action.before:
                raise _moved_on(action)
            if host is None:
                return b"", action.mode
            if host.kind != "file":
                raise UserError(
                    "only a change of a file's text has parts", "approve or deny it as a whole"
                )
            old = read_file(self._sides.host, name, MOST_TEXT_BYTES)
        except (OSError, UnsteadyError, TooLargeError) as error:
            raise _moved_on(action) from error
        if content_hash(old) != action.before:
            raise _moved_on(action)
        return old, host.mode & PERMISSIONS


def _moved_on(action: FileChange) -> UserError:
    return UserError(
        f"`{action.path}` changed on the host since this was asked; nothing was applied",
        "wait for the new card",
    )
