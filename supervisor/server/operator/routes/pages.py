"""The operator's pages: Jinja2 and htmx, no build step. Each handler parses, calls one function,
renders.

They only show; what a person does on them is in `page_actions`. What goes wrong is `errors`' to
show: a page of its own for a visit, and for htmx the one JSON body, whose text the page's script
shows.
"""

import asyncio
from typing import Annotated

from litestar import Response, get
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.types import ControllerRouterHandler

from supervisor.core.text.duration import format_duration
from supervisor.errors import NotFoundError
from supervisor.server.common.errors import ErrorBody
from supervisor.server.common.parts import Parts
from supervisor.server.common.render import render
from supervisor.server.operator.change_views import change, further
from supervisor.server.operator.routes import (
    jobs_page,
    left_page,
    network_page,
    page_actions,
    page_values,
    quiet_page,
    security_page,
    spend_page,
)
from supervisor.server.operator.routes.network_views import size_text
from supervisor.server.operator.routes.operator_api import AnyRequest, parts_of
from supervisor.server.operator.routes.page_views import MOST_CARDS, DiffTime, card
from supervisor.server.operator.routes.session_views import session_data
from supervisor.sessions import agent_programs
from supervisor.settings import WORKSPACE_IN_COMPOSE

# Of an agent's output, what a page starts with.
OUTPUT_TAIL_BYTES = 256 * 1024


def error_page(code: int, body: ErrorBody) -> str:
    """Return what a browser is shown that is turned away, or whose page can't be made."""
    heading = {401: "Not signed in", 403: "Not let in", 404: "Not found"}.get(
        code, "That did not work"
    )
    return render(
        "message.html",
        title=heading,
        text=body.why,
        remedy=body.remedy,
        is_sign_in=code in (401, 403),
    )


# -- whole pages ----------------------------------------------------------------------------------


@get("/", include_in_schema=False)
async def inbox(request: AnyRequest) -> Response[str]:
    """Return what waits, by category."""
    parts = parts_of(request)
    values = await page_values.cards(parts) | quiet_page.values(parts) | left_page.values(parts)
    return page_values.page(
        request, "inbox.html", "inbox", live_sessions=page_values.live_sessions(parts), **values
    )


def _only_workspace(parts: Parts) -> str:
    return str(WORKSPACE_IN_COMPOSE) if parts.settings.backend == "compose" else ""


@get("/sessions", include_in_schema=False, sync_to_thread=False)
def sessions(request: AnyRequest) -> Response[str]:
    """Every session, and a form to start one."""
    parts = parts_of(request)
    recent = parts.sessions.recent()
    values = {
        "sessions": [session_data(parts, one) for one in recent],
        "copies": size_text(parts.kept_copies.total_bytes),
        "most_copies": size_text(parts.kept_copies.limit_bytes),
        "agents": agent_programs.available(parts.settings),
        "jobs": jobs_page.rows(parts),
        "default_workspace": recent[0].workspace if recent else _only_workspace(parts),
        "include_ignored": parts.settings.include_ignored,
        "keep_bodies": parts.settings.keep_bodies,
        "default_budget": parts.settings.max_cost or "no limit",
        "default_copy": parts.settings.copy_mode,
        "default_network": parts.settings.network_mode,
        "default_uptime": format_duration(parts.settings.max_uptime_s).replace(" ", ""),
    }
    return page_values.page(request, "sessions.html", "sessions", **values)


@get("/sessions/{session_id:str}", include_in_schema=False)
async def session(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    """One session: state, time, output, review, requests."""
    parts = parts_of(request)
    found = parts.sessions.get(session_id)
    start = max(0, parts.sessions.output_size(session_id) - OUTPUT_TAIL_BYTES)
    values = {
        "session": session_data(parts, found),
        "output_start": start,
        "answered": page_values.answered(parts, session_id),
        **await page_values.cards(parts, session_id),
    }
    return page_values.page(request, "session.html", "sessions", **values)


@get("/rules", include_in_schema=False, sync_to_thread=False)
def rules(request: AnyRequest) -> Response[str]:
    """Every rule in force, and what is always protected."""
    return page_values.page(request, "rules.html", "rules", **page_values.rules(parts_of(request)))


@get("/history", include_in_schema=False, sync_to_thread=True)
def history(request: AnyRequest) -> Response[str]:
    """The audit log, newest first."""
    return page_values.page(
        request, "history.html", "history", **page_values.history(parts_of(request), None)
    )


# -- parts of pages -------------------------------------------------------------------------------


@get("/parts/cards", include_in_schema=False)
async def cards_part(request: AnyRequest, ids: FromQuery[str]) -> Response[str]:
    """The cards with these ids, comma-separated, as they are now; unknown ones are left out."""
    parts = parts_of(request)
    found = [parts.queue.find(one) for one in ids.split(",")[:MOST_CARDS]]
    budget = DiffTime(parts)
    cards = [await card(parts, one, budget) for one in found if one is not None]
    return await asyncio.to_thread(page_values.html, "parts/some_cards.html", cards=cards)


@get("/parts/change/{request_id:str}", include_in_schema=False)
async def change_part(request: AnyRequest, request_id: FromPath[str]) -> Response[str]:
    """The whole diff of a card."""
    parts = parts_of(request)
    return page_values.html(
        "parts/change.html", change=await change(parts, parts.queue.get(request_id), whole=True)
    )


@get("/parts/change/{request_id:str}/rows", include_in_schema=False)
async def change_rows_part(
    request: AnyRequest, request_id: FromPath[str], start: Annotated[int, QueryParameter(ge=0)]
) -> Response[str]:
    """The part of a long change that begins at this row."""
    parts = parts_of(request)
    found = await further(parts, parts.queue.get(request_id), start)
    if found is None:
        raise NotFoundError("this change has no more lines", "look at the card as it is now")
    return page_values.html("parts/change_rows.html", change=found)


@get("/parts/strip", include_in_schema=False, sync_to_thread=False)
def strip_part(request: AnyRequest) -> Response[str]:
    return page_values.html(
        "parts/strip.html", live_sessions=page_values.live_sessions(parts_of(request))
    )


@get("/parts/banner", include_in_schema=False, sync_to_thread=False)
def banner_part(request: AnyRequest) -> Response[str]:
    return page_values.html("parts/banner.html", **page_values.banner(parts_of(request)))


@get("/parts/sessions", include_in_schema=False, sync_to_thread=False)
def sessions_part(request: AnyRequest) -> Response[str]:
    parts = parts_of(request)
    return page_values.html(
        "parts/sessions.html",
        sessions=[session_data(parts, one) for one in parts.sessions.recent()],
    )


@get("/parts/sessions/{session_id:str}", include_in_schema=False, sync_to_thread=False)
def session_part(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    parts = parts_of(request)
    return page_values.html(
        "parts/session.html", session=session_data(parts, parts.sessions.get(session_id))
    )


@get("/parts/requests/{session_id:str}", include_in_schema=False, sync_to_thread=False)
def requests_part(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    return page_values.html(
        "parts/requests.html", answered=page_values.answered(parts_of(request), session_id)
    )


@get("/parts/rules", include_in_schema=False, sync_to_thread=False)
def rules_part(request: AnyRequest) -> Response[str]:
    return page_values.html("parts/rules.html", **page_values.rules(parts_of(request)))


@get("/parts/history", include_in_schema=False, sync_to_thread=True)
def history_part(request: AnyRequest, before: FromQuery[int]) -> Response[str]:
    return page_values.html("parts/history.html", **page_values.history(parts_of(request), before))


def handlers() -> list[ControllerRouterHandler]:
    """Every page, part and form, for `app.build_operator_app`."""
    return [
        inbox, sessions, session, rules, history,
        cards_part, change_part, change_rows_part, strip_part, banner_part, sessions_part,
        session_part, requests_part, rules_part, history_part,
        *page_actions.handlers(),
        *network_page.handlers(),
        *spend_page.handlers(),
        *left_page.handlers(),
        *quiet_page.handlers(),
        *security_page.handlers(),
    ]  # fmt: skip
