"""Checks before every route: who may come in, and the headers of every answer.

A door wraps the whole ASGI app, so that it also covers unknown paths and methods, WebSocket
handshakes and routes added later. It denies by default. Guards on the apps (`app.require_caller`)
are the second check, which doesn't depend on paths.

The checks against a foreign page in the operator's browser (DNS rebinding, cross-site requests, a
server on another local port, which browsers count as the same site): exact Host, exact Origin,
Fetch Metadata (https://www.w3.org/TR/fetch-metadata/), and a CSRF token with every state change of
a cookie's holder.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec
from litestar.exceptions import HTTPException, ServiceUnavailableException

from supervisor.base.clock import Clock
from supervisor.core.text.numbers import whole_number
from supervisor.errors import GatehouseError, StorageError
from supervisor.records.audit import Audit
from supervisor.server.common.auth import BadTokens, Operator, OperatorAuth, same
from supervisor.server.common.error_bodies import ErrorBody, ErrorPage

CSRF_HEADER = "X-Gatehouse-CSRF"
# A body must have arrived this soon, however slowly it is dripped.
BODY_S = 30.0
# A longer body that nobody reads ends the connection instead of being read and thrown away.
SHORT_BODY_BYTES = 64 * 1024
# Calls of one agent, the refused ones too, at once and in a second.
AGENT_CALLS_AT_ONCE = 600
AGENT_CALLS_PER_S = 60.0
# Of bodies that the agents' doors hold at once.
MOST_OF_SESSION = 48 * 1024 * 1024
MOST_OF_ALL = 192 * 1024 * 1024
# Of attempts that were refused: how long they are counted, and of each fact on record.
WINDOW_S = 60.0
MOST_CHARS = 200
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS = {
    b"cache-control": b"no-store",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    # Not `no-referrer`: with it browsers send `Origin: null` with a form of our own pages.
    b"referrer-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"permissions-policy": b"camera=(), microphone=(), geolocation=()",
}
_TOO_MANY_BODIES = "the bodies that agents send at this moment are together too long"
_POLICY = (
    "default-src 'self'; connect-src 'self'{ws}; object-src 'none'; base-uri 'none'; form-action"
    " 'self'; frame-ancestors 'none'"
)

# ASGI as it is: a server's and litestar's types for it differ
# (https://asgi.readthedocs.io/en/latest/specs/www.html).
type Message = MutableMapping[str, Any]
type Scope = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]
type ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]


class BodyRoom:
    """A limit on the bytes of request bodies in memory, within a larger limit shared with others. A
    body counts from its arrival until its call is answered, over all connections.
    """

    def __init__(self, most_bytes: int, shared: "BodyRoom | None" = None) -> None:
        self._left = most_bytes
        self._shared = shared

    def take(self, count: int) -> bool:
        """Reserve bytes. Return whether there was room for them."""
        if count > self._left or (self._shared is not None and not self._shared.take(count)):
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        """Release reserved bytes."""
        self._left += count
        if self._shared is not None:
            self._shared.give_back(count)


_of_all = BodyRoom(MOST_OF_ALL)


def of_session() -> BodyRoom:
    """Return the limit for one session's door."""
    return BodyRoom(MOST_OF_SESSION, _of_all)


class TurnedAwayError(Exception):
    """The caller is turned away. Never leaves this module."""

    def __init__(
        self, status: int, error: str, why: str, remedy: str, retry_after_s: int = 60
    ) -> None:
        super().__init__(why)
        self.status = status
        self.retry_after_s = retry_after_s
        self.body = ErrorBody(error=error, why=why, remedy=remedy)


class OperatorDoor:
    """Lets the operator in. `public` paths have no data and need no credentials; all other checks
    apply.

    `refused` is called with the fault of a refused state-changing call: `RefusedAttempts.note`.
    """

    def __init__(
        self,
        app: ASGIApp,
        auth: OperatorAuth,
        *,
        public: Iterable[str],
        refused: Callable[..., None],
        error_page: ErrorPage | None = None,
    ) -> None:
        self._app = app
        self._auth = auth
        self._public = tuple(public)
        self._refused = refused
        self._error_page = error_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        policy = _POLICY.format(ws="")
        try:
            host = self._host(scope)
            policy = _POLICY.format(ws=f" ws://{host}")
            caller = self._admit(scope, host)
        except TurnedAwayError as turned:
            if _is_change(scope):
                self._refused(
                    turned.body.error, method=scope.get("method", "WebSocket"), path=scope["path"]
                )
            page = self._error_page if _wants_page(scope) else None
            await _turn_away(scope, _dressed(scope, send, policy), turned, page)
            return
        scope["state"]["caller"] = caller
        await _pass(self._app, scope, receive, self._noted(scope, send, caller), policy)

    def _noted(self, scope: Scope, send: Send, caller: Operator | None) -> Send:
        """`send`, which also notes an answer to something else than was shown: all of these are
        409."""
        if caller is None or not _is_change(scope):
            return send

        async def noted(message: Message) -> None:
            if (
                message["type"] == "http.response.start"
                and message["status"] == HTTPStatus.CONFLICT
            ):
                self._refused(
                    "stale answer", method=scope["method"], path=scope["path"], by=caller.name
                )
            await send(message)

        return noted

    def _host(self, scope: Scope) -> str:
        hosts = values(scope, b"host")
        if len(hosts) != 1 or hosts[0] not in self._auth.hosts:
            raise TurnedAwayError(
                403,
                "wrong host",
                "this address is not the operator's page",
                f"open http://127.0.0.1:{self._auth.port}/",
            )
        return hosts[0]

    def _admit(self, scope: Scope, host: str) -> Operator | None:
        origins = values(scope, b"origin")
        is_change = _is_change(scope)
        if origins and origins != [f"http://{host}"]:
            raise _foreign()
        if values(scope, b"sec-fetch-site") not in (
            [],
            ["same-origin"],
            ["none"],
        ) and not _is_visit(scope):
            raise _foreign()
        if not is_change and self._is_public(scope["path"]):
            return None
        caller = self._identify(scope)
        if caller.via == "browser" and is_change:
            if not origins:
                raise _foreign()
            if scope["type"] == "http" and not _has_csrf_token(scope, caller):
                raise TurnedAwayError(
                    403,
                    "no csrf token",
                    f"a state change needs the page's token in {CSRF_HEADER}",
                    "reload the page",
                )
        return caller

    def _is_public(self, path: str) -> bool:
        return any(
            path == public or (public.endswith("/") and path.startswith(public))
            for public in self._public
        )

    def _identify(self, scope: Scope) -> Operator:
        """INVARIANT: nobody but a holder of the cookie or of the CLI's token is ever named here."""
        if "authorization" in {name.decode("latin-1") for name, _ in scope["headers"]}:
            token = bearer(scope)
            caller = self._auth.by_bearer(token) if token else None
            if caller is None:
                raise _wrong(self._auth.bad_tokens)
            return caller
        cookies = _cookies(scope, self._auth.cookie_name)
        for value in cookies:
            if caller := self._auth.by_cookie(value):
                return caller
        if cookies:
            raise _wrong(self._auth.bad_tokens)
        raise TurnedAwayError(
            401,
            "not signed in",
            "only the operator can open this page",
            "open the URL that Gatehouse printed, or run `gatehouse url`",
        )


class CallBudget:
    """A rate limit of calls: a token bucket."""

    def __init__(self, clock: Clock, at_once: int, per_s: float) -> None:
        self._clock = clock
        self._at_once = float(at_once)
        self._per_s = per_s
        self._left = self._at_once
        self._at = clock.monotonic()

    def spend(self, count: int = 1) -> bool:
        """Count one more call, or one that is worth several. Return whether it is allowed."""
        now = self._clock.monotonic()
        self._left = min(self._at_once, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < count:
            return False
        self._left -= count
        return True


class AgentDoor:
    """Lets one session's agent in, and at the programs' door, which asks for no token
    (`authenticate` is None), its programs. INVARIANT: the session comes from the listening socket,
    and the token must be that session's. Every call counts, whatever its answer; the bytes of all
    bodies are bounded (`BodyRoom`).
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticate: Callable[[str], bool] | None,
        bad_tokens: BadTokens | None,
        clock: Clock,
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._bad_tokens = bad_tokens
        self._calls = CallBudget(clock, AGENT_CALLS_AT_ONCE, AGENT_CALLS_PER_S)
        self._bodies = of_session()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        policy = "default-src 'none'; frame-ancestors 'none'"
        try:
            self._admit(scope)
        except TurnedAwayError as turned:
            await _turn_away(scope, _dressed(scope, send, policy), turned, None)
            return
        scope["state"]["caller"] = Operator(name="agent", via="cli")
        held = 0

        async def hold() -> Message:
            nonlocal held
            message = await receive()
            count = len(message.get("body", b""))
            if not self._bodies.take(count):
                raise ServiceUnavailableException(_TOO_MANY_BODIES, headers={"Retry-After": "1"})
            held += count
            return message

        try:
            await _pass(self._app, scope, hold, send, policy)
        finally:
            self._bodies.give_back(held)

    def _admit(self, scope: Scope) -> None:
        if self._authenticate is not None:
            self._check_token(scope, self._authenticate)
        if not self._calls.spend():
            raise TurnedAwayError(
                429, "too many calls", "this session calls too often", "wait a second", 1
            )

    def _check_token(self, scope: Scope, authenticate: Callable[[str], bool]) -> None:
        token = bearer(scope)
        if token is None:
            raise TurnedAwayError(
                401,
                "no token",
                "the agent's API needs the session's token",
                "send `Authorization: Bearer $GATEHOUSE_TOKEN`",
            )
        try:
            is_right = authenticate(token)
        except GatehouseError:
            is_right = False
        if not is_right:
            assert self._bad_tokens is not None
            raise _wrong(self._bad_tokens)


def values(scope: Scope, name: bytes) -> list[str]:
    """Return every value of a header, in order."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def bearer(scope: Scope) -> str | None:
    """Return the token of the one `Authorization: Bearer` header; None for none or several."""
    headers = values(scope, b"authorization")
    if len(headers) != 1:
        return None
    scheme, _, token = headers[0].partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def _cookies(scope: Scope, name: str) -> list[str]:
    """The values of a cookie. A server on another local port can set one of the same name
    besides ours: each is tried."""
    pairs = [pair.partition("=") for line in values(scope, b"cookie") for pair in line.split(";")]
    return [value.strip() for key, _, value in pairs if key.strip() == name][:8]


def _has_csrf_token(scope: Scope, caller: Operator) -> bool:
    sent = values(scope, CSRF_HEADER.lower().encode())
    return len(sent) == 1 and bool(caller.csrf) and same(sent[0], caller.csrf)


def _is_change(scope: Scope) -> bool:
    """Return whether it may change something, or goes on: what only reads says nothing of what was
    answered."""
    return scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS


def _is_visit(scope: Scope) -> bool:
    """A link that a person followed: it changes nothing, and a Strict cookie doesn't come with
    it from elsewhere."""
    return (
        scope["type"] == "http"
        and scope["method"] == "GET"
        and values(scope, b"sec-fetch-mode") == ["navigate"]
        and values(scope, b"sec-fetch-dest") == ["document"]
    )


def _wants_page(scope: Scope) -> bool:
    return scope["type"] == "http" and any(
        "text/html" in value for value in values(scope, b"accept")
    )


def _foreign() -> TurnedAwayError:
    return TurnedAwayError(
        403,
        "foreign origin",
        "this call doesn't come from the operator's own page",
        "use the page itself",
    )


def _wrong(bad_tokens: BadTokens) -> TurnedAwayError:
    bad_tokens.count()
    if bad_tokens.too_many:
        return TurnedAwayError(
            429, "too many wrong tokens", "too many wrong credentials were sent", "wait a minute"
        )
    return TurnedAwayError(
        401,
        "wrong token",
        "these credentials are wrong or expired",
        "get new ones: `gatehouse url`",
    )


async def _pass(app: ASGIApp, scope: Scope, receive: Receive, send: Send, policy: str) -> None:
    """Let a call through, with its body bounded in time and its answer dressed."""
    if scope["type"] == "websocket":
        await app(scope, receive, _dressed(scope, send, policy))
        return
    has_all = False

    async def receive_in_time() -> Message:
        nonlocal has_all
        if has_all:
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError as error:
            raise HTTPException(
                status_code=408, detail=f"the body took more than {BODY_S:g} s"
            ) from error
        if message["type"] != "http.request":
            raise HTTPException(status_code=400, detail="the caller went away")
        has_all = not message.get("more_body", False)
        return message

    deadline = asyncio.get_running_loop().time() + BODY_S
    await app(scope, receive_in_time, _dressed(scope, send, policy, lambda: has_all))


def _dressed(
    scope: Scope, send: Send, policy: str, has_all: Callable[[], bool] = lambda: False
) -> Send:
    """`send` with the headers that every answer carries."""
    extra = _HEADERS | {b"content-security-policy": policy.encode("latin-1")}

    async def dressed(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            # A handler's own policy stays beside ours: a browser holds to both, so it can only
            # forbid more.
            headers = [
                (name, value)
                for name, value in message.get("headers", ())
                if name.lower() not in extra or name.lower() == b"content-security-policy"
            ]
            if _may_be_long(scope) and not has_all():
                headers.append((b"connection", b"close"))
            message["headers"] = [*headers, *extra.items()]
        await send(message)

    return dressed


def _may_be_long(scope: Scope) -> bool:
    if values(scope, b"transfer-encoding"):
        return True
    return any(
        (number := whole_number(length)) is None or number > SHORT_BODY_BYTES
        for length in values(scope, b"content-length")
    )


async def _turn_away(
    scope: Scope, send: Send, turned: TurnedAwayError, page: ErrorPage | None
) -> None:
    """Answer without having read anything of the body. A WebSocket handshake gets an HTTP answer
    where the server can give one."""
    content = (
        page(turned.status, turned.body).encode() if page else msgspec.json.encode(turned.body)
    )
    headers = [
        (b"content-type", b"text/html; charset=utf-8" if page else b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    if turned.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if turned.status == 429:
        headers.append((b"retry-after", b"%d" % turned.retry_after_s))
    prefix = ""
    if scope["type"] == "websocket":
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await send(
                {
                    "type": "websocket.close",
                    "code": 4000 + turned.status,
                    "reason": turned.body.error,
                }
            )
            return
        prefix = "websocket."
    await send(
        {"type": f"{prefix}http.response.start", "status": turned.status, "headers": headers}
    )
    await send({"type": f"{prefix}http.response.body", "body": content, "more_body": False})


@dataclass
class _Window:
    """The counts since the line that opened it, and the newest of that."""

    ends_at: float
    count: int = 0
    newest: dict[str, Any] = field(default_factory=dict)


class RefusedAttempts:
    """Records refused attempts to answer: wrong credentials, another site's page, a request that
    isn't the one shown.

    INVARIANT: a flood fills no disk. The first attempt of a kind is a line at once; those that
    follow within `WINDOW_S` are counted and become one line. There are few fixed kinds, so at most
    a few lines a minute. `tell` is called by housekeeping and at the end.
    """

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._windows: dict[str, _Window] = {}

    def note(self, refused: str, **facts: str | None) -> None:
        """Note one more; `refused` is a fixed word for the fault. Facts come from the caller, so
        they are cut.
        """
        cut = {name: value[:MOST_CHARS] for name, value in facts.items() if value}
        now = self._clock.monotonic()
        window = self._windows.get(refused)
        if window is None or now >= window.ends_at:
            self._tell(refused)
            self._windows[refused] = _Window(now + WINDOW_S)
            self._record(refused, 1, cut)
        else:
            window.count += 1
            window.newest = cut

    def tell(self, *, is_end: bool = False) -> None:
        """Record the counts of windows that are over, or of all windows."""
        now = self._clock.monotonic()
        for refused, window in list(self._windows.items()):
            if is_end or now >= window.ends_at:
                self._tell(refused)
                del self._windows[refused]

    def _tell(self, refused: str) -> None:
        window = self._windows.get(refused)
        if window is not None and window.count:
            self._record(refused, window.count, window.newest)

    def _record(self, refused: str, count: int, facts: dict[str, str]) -> None:
        with contextlib.suppress(StorageError):  # it was refused all the same
            self._audit.record("operator_refused", refused=refused, count=count, **facts)
