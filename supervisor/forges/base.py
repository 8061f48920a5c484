"""The port of a forge: what the review service asks of one, and what it is told.

Every call raises `ForgeError`, which says whether it may go better later.
"""

from typing import Protocol

import msgspec

from supervisor.core.act import Act
from supervisor.errors import GatehouseError


class ForgeError(GatehouseError):
    """A call that didn't go well. `status` is HTTP's, 0 where nothing answered. `retry_at`: seconds
    since the epoch, where the forge said when."""

    def __init__(
        self,
        message: str,
        remedy: str = "it is tried again later",
        *,
        status: int = 0,
        may_retry: bool = False,
        retry_at: float | None = None,
    ) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.may_retry = may_retry
        self.retry_at = retry_at


class RepositoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A repository as its forge says it. `installation_id` is that of the App there."""

    full_name: str
    external_id: int
    installation_id: int
    default_branch: str
    clone_url: str


class PullFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request as its forge says it. `head_url` is where its head can be fetched, `head_name`
    by what ref."""

    number: int
    title: str
    body: str
    author: str
    is_fork: bool
    is_draft: bool
    is_open: bool
    base_ref: str
    base_sha: str
    head_ref: str
    head_sha: str
    labels: tuple[str, ...] = ()


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """What an act left on the forge: its id there, and where a person sees it."""

    id: int
    url: str = ""


class FailedDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook that the forge couldn't deliver, or that nobody took."""

    id: int
    guid: str
    event: str


class Forge(Protocol):
    """One forge, with the App's credentials."""

    async def own_login(self) -> str:
        """Return who the App is on the forge."""

    async def repositories(self) -> list[RepositoryFacts]:
        """Return every repository where the App is installed."""

    async def pull(self, repository: RepositoryFacts, number: int) -> PullFacts:
        """Return a pull request as it is now."""

    async def open_pulls(self, repository: RepositoryFacts) -> list[PullFacts]:
        """Return the open ones."""

    async def permission(self, repository: RepositoryFacts, login: str) -> str:
        """Return what a user may do: `admin`, `write`, `read` or `none`."""

    async def clone_token(self, repository: RepositoryFacts) -> str:
        """Return a token that reads this one repository, for an hour at most."""

    async def post_review(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Post a review with its comments, all or nothing."""

    async def find_review(
        self, repository: RepositoryFacts, number: int, mark: str
    ) -> Posted | None:
        """Return a review of ours by its mark: what an earlier try may have left."""

    async def set_check(
        self, repository: RepositoryFacts, head: str, act: Act, external_id: str
    ) -> Posted:
        """Set the check run of a head; one of the same `external_id` is changed."""

    async def open_pull(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Open a pull request, or return the one that is open for this branch."""

    async def failed_deliveries(self) -> list[FailedDelivery]:
        """Return the webhooks that nobody took lately."""

    async def redeliver(self, delivery: FailedDelivery) -> None:
        """Have one sent again, with the same id."""

    async def close(self) -> None:
        """Give back its connections."""
