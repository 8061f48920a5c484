"""Calls to Bitbucket Cloud's API: authorization, pages, limits and errors.

`bitbucket` knows the calls themselves. The token is read from its file for each call, so that a new
one counts at once, and goes to the API's own address alone. Sources:
developer.atlassian.com/cloud/bitbucket/rest/intro (pagination, errors),
support.atlassian.com/bitbucket-cloud, "API request limits".
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urljoin

import httpx2
import msgspec

from supervisor.core.text.numbers import whole_number
from supervisor.errors import UserError
from supervisor.reviews.core.bitbucket_tokens import BitbucketToken
from supervisor.reviews.forges.base import ForgeError, review_header
from supervisor.reviews.forges.throttle import Throttle

ANSWER_S = 30.0
MOST_PAGES = 100
MOST_BYTES = 64 * 1024 * 1024
# An hour's calls, a few of them left to the person whose token it is.
LIMITS = ((980, 3600.0),)
# A longer wait is the caller's, who has other things to do.
MOST_WAIT_S = 20.0
# Bitbucket says that there were too many, not until when.
REST_S = 60.0
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, LIMITED = 400, 401, 403, 404, 409, 429
_REMEDIES = {
    UNAUTHORIZED: "put a new token into its file: `gatehouse bitbucket setup` says which",
    FORBIDDEN: "give the token the scope for it: docs/reviews.md lists them",
}
_MOST_WORDS = 300


class BitbucketCalls:
    """Calls with one token. `api` is the base of the REST API; `now` and `monotonic` tell the time
    in seconds."""

    def __init__(
        self,
        *,
        api: str,
        token: Callable[[], BitbucketToken],
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.api = api.rstrip("/")
        self._token = token
        self._now = now
        self._client = httpx2.AsyncClient(timeout=ANSWER_S, follow_redirects=False)
        self._throttle = Throttle(monotonic, limits=LIMITS, counts_all=True)

    def token(self) -> BitbucketToken:
        """Return the token. A file that can't be read now may be mended, as one that is refused."""
        try:
            return self._token()
        except UserError as error:
            raise ForgeError(
                error.message, error.remedy, status=UNAUTHORIZED, may_retry=True
            ) from error

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def call(self, method: str, path: str, data: Any = None) -> Any:
        """Return the JSON of one call; None for an empty answer."""
        answer, _ = await self._send(method, self.api + path, data)
        if not answer:
            return None
        try:
            return msgspec.json.decode(answer)
        except (ValueError, RecursionError) as error:
            raise shapeless(path) from error

    async def all(self, path: str, most_pages: int = MOST_PAGES) -> list[dict[str, Any]]:
        """Return the items of all pages of a list. Raise `ForgeError` if there are more pages than
        that: a part would pass for all."""
        found: list[dict[str, Any]] = []
        for _ in range(most_pages):
            page = await self.call("GET", path)
            values = page.get("values") if isinstance(page, dict) else None
            if not isinstance(values, list):
                raise shapeless(path)
            found += [one for one in values if isinstance(one, dict)]
            following = page.get("next")
            if not following:
                return found
            # INVARIANT: an address that an answer names gets the token only at the API itself.
            if not str(following).startswith(f"{self.api}/"):
                raise shapeless(path)
            path = str(following).removeprefix(self.api)
        where = path.partition("?")[0]
        raise ForgeError(f"{where}: the list has more than {most_pages} pages")

    async def data(self, path: str) -> bytes:
        """Return a file's bytes, whichever place of the API has them."""
        answer, there = await self._send("GET", self.api + path, None)
        if there:
            if not there.startswith(f"{self.api}/"):
                raise shapeless(path)
            answer, _ = await self._send("GET", there, None)
        return answer

    async def _send(self, method: str, url: str, data: Any) -> tuple[bytes, str]:
        """Return an answer's bytes, and where it leads."""
        wait_s = self._throttle.wait_s()
        if wait_s > MOST_WAIT_S:
            raise ForgeError(
                "Bitbucket takes 1,000 calls an hour",
                status=LIMITED,
                may_retry=True,
                retry_at=self._now() + wait_s,
            )
        try:
            async with (
                self._throttle.turn(posts=method != "GET"),
                self._answer(method, url, data) as answer,
            ):
                body = await _bounded(answer, url)
                status, headers = answer.status_code, answer.headers
        except httpx2.HTTPError as error:
            why = str(error) or type(error).__name__
            raise ForgeError(f"{self.api} can't be reached: {why}", may_retry=True) from error
        if status == LIMITED:
            self._throttle.rest(rest_s := whole_number(headers.get("retry-after") or "") or REST_S)
            raise self._failed(method, url, status, body, rest_s)
        if status >= BAD_REQUEST:
            raise self._failed(method, url, status, body)
        there = headers.get("location", "") if status in (301, 302, 303, 307, 308) else ""
        return body, urljoin(url, there) if there else ""

    @contextlib.asynccontextmanager
    async def _answer(self, method: str, url: str, data: Any) -> AsyncIterator[httpx2.Response]:
        headers = {"Authorization": self.token().authorization, "Accept": "*/*"} | review_header()
        body = b""
        if data is not None:
            body = msgspec.json.encode(data)
            headers["Content-Type"] = "application/json"
        async with self._client.stream(method, url, headers=headers, content=body) as answer:
            yield answer

    def _failed(
        self, method: str, url: str, status: int, body: bytes, rest_s: float | None = None
    ) -> ForgeError:
        where = url.removeprefix(self.api).partition("?")[0]
        # A token may be replaced, and then it goes on.
        may_retry = status in (UNAUTHORIZED, LIMITED) or status >= 500
        return ForgeError(
            f"{method} {where}: {status}, {_words(body)}",
            _REMEDIES.get(status, ""),
            status=status,
            may_retry=may_retry,
            retry_at=None if rest_s is None else self._now() + rest_s,
        )


def shapeless(path: str) -> ForgeError:
    """Return the error for a response that doesn't match Bitbucket's documentation."""
    where = path.partition("?")[0]
    return ForgeError(f"{where}: the answer isn't what Bitbucket documents", may_retry=True)


def read[T](shape: Callable[[Any], T], answer: Any) -> T:
    """Convert a response to another shape. Raise `ForgeError` if it lacks something."""
    try:
        return shape(answer)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise shapeless(f"{type(error).__name__}: {error}") from error


async def _bounded(answer: httpx2.Response, url: str) -> bytes:
    found = bytearray()
    async for part in answer.aiter_bytes():
        found += part
        if len(found) > MOST_BYTES:
            raise ForgeError(f"{url}: the answer has more than {MOST_BYTES >> 20} MB")
    return bytes(found)


def _words(body: bytes) -> str:
    """Return what an error says."""
    try:
        said = msgspec.json.decode(body[:100_000])["error"]
        return " ".join(str(said.get(one, "")) for one in ("message", "detail"))[:_MOST_WORDS]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "no reason given"
