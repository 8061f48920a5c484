"""Rounds of a pull request: the known findings before a review, and after it.

`reviews.core.tracking` decides about each finding; this reads code and database for it.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Engine

from supervisor.base.clock import Clock
from supervisor.core.forge_acts import Severity
from supervisor.core.orders import KnownRemark, Told
from supervisor.core.text.globs import Glob
from supervisor.errors import NotFoundError, PolicyError, UserError
from supervisor.reviews.clones import Checkout, Clones
from supervisor.reviews.core import tracking, trust
from supervisor.reviews.core.diffs import ChangedFile, unseen, with_unseen
from supervisor.reviews.core.findings import PlacedFinding
from supervisor.reviews.core.tracking import HeadCode, RoundOutcome, Said, SaidScope, TrackedFinding
from supervisor.reviews.store import findings, queries


class ReviewRound(NamedTuple):
    """A round that begins. `since`: the head reviewed before, "" for a review of the whole change;
    `touched`: files changed since then or not yet seen; `configuration`: the review configuration
    files that the change itself changes."""

    number: int
    since: str
    touched: list[ChangedFile]
    known: list[TrackedFinding]
    remembered: list[TrackedFinding]
    configuration: list[str]

    def renames(self) -> dict[str, str]:
        """Return the files that were renamed since the last round, old path to new."""
        return {one.old_path: one.path for one in self.touched if one.status == "R"}

    def paths(self) -> set[str]:
        """Return the current files of the known findings."""
        renames = self.renames()
        return {renames.get(one.finding.path, one.finding.path) for one in self.known}

    def remarks(self) -> tuple[KnownRemark, ...]:
        """Return the open findings, for the reader."""
        return tuple(
            KnownRemark(
                id=one.id[:8],
                severity=one.finding.severity,
                path=one.finding.path,
                line=one.line,
                title=one.finding.title,
                quote=one.finding.quote[:300],
            )
            for one in self.known
            if one.state in ("new", "open")
        )


class Rounds:
    """The rounds of one supervisor."""

    def __init__(self, engine: Engine, clock: Clock, clones: Clones) -> None:
        self._engine = engine
        self._clock = clock
        self._clones = clones

    async def begin(
        self, run: queries.ReviewRun, pull: queries.PullRequest, checkout: Checkout
    ) -> ReviewRound:
        """Return the known facts about the pull request, before a run reads its code."""
        with self._engine.connect() as connection:
            slot = queries.slot(connection, pull.id)
            known = findings.of_pull(connection, pull.id)
            said = findings.remembered(connection, pull.repository_id, self._clock.now())
        last = slot.last_reviewed_sha
        touched = await self._clones.since(checkout, last) if last else None
        hidden = set() if touched is None else await self._unseen(pull, checkout, last, touched)
        since = "" if run.full or hidden or touched is None else last
        touched = with_unseen(touched or [], checkout.files, hidden)
        configuration = trust.changed_configuration(checkout.files)
        return ReviewRound(slot.rounds + 1, since, touched, known, said, configuration)

    async def _unseen(
        self,
        pull: queries.PullRequest,
        checkout: Checkout,
        last: str,
        touched: Sequence[ChangedFile],
    ) -> set[str]:
        """Return the files whose changes neither the earlier rounds nor the changes since show
        completely."""
        with self._engine.connect() as connection:
            runs = queries.runs_of(connection, pull.id)
        before = [one for one in runs if one.head_sha == last and one.review is not None]
        rebased = await self._clones.rebased(checkout, before[-1].base_sha) if before else None
        read = [one for one in before if one.session_id]
        if rebased is None or (read and read[-1].partial):
            return {one.path for one in checkout.files if not one.skipped}
        skipped = [words for one in before for words in one.skipped]
        return unseen(checkout.files, touched, skipped=skipped, rebased=rebased)

    async def lines(self, checkout: Checkout, paths: Collection[str]) -> dict[str, Sequence[str]]:
        """Return the lines at the head of each of these files that exists."""
        found: dict[str, Sequence[str]] = {}
        for path in paths:
            text = await self._clones.text_at(checkout, checkout.head, path)
            if text is not None:
                found[path] = text.split("\n")
        return found

    async def end(
        self,
        run: queries.ReviewRun,
        checkout: Checkout,
        begun: ReviewRound,
        found: Sequence[PlacedFinding],
        lines: Mapping[str, Sequence[str]],
        *,
        floor: Severity = "low",
    ) -> RoundOutcome:
        """Store a round's outcome, and return it. `lines` are those of all files with findings,
        known or new."""
        outcome = await asyncio.to_thread(
            tracking.advance,
            begun.known,
            found,
            HeadCode(checkout.files, lines.get, begun.renames(), begun.touched),
            number=begun.number,
            now=self._clock.now(),
            is_wanted=run.full,
            floor=floor,
            remembered=begun.remembered,
        )
        with self._engine.begin() as connection:
            findings.keep(connection, run.pull_id, run.id, outcome.tracked)
        return outcome

    async def guidance(
        self, checkout: Checkout, revision: str, files: Sequence[str]
    ) -> tuple[tuple[Told, ...], tuple[Told, ...]]:
        """Return the repository's guidance and its own skills at a commit, for a change of these
        files."""
        texts = [
            Told(source=path, text=text)
            for path in await asyncio.to_thread(trust.guidance_paths, files)
            if (text := await self._clones.text_at(checkout, revision, path))
        ]
        own: list[Told] = []
        names = await self._clones.names_at(checkout, revision, trust.SKILLS)
        for path in [one for one in names if trust.is_skill(one)][: trust.MOST_SKILLS_READ]:
            source = await self._clones.text_at(checkout, revision, path)
            if source is None or len(own) == trust.MOST_SKILLS:
                continue
            text, globs = trust.skill_text(source)
            if not globs or await asyncio.to_thread(_is_for, globs, files):
                own.append(Told(source=path, text=text))
        return tuple(texts), tuple(own)

    # -- what people say -------------------------------------------------------------------------

    def posted(self, run: queries.ReviewRun, kept: Collection[str] | None, *, by: str) -> None:
        """Record that a run's review is on the forge, with comments of the `kept` findings (None:
        all). A person left out the others."""
        said = run.review or {}
        inline = set(said.get("inline", ()))
        out = inline - (inline if kept is None else set(kept))
        with self._engine.begin() as connection:
            wanted = set(said.get("post", ())) - out
            findings.posted(connection, run.pull_id, wanted, self._clock.now())
        for identity in out:
            self._say(run.pull_id, identity, "wont-fix", by=by, why="left out of the review")

    def denied(self, run: queries.ReviewRun, *, by: str, why: str) -> None:
        """Record that a person denied a run's review: its findings aren't posted again."""
        for identity in (run.review or {}).get("post", ()):
            self._say(run.pull_id, identity, "wont-fix", by=by, why=why)

    def say(
        self,
        pull_id: int,
        finding: str,
        said: Said,
        *,
        by: str,
        why: str,
        scope: SaidScope = "pull",
    ) -> TrackedFinding:
        """Store a person's decision on a finding, named by the short id in its comment. Return the
        finding. Raise `NotFoundError` or `UserError` if the id names none."""
        with self._engine.connect() as connection:
            known = findings.of_pull(connection, pull_id)
        wanted = finding.strip().strip("`").casefold()
        found = [one for one in known if wanted and one.id.startswith(wanted)]
        if not found:
            raise NotFoundError(
                f"no finding here is called `{finding[:64]}`", "use the id that its comment shows"
            )
        if len(found) > 1:
            raise UserError(f"`{finding[:64]}` names {len(found)} findings", "give more of its id")
        self._say(pull_id, found[0].id, said, by=by, why=why, scope=scope)
        return found[0]

    def _say(
        self,
        pull_id: int,
        identity: str,
        said: Said,
        *,
        by: str,
        why: str,
        scope: SaidScope = "pull",
    ) -> None:
        with self._engine.begin() as connection:
            known = {one.id: one for one in findings.of_pull(connection, pull_id)}
            one = known.get(identity)
            if one is not None:
                after = tracking.say(one, said, scope, self._clock.now())
                findings.said(connection, pull_id, after, by=by, why=why)


def _is_for(globs: Sequence[str], files: Sequence[str]) -> bool:
    """Return whether a skill with these globs applies to one of the files."""
    try:
        return any(Glob(one).matches(file) for one in globs for file in files)
    except PolicyError:
        return False
