"""Ask for what agents want to write on a pull request of Bitbucket: acts in the inbox.

The text is an agent's. Of its Markdown code, lists and emphasis stay (`safe_markdown`), and a line
of ours says where it comes from.
"""

from typing import Any

from supervisor.core.approvals import Request
from supervisor.core.forge_acts import Act, InlineComment
from supervisor.core.safe_markdown import fitted
from supervisor.errors import RefusedError, UserError
from supervisor.gate.gate import Gate
from supervisor.reviews.core import posts
from supervisor.reviews.core.findings import Finding, identity
from supervisor.reviews.forges.bitbucket_tools import (
    CommentPullRequest,
    UpsertInlineComment,
    arguments_for,
)
from supervisor.reviews.reconcile import facts_of
from supervisor.reviews.service import ReviewService

MOST_CHARS = 20_000
MOST_WAITING = 10
BY_AGENT = "An agent wrote this; a person let Gatehouse post it."


async def ask_by_tool(
    service: ReviewService, gate: Gate, tool: str, arguments: dict[str, Any], reason: str
) -> Request:
    """Do `ask_to_comment` for a tool's arguments, which name the repository."""
    data = arguments_for(tool, arguments)
    if not isinstance(data, CommentPullRequest):
        raise UserError(f"`{tool[:64]}` writes nothing", "call the tool itself")
    return await ask_to_comment(service, gate, data.repository, data, reason)


async def ask_to_comment(
    service: ReviewService, gate: Gate, repository_name: str, data: CommentPullRequest, reason: str
) -> Request:
    """Ask for a comment; the same one that waits, or was answered, is the same request."""
    repository = service.repository_named(f"bitbucket:{repository_name}")
    facts = facts_of(repository)
    _check_room(gate, repository.session_id)
    client = service.forges.named("bitbucket")
    assert client is not None  # its repositories are known by it
    pull = await client.pull(facts, data.number)
    body = f"{fitted(data.body, MOST_CHARS)}\n\n{posts.small(BY_AGENT, 'bitbucket')}"
    comments: tuple[InlineComment, ...] = ()
    title = f"what an agent says {identity_of(data)}"
    if isinstance(data, UpsertInlineComment):
        comments = (
            InlineComment(
                finding=identity_of(data),
                path=data.path,
                line=data.line,
                body=body,
                severity="low",
            ),
        )
        title, body = f"an agent's finding {identity_of(data)}", ""
    act = Act(
        operation="comment",
        forge="bitbucket",
        repository=repository.full_name,
        number=data.number,
        body=body,
        comments=comments,
        fork=pull.is_fork,
        links=posts.has_address(data.body),
        title=title,
        by_agent=True,
    )
    return gate.ask(act, session_id=repository.session_id, reason=reason, origin="reviews")


def _check_room(gate: Gate, session_id: str) -> None:
    """`RefusedError` where agents' comments wait enough: the reviews' own acts need room, too."""
    acts = (gate.queue.action_of(one) for one in gate.queue.pending(session_id))
    if sum(isinstance(one, Act) and one.by_agent for one in acts) >= MOST_WAITING:
        raise RefusedError(
            f"{MOST_WAITING} comments of agents wait for this repository", "wait for their answers"
        )


def identity_of(data: CommentPullRequest) -> str:
    """Return what a finding is known again by, as findings of reviews are; of a mere comment, a
    hash of its text."""
    at = data if isinstance(data, UpsertInlineComment) else None
    return identity(
        Finding(
            path=at.path if at else "-",
            severity="low",
            title=at.title if at else data.body[:300],
            body=data.body,
            quote=at.quote if at else data.body[:5_000],
            skill=at.kind if at else "",
        )
    )
