"""Errors as the one JSON body of both servers: `{error, why, remedy, rule, request_id}`.

The body is made only here, whether a handler raised, no route matched, or the door refused before
any handler ran. An unexpected exception is logged with its trace and answered without details,
which the caller may not be allowed to see.
"""

import traceback
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import MediaType, Response
from litestar.connection import Request
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from supervisor.base import log
from supervisor.core.text.display import visible
from supervisor.errors import GatehouseError


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """`error` is a short constant to switch on; `why` and `remedy` are for the reader; the
    others travel from the gate (law 5)."""

    error: str
    why: str
    remedy: str = ""
    rule: str | None = None
    request_id: str | None = None


type ErrorPage = Callable[[int, ErrorBody], str]


def body_of(error: Exception) -> tuple[int, ErrorBody]:
    """Return the HTTP status and the body for anything that a handler can raise."""
    if isinstance(error, GatehouseError):
        status = error.http_status
        return status, ErrorBody(
            error=_word(status),
            why=visible(error.message),
            remedy=visible(error.remedy),
            rule=getattr(error, "rule", None),
            request_id=getattr(error, "request_id", None),
        )
    if isinstance(error, HTTPException) and (error.status_code < 500 or error.status_code == 503):
        return error.status_code, ErrorBody(
            error=_word(error.status_code),
            why=visible(_detail(error)),
            remedy=_REMEDIES.get(error.status_code, ""),
        )
    if isinstance(error, RecursionError):  # of the JSON decoder: nothing of ours recurses
        return 400, ErrorBody(
            error=_word(400), why="the body is nested too deeply", remedy=_REMEDIES[400]
        )
    return 500, ErrorBody(
        error="internal error",
        why="this is a bug in Gatehouse",
        remedy="see its log; nothing was allowed",
    )


def render(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Handle every exception, for Litestar. A browser gets a page where the app has one."""
    status, body = body_of(error)
    if status == 500 and not isinstance(error, GatehouseError):
        # As text, not as `exc_info`: a renderer may print local variables, and they hold bodies and
        # credentials.
        trace = "".join(traceback.format_exception(error))
        log.error(
            "request failed",
            path=request.scope["path"],
            trace=request.app.state["parts"].redactor.text(trace),
        )
    headers = getattr(error, "headers", None) if isinstance(error, HTTPException) else None
    page: ErrorPage | None = request.app.state.get("error_page")
    if (
        page is not None
        and "text/html" in request.headers.get("accept", "")
        and not request.scope["path"].startswith("/api")
    ):
        return Response(
            page(status, body).encode(),
            status_code=status,
            media_type=MediaType.HTML,
            headers=headers,
        )
    return Response(
        msgspec.json.encode(body), status_code=status, media_type=MediaType.JSON, headers=headers
    )


HANDLERS: ExceptionHandlersMap = {Exception: render, HTTPException: render, GatehouseError: render}

_REMEDIES = {
    400: "compare the request with the OpenAPI document",
    404: "look at the path and the id",
    405: "look at the OpenAPI document for the method",
    413: "send less",
    429: "wait a minute",
    503: "send it again when others are answered",
}


def _word(status: int) -> str:
    return {403: "refused", 400: "bad request"}.get(status, HTTPStatus(status).phrase.lower())


def _detail(error: HTTPException) -> str:
    """Litestar's text, and for a body that doesn't fit its type the field that is wrong."""
    fields = (
        [item for item in error.extra if isinstance(item, dict)]
        if isinstance(error.extra, list)
        else []
    )
    wrong = [
        ": ".join(str(item[name]) for name in ("key", "message") if item.get(name))
        for item in fields
    ]
    parts = [error.detail, *wrong]
    return "; ".join(part for part in parts if part)[:1000]
