"""Reads the state of a pull request from the forge, and updates its slot.

A delivery only triggers this: its content may be old, partly forged, or lost. A poll triggers it
too.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import cast

from sqlalchemy import Engine

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core import forge_acts
from supervisor.core.forge_acts import spelled
from supervisor.reviews.core import deliveries, slots
from supervisor.reviews.core.forge_people import is_same_person
from supervisor.reviews.core.receipts import (
    BASE_CHANGED,
    CALLED_OFF,
    LABEL,
    Outcome,
    reason_words,
)
from supervisor.reviews.core.slots import dead_wait_s
from supervisor.reviews.core.trust import WRITERS, Trust, trusted
from supervisor.reviews.forges.base import (
    Forge,
    ForgeError,
    Forges,
    PullFacts,
    RepositoryFacts,
)
from supervisor.reviews.forges.bitbucket import Bitbucket
from supervisor.reviews.signed_receipts import Receipts
from supervisor.reviews.store import queries
from supervisor.reviews.stored_slots import Slots

# How long the bodies of handled deliveries are kept, and their other data. A forge sends none again
# after three days.
BODIES_S, LINES_S = 7 * 86_400.0, 90 * 86_400.0
# A delivery that failed is tried again after 1, 2, 4 ... minutes: for half an hour.
MOST_ATTEMPTS = 6
BACK_OFF_S = 30.0
# How often at most the poll retries a head whose reviews failed.
MOST_RUNS_OF_HEAD = 3
MOST_RUNS_AN_HOUR = 50


class Reconcile:
    """Reads pull requests for one supervisor. `readers` are those of each forge's webhooks;
    `standing` returns the id of a repository's standing
    session, which it makes at first; `withdraw` closes the open requests about a pull request;
    `wants_drafts` tells whether some prompt looks at drafts; `answer_comment` answers a mention."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        forges: Forges,
        readers: Mapping[str, deliveries.WebhookReader],
        slots_: Slots,
        receipts: Receipts,
        standing: Callable[[str], str],
        withdraw: Callable[[queries.Repository, int, str], None],
        wants_drafts: Callable[[queries.Repository], Awaitable[bool]],
        answer_comment: Callable[[queries.Repository, queries.Delivery], Awaitable[str]],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._forges = forges
        self._readers = readers
        self._slots = slots_
        self._receipts = receipts
        self._standing = standing
        self._withdraw = withdraw
        self._wants_drafts = wants_drafts
        self._answer_comment = answer_comment
        # When a forge that had too many calls takes some again.
        self._rests_until: dict[str, float] = {}
        self._polled = set[int]()

    async def handle_all(self) -> None:
        """Handle every unhandled delivery, oldest first."""
        with self._engine.connect() as connection:
            waiting = queries.unhandled(connection, MOST_ATTEMPTS)
        # All of these came before: one poll tells of every push among them.
        self._polled.clear()
        now = self._clock.now()
        for one in waiting:
            if now < self._rests_until.get(one.forge, 0.0):
                continue
            if not one.attempts or now >= one.received_at + BACK_OFF_S * 2**one.attempts:
                await self._handle(one)

    async def _handle(self, delivery: queries.Delivery) -> None:
        facts: dict[str, object] = {"attempts": delivery.attempts + 1}
        try:
            outcome = await self._outcome(delivery)
            facts |= {"handled_at": self._clock.now(), "outcome": outcome, "error": ""}
        except ForgeError as error:
            facts["error"] = str(error)[:500]
            if error.retry_at is not None:
                self._rests_until[delivery.forge] = error.retry_at
                facts["attempts"] = delivery.attempts
            elif not error.may_retry or delivery.attempts + 1 >= MOST_ATTEMPTS:
                facts |= {"handled_at": self._clock.now(), "outcome": "failed"}
        except Exception as error:
            log.exception("a delivery failed", delivery=delivery.delivery_id)
            facts["error"] = f"{type(error).__name__}: {error}"[:500]
            if delivery.attempts + 1 >= MOST_ATTEMPTS:
                facts |= {"handled_at": self._clock.now(), "outcome": "failed"}
        with self._engine.begin() as connection:
            queries.change_delivery(connection, delivery, **facts)

    async def _outcome(self, delivery: queries.Delivery) -> str:
        reader = self._readers.get(delivery.forge)
        kind = reader.kind(delivery.event, delivery.action) if reader else ""
        if kind == "repositories":
            await self.repositories()
            return "reconciled"
        if not kind or not delivery.repository:
            return "ignored"
        repository = self._known(delivery)
        if repository is None:
            forge = self._forges.of(delivery)
            if isinstance(forge, Bitbucket):
                named = {one.lower() for one in forge.names}
                if delivery.repository.lower() not in named:
                    return "ignored"
            await self._repositories(forge)
            repository = self._known(delivery)
        if repository is None:
            return "ignored"
        if kind == "comment":
            return await self._answer_comment(repository, delivery)
        if kind == "push":
            if repository.id not in self._polled:
                await self._poll(repository)
                self._polled.add(repository.id)
            return "reconciled"
        if delivery.number is None:
            return "ignored"
        return await self.pull(repository, delivery.number)

    def _known(self, delivery: queries.Delivery) -> queries.Repository | None:
        with self._engine.connect() as connection:
            found = queries.repository(connection, delivery.forge, delivery.repository)
        return None if found is None or found.removed_at is not None else found

    async def repositories(self) -> None:
        """Store the repositories that we have access to."""
        for forge in self._forges:
            await self._repositories(forge)

    async def _repositories(self, forge: Forge) -> None:
        installed = await forge.installed()
        names = {one.full_name for one in installed.repositories} | installed.unread_names
        with self._engine.begin() as connection:
            known = {
                one.full_name: one
                for one in queries.all_repositories(connection)
                if one.forge == forge.name
            }
            for one in installed.repositories:
                if not deliveries.is_full_name(one.full_name):
                    continue
                facts = {
                    "external_id": one.external_id,
                    "installation_id": one.installation_id,
                    "default_branch": one.default_branch,
                    "clone_url": one.clone_url,
                    "may_resolve": one.may_resolve,
                    "removed_at": None,
                }
                if one.full_name in known:
                    queries.change_repository(connection, known[one.full_name].id, **facts)
                else:
                    session_id = self._standing(spelled(forge.name, one.full_name))
                    queries.add_repository(
                        connection,
                        forge=forge.name,
                        full_name=one.full_name,
                        session_id=session_id,
                        **facts,
                    )
            for name, one_known in known.items():
                is_gone = name not in names and one_known.installation_id not in installed.unread
                if is_gone and one_known.removed_at is None:
                    queries.change_repository(
                        connection, one_known.id, removed_at=self._clock.now()
                    )

    async def poll(self) -> None:
        """Find changes that no webhook reported: undelivered webhooks, and open pull requests."""
        now = self._clock.now()
        with self._engine.begin() as connection:
            queries.tidy_deliveries(
                connection, bodies_before=now - BODIES_S, lines_before=now - LINES_S
            )
        answering, errors = set[str](), list[ForgeError]()
        for forge in self._forges:
            with _apart(f"{forge.title}'s deliveries"):
                await self._fetch_lost(forge)
            try:
                await self._repositories(forge)
                answering.add(forge.name)
            except ForgeError as error:
                errors.append(error)
        if errors and not answering:
            raise errors[0]
        for one in errors:
            log.warning("a forge can't be asked", error=str(one))
        with self._engine.connect() as connection:
            watched = [
                one
                for one in queries.all_repositories(connection)
                if one.enabled and one.removed_at is None and one.forge in answering
            ]
        for repository in watched:
            with _apart(repository.full_name):
                await self._poll(repository)

    async def _fetch_lost(self, forge: Forge) -> None:
        """Have undelivered webhooks sent again."""
        for failed in await forge.failed_deliveries():
            with self._engine.connect() as connection:
                known = queries.delivery(connection, forge.name, failed.guid)
            if known is None:
                with _apart(f"delivery {failed.guid}"):
                    await forge.redeliver(failed)

    async def _poll(self, repository: queries.Repository) -> None:
        pulls = await self._forges.of(repository).open_pulls(facts_of(repository))
        for facts in pulls:
            if not self._has_failed(repository, facts):
                with _apart(f"{repository.full_name}#{facts.number}"):
                    await self._take(repository, facts)
        numbers = {one.number for one in pulls}
        with self._engine.connect() as connection:
            gone = [
                one.number
                for one in queries.open_pulls(connection, repository.id)
                if one.number not in numbers
            ]
        for number in gone:
            with _apart(f"{repository.full_name}#{number}"):
                await self.pull(repository, number)

    def _has_failed(self, repository: queries.Repository, facts: PullFacts) -> bool:
        """Return whether reviews of this head failed so often that only a person or another push
        starts a new one. A dead head is tried again, later each time: the forge has just shown that
        it answers."""
        with self._engine.connect() as connection:
            known = queries.pull_numbered(connection, repository.id, facts.number)
            runs = [] if known is None else queries.runs_of(connection, known.id)
        of_head = [one for one in runs if one.head_sha == facts.head_sha]
        dead = [one.ended_at or 0.0 for one in of_head if one.outcome == "dead"]
        if dead and self._clock.now() < dead[-1] + dead_wait_s(len(dead)):
            return True
        return sum(one.outcome == "failed" for one in of_head) >= MOST_RUNS_OF_HEAD

    async def pull(
        self,
        repository: queries.Repository,
        number: int,
        *,
        full: bool = False,
        called: bool = False,
        again: bool = False,
    ) -> str:
        """Read a pull request from the forge, and update its slot. Return the outcome in a word.
        `full`: somebody wants a review even if this head has one; `called`: somebody who may write
        wants a review; `again`: a run has something to do even if this head was reviewed."""
        facts = await self._forges.of(repository).pull(facts_of(repository), number)
        return await self._take(repository, facts, full=full, called=called, again=again)

    async def _take(
        self,
        repository: queries.Repository,
        facts: PullFacts,
        *,
        full: bool = False,
        called: bool = False,
        again: bool = False,
    ) -> str:
        own = await self._forges.of(repository).own_login()
        permission, may = "none", True
        if not facts.is_fork and facts.is_open:
            permission = await self._permission(repository, facts.author)
        if facts.is_fork and facts.is_open and not called:
            may = await self._is_let_in(repository, facts)
        may_look = facts.is_draft and facts.is_open and repository.enabled
        looks = may_look and await self._wants_drafts(repository)
        now = self._clock.now()
        with self._engine.begin() as connection:
            before = queries.pull_numbered(connection, repository.id, facts.number)
            pull_id = queries.put_pull(
                connection,
                repository.id,
                facts.number,
                title=facts.title[:1000],
                author=facts.author[:256],
                author_permission=permission,
                fork=facts.is_fork,
                draft=facts.is_draft,
                base_ref=facts.base_ref,
                base_sha=facts.base_sha,
                head_ref=facts.head_ref,
                head_sha=facts.head_sha,
                closed_at=None if facts.is_open else now,
                labels=list(facts.labels[:100]),
                body=facts.body[:20_000],
            )
            recent = queries.runs_since(connection, repository.id, now - 3600)
            was_reviewed = queries.slot(connection, pull_id).last_reviewed_sha == facts.head_sha
            known = queries.pull(connection, pull_id)
            runs = [
                one
                for one in queries.runs_of(connection, pull_id)
                if one.head_sha == facts.head_sha
            ]
            of_head = [one for one in runs if one.ended_at is not None]
            receipts = [
                one
                for one in queries.receipts_of(connection, [pull_id])
                if one.head_sha == facts.head_sha
            ]
        # A review for another base doesn't count for this one; a current run may already be for
        # this one.
        is_moved = queries.is_for_other_base(runs, facts.head_sha, facts.base_ref)
        is_moved = is_moved and runs[-1].ended_at is not None
        if looks and of_head and not full:
            return "draft"
        reason, outcome = self._filtered(
            repository,
            facts,
            is_own=is_same_person(facts.author, own),
            is_paused=bool(known.paused_by),
            may=may,
            recent=recent,
            skips_draft=facts.is_draft and not looks,
        )
        if reason:
            self._slots.happened(pull_id, slots.Closed(reason))
            if reason in ("closed", "disabled"):
                self._withdraw(repository, facts.number, reason_words(reason))
            if reason != "closed" and (is_moved or not was_reviewed):
                self._receipts.leave(pull_id, facts.head_sha, outcome=outcome, reason=reason)
            return reason
        if is_moved and receipts and receipts[-1].outcome not in ("held", "failed"):
            self._receipts.leave(pull_id, facts.head_sha, outcome="held", reason=BASE_CHANGED)
        # Prompts may be looking at the draft now, but that isn't a review of it.
        was_draft = before is not None and before.draft and not facts.is_draft
        full = full or was_draft or is_moved
        if receipts and receipts[-1].reason == CALLED_OFF and not (full or called or again):
            return CALLED_OFF
        self._slots.happened(pull_id, slots.Wanted(facts.head_sha, full, again))
        return "wanted"

    async def _permission(self, repository: queries.Repository, login: str) -> str:
        """Return the permission of a pull request's author; `none` if the forge can't be asked."""
        try:
            return await self._forges.of(repository).permission(facts_of(repository), login)
        except ForgeError as error:
            log.warning("who may write can't be asked", repo=repository.full_name, error=str(error))
            return "none"

    async def _is_let_in(self, repository: queries.Repository, facts: PullFacts) -> bool:
        """Return whether somebody who may write wanted a fork's pull request reviewed: by an
        earlier mention, or by the label, which others may set, too."""
        with self._engine.connect() as connection:
            known = queries.pull_numbered(connection, repository.id, facts.number)
            if known is not None and queries.was_called(connection, known.id, "review"):
                return True
        if LABEL not in facts.labels:
            return False
        forge, place = self._forges.of(repository), facts_of(repository)
        by = await forge.labelled_by(place, facts.number, LABEL)
        return bool(by) and await forge.permission(place, by) in WRITERS

    def _filtered(
        self,
        repository: queries.Repository,
        facts: PullFacts,
        *,
        is_own: bool,
        is_paused: bool,
        may: bool,
        recent: int,
        skips_draft: bool,
    ) -> tuple[str, Outcome]:
        """Return the reason code for not reviewing a pull request, "" to review it, and the
        receipt's outcome. `receipts.REASONS` has the texts of the codes."""
        if not facts.is_open:
            return "closed", "skipped"
        if not repository.enabled:
            return "disabled", "skipped"
        if is_own:
            return "own", "skipped"
        if is_paused:
            return "paused", "held"
        if skips_draft:
            return "draft", "skipped"
        if recent >= MOST_RUNS_AN_HOUR:
            return "too-many", "held"
        if not may:
            return "waits-for-writer", "held"
        return "", "skipped"


@contextlib.contextmanager
def _apart(what: str) -> Iterator[None]:
    """Log a failure that concerns one item, and continue with the others; the next poll tries
    again."""
    try:
        yield
    except ForgeError as error:
        log.warning("the forge can't be asked", about=what, error=str(error))
    except Exception:
        log.exception("a poll failed", about=what)


def facts_of(repository: queries.Repository) -> RepositoryFacts:
    """Return a repository in the form that the forge's client accepts."""
    return RepositoryFacts(
        forge=cast("forge_acts.Forge", repository.forge),
        full_name=repository.full_name,
        external_id=repository.external_id or 0,
        installation_id=repository.installation_id or 0,
        default_branch=repository.default_branch,
        clone_url=repository.clone_url,
        may_resolve=repository.may_resolve,
    )


def trust_of(pull: queries.PullRequest) -> Trust:
    """Return which commit's configuration applies to a pull request."""
    return trusted(fork=pull.fork, permission=pull.author_permission)
