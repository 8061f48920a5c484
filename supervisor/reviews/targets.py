"""Repositories and pull requests by the names that people give them, and acts on them."""

import re
from typing import Any, NamedTuple, cast, get_args

from sqlalchemy import Connection

from supervisor.core.forge_acts import Act, Forge, Operation
from supervisor.errors import NotFoundError, UserError
from supervisor.reviews.core.posts import PullTarget
from supervisor.reviews.store import queries

_PULL = re.compile(
    r"(?:(?P<forge>github|bitbucket):|https?://[^/\s]+/)?(?P<name>[A-Za-z0-9_-]+/[A-Za-z0-9._-]+)"
    r"(?P<kind>/pull/|/pull-requests/|#)(?P<number>[1-9][0-9]{0,8})/?\Z"
)
# The forge whose addresses of pull requests have this word.
_FORGES = {"/pull/": "github", "/pull-requests/": "bitbucket"}


class NamedPull(NamedTuple):
    """A pull request as somebody named it; `repository` may begin with its forge."""

    repository: str
    number: int


def find_pull(text: str) -> NamedPull | None:
    """Return the pull request that a text names: by its URL, or as `[FORGE:]OWNER/REPO#NUMBER`;
    None for other texts."""
    found = _PULL.match(text.strip())
    if found is None:
        return None
    forge = found["forge"] or _FORGES.get(found["kind"], "")
    name = f"{forge}:{found['name']}" if forge else found["name"]
    return NamedPull(name, int(found["number"]))


def pull_named(text: str) -> NamedPull:
    """Call `find_pull`. Raise `UserError` if it finds nothing."""
    found = find_pull(text)
    if found is None:
        raise UserError("this is no pull request", "give its URL, or OWNER/REPO#NUMBER")
    return found


def find_repository(connection: Connection, name: str) -> queries.Repository | None:
    """Return a repository by its name, in any letter case, even if it was removed. Without a forge,
    as in `bitbucket:OWNER/REPO`, it is GitHub's if that has one of the name."""
    forge, colon, full_name = name.partition(":")
    if not colon:
        forge, full_name = "", name
    for one in get_args(Forge):
        if forge in ("", one) and (found := queries.repository(connection, one, full_name)):
            return found
    return None


def repository_named(connection: Connection, name: str) -> queries.Repository:
    """Call `find_repository`. Raise `NotFoundError` if it finds nothing."""
    found = find_repository(connection, name)
    if found is None:
        raise NotFoundError(
            f"no repository is called `{name[:200]}`", "`gatehouse repos list` lists them"
        )
    return found


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
