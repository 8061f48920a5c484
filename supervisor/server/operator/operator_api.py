"""What the operator's routes have in common, and signing in.

A module of `pages` has the routes of one thing, as page and as JSON. Each handler parses, calls one
function and renders; `decisions` decides. The door puts the caller's name into
`caller(request).name`: no body has a field for it, and unknown fields are refused.
"""

import contextlib
import html
from typing import Annotated, Any

import msgspec
from litestar import MediaType, Request, Response, get, post
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie
from litestar.params import FromPath, FromQuery, QueryParameter

from supervisor.errors import RefusedError, StorageError
from supervisor.parts import Parts
from supervisor.server.common.auth import COOKIE_S, Operator, OperatorAuth
from supervisor.server.operator.live import Live

AnyRequest = Request[Any, Any, Any]
_AnyConnection = ASGIConnection[Any, Any, Any, Any]
# An id in a route's path.
Id = FromPath[str]
Limit = Annotated[int, QueryParameter(ge=1, le=1000)]
Text = Annotated[str, msgspec.Meta(max_length=2000)]


class CallBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a call sends. An unknown field is refused."""


class LoginLink(msgspec.Struct, frozen=True, kw_only=True):
    url: str


class Ok(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool = True


def parts_of(request: _AnyConnection) -> Parts:
    """Return the supervisor's parts, for handlers of the operator's app and for pages."""
    parts: Parts = request.app.state["parts"]
    return parts


def live_of(request: _AnyConnection) -> Live:
    live: Live = request.app.state["live"]
    return live


def auth_of(request: _AnyConnection) -> OperatorAuth:
    auth: OperatorAuth = request.app.state["auth"]
    return auth


def caller(request: AnyRequest) -> Operator:
    """Return the caller, as the door found it out."""
    found: Operator = request.scope["state"]["caller"]
    return found


# -- signing in: the only routes without a caller -------------------------------------------------


@get("/health", opt={"public": True}, sync_to_thread=False)
def health() -> Ok:
    """Return whether the server answers, and nothing else."""
    return Ok()


@get("/login", opt={"public": True}, include_in_schema=False, sync_to_thread=False)
def login(request: AnyRequest, token: FromQuery[str] = "") -> Response[str]:
    """Exchange a login token for a cookie, once.

    The answer is a page that moves on by itself, not a redirect. A browser that came from another
    site (a terminal in a browser) would follow a redirect without the Strict cookie, but follows
    our own page with it.
    """
    auth = auth_of(request)
    if any(auth.by_cookie(value) for value in [request.cookies.get(auth.cookie_name, "")]):
        return _move_on(None)
    cookie = auth.sign_in(token)
    if cookie is None:
        request.app.state["refused_attempts"].note(
            "wrong sign-in link", method="GET", path="/login"
        )
        raise RefusedError(
            "this sign-in link was used before, or is too old",
            "get a new one: `gatehouse url`, or start Gatehouse again",
        )
    with contextlib.suppress(
        StorageError
    ):  # the page is where the operator sees that the audit can't be written
        parts_of(request).audit.record("operator_signed_in", by="operator (browser)")
    return _move_on(
        Cookie(
            key=auth.cookie_name,
            value=cookie,
            path="/",
            httponly=True,
            samesite="strict",
            max_age=int(COOKIE_S),
        )
    )


def _move_on(cookie: Cookie | None) -> Response[str]:
    text = (
        "<!doctype html><meta charset=utf-8><title>Gatehouse</title><link rel=icon"
        " href=/static/gatehouse.svg><meta http-equiv=refresh content='0;url=/'>"
    )
    text += f"<p><a href='/'>{html.escape('Go on to the inbox')}</a>"
    return Response(text, media_type=MediaType.HTML, cookies=[cookie] if cookie else None)


@post("/api/logout", status_code=200, sync_to_thread=False)
def logout(request: AnyRequest) -> Ok:
    """Invalidate the caller's cookie."""
    auth_of(request).sign_out(caller(request))
    return Ok()


@post("/api/login-token", status_code=200, sync_to_thread=False)
def login_token(request: AnyRequest) -> LoginLink:
    """Return a new one-time sign-in link."""
    return LoginLink(url=auth_of(request).login_url())
