"""Requests to remove outdated posts of earlier rounds from a pull request.

These are our approvals of other heads, and the threads of findings that are gone.
"""

from collections.abc import Callable, Sequence

from supervisor.core.forge_acts import Act
from supervisor.reviews.core.forge_people import is_same_person
from supervisor.reviews.core.mentions import finding_of
from supervisor.reviews.core.tracking import TrackedFinding
from supervisor.reviews.forges.base import Forges
from supervisor.reviews.reconcile import facts_of
from supervisor.reviews.store import queries
from supervisor.reviews.targets import act_on


class Tidying:
    """Tidies for one supervisor. `ask` requests an act in the session of a repository."""

    def __init__(self, forges: Forges, ask: Callable[[Act, str, str], None]) -> None:
        self._forges = forges
        self._ask = ask

    async def approvals(
        self,
        repository: queries.Repository,
        pull: queries.PullRequest,
        head: str,
        *,
        is_moved: bool,
    ) -> None:
        """Request to dismiss our approvals of other heads; if the pull request `is_moved` to
        another base, those of this head too: they say nothing about what would be merged now."""
        for one in await self._forges.of(repository).own_reviews(facts_of(repository), pull.number):
            if one.state == "approved" and (is_moved or one.commit != head):
                is_other = one.commit != head
                body = "The head moved on: this approval was of another one."
                if not is_other:
                    body = "The base is another one by now: this approval was not for it."
                targets = (str(one.id),)
                act = act_on(repository, pull, "dismiss", head=head, body=body, targets=targets)
                what = "which is not the head any more" if is_other else "for another base"
                why = f"an approval of {one.commit[:12]}, {what}"
                self._ask(act, repository.session_id, why)

    async def threads(
        self,
        repository: queries.Repository,
        pull: queries.PullRequest,
        head: str,
        gone: Sequence[TrackedFinding],
    ) -> None:
        """Request to resolve the threads of fixed findings, if the App may."""
        if not gone or not repository.may_resolve:
            return
        facts, names = facts_of(repository), {one.id[:8] for one in gone}
        forge = self._forges.of(repository)
        login = await forge.own_login()
        ours = {
            one.id
            for one in await forge.comments(facts, pull.number)
            if is_same_person(one.author, login)
            and one.in_reply_to is None
            and finding_of(one.body) in names
        }
        targets = tuple(
            one.id
            for one in await forge.threads(facts, pull.number)
            if not one.is_resolved and ours.intersection(one.comments[:1])
        )
        if targets:
            act = act_on(repository, pull, "resolve", head=head, targets=targets)
            self._ask(act, repository.session_id, f"what they are about is gone at {head[:12]}")
