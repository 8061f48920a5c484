"""A session's traffic by host, live, as a tab of its page; also as JSON and HTTP Archive.

It shows the content of `network_log` and decides nothing; its one switch is whether a session's
bodies are kept. A list may be long, and the same loop gives every verdict. So handlers take a
snapshot at once (`NetworkList`), and a thread, which reads none of the supervisor's parts, makes
what is shown. Texts come from an agent and its origins: they pass the redactor and `visible`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from litestar import MediaType, Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.response import Stream

import supervisor
from supervisor.core.actions import Network, title
from supervisor.core.approvals import Request
from supervisor.core.money import MICROUSD, dollars
from supervisor.core.network import har
from supervisor.core.network.exchanges import (
    NO_BODIES,
    Bodies,
    CallOfModel,
    Exchange,
    HostTraffic,
    by_host,
    name_of,
)
from supervisor.core.secrets.redact import Redactor
from supervisor.core.sessions import Session
from supervisor.core.text.display import visible
from supervisor.errors import NotFoundError
from supervisor.network.network_log import SessionLog
from supervisor.parts import Parts
from supervisor.server.common.session_views import session_view
from supervisor.server.common.spend_views import CALL_WORDS
from supervisor.server.common.views import shown_view
from supervisor.server.operator.operator_api import AnyRequest, CallBody, Id, Ok, caller, parts_of
from supervisor.server.operator.pages import page_frame
from supervisor.server.operator.pages.page_frame import Form

# Beyond this number, a person finds a host by its name.
MOST_HOSTS = 100
# The newest exchanges of one host; the archive has all that are held.
MOST_SHOWN = 50
# Tables that are filled at a time.
MOST_OPENED = 20
_STATE = {"allow": "done", "deny": "denied", "ask_timeout": "expired"}
_WORD = {"allow": "allowed", "deny": "denied", "ask_timeout": "not answered in time"}
# The end of the archive: the end of its list of entries and of the objects around it.
_NO_ENTRIES = b"]}}"


class ExchangeView(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange, with what was kept of its bodies if the session keeps them."""

    exchange: Exchange
    bodies: Bodies


class KeepBodiesBody(CallBody, frozen=True, kw_only=True):
    keep: bool


class NetworkView(msgspec.Struct, frozen=True, kw_only=True):
    """A session's traffic since Gatehouse was started: sums by host, the last used first, and the
    exchanges, newest first.

    `cut` older exchanges are no longer held, and are in no sum.
    """

    hosts: list[HostTraffic]
    exchanges: list[Exchange]
    cut: int


class NetworkList(NamedTuple):
    """A session's list at one moment. `lost`: why an ended session has no list, where it may have
    had one. `waiting` are its unanswered network requests, in the order of their cards. `find` are
    words that a host's name must have, and `opened` the hosts whose exchanges are shown, too."""

    session_id: str
    held: SessionLog
    waiting: list[Request]
    now: float
    redactor: Redactor
    has_ended: bool
    lost: str = ""
    find: str = ""
    opened: tuple[str, ...] = ()


@get("/network", include_in_schema=False, sync_to_thread=False)
def network(request: AnyRequest, session: FromQuery[str] = "") -> Response[str]:
    """Go on to a session's network, or the newest one's; to the sessions where there is none."""
    parts = parts_of(request)
    chosen = [parts.sessions.get(session)] if session else parts.sessions.recent(1)
    place = f"/sessions/{chosen[0].id}/network" if chosen else "/sessions"
    return Response("", status_code=303, headers={"Location": place}, media_type=MediaType.HTML)


@get("/parts/network", include_in_schema=False)
async def network_part(
    request: AnyRequest,
    session: FromQuery[str],
    find: FromQuery[str] = "",
    opened: FromQuery[list[str] | None] = None,
) -> Response[str]:
    """Return the list; for hosts in `opened`, with their exchanges."""
    parts = parts_of(request)
    shown = shown_list(parts, parts.sessions.get(session))._replace(
        find=find, opened=tuple(opened or ())
    )
    return await asyncio.to_thread(lambda: page_frame.html("parts/network.html", **hosts(shown)))


@get("/api/sessions/{session_id:str}/network")
async def list_exchanges(request: AnyRequest, session_id: Id) -> NetworkView:
    """Return what the session sent, and where, since Gatehouse was started."""
    parts = parts_of(request)
    held = parts.network_log.held(parts.sessions.get(session_id).id)
    return await asyncio.to_thread(_as_data, held, parts)


@get("/api/sessions/{session_id:str}/network/{number:int}")
async def show_exchange(request: AnyRequest, session_id: Id, number: FromPath[int]) -> ExchangeView:
    """Return one exchange, with the beginnings of its bodies if they are kept."""
    parts = parts_of(request)
    view = _one(parts, parts.sessions.get(session_id).id, number)
    return await asyncio.to_thread(shown_view, view, parts.redactor)


@get("/network/{session_id:str}/{number:int}", include_in_schema=False)
async def exchange(request: AnyRequest, session_id: Id, number: FromPath[int]) -> Response[str]:
    """Return the page of one exchange: headers and bodies, as text."""
    frame = page_frame.frame(request, "sessions")
    return await _exchange(parts_of(request), session_id, number, "exchange.html", frame)


@get("/parts/network/{session_id:str}/{number:int}", include_in_schema=False)
async def exchange_part(
    request: AnyRequest, session_id: Id, number: FromPath[int]
) -> Response[str]:
    """Return a running exchange's page as it is by now."""
    parts = parts_of(request)
    parts.sessions.get(session_id)
    try:
        return await _exchange(parts, session_id, number, "parts/exchange.html", {})
    except NotFoundError:
        return page_frame.html("parts/exchange_gone.html")


async def _exchange(
    parts: Parts, session_id: str, number: int, template: str, frame: dict[str, Any]
) -> Response[str]:
    session = parts.sessions.get(session_id)
    view = _one(parts, session.id, number)

    def made() -> Response[str]:
        one, keeps = exchange_data(parts.redactor, view.exchange), session.keep_bodies
        return page_frame.html(template, **frame, one=one, bodies=view.bodies, keeps=keeps)

    return await asyncio.to_thread(made)


@post("/network/{session_id:str}/bodies", include_in_schema=False, status_code=200)
async def switch_bodies(request: AnyRequest, session_id: Id, data: Form) -> Response[str]:
    """Handle the page's switch: keep the beginnings of bodies from now on, or stop."""
    is_on, by = data.get("keep") == "yes", caller(request).name
    parts_of(request).sessions.keep_bodies(session_id, is_on=is_on, by=by)
    return await _switch(parts_of(request), session_id)


@get("/parts/network/bodies", include_in_schema=False)
async def switch_part(request: AnyRequest, session: FromQuery[str]) -> Response[str]:
    return await _switch(parts_of(request), session)


async def _switch(parts: Parts, session_id: str) -> Response[str]:
    session = await session_view(parts, session_id)
    return page_frame.html("parts/keep_bodies.html", session=session)


@post("/api/sessions/{session_id:str}/network/bodies", status_code=200, sync_to_thread=False)
def keep_bodies(request: AnyRequest, session_id: Id, data: JSONBody[KeepBodiesBody]) -> Ok:
    """Keep the beginnings of decrypted request and response bodies from now on, or stop."""
    parts_of(request).sessions.keep_bodies(session_id, is_on=data.keep, by=caller(request).name)
    return Ok()


@get("/api/sessions/{session_id:str}/network.har")
async def archive(request: AnyRequest, session_id: Id) -> Stream:
    """Return the inspected traffic as an HTTP Archive (HAR 1.2), to open in a browser's developer
    tools."""
    parts = parts_of(request)
    session = parts.sessions.get(session_id)
    held, bodies = parts.network_log.held(session.id), parts.network_log.bodies(session.id)
    made = archive_pieces(held, bodies, parts.redactor, supervisor.__version__)
    name = (
        f"gatehouse-{session_id}-{datetime.fromtimestamp(parts.clock.now(), UTC):%Y%m%dT%H%M%S}.har"
    )
    return Stream(
        _in_thread(made),
        media_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _one(parts: Parts, session_id: str, number: int) -> ExchangeView:
    for found in parts.network_log.of_session(session_id):
        if found.number == number:
            return ExchangeView(
                exchange=found, bodies=parts.network_log.bodies(session_id).get(number, NO_BODIES)
            )
    raise NotFoundError(
        f"no exchange has the number {number}", "the Network tab lists those that are held"
    )


def shown_list(parts: Parts, session: Session) -> NetworkList:
    """Return the session's list as it is now."""
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


def _as_data(held: SessionLog, parts: Parts) -> NetworkView:
    """Return the list as data. It is made one by one: making all at once would block the loop,
    thread or not."""

    hosts = [shown_view(one, parts.redactor) for one in by_host(held.exchanges)]
    exchanges = [shown_view(one, parts.redactor) for one in held.exchanges]
    return NetworkView(hosts=hosts, exchanges=exchanges, cut=held.cut)


def _why_lost(parts: Parts, session: Session, held: SessionLog) -> str:
    if session.created_at < parts.network_log.began_at:
        return "Gatehouse was restarted since"
    return "many sessions came after it" if held.cut else ""


async def _in_thread(made: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces, each made in a thread, one after the other; the loop has its turn in
    between."""
    while (piece := await asyncio.to_thread(next, made, None)) is not None:
        yield piece


def hosts(shown: NetworkList) -> dict[str, Any]:
    """Return the values of `parts/network.html`: each host in its place, those that came last
    first, so that news only move the list down."""
    places = shown.held.places
    words = shown.find.lower().split()
    every = sorted(by_host(shown.held.exchanges), key=lambda host: -places[host.host])
    found = [one for one in every if all(word in one.host.lower() for word in words)]
    opened = set(shown.opened[:MOST_OPENED])
    listed = [one for at, one in enumerate(found) if at < MOST_HOSTS or one.host in opened]
    of_opened: dict[str, list[Exchange]] = {name: [] for name in opened}
    for one in shown.held.exchanges if opened else ():
        of_opened.get(name_of(one.action), []).append(one)
    return {
        "session_id": shown.session_id,
        "waiting": [_waiting(shown, one) for one in shown.waiting],
        "hosts": [_host(shown.redactor, one, of_opened.get(one.host, [])) for one in listed],
        "more": len(found) - len(listed),
        "is_found": bool(found) or not every,
        "cut": shown.held.cut if shown.held.exchanges else 0,
        "held": len(shown.held.exchanges),
        "has_ended": shown.has_ended,
        "lost": shown.lost,
    }


def exchange_data(redactor: Redactor, one: Exchange) -> dict[str, Any]:
    """Return one exchange in words."""
    return {
        "view": one,
        "title": redactor.text(visible(title(one.action), one_line=True)),
        "state": _STATE[one.verdict],
        "verdict": _WORD[one.verdict],
        "call": call_words(one.call) if one.call is not None else "",
    }


def archive_pieces(
    held: SessionLog, bodies: Mapping[int, Bodies], redactor: Redactor, version: str
) -> Iterator[bytes]:
    """Yield the HTTP Archive, oldest first: its head, each entry, its end."""
    yield msgspec.json.encode(har.head(version, held.cut)).removesuffix(_NO_ENTRIES)
    comma = b""
    for one in reversed(har.listed(held.exchanges)):
        entry = har.entry(one, bodies.get(one.number, NO_BODIES))
        yield comma + msgspec.json.encode(redactor.data(entry))
        comma = b","
    yield _NO_ENTRIES


def _waiting(shown: NetworkList, one: Request) -> tuple[str, float, bool]:
    """Return a waiting request in words, since when it waits, and whether a program is still held
    for it."""
    words = shown.redactor.text(visible(title(one.action), one_line=True))
    return words, one.asked_at, (one.hold_until or 0) > shown.now


def _host(redactor: Redactor, host: HostTraffic, found: list[Exchange]) -> dict[str, Any]:
    return {
        "host": host,
        "exchanges": [exchange_data(redactor, one) for one in found[:MOST_SHOWN]],
        "more": max(0, len(found) - MOST_SHOWN),
    }


def call_words(call: CallOfModel) -> str:
    """Return the use and cost of a model call, in words."""
    cached = [
        f"{count:,} {words}"
        for count, words in (
            (call.cache_read_tokens, "from the cache"),
            (call.cache_write_tokens, "into the cache"),
        )
        if count
    ]
    tokens = ", ".join([f"{call.input_tokens:,} tokens in", *cached, f"{call.output_tokens:,} out"])
    remarks = "".join(f"; {CALL_WORDS.get(flag, flag)}" for flag in call.flags)
    model = visible(call.model, one_line=True) or "no model named"
    return f"{model}: {tokens}, {dollars(call.cost_microusd * MICROUSD)}{remarks}"
