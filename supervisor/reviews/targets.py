"""Builds acts and their targets from the facts of a repository and its pull request."""

from typing import Any, cast

from supervisor.core.forge_acts import Act, Forge, Operation
from supervisor.reviews.core.posts import PullTarget
from supervisor.reviews.store import queries


def target_of(repository: queries.Repository, pull: queries.PullRequest, head: str) -> PullTarget:
    """Return a pull request at one head, in the form for the templates."""
    return PullTarget(
        forge=cast("Forge", repository.forge),
        repository=repository.full_name,
        number=pull.number,
        head=head,
        fork=pull.fork,
    )


def act_on(
    repository: queries.Repository, pull: queries.PullRequest, operation: Operation, **more: Any
) -> Act:
    """Return an act on a pull request; `more` are the further fields of this operation."""
    return Act(
        operation=operation,
        forge=cast("Forge", repository.forge),
        repository=repository.full_name,
        number=pull.number,
        fork=pull.fork,
        **more,
    )
