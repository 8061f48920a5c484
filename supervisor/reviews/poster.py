"""Carries out granted acts on a forge. Only this module can write there.

It composes nothing and has no model. Before it acts it looks for the result of an earlier attempt,
so that a crash posts nothing twice.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from supervisor.base.clock import Clock
from supervisor.core.approvals import Request
from supervisor.core.forge_acts import Act
from supervisor.errors import GatehouseError
from supervisor.gate.gate import Gate, Grant, Refused
from supervisor.reviews.clones import CloneError
from supervisor.reviews.core import posts, prompt_posts
from supervisor.reviews.core.receipts import check_id
from supervisor.reviews.forges.base import (
    REVIEW_ID,
    ForgeError,
    Forges,
    MovedError,
    Posted,
    RepositoryFacts,
    ReviewFacts,
    check_head,
)
from supervisor.reviews.forges.bitbucket import Bitbucket
from supervisor.reviews.job_pulls import JobPulls, is_of_job

FIRST_WAIT_S, LONGEST_WAIT_S = 15.0, 300.0
# A forge that is down for this long counts as a failure.
PATIENCE_S = 6 * 3600.0
# How often a held act checks whether its hold still applies.
HELD_LOOK_S = 1.0

UNPROCESSABLE = 422
# The states of a review that can be dismissed.
STANDING = ("approved", "changes_requested")

type FindRepository = Callable[[str, str], RepositoryFacts]
# Called for a failed or outdated act, with the code of the reason.
type Failed = Callable[[Act, str, str], None]


class Poster:
    """The poster of one supervisor. `failed` is called for a failed act; `jobs` carries out
    the acts of jobs; `keeps` says whether an
    act has to wait: it is held, or everything is stopped."""

    def __init__(
        self,
        gate: Gate,
        clock: Clock,
        forges: Forges,
        find_repository: FindRepository,
        failed: Failed,
        jobs: JobPulls,
        keeps: Callable[[Act], bool] = lambda act: False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._gate = gate
        self._clock = clock
        self._forges = forges
        self._find_repository = find_repository
        self._failed = failed
        self._jobs = jobs
        self._keeps = keeps
        self._sleep = sleep
        self._tasks: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """End the waiting tasks. The next start checks acts that were begun, and carries out the
        others."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextlib.contextmanager
    def _known(self) -> Iterator[None]:
        """Register the current task while it runs."""
        task = asyncio.current_task()
        assert task is not None
        is_outer = task not in self._tasks
        self._tasks.add(task)
        try:
            yield
        finally:
            if is_outer:
                self._tasks.discard(task)

    async def carry_out(self, request: Request) -> None:
        """Carry out a ready request, and settle it."""
        with self._known():
            await self._carry_out(request)

    async def _carry_out(self, request: Request) -> None:
        act = self._gate.queue.action_of(request)
        assert isinstance(act, Act)
        await self._released(act)
        grant = self._gate.claim(request.id, request.session_id)
        if not isinstance(grant, Refused):
            await self.do(request, grant)

    async def do(self, request: Request, grant: Grant) -> None:
        """Carry out a granted act, however long the forge is down, and settle it."""
        with self._known():
            await self._do(request, grant)

    async def _do(self, request: Request, grant: Grant) -> None:
        act = self._gate.queue.action_of(request)
        assert isinstance(act, Act)
        until, wait_s = self._clock.monotonic() + PATIENCE_S, FIRST_WAIT_S
        is_used = False
        while True:
            until += await self._released(act)
            try:
                if not is_used:
                    grant.use(act)
                    is_used = True
                REVIEW_ID.set(request.id)
                posted = await self._try(act, request.id)
            except (ForgeError, CloneError) as error:
                if error.may_retry and self._clock.monotonic() < until:
                    await self._sleep(self._wait_s(error, wait_s))
                    wait_s = min(2 * wait_s, LONGEST_WAIT_S)
                    continue
                facts = {"status": error.status} if isinstance(error, ForgeError) else {}
                self._gate.settle(grant, "failed", {"error": str(error)} | facts)
                self._failed(act, "not-posted", str(error))
            except MovedError as error:
                self._gate.settle(grant, "failed", {"error": str(error)})
                self._failed(act, "head-moved", str(error))
            except GatehouseError as error:
                self._gate.settle(grant, "failed", {"error": str(error)})
                self._failed(act, "not-posted", str(error))
            else:
                self._gate.settle(grant, "done", {"id": posted.id, "url": posted.url})
            return

    async def _released(self, act: Act) -> float:
        """Wait while an act is held; return how long that was, in seconds."""
        begun = self._clock.monotonic()
        while self._keeps(act):  # noqa: ASYNC110  # a person may set or remove the stop file by hand
            await asyncio.sleep(HELD_LOOK_S)
        return self._clock.monotonic() - begun

    def _wait_s(self, error: ForgeError | CloneError, wait_s: float) -> float:
        if isinstance(error, CloneError) or error.retry_at is None:
            return wait_s
        return max(1.0, min(error.retry_at - self._clock.now(), 3600.0))

    async def _try(self, act: Act, request_id: str) -> Posted:
        repository = self._find_repository(act.forge, act.repository)
        forge = self._forges.of(act)
        match act.operation:
            case "check":
                external_id = check_id(act.number, act.head)
                return await forge.set_check(repository, act.head, act, external_id)
            case "open-pr" | "update-pr" | "delete-branch" | "open-issue" if is_of_job(act):
                return await self._jobs.post(repository, act)
            case "open-pr":
                return await forge.open_pull(repository, act)
            case "post" if act.prompt:
                return await self._post_prompt(repository, act)
            case "post":
                return await self._post(repository, act)
            case "comment":
                return await self._comment(repository, act, request_id)
            case "reply":
                marked = posts.marked(act, request_id)
                mark = posts.act_mark(request_id, act.forge)
                return await forge.reply(repository, marked, mark)
            case "react":
                return await forge.react(repository, act)
            case "resolve":
                return await self._resolve(repository, act)
            case "dismiss":
                await self._dismiss(repository, act, int(act.targets[0]))
                return Posted(id=int(act.targets[0]))
            case "undo":
                return await self._undo(repository, act)
        raise GatehouseError(f"`{act.operation}` can't be done yet")

    async def _comment(self, repository: RepositoryFacts, act: Act, request_id: str) -> Posted:
        forge = self._forges.of(act)
        if bool(act.comments) == bool(act.body.strip()):
            raise GatehouseError("it is one comment, and has one text", "edit that, or deny it")
        if act.comments:
            if not isinstance(forge, Bitbucket):
                raise GatehouseError("agents comment beside the code on Bitbucket alone")
            return await forge.put_inline(repository, act)
        own = prompt_posts.mark_of(act.body)
        marked = act if own else posts.marked(act, request_id)
        mark = own or posts.act_mark(request_id, act.forge)
        return await forge.post_comment(repository, marked, mark)

    async def _post_prompt(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Post a prompt's review, once."""
        mark = prompt_posts.mark_of(act.body)
        for one in await self._forges.of(act).own_reviews(repository, act.number):
            if mark and prompt_posts.mark_of(one.body) == mark:
                return _posted(one)
        await self._check_head(repository, act)
        return await self._post_review(repository, act)

    async def _check_head(self, repository: RepositoryFacts, act: Act) -> None:
        pull = await self._forges.of(act).pull(repository, act.number)
        check_head(act, pull.head_sha)

    async def _post(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Post a review. If one of our reviews is there already, its text is replaced at the very
        end; new findings get a review of their own, with one line of text."""
        run_id = posts.run_of(act.body)
        ours = await self._forges.of(act).own_reviews(repository, act.number) if run_id else []
        done = [one for one in ours if posts.reviewed_by(one.body) == run_id]
        summary = next((one for one in ours if posts.run_of(one.body)), None)
        forge = self._forges.of(act)
        if done and isinstance(forge, Bitbucket) and done[-1].state not in STANDING:
            # An earlier try said it, and didn't come to give the verdict.
            await forge.give_verdict(repository, act)
        if summary is not None and summary in done:
            return _posted(done[-1])
        if not done:
            await self._check_head(repository, act)
        if summary is None:
            return await self._post_review(repository, act)
        says_more = act.comments or act.verdict not in ("", "comment")
        posted = _posted(done[-1]) if done else None
        if says_more and posted is None:
            posted = await self._post_review(repository, posts.note_act(act))
        edited = await self._forges.of(act).edit_review(
            repository, act.number, summary.id, act.body
        )
        return posted or edited

    async def _post_review(self, repository: RepositoryFacts, act: Act) -> Posted:
        try:
            return await self._forges.of(act).post_review(repository, act)
        except ForgeError as error:
            if error.status != UNPROCESSABLE or not act.comments:
                raise
            # The forge shows less of the diff than git: post the same remarks in the text.
            return await self._forges.of(act).post_review(repository, posts.without_places(act))

    async def _resolve(self, repository: RepositoryFacts, act: Act) -> Posted:
        if not repository.may_resolve:
            raise GatehouseError(
                "the App may not resolve threads", "give it write access to contents and try again"
            )
        for thread_id in act.targets:
            await self._forges.of(act).resolve(repository, thread_id)
        return Posted(id=0)

    async def _dismiss(self, repository: RepositoryFacts, act: Act, review_id: int) -> None:
        """Dismiss our approval or request for changes, even if it was dismissed already."""
        ours = await self._forges.of(act).own_reviews(repository, act.number)
        review = next((one for one in ours if one.id == review_id), None)
        if review is None:
            raise GatehouseError(f"the review {review_id} is none of ours", "dismiss it by hand")
        if review.state in STANDING:
            why = act.body or "This review is out of date."
            await self._forges.of(act).dismiss(repository, act.number, review_id, why)
        elif review.state != "dismissed":
            raise GatehouseError(
                "only an approval or a request for changes can be dismissed", "edit its text"
            )

    async def _undo(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Take back a run's posts. Each step can be repeated."""
        forge = self._forges.of(act)
        ours = await forge.own_reviews(repository, act.number)
        for target in act.targets:
            kind, _, number = target.rpartition(":")
            if kind:
                await forge.delete_comment(repository, act.number, int(number))
            elif any(str(one.id) == number and one.state in STANDING for one in ours):
                await forge.dismiss(repository, act.number, int(number), act.body)
        for one in ours:
            if posts.reviewed_by(one.body) == act.undone_run:
                await forge.edit_review(repository, act.number, one.id, act.body)
        return Posted(id=0)


def _posted(review: ReviewFacts) -> Posted:
    return Posted(id=review.id, url=review.url)
