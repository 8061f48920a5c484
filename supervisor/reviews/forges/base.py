"""The port of a forge: the calls of the review service, and the facts they return.

Every call raises `ForgeError`, which says whether a retry may help. `Forges` are those of a
service: each repository belongs to one.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Literal, NamedTuple, Protocol

import msgspec

from supervisor.core import forge_acts
from supervisor.core.forge_acts import Act
from supervisor.core.secrets.token_shapes import without_tokens
from supervisor.errors import GatehouseError

# What a call is made for: an act's request, or a run. The forge's log shows it.
REVIEW_ID: ContextVar[str] = ContextVar("review_id", default="")
REVIEW_HEADER = "X-Review-Id"


def review_header() -> dict[str, str]:
    """Return the header by which the calls for one act, or one run, are found in a forge's log."""
    return {REVIEW_HEADER: REVIEW_ID.get() or secrets.token_hex(8)}


class ForgeError(GatehouseError):
    """A failed call. `status` is HTTP's, 0 without a response. `retry_at`: seconds since the epoch,
    if the forge gave a time."""

    def __init__(
        self,
        message: str,
        remedy: str = "",
        *,
        status: int = 0,
        may_retry: bool = False,
        retry_at: float | None = None,
    ) -> None:
        # A forge may echo a header or a token, and errors are stored and shown.
        again = "it is tried again later" if may_retry else ""
        super().__init__(without_tokens(message), remedy or again)
        self.status = status
        self.may_retry = may_retry
        self.retry_at = retry_at


class MovedError(GatehouseError):
    """Raised if the pull request's head is no longer the act's."""


def check_head(act: forge_acts.Act, head: str) -> None:
    """Raise `MovedError` unless an act is about the head that a pull request has."""
    if head != act.head:
        raise MovedError(
            f"the head is {head[:12]} by now, not {act.head[:12]}", "the new head is reviewed next"
        )


class CommitFacts(NamedTuple):
    """A commit as its forge describes it. `committer` is written `Name <mail>`."""

    tree: str
    message: str
    committer: str


class RepositoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A repository as its forge describes it. `installation_id` is that of the App there;
    `may_resolve`: its permissions there suffice to resolve threads."""

    forge: forge_acts.Forge = "github"
    full_name: str
    external_id: int
    installation_id: int
    default_branch: str
    clone_url: str
    may_resolve: bool = False


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """The repositories where the App is installed. The forge didn't list repositories for the
    installations `unread` this time, nor those named `unread_names`; they may still exist."""

    repositories: tuple[RepositoryFacts, ...]
    unread: frozenset[int] = frozenset()
    unread_names: frozenset[str] = frozenset()


class HeadSource(NamedTuple):
    """Where git finds a pull request's head: `ref` at `url`, "" if that is gone. `token` as
    `Forge.clone_token` gives it, "" for none; at the repository's own URL that one counts. `sha` is
    the head now, "" if the forge wasn't asked for that."""

    url: str
    ref: str
    token: str
    sha: str = ""


class PullFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request as its forge describes it. `base_ref` and `head_ref` are branch names,
    `author` is a login; `is_fork`: its head is in another repository than its base. `closed_at` is
    in seconds since the epoch, None if it is open."""

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
    is_merged: bool = False
    closed_at: float | None = None
    url: str = ""


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an act on the forge: its id there, and its address for people."""

    id: int
    url: str = ""


class CommentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A comment beside the code, made at `commit`. `line` is None if the comment is outdated;
    `original_line` is its line when it was made. `in_reply_to` is the first comment of its thread,
    None for that comment itself."""

    id: int
    author: str
    is_bot: bool
    body: str
    path: str
    line: int | None
    original_line: int | None
    in_reply_to: int | None
    review_id: int | None
    commit: str


class ThreadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation beside the code; `comments` are the ids of its comments, first to last."""

    id: str
    is_resolved: bool
    is_outdated: bool
    comments: tuple[int, ...]


ReviewState = Literal["pending", "commented", "approved", "changes_requested", "dismissed"]


class ReviewFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A review on a pull request; `commit` is the head at which it was made."""

    id: int
    body: str
    state: ReviewState
    commit: str
    url: str = ""


class PostedComment(msgspec.Struct, frozen=True, kw_only=True):
    """A comment that a webhook reported. `number` is its pull request, None if it is on an issue;
    `in_reply_to` as in `CommentFacts`."""

    id: int
    author: str
    is_bot: bool
    body: str
    number: int | None
    in_reply_to: int | None = None


class IssueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An open issue."""

    number: int
    body: str


class FailedDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook that the forge couldn't deliver, or that was refused."""

    id: int
    guid: str
    event: str


class Forge(Protocol):
    """A forge, with the App's credentials. `title`: what people call it; `pages`: where its pages
    for people are, "" if that isn't known."""

    name: forge_acts.Forge
    title: str
    pages: str
    has_reactions: bool

    def pull_page(self, repository: str, number: int) -> str:
        """Return the address of a pull request's page; "" for none."""

    def notice(self) -> str:
        """Return what people should know of our credentials, in words; "" for nothing."""

    async def own_login(self) -> str:
        """Return the App's login on the forge."""

    async def own_names(self) -> tuple[str, ...]:
        """Return the names by which comments call us."""

    async def installed(self) -> Installed:
        """Return every repository where the App is installed."""

    async def pull(self, repository: RepositoryFacts, number: int) -> PullFacts:
        """Return the current state of a pull request."""

    async def open_pulls(self, repository: RepositoryFacts) -> list[PullFacts]:
        """Return the open pull requests."""

    async def permission(self, repository: RepositoryFacts, login: str) -> str:
        """Return a user's permission: `admin`, `write`, `read` or `none`."""

    async def labelled_by(self, repository: RepositoryFacts, number: int, label: str) -> str:
        """Return who last set a label that a pull request has; "" if the forge names nobody."""

    async def clone_token(self, repository: RepositoryFacts) -> str:
        """Return what reads this one repository by git, as `USER:TOKEN`; if the forge can, for an
        hour at most."""

    async def head_source(self, repository: RepositoryFacts, number: int) -> HeadSource:
        """Return where git finds the head of a pull request."""

    async def pull_diff(self, repository: RepositoryFacts, number: int) -> bytes:
        """Return the change of a pull request as a patch, for a head that git can't fetch."""

    async def post_review(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Post a review with its comments, all or nothing."""

    async def own_reviews(self, repository: RepositoryFacts, number: int) -> list[ReviewFacts]:
        """Return our reviews of a pull request, oldest first."""

    async def edit_review(
        self, repository: RepositoryFacts, number: int, review_id: int, body: str
    ) -> Posted:
        """Replace a review's text; nobody is notified."""

    async def dismiss(
        self, repository: RepositoryFacts, number: int, review_id: int, why: str
    ) -> Posted:
        """Take back an approval or a request for changes."""

    async def comments(self, repository: RepositoryFacts, number: int) -> list[CommentFacts]:
        """Return the comments beside the code of a pull request, oldest first."""

    async def threads(self, repository: RepositoryFacts, number: int) -> list[ThreadFacts]:
        """Return the conversations beside the code of a pull request."""

    async def comment(
        self, repository: RepositoryFacts, number: int | None, comment_id: int, *, is_inline: bool
    ) -> PostedComment:
        """Return a comment by its id: one beside the code, or on a pull request (`number`, if that
        is known) or an issue."""

    async def post_comment(self, repository: RepositoryFacts, act: Act, mark: str) -> Posted:
        """Comment on a pull request, or return our comment that already has this mark."""

    async def reply(self, repository: RepositoryFacts, act: Act, mark: str) -> Posted:
        """Answer in the thread of the comment `act.targets[0]`, or return our answer that already
        has this mark."""

    async def resolve(self, repository: RepositoryFacts, thread_id: str) -> None:
        """Mark a thread as resolved; a resolved thread stays so."""

    async def react(self, repository: RepositoryFacts, act: Act) -> Posted:
        """React with `act.body` to the comment `act.targets[0]`; a repeated call adds no second
        reaction."""

    async def delete_comment(
        self, repository: RepositoryFacts, number: int, comment_id: int
    ) -> None:
        """Remove a comment beside the code; a comment that is already gone is no error."""

    async def set_check(
        self, repository: RepositoryFacts, head: str, act: Act, external_id: str
    ) -> Posted:
        """Set a head's check run, replacing one with the same `external_id`."""

    async def open_pull(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Open a pull request, or return the open one for this branch."""

    async def update_pull(self, repository: RepositoryFacts, act: Act) -> Posted:
        """Replace a pull request's title and text."""

    async def own_issues(self, repository: RepositoryFacts) -> list[IssueFacts]:
        """Return our open issues, newest first."""

    async def put_issue(self, repository: RepositoryFacts, act: Act, number: int) -> Posted:
        """Open an issue, or replace the title and text of one."""

    async def pulls_of_branch(self, repository: RepositoryFacts, branch: str) -> list[PullFacts]:
        """Return the pull requests of a branch of the repository, open or not, newest first."""

    async def branch_head(self, repository: RepositoryFacts, branch: str) -> str:
        """Return the commit of a branch; "" if there is no such branch."""

    async def push_token(self, repository: RepositoryFacts) -> str:
        """Return what may push to this one repository by git, as `clone_token` does."""

    async def failed_deliveries(self) -> list[FailedDelivery]:
        """Return the webhooks that recently failed to be delivered."""

    async def redeliver(self, delivery: FailedDelivery) -> None:
        """Have a webhook sent again, with the same id."""

    async def close(self) -> None:
        """Close its connections."""


class HasForge(Protocol):
    """Something on a forge: a repository, an act."""

    @property
    def forge(self) -> str:
        """Return the forge's name."""


class Forges:
    """The forges of one service, by their names."""

    def __init__(self, *forges: Forge) -> None:
        self._forges: Mapping[str, Forge] = {one.name: one for one in forges}

    def __iter__(self) -> Iterator[Forge]:
        return iter(self._forges.values())

    def named(self, name: str) -> Forge | None:
        """Return a forge; None if this service has none of the name."""
        return self._forges.get(name)

    def of(self, thing: HasForge) -> Forge:
        """Return the forge that something is on. Raise `ForgeError` if this service has no
        credentials for it any more."""
        found = self._forges.get(thing.forge)
        if found is None:
            raise ForgeError(
                f"no credentials of {thing.forge} are set", "set them again: see docs/reviews.md"
            )
        return found

    async def close(self) -> None:
        """Close all connections."""
        for one in self:
            await one.close()
