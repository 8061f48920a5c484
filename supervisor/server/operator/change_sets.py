"""Many changed files of a session as one card: read what waits, answer what was shown.

Shared by pages, JSON API and CLI. For most sessions only rows are counted. A session's changes are
read when its card is viewed, and each content is searched once, in a thread. It must never answer
for a change that the caller didn't see: each answer names what was shown, and an answer to anything
else is refused.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from supervisor.base import log
from supervisor.core.actions import FileChange
from supervisor.core.approvals import Answer, Request
from supervisor.core.files.change_card import ReadContent
from supervisor.core.files.change_tree import (
    FEW_CHANGES,
    FLAG_NOTES,
    ChangeSet,
    Leaf,
    Level,
    Shown,
    Waiting,
)
from supervisor.core.files.changes import is_content
from supervisor.core.files.content_flags import flags_of
from supervisor.core.files.line_comments import LineComment, reason_with
from supervisor.core.files.text_diff import MOST_TEXT_BYTES, count_lines
from supervisor.core.files.write_scope import WriteScope
from supervisor.core.policy.file_rules import FileJudge
from supervisor.core.secrets.redact import Redactor
from supervisor.core.verdicts import OUT_OF_SCOPE
from supervisor.errors import ChangedError, GatehouseError, NotFoundError, UserError
from supervisor.parts import Parts
from supervisor.server.common.views import shown as made_visible
from supervisor.server.operator.shown_changes import why_not_seen

# Most changes that a card lists as needing a separate look.
MOST_CAREFUL = 100
MOST_REMEMBERED = 100_000


class LastAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the changes that were answered last, together or alone. `problem` is the first
    failure's reason."""

    answer: Answer
    number: int
    done: int
    failed: int
    problem: str


class SetView(msgspec.Struct, frozen=True, kw_only=True):
    """A session's waiting changes, as far as they are shown: one folder of them, and those that
    need a separate look. A folder's `shown` is sent back with the answer for it."""

    session_id: str
    workspace: str
    waiting: int
    level: Level
    careful: tuple[Leaf, ...]
    more_careful: int
    last: LastAnswer | None


class LeftOut(NamedTuple):
    """What a person took the tick from: files, and folders with all that is in them, but the paths
    in these that they ticked again."""

    ids: Sequence[str] = ()
    folders: Sequence[str] = ()
    but: Sequence[str] = ()


LEFT_NOTHING = LeftOut()


class _Found(NamedTuple):
    """Flags of a new content that a person must not overlook, and how many lines were added and
    removed."""

    flags: tuple[str, ...]
    lines: tuple[int, int] | None = None


_UNREAD = _Found(("unread",))
# The hashes of the content before and after; None where there is no content.
type _Contents = tuple[str | None, str | None]


class Flagged:
    """Caches the flags of changed contents: each is searched once, since a hash's content never
    changes."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._found: dict[_Contents, _Found] = {}

    def learn(self, content: ReadContent, pairs: Iterable[_Contents]) -> None:
        """Search these contents, pairs of the hash before and after, and cache their flags.
        Blocking: call it in a thread."""
        if len(self._found) > MOST_REMEMBERED:
            self._found.clear()
        for before, after in pairs:
            old, new = (
                content(one, MOST_TEXT_BYTES) if one is not None else b"" for one in (before, after)
            )
            self._found[before, after] = self._look(old, new)

    def _look(self, old: bytes | None, new: bytes | None) -> _Found:
        is_text = new is None or b"\0" not in new
        if new is None or (is_text and len(new) > MOST_TEXT_BYTES):
            return _UNREAD
        is_counted = old is not None and max(len(old), len(new)) <= MOST_TEXT_BYTES
        lines = count_lines(old or b"", new) if is_counted else None
        return _Found(flags_of(old or b"", new, self._redactor, is_text=is_text).names, lines)

    def unknown(self, waiting: Iterable[Waiting]) -> set[_Contents]:
        """Return the contents that weren't searched yet."""
        pairs = {pair for one in waiting if (pair := _contents(one)) is not None}
        return pairs - self._found.keys()

    def of(self, waiting: Iterable[Waiting]) -> dict[str, _Found]:
        """Return by id what was found in contents; unsearched ones need a look, too."""
        pairs = ((one.id, _contents(one)) for one in waiting)
        return {one: self._found.get(pair, _UNREAD) for one, pair in pairs if pair is not None}


class ChangeSets:
    """Change sets of one operator's door. They are read in a thread, since there can be thousands
    of changes. Call `learn` before `read` and `answer`.

    INVARIANT: only this class decides what a bulk approval never covers.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._flagged = Flagged(parts.redactor)

    def large(self) -> dict[str, int]:
        """Return the sessions whose waiting changes are one card, with their number."""
        return {
            one: number
            for one, number in self._parts.queue.waiting_changes().items()
            if number > FEW_CHANGES
        }

    async def learn(self, session_id: str) -> None:
        """Find out which changes need a separate look. If the session's copy is gone, all do, so
        that they can be denied. Raise `NotFoundError` where there is no such session."""
        self._parts.sessions.get(session_id)
        workspace = self._parts.workspace_of(session_id)
        unknown = await asyncio.to_thread(lambda: self._flagged.unknown(self._waiting(session_id)))
        if unknown and workspace is not None:
            try:
                await workspace.read_contents(lambda read: self._flagged.learn(read, unknown))
            except (GatehouseError, OSError) as error:
                log.warning("changes can't be read", session=session_id, error=str(error))

    async def read(self, session_id: str, until: float | None = None) -> ChangeSet:
        """Return what waits now, or only what was asked until then."""
        return await asyncio.to_thread(self._read, session_id, until)

    def _read(self, session_id: str, until: float | None = None) -> ChangeSet:
        waiting = self._waiting(session_id)
        found = self._flagged.of(waiting)
        notes = {
            one: [FLAG_NOTES[name] for name in of.flags] for one, of in found.items() if of.flags
        }
        files = self._judge(session_id)
        for one in waiting:
            if named := files.names_noted(one.action):
                notes.setdefault(one.id, [])[:0] = named
        for one in self._outside(session_id, waiting):
            notes.setdefault(one.id, []).insert(0, OUT_OF_SCOPE)
        lines = {one: of.lines for one, of in found.items() if of.lines is not None}
        return ChangeSet(waiting, notes, until, lines)

    def _judge(self, session_id: str) -> FileJudge:
        """Return the judge that knows the protected names of the session's policy."""
        session = self._parts.sessions.get(session_id)
        policies = self._parts.gate.rulings.policies_of(session_id)
        judge = policies.for_session(session.policy_text).judge_for("filesystem")
        assert isinstance(judge, FileJudge)
        return judge

    async def left_out(self, requests: Iterable[Request]) -> dict[str, str]:
        """Return, by id with the reason, which of these changed files a bulk approval never covers:
        those that need a separate look, and those that weren't shown completely."""
        changes = [one for one in requests if isinstance(one.action, FileChange)]
        found: dict[str, str] = {}
        for session_id in dict.fromkeys(one.session_id for one in changes):
            await self.learn(session_id)
            notes = (await self.read(session_id)).notes
            found |= {one: "; ".join(several) for one, several in notes.items()}
        for one in changes:
            if one.id not in found and (why := await why_not_seen(self._parts, one)):
                found[one.id] = why
        return {one.id: found[one.id] for one in changes if one.id in found}

    def _outside(self, session_id: str, waiting: Iterable[Waiting]) -> list[Waiting]:
        """Return the changes that are outside the scope of the session's job."""
        job = self._parts.sessions.get(session_id).job
        if job is None or not job.scope:
            return []
        scope = WriteScope(job.scope)
        return [one for one in waiting if not scope.covers(one.action)]

    async def view(self, session_id: str, below: str = "") -> SetView:
        """Return what waits, as a person sees it before answering."""
        return await asyncio.to_thread(
            lambda: self.view_of(self._read(session_id), session_id, below)
        )

    def view_of(self, found: ChangeSet, session_id: str, below: str = "") -> SetView:
        """Return the same for changes that were read. Takes long where there are thousands: call it
        in a thread."""
        level = found.level(below)
        if below and not level.folder.files:
            raise NotFoundError(f"nothing below `{below}` waits", "look at the list as it is now")
        careful = found.careful()
        return SetView(
            session_id=session_id,
            workspace=made_visible(
                self._parts.sessions.get(session_id).workspace, self._parts.redactor
            ),
            waiting=len(found.waiting),
            level=level,
            careful=tuple(careful[:MOST_CAREFUL]),
            more_careful=max(0, len(careful) - MOST_CAREFUL),
            last=self.last(session_id),
        )

    async def answer(
        self,
        session_id: str,
        given: Answer,
        *,
        by: str,
        below: str = "",
        seen: Shown | None,
        ticked: Mapping[str, str] | None = None,
        left: LeftOut = LEFT_NOTHING,
        reason: str = "",
        comments: Mapping[str, list[LineComment]] | None = None,
        hunks: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Request]:
        """Answer for a folder, or for all: exactly what was `seen`, in one transaction. Return the
        answered requests.

        An approval leaves out changes that need a separate look, unless they were ticked (id to
        fingerprint), and those that are `left` out; of these the ones with `comments` are denied
        with them. Of those with `hunks` only these are approved, each in a transaction of its own,
        and the rest of them waits. A denial covers all, each with its comments. Raise
        `ChangedError` where anything else waits than was seen. Changes asked after `seen.until`
        stay as they are.
        """
        if seen is None:
            raise ChangedError.unsaid(
                "send `shown` of the folder, as `GET /api/sessions/ID/changes` gives it"
            )
        ids = await asyncio.to_thread(
            self._covered, session_id, given, below, seen, ticked or {}, left
        )
        if ids is None:
            raise ChangedError.several()
        said = self._said(session_id, reason, comments or {})
        if given == "denied":
            ids = [one for one in ids if one not in said]
        elif not said.keys().isdisjoint(ids):
            raise UserError(
                "a file that you commented on is ticked", "take its tick away, or the comment"
            )
        workspace = self._parts.workspace_of(session_id)
        if ids and given == "approved" and workspace is not None:
            await workspace.read_contents(lambda read: None)  # else nothing could be carried out
        in_part = [one for one in ids if given == "approved" and one in (hunks or {})]
        ids = [one for one in ids if one not in in_part]
        if not ids and not said and not in_part:
            raise UserError(
                "nothing of this waits for this answer",
                "tick what needs a look of its own, or reload",
            )
        # A change that was replaced meanwhile no longer waits under its old id: then nothing is
        # answered.
        taken = [
            await self.take_part(
                one, (hunks or {})[one], by=by, fingerprint=self._parts.queue.get(one).fingerprint
            )
            for one in in_part
        ]
        if not ids and not said:
            return taken
        answered = await self._parts.gate.resolve_as_one(
            ids, given, by=by, reason=reason, sent_back=said
        )
        return [*answered, *taken]

    async def take_part(
        self, request_id: str, hunks: Sequence[str], *, by: str, fingerprint: str
    ) -> Request:
        """Approve these hunks of a change, which was shown with that fingerprint; the rest of it
        waits. Return the request for them."""
        session_id = self._parts.queue.get(request_id).session_id
        done = await self._parts.running_workspace(session_id).answer_part(
            request_id, hunks, "pending", by=by, fingerprint=fingerprint
        )
        return done.part

    def _said(
        self, session_id: str, reason: str, comments: Mapping[str, list[LineComment]]
    ) -> dict[str, str]:
        """Return the reasons, by id, of changes that are denied with comments on their lines."""
        paths = {one.id: one.action.path for one in self._waiting(session_id)}
        if not comments.keys() <= paths.keys():
            raise ChangedError.several()
        return {one: reason_with(reason, paths[one], said) for one, said in comments.items()}

    def _covered(
        self,
        session_id: str,
        given: Answer,
        below: str,
        seen: Shown,
        ticked: Mapping[str, str],
        left: LeftOut,
    ) -> list[str] | None:
        found = self._read(session_id, seen.until)
        # INVARIANT: a bulk approval never covers changes outside a job's scope, ticked or not.
        outside = {one.id for one in self._outside(session_id, found.waiting)}
        ticked = {one: mark for one, mark in ticked.items() if one not in outside}
        return (
            found.approved_by(below, seen, ticked, found.left_out(left.ids, left.folders, left.but))
            if given == "approved"
            else found.denied_by(below, seen)
        )

    def last(self, session_id: str) -> LastAnswer | None:
        """Return the outcome of the last answer, or None where there was none."""
        found = self._parts.queue.last_answered_changes(session_id)
        if not found:
            return None
        # What was denied with comments beside an approval isn't of it.
        found = [one for one in found if one[0] == "approved"] or found
        failed = [one for _, one in found if one is not None and not one.get("ok")]
        return LastAnswer(
            answer=found[0][0],
            number=len(found),
            done=sum(one is not None and bool(one.get("ok")) for _, one in found),
            failed=len(failed),
            problem=made_visible(str(failed[0].get("error") or ""), self._parts.redactor)
            if failed
            else "",
        )

    def _waiting(self, session_id: str) -> list[Waiting]:
        return self._parts.queue.changes_of(session_id)


def _contents(change: Waiting) -> _Contents | None:
    """Return the hashes of the old and the new content, if a file's content changes."""
    action = change.action
    if action.operation == "delete":
        return (
            None
            if action.before is None or not is_content(action.before)
            else (action.before, None)
        )
    if (
        action.operation not in ("write", "edit")
        or action.after is None
        or not is_content(action.after)
    ):
        return None
    return action.before, action.after
