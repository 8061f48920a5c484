"""Takes back a run's posts. A person wants it, so it is granted at once, and recorded.

`service` receives the wish, `poster` carries it out.
"""

import asyncio

from sqlalchemy import Engine

from supervisor.core.approvals import Request, failure, status
from supervisor.core.forge_acts import Act
from supervisor.errors import GatehouseError, NotFoundError, UserError
from supervisor.gate.gate import Gate
from supervisor.reviews.core import posts
from supervisor.reviews.core.forge_people import is_same_person
from supervisor.reviews.forges.base import Forges
from supervisor.reviews.reconcile import facts_of
from supervisor.reviews.store import queries
from supervisor.reviews.targets import find_pull, find_repository, target_of

WAIT_S = 60.0
# The maximum number of a repository's acts that are searched.
MOST_ACTS = 10_000


class TakeBack:
    """Takes posts back for one supervisor."""

    def __init__(self, engine: Engine, gate: Gate, forges: Forges) -> None:
        self._engine = engine
        self._gate = gate
        self._forges = forges

    async def undo(self, wanted: str, *, by: str) -> list[str]:
        """Take back the post of a run, or of each run of a pull request: its URL, or
        `OWNER/REPO#NUMBER`. Return the runs. Raise `UserError` if nothing of it is posted, and
        `GatehouseError` if the forge refuses."""
        found = self._posts(wanted.strip())
        if not found:
            raise UserError(
                f"nothing that `{wanted[:200]}` posted stands on the forge",
                "`gatehouse reviews list` lists the reviews",
            )
        for run, post in found:
            await self._take_back(run, post, by)
        return [run.id for run, _ in found]

    def _posts(self, wanted: str) -> list[tuple[queries.ReviewRun, Request]]:
        """Return the posts that are still on the forge, with their runs, oldest first."""
        with self._engine.connect() as connection:
            if named := find_pull(wanted):
                repository = find_repository(connection, named.repository)
                pull = repository and queries.pull_numbered(connection, repository.id, named.number)
                runs = queries.runs_of(connection, pull.id) if pull else []
            else:
                run = queries.run(connection, wanted)
                runs = [] if run is None else [run]
            if not runs:
                raise NotFoundError(
                    f"no review is known by `{wanted[:200]}`",
                    "give the id of a review, the URL of a pull request, or OWNER/REPO#NUMBER",
                )
            repository = queries.repository_of(
                connection, queries.pull(connection, runs[0].pull_id).repository_id
            )
        requests = self._gate.queue.of_session(repository.session_id, MOST_ACTS)
        standing = {
            posts.run_of(one.action.body): one
            for one in requests
            if isinstance(one.action, Act) and one.action.operation == "post" and _stands(one)
        }
        return [(run, standing[run.id]) for run in runs if run.id in standing]

    async def _take_back(self, run: queries.ReviewRun, post: Request, by: str) -> None:
        act = post.action
        assert isinstance(act, Act)
        with self._engine.connect() as connection:
            pull = queries.pull(connection, run.pull_id)
            repository = queries.repository_of(connection, pull.repository_id)
        review_id = int((post.outcome or {})["id"])
        comments: list[str] = []
        if act.comments:
            forge = self._forges.of(repository)
            login = await forge.own_login()
            comments = [
                str(one.id)
                for one in await forge.comments(facts_of(repository), pull.number)
                if (one.review_id, one.in_reply_to) == (review_id, None)
                and is_same_person(one.author, login)
            ]
        target = target_of(repository, pull, run.head_sha)
        verdicts = [str(review_id)] if act.verdict in ("approve", "request_changes") else []
        undo = posts.undo_act(target, verdicts, comments, by=by, run_id=run.id)
        reason = f"takes back what {post.id} posted"
        asked = self._gate.ask(
            undo, session_id=repository.session_id, reason=reason, origin="reviews"
        )
        if status(asked) == "pending":
            asked = self._gate.resolve(
                asked.id, "approved", by=by, shown_fingerprint=asked.fingerprint
            )
        await self._settled(asked)
        self._gate.pending_writes.note_taken_back({post.id: f"taken back by {by}"})

    async def _settled(self, asked: Request) -> None:
        """Wait until the act is carried out. Raise `GatehouseError` if it isn't."""
        until = asyncio.get_running_loop().time() + WAIT_S
        while True:
            now = self._gate.queue.get(asked.id)
            if status(now) in ("denied", "superseded", "expired"):
                raise GatehouseError(f"it was not taken back: {now.why}", "see the inbox")
            if now.settled_at is not None:
                break
            left_s = until - asyncio.get_running_loop().time()
            if left_s <= 0 or not await self._gate.queue.next_change(asked.id, left_s):
                raise GatehouseError(
                    "the forge doesn't answer yet", "it goes on by itself: see History"
                )
        if why := failure(now):
            raise GatehouseError(f"it was not taken back: {why}", "try again, or do it by hand")


def _stands(request: Request) -> bool:
    outcome = request.outcome or {}
    return bool(outcome.get("ok")) and "id" in outcome and not outcome.get("taken_back")
