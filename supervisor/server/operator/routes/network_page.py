"""The Network page: what each session sent where, by host, as it happens; and the same as JSON and
as an HTTP Archive.

It shows what `network_log` holds and decides nothing; its one switch is whether bodies of a
session are kept. Whatever takes long is read here at once, and shown in a thread
(`network_views`): the same loop gives every verdict, and nobody's request waits for a page.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.response import Stream
from litestar.types import ControllerRouterHandler

import supervisor
from supervisor.core.actions import Network
from supervisor.core.network.exchanges import NO_BODIES, Bodies, Exchange, HostTraffic, by_host
from supervisor.core.secrets.redact import Redactor
from supervisor.core.sessions import Session
from supervisor.errors import NotFoundError, UserError
from supervisor.network.network_log import SessionLog
from supervisor.server.common.parts import Parts
from supervisor.server.common.views import clock_text, shown_data
from supervisor.server.operator.routes import network_views, page_values, spend_page
from supervisor.server.operator.routes.network_views import MOST_SHOWN, NetworkList
from supervisor.server.operator.routes.operator_api import AnyRequest, caller, parts_of
from supervisor.server.operator.routes.operator_bodies import KeepBodiesBody, Ok
from supervisor.server.operator.routes.page_actions import Form
from supervisor.server.operator.routes.page_views import session_name


class ExchangeView(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange, and what was kept of its bodies, where the session keeps them."""

    exchange: Exchange
    bodies: Bodies


class NetworkView(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic of a session since Gatehouse was started: sums by host, the last used first, and
    the exchanges, newest first.

    `cut` older ones are held no more, and in no sum.
    """

    hosts: list[HostTraffic]
    exchanges: list[Exchange]
    cut: int


@get("/network", include_in_schema=False)
async def network(
    request: AnyRequest, session: FromQuery[str] = "", span: FromQuery[spend_page.Span] = "session"
) -> Response[str]:
    """The page, of one session or of the newest."""
    parts = parts_of(request)
    recent = parts.sessions.recent()
    chosen = parts.sessions.get(session) if session else next(iter(recent), None)
    values = page_values.frame(request, "network") | {
        "spend": spend_page.values(parts, chosen, span),
        "sessions": [(one.id, session_name(one), clock_text(one.created_at)) for one in recent],
        "chosen": chosen.id if chosen is not None else "",
        **({} if chosen is None else _keeping(parts, chosen.id)),
    }
    shown = None if chosen is None else _shown(parts, chosen)
    return await asyncio.to_thread(_page, values, shown)


@get("/parts/network", include_in_schema=False)
async def network_part(
    request: AnyRequest,
    session: FromQuery[str],
    find: FromQuery[str] = "",
    opened: FromQuery[list[str] | None] = None,
) -> Response[str]:
    """The list; of the hosts in `opened` their exchanges, too."""
    parts = parts_of(request)
    shown = _shown(parts, parts.sessions.get(session))._replace(
        find=find, opened=tuple(opened or ())
    )
    return await asyncio.to_thread(_part, shown)


@get("/api/sessions/{session_id:str}/network")
async def list_exchanges(request: AnyRequest, session_id: FromPath[str]) -> NetworkView:
    """Return what the session sent where since Gatehouse was started."""
    parts = parts_of(request)
    held = parts.network_log.held(parts.sessions.get(session_id).id)
    return await asyncio.to_thread(_as_data, held, parts)


@get("/api/sessions/{session_id:str}/network/{number:int}")
async def show_exchange(
    request: AnyRequest, session_id: FromPath[str], number: FromPath[int]
) -> ExchangeView:
    """One of them, with the beginnings of its bodies where they are kept."""
    parts = parts_of(request)
    view = _one(parts, parts.sessions.get(session_id).id, number)
    data = await asyncio.to_thread(lambda: shown_data(msgspec.to_builtins(view), parts.redactor))
    return msgspec.convert(data, ExchangeView)


@get("/network/{session_id:str}/{number:int}", include_in_schema=False)
async def exchange(
    request: AnyRequest, session_id: FromPath[str], number: FromPath[int]
) -> Response[str]:
    """The page of one exchange: headers and bodies, as text."""
    parts = parts_of(request)
    session = parts.sessions.get(session_id)
    view = _one(parts, session.id, number)
    values = page_values.frame(request, "network") | {"keeps": session.keep_bodies}
    return await asyncio.to_thread(_exchange, "exchange.html", values, view, parts.redactor)


@get("/parts/network/{session_id:str}/{number:int}", include_in_schema=False)
async def exchange_part(
    request: AnyRequest, session_id: FromPath[str], number: FromPath[int]
) -> Response[str]:
    """The same of one that was under way, as it is by now."""
    parts = parts_of(request)
    session = parts.sessions.get(session_id)
    try:
        view = _one(parts, session.id, number)
    except NotFoundError:
        return page_values.html("parts/exchange_gone.html")
    return await asyncio.to_thread(
        _exchange, "parts/exchange.html", {"keeps": session.keep_bodies}, view, parts.redactor
    )


@post(
    "/network/{session_id:str}/bodies",
    include_in_schema=False,
    status_code=200,
    sync_to_thread=False,
)
def switch_bodies(request: AnyRequest, session_id: FromPath[str], data: Form) -> Response[str]:
    """The switch of the page: keep the beginnings of bodies from now on, or keep them no more."""
    parts = parts_of(request)
    error = ""
    try:
        parts.sessions.keep_bodies(
            session_id, is_on=data.get("keep") == "yes", by=caller(request).name
        )
    except UserError as refused:
        error = str(refused)
    return page_values.html("parts/keep_bodies.html", **_keeping(parts, session_id, error))


@get("/parts/network/bodies", include_in_schema=False, sync_to_thread=False)
def switch_part(request: AnyRequest, session: FromQuery[str]) -> Response[str]:
    return page_values.html("parts/keep_bodies.html", **_keeping(parts_of(request), session))


@post("/api/sessions/{session_id:str}/network/bodies", status_code=200, sync_to_thread=False)
def keep_bodies(
    request: AnyRequest, session_id: FromPath[str], data: JSONBody[KeepBodiesBody]
) -> Ok:
    """From now on keep what the bodies of its decrypted requests and responses begin with, or
    keep it no more."""
    parts_of(request).sessions.keep_bodies(session_id, is_on=data.keep, by=caller(request).name)
    return Ok()


@get("/api/sessions/{session_id:str}/network.har")
async def archive(request: AnyRequest, session_id: FromPath[str]) -> Stream:
    """Return what was looked into, as an HTTP Archive (HAR 1.2), to open in a browser's developer
    tools."""
    parts = parts_of(request)
    session = parts.sessions.get(session_id)
    held, bodies = parts.network_log.held(session.id), parts.network_log.bodies(session.id)
    made = network_views.archive(held, bodies, parts.redactor, supervisor.__version__)
    name = (
        f"gatehouse-{session_id}-{datetime.fromtimestamp(parts.clock.now(), UTC):%Y%m%dT%H%M%S}.har"
    )
    return Stream(
        _in_thread(made),
        media_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def handlers() -> list[ControllerRouterHandler]:
    """The page, its parts and its switch."""
    return [network, network_part, exchange, exchange_part, switch_bodies, switch_part]


def api_handlers() -> list[ControllerRouterHandler]:
    """The same as data."""
    return [list_exchanges, show_exchange, keep_bodies, archive]


def _one(parts: Parts, session_id: str, number: int) -> ExchangeView:
    for found in parts.network_log.of_session(session_id):
        if found.number == number:
            return ExchangeView(
                exchange=found, bodies=parts.network_log.bodies(session_id).get(number, NO_BODIES)
            )
    raise NotFoundError(
        f"no exchange has the number {number}", "the Network page lists those that are held"
    )


def _shown(parts: Parts, session: Session) -> NetworkList:
    """Its list, as it is now."""
    waiting = parts.queue.pending_but(
        [session.id], session.id, limit=MOST_SHOWN, now=parts.clock.now()
    )
    held = parts.network_log.held(session.id)
    has_ended = session.ended_at is not None
    return NetworkList(
        session_id=session.id,
        held=held,
        has_ended=has_ended,
        lost=_why_lost(parts, session, held) if has_ended and not held.exchanges else "",
        waiting=[one for one in waiting if isinstance(one.action, Network)],
        now=parts.clock.now(),
        redactor=parts.redactor,
    )


def _page(values: dict[str, Any], shown: NetworkList | None) -> Response[str]:
    return page_values.html(
        "network.html", **(values | ({} if shown is None else network_views.hosts(shown)))
    )


def _exchange(
    template: str, values: dict[str, Any], view: ExchangeView, redactor: Redactor
) -> Response[str]:
    one = network_views.exchange(redactor, view.exchange)
    return page_values.html(template, **values, one=one, bodies=view.bodies)


def _part(shown: NetworkList) -> Response[str]:
    return page_values.html("parts/network.html", **network_views.hosts(shown))


def _as_data(held: SessionLog, parts: Parts) -> NetworkView:
    """One by one: what is made of all at once keeps the loop waiting, thread or not."""

    def shown[T](one: T) -> T:
        return msgspec.convert(shown_data(msgspec.to_builtins(one), parts.redactor), type(one))

    hosts = [shown(one) for one in by_host(held.exchanges)]
    return NetworkView(hosts=hosts, exchanges=[shown(one) for one in held.exchanges], cut=held.cut)


def _why_lost(parts: Parts, session: Session, held: SessionLog) -> str:
    if session.created_at < parts.network_log.began_at:
        return "Gatehouse was restarted since"
    return "many sessions came after it" if held.cut else ""


async def _in_thread(made: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece made in a thread, one after the other, and the loop has its turn in between."""
    while (piece := await asyncio.to_thread(next, made, None)) is not None:
        yield piece


def _keeping(parts: Parts, session_id: str, error: str = "") -> dict[str, Any]:
    """Return what the switch shows."""
    session = parts.sessions.get(session_id)
    has_ended = session.ended_at is not None
    return {
        "session": session.id,
        "keeps": session.keep_bodies,
        "has_ended": has_ended,
        "error": error,
    }
