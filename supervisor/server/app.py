"""Builds the Litestar apps, each behind its door, with the one error body and the body limits set
once.

`build_operator_app` is called once, `build_agent_app` and `build_programs_app` once for each
session. None opens a socket: `serve` does.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, cast

from litestar import Litestar, Router
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.exceptions import NotAuthorizedException
from litestar.handlers import BaseRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.static_files import create_static_files_router
from litestar.types import ASGIApp

import supervisor
from supervisor.parts import Parts
from supervisor.server.agent import agent_api, mcp, programs, quarantine_calls
from supervisor.server.agent.agent_calls import AgentCalls
from supervisor.server.common.auth import BadTokens, OperatorAuth
from supervisor.server.common.error_bodies import HANDLERS, ErrorPage
from supervisor.server.common.request_guard import (
    AgentDoor,
    CallBudget,
    OperatorDoor,
    RefusedAttempts,
)
from supervisor.server.common.routes import routes_of
from supervisor.server.operator import operator_api
from supervisor.server.operator.change_sets import ChangeSets
from supervisor.server.operator.live import Live
from supervisor.server.operator.pages import (
    change_api,
    change_set_api,
    history_page,
    inbox_page,
    left_page,
    network_page,
    page_frame,
    pages,
    push_api,
    quiet_page,
    request_cards,
    rules_page,
    session_page,
    sessions_page,
    spend_page,
    told_page,
    undo_api,
)
from supervisor.server.operator.screens import Screens
from supervisor.server.operator.terminals import Terminals
from supervisor.settings import ROOT

STATIC_DIR = ROOT / "web" / "static"
# No data behind these, and no caller needed. Everything else is closed, whether a route exists or
# not.
PUBLIC_PATHS = ("/login", "/health", "/static/")
# The modules whose routes the operator's app has.
_PAGES = (
    *(operator_api, inbox_page, request_cards, change_api, change_set_api, push_api),
    *(sessions_page, session_page, network_page, spend_page, undo_api, left_page, quiet_page),
    *(rules_page, history_page, told_page, pages),
)
OPERATOR_BODY_BYTES = 1024 * 1024
AGENT_BODY_BYTES = 512 * 1024


class _LitestarOfMsgspec(Litestar):
    """Litestar without its plugins for the models of other libraries, whose import costs more than
    building the app: no route takes one."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def build_operator_app(
    parts: Parts,
    auth: OperatorAuth,
    more: Sequence[ModuleType] = (),
    *,
    error_page: ErrorPage = page_frame.error_page,
) -> Litestar:
    """The operator's app: pages and JSON API, live state, static files, and the routes of `more`
    modules.

    `app.state` has `parts`, `auth` and `live`; an authenticated caller is
    `request.state.caller`. `error_page` renders errors for a person's browser as HTML, those of
    the door included; the API's errors stay JSON.
    """
    live = Live(parts, auth)
    refused = RefusedAttempts(parts.audit, parts.clock)
    # The document's path is that of litestar's whole documentation router: its catch-all answers in
    # HTML, and stays below it.
    app = _LitestarOfMsgspec(
        route_handlers=[
            *routes_of(*_PAGES, *more),
            live.handler(),
            Terminals(parts).handler(),
            *_static(),
        ],
        guards=[require_caller],
        exception_handlers=dict(HANDLERS),
        request_max_body_size=OPERATOR_BODY_BYTES,
        openapi_config=OpenAPIConfig(
            title="Gatehouse, the operator's API",
            version=supervisor.__version__,
            path="/api/openapi.json",
            render_plugins=[JsonRenderPlugin(path="/")],
        ),
        state=State(
            {
                "parts": parts,
                "auth": auth,
                "live": live,
                "error_page": error_page,
                "change_sets": ChangeSets(parts),
                "refused_attempts": refused,
                "screens": Screens(parts),
            }
        ),
        logging_config=None,
    )
    door = OperatorDoor(
        app.asgi_handler, auth, public=PUBLIC_PATHS, refused=refused.note, error_page=error_page
    )
    app.asgi_handler = cast("ASGIApp", door)
    return app


def build_agent_app(parts: Parts, session_id: str, asks: CallBudget | None = None) -> Litestar:
    """The agent's app of one session. INVARIANT: it serves the listening socket of that session
    only. `asks`: what its doors may ask together."""
    calls = AgentCalls(parts, session_id, budget=asks)
    app = _LitestarOfMsgspec(
        route_handlers=[*agent_api.handlers(calls), mcp.handler(calls)],
        guards=[require_caller],
        before_request=quarantine_calls.guard(calls),
        exception_handlers=dict(HANDLERS),
        request_max_body_size=AGENT_BODY_BYTES,
        openapi_config=OpenAPIConfig(
            title="Gatehouse, the agent's API",
            version=supervisor.__version__,
            description="Ask, wait, report. Nothing here answers a request.",
            path="/v1/openapi.json",
            render_plugins=[JsonRenderPlugin(path="/")],
        ),
        state=State({"parts": parts}),
        logging_config=None,
    )
    door = AgentDoor(
        app.asgi_handler,
        lambda token: parts.sessions.authenticate(session_id, token),
        BadTokens(parts.clock),
        parts.clock,
    )
    app.asgi_handler = cast("ASGIApp", door)
    return app


def build_programs_app(
    parts: Parts, session_id: str, page: str, asks: CallBudget | None = None
) -> Litestar:
    """The programs' app of one session, on every socket that is open in its sandboxes for it.
    `page` is the address of the operator's page."""
    calls = AgentCalls(parts, session_id, "agent_tool", asks)
    app = _LitestarOfMsgspec(
        route_handlers=programs.handlers(calls, page),
        guards=[require_caller],
        exception_handlers=dict(HANDLERS),
        request_max_body_size=AGENT_BODY_BYTES,
        openapi_config=None,
        state=State({"parts": parts}),
        logging_config=None,
    )
    app.asgi_handler = cast("ASGIApp", AgentDoor(app.asgi_handler, None, None, parts.clock))
    return app


def require_caller(
    connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
) -> None:
    """The second lock: a handler runs for an authenticated caller, or says itself that it is
    public."""
    if connection.scope["state"].get("caller") is None and handler.opt.get("public") is not True:
        raise NotAuthorizedException("sign in to use this route")


def _static() -> list[Router]:
    if not STATIC_DIR.is_dir():
        return []
    return [
        create_static_files_router(path="/static", directories=[STATIC_DIR], opt={"public": True})
    ]
