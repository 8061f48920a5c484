"""GitHub with the token of a workflow, for that one repository: no App, no webhooks.

Sources: docs.github.com/actions, "GITHUB_TOKEN"; docs.github.com/rest (repos, checks);
docs.github.com/graphql (`viewer`, which works for tokens that REST's `/user` refuses).
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from supervisor.reviews.core.forge_pages import pages_base
from supervisor.reviews.forges.base import (
    CommitFacts,
    FailedDelivery,
    ForgeError,
    Installed,
    RepositoryFacts,
)
from supervisor.reviews.forges.github import GitHub
from supervisor.reviews.forges.github_calls import GitHubCalls, read

VIEWER = "query { viewer { login } }"


class WorkflowGitHub(GitHub):
    """Implements `base.Forge`. `token` is the workflow's, `repository` its `OWNER/REPO`;
    `may_push`: the workflow is to give it what jobs need."""

    def __init__(
        self,
        *,
        api: str,
        token: str,
        repository: str,
        now: Callable[[], float],
        may_push: bool = False,
    ) -> None:
        self.pages = pages_base(api)
        self._calls = _TokenCalls(api=api, token=token, now=now)
        self._login = ""
        self._token = token
        self._repository = repository
        self._may_push = may_push

    async def own_login(self) -> str:
        if not self._login:
            found = await self._calls.graphql(VIEWER, {}, token=self._token)
            self._login = read(lambda answer: str(answer["viewer"]["login"]), found)
        return self._login

    async def installed(self) -> Installed:
        path = f"/repos/{self._repository}"
        one = await self._calls.call("GET", path, token=self._token)
        found = read(_repository, one)
        return Installed(repositories=(replace(found, may_resolve=self._may_push),))

    async def failed_deliveries(self) -> list[FailedDelivery]:
        return []

    async def commit(self, sha: str) -> CommitFacts:
        """Return what a commit says of itself."""
        path = f"/repos/{self._repository}/git/commits/{sha}"
        return read(_commit, await self._calls.call("GET", path, token=self._token))

    async def check_text(self, head: str, name: str, external_id: str) -> str:
        """Return the text of our own check on a commit; "" if it has none."""
        login = await self.own_login()
        path = f"/repos/{self._repository}/commits/{head}/check-runs?check_name={quote(name)}"
        try:
            known = await self._calls.all(path, key="check_runs", token=self._token)
        except ForgeError as error:
            if error.status in (404, 422):  # it is gone: pushed away
                return ""
            raise
        for one in known:
            slug = (one.get("app") or {}).get("slug", "")
            if one.get("external_id") == external_id and f"{slug}[bot]" == login:
                return str((one.get("output") or {}).get("summary") or "")
        return ""


class _TokenCalls(GitHubCalls):
    """Calls with one token, which has the permissions that the workflow gives it."""

    def __init__(self, *, api: str, token: str, now: Callable[[], float]) -> None:
        self._open(api, now)
        self._given = token

    def jwt(self) -> str:
        raise ForgeError("a workflow's token is no App", "leave out what only an App can do")

    async def token(
        self, installation: int, permissions: dict[str, str], names: list[str] | None = None
    ) -> str:
        return self._given


def _commit(one: dict[str, Any]) -> CommitFacts:
    by = one["committer"]
    committer = f"{by['name']} <{by['email']}>"
    return CommitFacts(str(one["tree"]["sha"]), str(one["message"]), committer)


def _repository(one: dict[str, Any]) -> RepositoryFacts:
    return RepositoryFacts(
        full_name=str(one["full_name"]),
        external_id=int(one["id"]),
        installation_id=0,
        default_branch=str(one.get("default_branch") or "main"),
        clone_url=str(one["clone_url"]),
    )
