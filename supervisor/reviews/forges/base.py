"""The port of a forge: the calls of the review service, and the facts they return.

Every call raises `ForgeError`, which says whether a retry may help.
"""

from typing import Literal, NamedTuple, Protocol

import msgspec

from supervisor.core.forge_acts import Act
from supervisor.core.secrets.token_shapes import without_tokens
from supervisor.errors import GatehouseError


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


class CommitFacts(NamedTuple):
    """A commit as its forge describes it. `committer` is written `Name <mail>`."""

    tree: str
    message: str
    committer: str


class RepositoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A repository as its forge describes it. `installation_id` is that of the App there;
    `may_resolve`: its permissions there suffice to resolve threads."""

    full_name: str
    external_id: int
    installation_id: int
    default_branch: str
    clone_url: str
    may_resolve: bool = False


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """The repositories where the App is installed. The forge didn't list repositories for the
    installations `unread` this time; they may still exist."""

    repositories: tuple[RepositoryFacts, ...]
    unread: frozenset[int] = frozenset()


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
    """A forge, with the App's credentials."""

    async def own_login(self) -> str:
        """Return the App's login on the forge."""

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
        """Return a token that reads this one repository, for an hour at most."""

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

    async def issue_comment(self, repository: RepositoryFacts, comment_id: int) -> PostedComment:
        """Return a comment on a pull request, or on an issue, by its id."""

    async def review_comment(self, repository: RepositoryFacts, comment_id: int) -> PostedComment:
        """Return a comment beside the code by its id."""

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

    async def delete_comment(self, repository: RepositoryFacts, comment_id: int) -> None:
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
        """Return a token that may push to this one repository, for an hour at most."""

    async def failed_deliveries(self) -> list[FailedDelivery]:
        """Return the webhooks that recently failed to be delivered."""

    async def redeliver(self, delivery: FailedDelivery) -> None:
        """Have a webhook sent again, with the same id."""

    async def close(self) -> None:
        """Close its connections."""
