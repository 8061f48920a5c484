"""Calls to GitHub's API: tokens for one act each, pages, GraphQL, limits and errors.

`github` knows the calls themselves. A token is minted for each act, for one repository and the
permissions that the act needs, and is stored nowhere. Calls wait for GitHub's limits, and none is
dropped: docs.github.com/rest, "Rate limits", secondary limits on requests that create content.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from urllib.parse import quote

import gidgethub
import httpx2
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from gidgethub import apps
from gidgethub.abc import GitHubAPI

from supervisor.core.text.numbers import whole_number
from supervisor.reviews.forges.base import ForgeError, RepositoryFacts, review_header
from supervisor.reviews.forges.throttle import Throttle

NAME = "gatehouse"
ANSWER_S = 30.0
PAGE, MOST_PAGES = 100, 100
LIMITED = 429
_NOT_ALLOWED = "give the App, or the token, the permission for it"
_SECONDARY = "secondary rate limit"
# App JWTs are valid for ten minutes at most, and clocks differ.
_JWT_S = 9 * 60
_API_VERSION = {"X-GitHub-Api-Version": "2022-11-28"}
# GitHub's GraphQL errors come with 200.
_STATUS_OF = {"FORBIDDEN": 403, "NOT_FOUND": 404, "RATE_LIMITED": 429}


class _Api(GitHubAPI):
    """gidgethub over httpx2."""

    def __init__(self, client: httpx2.AsyncClient, base_url: str) -> None:
        super().__init__(NAME, base_url=base_url)
        self._client = client

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        more = _API_VERSION | review_header()
        answer = await self._client.request(method, url, headers={**headers, **more}, content=body)
        return answer.status_code, answer.headers, answer.content

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError("who calls waits")


class NewApp(msgspec.Struct, frozen=True, kw_only=True):
    """A new App as GitHub made it. `url` is its page."""

    id: str
    slug: str
    url: str
    key: str
    secret: str


async def convert_manifest(api: str, code: str) -> NewApp:
    """Return the App for a code of the manifest flow; the code is valid once."""
    async with httpx2.AsyncClient(timeout=ANSWER_S, follow_redirects=False) as client:
        path = f"/app-manifests/{quote(code, safe='')}/conversions"
        try:
            made = await _Api(client, api.rstrip("/")).post(path, data=b"")
        except (gidgethub.GitHubException, httpx2.HTTPError, ValueError) as error:
            raise ForgeError(f"GitHub gave no App for the code: {error}", "run it again") from error
    return read(_new_app, made)


def _new_app(made: dict[str, Any]) -> NewApp:
    return NewApp(
        id=str(made["id"]),
        slug=str(made["slug"]),
        url=str(made["html_url"]),
        key=str(made["pem"]),
        secret=str(made["webhook_secret"]),
    )


class GitHubCalls:
    """Calls as one App. `api` is the base of the REST API, `private_key` the App's."""

    def __init__(
        self, *, api: str, app_id: str, private_key: RSAPrivateKey, now: Callable[[], float]
    ) -> None:
        self._open(api, now)
        self._app_id = app_id
        self._private_key = private_key

    def _open(self, api: str, now: Callable[[], float]) -> None:
        self._client = httpx2.AsyncClient(timeout=ANSWER_S, follow_redirects=False)
        self._api = _Api(self._client, api.rstrip("/"))
        self._graphql_url = f"{api.rstrip('/').removesuffix('/v3')}/graphql"
        self._now = now
        self._throttle = Throttle(now)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    def jwt(self) -> str:
        """Return the JWT that proves that we are the App, for calls without a token."""
        # PyJWT, which signs, accepts the key as PEM or as a key object; gidgethub's types allow
        # only PEM.
        key = cast("bytes", self._private_key)
        return apps.get_jwt(app_id=self._app_id, private_key=key, expiration=_JWT_S)

    async def token_for(self, repository: RepositoryFacts, permissions: dict[str, str]) -> str:
        """Return a token for one repository."""
        return await self.token(
            repository.installation_id, permissions, [repository.full_name.partition("/")[2]]
        )

    async def token(
        self, installation: int, permissions: dict[str, str], names: list[str] | None = None
    ) -> str:
        """Return a token of an installation, for these repositories or all."""
        wanted: dict[str, Any] = {"permissions": permissions}
        if names:
            wanted["repositories"] = names
        path = f"/app/installations/{installation}/access_tokens"
        answer = await self.call("POST", path, wanted, jwt=self.jwt())
        return read(_token, answer)

    async def all(
        self, path: str, *, key: str = "", token: str | None = None, jwt: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the items of all pages of a list; `key` is the field that holds them."""
        found: list[dict[str, Any]] = []
        joint = "&" if "?" in path else "?"
        for page in range(1, MOST_PAGES + 1):
            where = f"{path}{joint}per_page={PAGE}&page={page}"
            part = await self.call("GET", where, token=token, jwt=jwt)
            if key:
                part = part.get(key) if isinstance(part, dict) else None
            if not isinstance(part, list):
                raise shapeless(path)
            found += part
            if len(part) < PAGE:
                break
        return found

    async def graphql(
        self, query: str, variables: dict[str, Any], *, token: str, posts: bool = False
    ) -> dict[str, Any]:
        """Return the result of a query. GitHub reports most errors with status 200."""
        data = {"query": query, "variables": variables}
        answer = await self.call("POST", self._graphql_url, data, token=token, posts=posts)
        if not isinstance(answer, dict):
            raise shapeless(self._graphql_url)
        for error in answer.get("errors") or ():
            status = _STATUS_OF.get(str(error.get("type")), 422)
            words = f"{self._graphql_url}: {status}, {error.get('message')}"
            raise ForgeError(words, status=status, may_retry=status == LIMITED)
        found = answer.get("data")
        if not isinstance(found, dict):
            raise shapeless(self._graphql_url)
        return found

    async def call(
        self,
        method: str,
        path: str,
        data: Any = b"",
        *,
        token: str | None = None,
        jwt: str | None = None,
        posts: bool | None = None,
    ) -> Any:
        """Return the JSON of one call. `posts`: it creates something that people see, as all calls
        other than GET do, except minting a token."""
        if posts is None:
            posts = method != "GET" and jwt is None
        async with self._throttle.turn(posts=posts):
            return await self._send(method, path, data, token=token, jwt=jwt)

    async def _send(
        self, method: str, path: str, data: Any, *, token: str | None, jwt: str | None
    ) -> Any:
        api = self._api
        changes: dict[str, Callable[..., Awaitable[Any]]]
        changes = {"POST": api.post, "PATCH": api.patch, "PUT": api.put, "DELETE": api.delete}
        try:
            if method == "GET":
                return await api.getitem(path, jwt=jwt, oauth_token=token)
            return await changes[method](path, data=data, jwt=jwt, oauth_token=token)
        except gidgethub.HTTPException as error:
            raise _failed(method, path, error, self._now()) from error
        except gidgethub.GitHubException as error:
            raise ForgeError(f"{method} {path}: {error}", may_retry=True) from error
        except httpx2.HTTPError as error:
            why = str(error) or type(error).__name__
            raise ForgeError(f"{api.base_url} can't be reached: {why}", may_retry=True) from error
        except (ValueError, LookupError) as error:  # no JSON, or in no known encoding
            raise shapeless(path) from error


def shapeless(path: str) -> ForgeError:
    """Return the error for a response that doesn't match GitHub's documentation."""
    where = path.partition("?")[0]
    return ForgeError(f"{where}: the answer isn't what GitHub documents", may_retry=True)


def read[T](shape: Callable[[Any], T], answer: Any) -> T:
    """Convert a response to another shape. Raise `ForgeError` if it lacks something."""
    try:
        return shape(answer)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise shapeless(f"{type(error).__name__}: {error}") from error


def _failed(method: str, path: str, error: gidgethub.HTTPException, now: float) -> ForgeError:
    status, headers = int(error.status_code), error.headers
    wait_s = _seconds(headers.get("retry-after"))
    reset_at = None
    if headers.get("x-ratelimit-remaining") == "0":
        reset_at = _seconds(headers.get("x-ratelimit-reset"))
    is_limit = status == LIMITED or (
        status == 403
        and (wait_s is not None or reset_at is not None or _SECONDARY in str(error).lower())
    )
    return ForgeError(
        f"{method} {path.partition('?')[0]}: {status}, {error}",
        _NOT_ALLOWED if status == 403 and not is_limit else "",
        status=status,
        may_retry=is_limit or status >= 500,
        retry_at=None if not is_limit else reset_at if wait_s is None else now + wait_s,
    )


def _seconds(text: str | None) -> float | None:
    """Return a header's number; None if it has none."""
    return whole_number(text or "")


def _token(answer: dict[str, Any]) -> str:
    return str(answer["token"])
