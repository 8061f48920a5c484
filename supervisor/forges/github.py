"""GitHub, and GitHub Enterprise Server: REST by gidgethub over httpx2, as an App.

A token is minted for each act, for one repository and what the act needs, and is kept nowhere.
Sources: docs.github.com/rest (apps, pulls, checks, collaborators), version 2022-11-28.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import gidgethub
import httpx2
import msgspec
from gidgethub import apps
from gidgethub.abc import GitHubAPI

from supervisor.core.act import Act
from supervisor.forges.base import (
    FailedDelivery,
    ForgeError,
    Posted,
    PullFacts,
    RepositoryFacts,
)
from supervisor.forges.throttle import Throttle

PUBLIC_API = "https://api.github.com"
NAME = "gatehouse"
ANSWER_S = 30.0
# App JWTs are good for ten minutes at most, and clocks differ.
_JWT_S = 9 * 60
_EVENTS = {"approve": "APPROVE", "request_changes": "REQUEST_CHANGES", "comment": "COMMENT"}
_API_VERSION = {"X-GitHub-Api-Version": "2022-11-28"}


class _Api(GitHubAPI):
    """gidgethub over httpx2."""

    def __init__(self, client: httpx2.AsyncClient, base_url: str) -> None:
        super().__init__(NAME, base_url=base_url)
        self._client = client

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        answer = await self._client.request(
            method, url, headers={**headers, **_API_VERSION}, content=body
        )
        return answer.status_code, answer.headers, answer.content

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError("who calls waits")


class NewApp(msgspec.Struct, frozen=True, kw_only=True):
    """An App as GitHub made it. `url` is its page."""

    id: str
    slug: str
    url: str
    key: str
    secret: str


async def convert_manifest(api: str, code: str) -> NewApp:
    """Return the App that a code of the manifest flow stands for; it is good once."""
    async with httpx2.AsyncClient(timeout=ANSWER_S, follow_redirects=False) as client:
        path = f"/app-manifests/{quote(code, safe='')}/conversions"
        try:
            made = await _Api(client, api.rstrip("/")).post(path, data=b"")
        except (gidgethub.GitHubException, httpx2.HTTPError) as error:
            raise ForgeError(f"GitHub gave no App for the code: {error}", "run it again") from error
    return NewApp(
        id=str(made["id"]),
        slug=str(made["slug"]),
        url=str(made["html_url"]),
        key=str(made["pem"]),
        secret=str(made["webhook_secret"]),
    )


class GitHub:
    """Implements `base.Forge`. `private_key` is the App's, PEM."""

    def __init__(
        self, *, api: str, app_id: str, private_key: str, now: Callable[[], float]
    ) -> None:
        self._client = httpx2.AsyncClient(timeout=ANSWER_S, follow_redirects=False)
        self._api = _Api(self._client, api.rstrip("/"))
        self._app_id = app_id
        self._private_key = private_key
        self._now = now
        self._throttle = Throttle(now)

    async def close(self) -> None:
        """See `base.Forge.close`."""
        await self._client.aclose()

    async def own_login(self) -> str:
        """See `base.Forge.own_login`."""
        return f"{(await self._call('GET', '/app', jwt=self._jwt()))['slug']}[bot]"

    async def repositories(self) -> list[RepositoryFacts]:
        """See `base.Forge.repositories`."""
        found = []
        for installation in await self._all("/app/installations", jwt=self._jwt()):
            if installation.get("suspended_at"):
                continue
            number = int(installation["id"])
            token = await self._token(number, {"metadata": "read"})
            path = "/installation/repositories"
            found += [
                _repository(one, number)
                for one in await self._all(path, key="repositories", token=token)
            ]
        return found

    async def pull(self, repository: RepositoryFacts, number: int) -> PullFacts:
        """See `base.Forge.pull`."""
        token = await self._token_for(repository, {"pull_requests": "read"})
        path = f"/repos/{repository.full_name}/pulls/{number}"
        return pull_facts(await self._call("GET", path, token=token))

    async def open_pulls(self, repository: RepositoryFacts) -> list[PullFacts]:
        """See `base.Forge.open_pulls`."""
        token = await self._token_for(repository, {"pull_requests": "read"})
        path = f"/repos/{repository.full_name}/pulls?state=open"
        return [pull_facts(one) for one in await self._all(path, token=token)]

    async def permission(self, repository: RepositoryFacts, login: str) -> str:
        """See `base.Forge.permission`."""
        token = await self._token_for(repository, {"metadata": "read"})
        path = f"/repos/{repository.full_name}/collaborators/{quote(login, safe='')}/permission"
        try:
            return str((await self._call("GET", path, token=token))["permission"])
        except ForgeError as error:
            if error.status == 404:
                return "none"
            raise

    async def clone_token(self, repository: RepositoryFacts) -> str:
        """See `base.Forge.clone_token`."""
        return await self._token_for(repository, {"contents": "read"})

    async def post_review(self, repository: RepositoryFacts, act: Act) -> Posted:
        """See `base.Forge.post_review`."""
        token = await self._token_for(repository, {"pull_requests": "write"})
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
        path = f"/repos/{repository.full_name}/pulls/{act.number}/reviews"
        return _posted(await self._call("POST", path, data, token=token))

    async def find_review(
        self, repository: RepositoryFacts, number: int, mark: str
    ) -> Posted | None:
        """See `base.Forge.find_review`."""
        token = await self._token_for(repository, {"pull_requests": "read"})
        path = f"/repos/{repository.full_name}/pulls/{number}/reviews"
        for one in await self._all(path, token=token):
            if mark in (one.get("body") or ""):
                return _posted(one)
        return None

    async def set_check(
        self, repository: RepositoryFacts, head: str, act: Act, external_id: str
    ) -> Posted:
        """See `base.Forge.set_check`."""
        token = await self._token_for(repository, {"checks": "write"})
        path = f"/repos/{repository.full_name}"
        data = {
            "name": act.title,
            "head_sha": head,
            "external_id": external_id,
            "status": "completed",
            "conclusion": act.conclusion,
            "output": {"title": act.title, "summary": act.body},
        }
        known = await self._all(
            f"{path}/commits/{head}/check-runs?check_name={quote(act.title)}",
            key="check_runs",
            token=token,
        )
        for one in known:
            if one.get("external_id") == external_id:
                url = f"{path}/check-runs/{one['id']}"
                return _posted(await self._call("PATCH", url, data, token=token))
        return _posted(await self._call("POST", f"{path}/check-runs", data, token=token))

    async def open_pull(self, repository: RepositoryFacts, act: Act) -> Posted:
        """See `base.Forge.open_pull`."""
        token = await self._token_for(repository, {"pull_requests": "write"})
        path = f"/repos/{repository.full_name}/pulls"
        owner = repository.full_name.partition("/")[0]
        head = quote(f"{owner}:{act.branch}", safe="")
        known = await self._all(f"{path}?state=open&head={head}", token=token)
        for one in known:
            if one["base"]["ref"] == act.base:
                return Posted(id=int(one["number"]), url=str(one.get("html_url", "")))
        data = {"title": act.title, "body": act.body, "head": act.branch, "base": act.base}
        made = await self._call("POST", path, data, token=token)
        return Posted(id=int(made["number"]), url=str(made.get("html_url", "")))

    async def failed_deliveries(self) -> list[FailedDelivery]:
        """See `base.Forge.failed_deliveries`."""
        found = await self._call("GET", "/app/hook/deliveries?per_page=100", jwt=self._jwt())
        newest: dict[str, dict[str, Any]] = {}
        for one in found:  # newest first: a redelivery is a line of its own
            newest.setdefault(one["guid"], one)
        return [
            FailedDelivery(id=int(one["id"]), guid=str(one["guid"]), event=str(one["event"]))
            for one in newest.values()
            if not 200 <= int(one["status_code"]) < 300
        ]

    async def redeliver(self, delivery: FailedDelivery) -> None:
        """See `base.Forge.redeliver`."""
        path = f"/app/hook/deliveries/{delivery.id}/attempts"
        await self._call("POST", path, {}, jwt=self._jwt())

    # -- inside -----------------------------------------------------------------------------------

    def _jwt(self) -> str:
        return apps.get_jwt(app_id=self._app_id, private_key=self._private_key, expiration=_JWT_S)

    async def _token_for(self, repository: RepositoryFacts, permissions: dict[str, str]) -> str:
        return await self._token(
            repository.installation_id, permissions, [repository.full_name.partition("/")[2]]
        )

    async def _token(
        self, installation: int, permissions: dict[str, str], names: list[str] | None = None
    ) -> str:
        wanted: dict[str, Any] = {"permissions": permissions}
        if names:
            wanted["repositories"] = names
        path = f"/app/installations/{installation}/access_tokens"
        return str((await self._call("POST", path, wanted, jwt=self._jwt()))["token"])

    async def _all(
        self, path: str, *, key: str = "", token: str | None = None, jwt: str | None = None
    ) -> list[dict[str, Any]]:
        """Every page of a list."""
        found: list[dict[str, Any]] = []
        joint = "&" if "?" in path else "?"
        for page in range(1, 101):
            answer = await self._call(
                "GET", f"{path}{joint}per_page=100&page={page}", token=token, jwt=jwt
            )
            part = answer[key] if key else answer
            found += part
            if len(part) < 100:
                break
        return found

    async def _call(
        self,
        method: str,
        path: str,
        data: Any = b"",
        *,
        token: str | None = None,
        jwt: str | None = None,
    ) -> Any:
        # A token that is minted is no content.
        async with self._throttle.turn(posts=method != "GET" and jwt is None):
            return await self._send(method, path, data, token=token, jwt=jwt)

    async def _send(
        self, method: str, path: str, data: Any, *, token: str | None, jwt: str | None
    ) -> Any:
        try:
            if method == "GET":
                return await self._api.getitem(path, jwt=jwt, oauth_token=token)
            if method == "PATCH":
                return await self._api.patch(path, data=data, jwt=jwt, oauth_token=token)
            return await self._api.post(path, data=data, jwt=jwt, oauth_token=token)
        except gidgethub.HTTPException as error:
            raise _failed(method, path, error, self._now()) from error
        except gidgethub.GitHubException as error:
            raise ForgeError(f"{method} {path}: {error}", may_retry=True) from error
        except httpx2.HTTPError as error:
            why = str(error) or type(error).__name__
            raise ForgeError(
                f"{self._api.base_url} can't be reached: {why}", may_retry=True
            ) from error


def _failed(method: str, path: str, error: gidgethub.HTTPException, now: float) -> ForgeError:
    status = int(error.status_code)
    headers = getattr(error, "headers", None) or {}
    wait = headers.get("retry-after")
    is_limit = status == 429 or (
        status == 403 and (wait is not None or headers.get("x-ratelimit-remaining") == "0")
    )
    retry_at = None
    if is_limit:
        reset = headers.get("x-ratelimit-reset")
        retry_at = now + float(wait) if wait else float(reset) if reset else None
    return ForgeError(
        f"{method} {path.partition('?')[0]}: {status}, {error}",
        status=status,
        may_retry=is_limit or status >= 500,
        retry_at=retry_at,
    )


def _repository(one: dict[str, Any], installation: int) -> RepositoryFacts:
    return RepositoryFacts(
        full_name=str(one["full_name"]),
        external_id=int(one["id"]),
        installation_id=installation,
        default_branch=str(one.get("default_branch") or "main"),
        clone_url=str(one["clone_url"]),
    )


def pull_facts(one: dict[str, Any]) -> PullFacts:
    """Return a pull request out of GitHub's own form of it."""
    head_repository = one["head"].get("repo")
    is_fork = head_repository is None or (
        head_repository["full_name"] != one["base"]["repo"]["full_name"]
    )
    return PullFacts(
        number=int(one["number"]),
        title=str(one["title"]),
        body=str(one.get("body") or ""),
        author=str(one["user"]["login"]),
        is_fork=is_fork,
        is_draft=bool(one.get("draft")),
        is_open=one["state"] == "open",
        base_ref=str(one["base"]["ref"]),
        base_sha=str(one["base"]["sha"]),
        head_ref=str(one["head"]["ref"]),
        head_sha=str(one["head"]["sha"]),
        labels=tuple(str(label["name"]) for label in one.get("labels", ())),
    )


def _posted(one: dict[str, Any]) -> Posted:
    return Posted(id=int(one["id"]), url=str(one.get("html_url") or ""))
