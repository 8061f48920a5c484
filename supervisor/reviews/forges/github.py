"""GitHub, and GitHub Enterprise Server, as an App: implements the port's calls.

Sources: docs.github.com/rest (apps, pulls, issues, checks, reactions, collaborators), version
2022-11-28, and docs.github.com/graphql for threads. The permissions for each call are in
docs/reviews.md.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from supervisor.base import log
from supervisor.core import forge_acts
from supervisor.core.forge_acts import Act
from supervisor.reviews.core.forge_pages import pages_base, pull_page
from supervisor.reviews.forges.base import (
    CommentFacts,
    FailedDelivery,
    ForgeError,
    HeadSource,
    Installed,
    IssueFacts,
    Posted,
    PostedComment,
    PullFacts,
    RepositoryFacts,
    ReviewFacts,
    ThreadFacts,
)
from supervisor.reviews.forges.github_calls import GitHubCalls, read
from supervisor.reviews.forges.github_facts import (
    author,
    comment_facts,
    failed_deliveries,
    head_of,
    issue_facts,
    last_labelled,
    opened,
    posted,
    posted_comment,
    pull_facts,
    repository_facts,
    review_facts,
    thread_page,
)

NOT_FOUND = 404
REACTIONS = ("+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes")
_EVENTS = {"approve": "APPROVE", "request_changes": "REQUEST_CHANGES", "comment": "COMMENT"}
_READ, _WRITE = {"pull_requests": "read"}, {"pull_requests": "write"}
THREADS = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      reviewThreads(first: 100, after: $after) {
        pageInfo { hasNextPage endCursor }
        nodes { id isResolved isOutdated comments(first: 100) { nodes { fullDatabaseId } } }
      }
    }
  }
}
"""
RESOLVE = """
mutation($thread: ID!) {
  resolveReviewThread(input: {threadId: $thread}) { thread { id isResolved } }
}
"""


class GitHub:
    """Implements `base.Forge`. `api` is the base of the REST API, `private_key` the App's."""

    name: forge_acts.Forge = "github"
    title = "GitHub"
    has_reactions = True

    def __init__(
        self, *, api: str, app_id: str, private_key: RSAPrivateKey, now: Callable[[], float]
    ) -> None:
        self.pages = pages_base(api)
        self._calls = GitHubCalls(api=api, app_id=app_id, private_key=private_key, now=now)
        self._login = ""

    async def close(self) -> None:
        await self._calls.close()

    async def own_login(self) -> str:
        if not self._login:
            app = await self._calls.call("GET", "/app", jwt=self._calls.jwt())
            self._login = f"{read(_slug, app)}[bot]"
        return self._login

    async def own_names(self) -> tuple[str, ...]:
        return ((await self.own_login()).removesuffix("[bot]"),)

    def pull_page(self, repository: str, number: int) -> str:
        return pull_page(self.pages, repository, number)

    def notice(self) -> str:
        return ""

    async def installed(self) -> Installed:
        found: list[RepositoryFacts] = []
        unread = set()
        for installation in await self._calls.all("/app/installations", jwt=self._calls.jwt()):
            if installation.get("suspended_at"):
                continue
            number = read(_id, installation)
            try:
                token = await self._calls.token(number, {"metadata": "read"})
                path = "/installation/repositories"
                found += [
                    read(partial(repository_facts, installation), one)
                    for one in await self._calls.all(path, key="repositories", token=token)
                ]
            except ForgeError as error:
                log.warning("an installation can't be read", id=number, error=str(error))
                unread.add(number)
        return Installed(repositories=tuple(found), unread=frozenset(unread))

    async def pull(self, repository: RepositoryFacts, number: int) -> PullFacts:
        token = await self._calls.token_for(repository, _READ)
        return read(
            pull_facts, await self._calls.call("GET", _pull(repository, number), token=token)
        )

    async def open_pulls(self, repository: RepositoryFacts) -> list[PullFacts]:
        token = await self._calls.token_for(repository, _READ)
        path = f"{_at(repository)}/pulls?state=open"
        found = []
        for one in await self._calls.all(path, token=token):
            try:
                found.append(read(pull_facts, one))
            except ForgeError as error:
                log.warning("a pull request can't be read", repo=path, error=str(error))
        return found

    async def permission(self, repository: RepositoryFacts, login: str) -> str:
        token = await self._calls.token_for(repository, {"metadata": "read"})
        path = f"{_at(repository)}/collaborators/{quote(login, safe='')}/permission"
        try:
            return read(_permission, await self._calls.call("GET", path, token=token))
        except ForgeError as error:
            if error.status == NOT_FOUND:
                return "none"
            raise

    async def labelled_by(self, repository: RepositoryFacts, number: int, label: str) -> str:
        token = await self._calls.token_for(repository, _READ)
        path = f"{_at(repository)}/issues/{number}/events"
        return read(partial(last_labelled, label), await self._calls.all(path, token=token))

    async def clone_token(self, repository: RepositoryFacts) -> str:
        return await self._git_token(repository, "read")

    async def head_source(self, repository: RepositoryFacts, number: int) -> HeadSource:
        return HeadSource(repository.clone_url, f"refs/pull/{number}/head", "")

    async def pull_diff(self, repository: RepositoryFacts, number: int) -> bytes:
        raise ForgeError(f"{repository.full_name}#{number} has no head", "push to its branch")

    # -- reviews ----------------------------------------------------------------------------------

    async def post_review(self, repository: RepositoryFacts, act: Act) -> Posted:
        comments = [
            {"path": one.path, "line": one.line, "side": "RIGHT", "body": one.body}
            | ({"start_line": one.start_line, "start_side": "RIGHT"} if one.start_line else {})
            for one in act.comments
        ]
        data = {
            "commit_id": act.head,
            "event": _EVENTS[act.verdict or "comment"],
            "body": act.body,
            "comments": comments,
        }
        return await self._post(repository, f"{_pull(repository, act.number)}/reviews", data)

    async def own_reviews(self, repository: RepositoryFacts, number: int) -> list[ReviewFacts]:
        found = await self._own(repository, f"{_pull(repository, number)}/reviews")
        return [read(review_facts, one) for one in found]

    async def edit_review(
        self, repository: RepositoryFacts, number: int, review_id: int, body: str
    ) -> Posted:
        token = await self._calls.token_for(repository, _WRITE)
        path = f"{_pull(repository, number)}/reviews/{review_id}"
        return read(posted, await self._calls.call("PUT", path, {"body": body}, token=token))

    async def dismiss(
        self, repository: RepositoryFacts, number: int, review_id: int, why: str
    ) -> Posted:
        token = await self._calls.token_for(repository, _WRITE)
        path = f"{_pull(repository, number)}/reviews/{review_id}/dismissals"
        data = {"message": why, "event": "DISMISS"}
        return read(posted, await self._calls.call("PUT", path, data, token=token))

    # -- comments ---------------------------------------------------------------------------------

    async def comments(self, repository: RepositoryFacts, number: int) -> list[CommentFacts]:
        token = await self._calls.token_for(repository, _READ)
        path = f"{_pull(repository, number)}/comments"
        return [read(comment_facts, one) for one in await self._calls.all(path, token=token)]

    async def threads(self, repository: RepositoryFacts, number: int) -> list[ThreadFacts]:
        token = await self._calls.token_for(repository, _READ)
        owner, _, name = repository.full_name.partition("/")
        wanted = {"owner": owner, "name": name, "number": number, "after": None}
        found: list[ThreadFacts] = []
        while True:
            answer = await self._calls.graphql(THREADS, wanted, token=token)
            threads, after = read(thread_page, answer)
            found += threads
            if not after:
                return found
            wanted["after"] = after

    async def comment(
        self, repository: RepositoryFacts, number: int | None, comment_id: int, *, is_inline: bool
    ) -> PostedComment:
        token = await self._calls.token_for(repository, _READ)
        path = f"{_at(repository)}/{'pulls' if is_inline else 'issues'}/comments/{comment_id}"
        return read(posted_comment, await self._calls.call("GET", path, token=token))

    async def post_comment(self, repository: RepositoryFacts, act: Act, mark: str) -> Posted:
        path = f"{_at(repository)}/issues/{act.number}/comments"
        for one in await self._own(repository, path):
            if mark in (one.get("body") or ""):
                return read(posted, one)
        return await self._post(repository, path, {"body": act.body})

    async def reply(self, repository: RepositoryFacts, act: Act, mark: str) -> Posted:
        path = f"{_pull(repository, act.number)}/comments"
        for one in await self._own(repository, path):
            if mark in (one.get("body") or ""):
                return read(posted, one)
        # GitHub accepts answers only to the first comment of a thread.
        target = await self.comment(repository, act.number, _comment_id(act), is_inline=True)
        top = target.in_reply_to or target.id
        return await self._post(repository, f"{path}/{top}/replies", {"body": act.body})

    async def resolve(self, repository: RepositoryFacts, thread_id: str) -> None:
        token = await self._calls.token_for(repository, {"contents": "write"} | _WRITE)
        await self._calls.graphql(RESOLVE, {"thread": thread_id}, token=token, posts=True)

    async def react(self, repository: RepositoryFacts, act: Act) -> Posted:
        if act.body not in REACTIONS:
            raise ForgeError(
                f"`{act.body}` is no reaction", f"GitHub has {', '.join(REACTIONS)}", status=422
            )
        is_inline = act.targets[0].startswith("review:")
        kind = "pulls" if is_inline else "issues"
        path = f"{_at(repository)}/{kind}/comments/{_comment_id(act)}/reactions"
        # The permission to read a pull request's comment doesn't suffice for reacting to it.
        more = {} if is_inline else {"issues": "write"}
        return await self._post(repository, path, {"content": act.body}, more)

    async def delete_comment(
        self, repository: RepositoryFacts, number: int, comment_id: int
    ) -> None:
        token = await self._calls.token_for(repository, _WRITE)
        path = f"{_at(repository)}/pulls/comments/{comment_id}"
        try:
            await self._calls.call("DELETE", path, token=token)
        except ForgeError as error:
            if error.status != NOT_FOUND:
                raise

    # -- checks, pull requests, webhooks ----------------------------------------------------------

    async def set_check(
        self, repository: RepositoryFacts, head: str, act: Act, external_id: str
    ) -> Posted:
        token = await self._calls.token_for(repository, {"checks": "write"})
        path = _at(repository)
        data = {
            "name": act.title,
            "head_sha": head,
            "external_id": external_id,
            "status": "completed",
            "conclusion": act.conclusion,
            "output": {"title": act.title, "summary": act.body},
        }
        known = await self._calls.all(
            f"{path}/commits/{head}/check-runs?check_name={quote(act.title)}",
            key="check_runs",
            token=token,
        )
        for one in known:
            if one.get("external_id") == external_id:
                url = f"{path}/check-runs/{read(_id, one)}"
                return read(posted, await self._calls.call("PATCH", url, data, token=token))
        made = await self._calls.call("POST", f"{path}/check-runs", data, token=token)
        return read(posted, made)

    async def open_pull(self, repository: RepositoryFacts, act: Act) -> Posted:
        token = await self._calls.token_for(repository, _WRITE)
        path = f"{_at(repository)}/pulls"
        owner = repository.full_name.partition("/")[0]
        head = quote(f"{owner}:{act.branch}", safe="")
        for one in await self._calls.all(f"{path}?state=open&head={head}", token=token):
            if read(pull_facts, one).base_ref == act.base:
                return read(opened, one)
        data = {"title": act.title, "body": act.body, "head": act.branch, "base": act.base}
        return read(opened, await self._calls.call("POST", path, data, token=token))

    async def update_pull(self, repository: RepositoryFacts, act: Act) -> Posted:
        token = await self._calls.token_for(repository, _WRITE)
        data = {"title": act.title, "body": act.body}
        path = _pull(repository, act.number)
        return read(opened, await self._calls.call("PATCH", path, data, token=token))

    async def own_issues(self, repository: RepositoryFacts) -> list[IssueFacts]:
        token = await self._calls.token_for(repository, {"issues": "read"})
        login = await self.own_login()
        path = f"{_at(repository)}/issues?state=open&creator={quote(login, safe='')}"
        found = await self._calls.all(path, token=token)
        # The list has pull requests, too.
        return [
            read(issue_facts, one)
            for one in found
            if "pull_request" not in one and author(one)[0] == login
        ]

    async def put_issue(self, repository: RepositoryFacts, act: Act, number: int) -> Posted:
        token = await self._calls.token_for(repository, {"issues": "write"})
        data = {"title": act.title, "body": act.body}
        path = f"{_at(repository)}/issues"
        method, path = ("PATCH", f"{path}/{number}") if number else ("POST", path)
        return read(opened, await self._calls.call(method, path, data, token=token))

    async def pulls_of_branch(self, repository: RepositoryFacts, branch: str) -> list[PullFacts]:
        token = await self._calls.token_for(repository, _READ)
        owner = repository.full_name.partition("/")[0]
        head = quote(f"{owner}:{branch}", safe="")
        path = f"{_at(repository)}/pulls?state=all&sort=created&direction=desc&head={head}"
        found = await self._calls.all(path, token=token)
        facts = [read(pull_facts, one) for one in found]
        return [one for one in facts if one.head_ref == branch and not one.is_fork]

    async def branch_head(self, repository: RepositoryFacts, branch: str) -> str:
        token = await self._calls.token_for(repository, {"contents": "read"})
        path = f"{_at(repository)}/git/ref/heads/{quote(branch)}"
        try:
            return read(head_of, await self._calls.call("GET", path, token=token))
        except ForgeError as error:
            if error.status == NOT_FOUND:
                return ""
            raise

    async def push_token(self, repository: RepositoryFacts) -> str:
        return await self._git_token(repository, "write")

    async def failed_deliveries(self) -> list[FailedDelivery]:
        path = "/app/hook/deliveries?per_page=100"
        return read(failed_deliveries, await self._calls.call("GET", path, jwt=self._calls.jwt()))

    async def redeliver(self, delivery: FailedDelivery) -> None:
        path = f"/app/hook/deliveries/{delivery.id}/attempts"
        await self._calls.call("POST", path, {}, jwt=self._calls.jwt())

    # -- inside -----------------------------------------------------------------------------------

    async def _post(
        self,
        repository: RepositoryFacts,
        path: str,
        data: dict[str, Any],
        permissions: dict[str, str] | None = None,
    ) -> Posted:
        token = await self._calls.token_for(repository, _WRITE | (permissions or {}))
        return read(posted, await self._calls.call("POST", path, data, token=token))

    async def _own(self, repository: RepositoryFacts, path: str) -> list[dict[str, Any]]:
        """Return our own items of a list: one of our marks in another's text doesn't count."""
        login = await self.own_login()
        token = await self._calls.token_for(repository, _READ)
        return [one for one in await self._calls.all(path, token=token) if author(one)[0] == login]

    async def _git_token(self, repository: RepositoryFacts, level: str) -> str:
        return f"x-access-token:{await self._calls.token_for(repository, {'contents': level})}"


def _at(repository: RepositoryFacts) -> str:
    return f"/repos/{repository.full_name}"


def _pull(repository: RepositoryFacts, number: int) -> str:
    return f"{_at(repository)}/pulls/{number}"


def _comment_id(act: Act) -> int:
    return int(act.targets[0].removeprefix("review:"))


def _id(one: dict[str, Any]) -> int:
    return int(one["id"])


def _slug(one: dict[str, Any]) -> str:
    return str(one["slug"])


def _permission(one: dict[str, Any]) -> str:
    return str(one["permission"])
