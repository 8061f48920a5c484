"""The Network page: what each session sent where, by host, as it happens; and the same as JSON and as an HTTP Archive.

It shows what `network_log` holds and decides nothing; its one switch is whether bodies of a session are kept. Texts are an agent's and its origins': they pass the redactor and `visible`.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.types import ControllerRouterHandler

import supervisor
from supervisor.core.actions import Network, title
from supervisor.core.display import visible
from supervisor.core.exchanges import NO_BODIES, Bodies, CallOfModel, Exchange, Host, by_host, har, name_of
from supervisor.core.money import MICROUSD, dollars
from supervisor.errors import NotFoundError, UserError
from supervisor.server import page_values, spend_page
from supervisor.server.operator_api import AnyRequest, caller, parts_of
from supervisor.server.operator_bodies import Done, KeepBodiesBody
from supervisor.server.page_actions import Form
from supervisor.server.page_views import workspace_name
from supervisor.server.parts import Parts
from supervisor.server.spend_views import CALL_WORDS
from supervisor.server.time_words import clock_text, duration_text
from supervisor.server.views import shown_data

# Of one host, the newest exchanges; the archive has all that is held.
MOST_SHOWN = 50
_CLASS = {"allow": "good", "deny": "bad", "ask_timeout": "warn"}
_WORD = {"allow": "allowed", "deny": "denied", "ask_timeout": "not answered in time"}


class ExchangeView(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange, and what was kept of its bodies, where the session keeps them."""

    exchange: Exchange
    bodies: Bodies


class NetworkView(msgspec.Struct, frozen=True, kw_only=True):
    """What a session sent where since Gatehouse was started: sums by host, the last used first, and the exchanges, newest first.

    `cut` older ones are held no more, and in no sum.
    """

    hosts: list[Host]
    exchanges: list[Exchange]
    cut: int


@get("/network", include_in_schema=False, sync_to_thread=False)
def network(
    request: AnyRequest, session: FromQuery[str] = "", span: FromQuery[spend_page.Span] = "session"
) -> Response[str]:
    """The page, of one session or of the newest."""
    parts = parts_of(request)
    found = _values(parts, session)
    chosen = parts.sessions.get(found["chosen"]) if found["chosen"] else None
    spend = spend_page.values(parts, chosen, span)
    keeping = _keeping(parts, chosen.id) if chosen is not None else {}
    return page_values.page(request, "network.html", "network", spend=spend, **found, **keeping)


@get("/parts/network", include_in_schema=False, sync_to_thread=False)
def network_part(request: AnyRequest, session: FromQuery[str] = "") -> Response[str]:
    return page_values.html("parts/network.html", **_values(parts_of(request), session))


@get("/api/sessions/{session_id:str}/network", sync_to_thread=False)
def list_exchanges(request: AnyRequest, session_id: FromPath[str]) -> NetworkView:
    """What the session sent where since Gatehouse was started."""
    parts = parts_of(request)
    found = parts.network_log.of_session(parts.sessions.get(session_id).id)
    view = NetworkView(hosts=by_host(found), exchanges=found, cut=parts.network_log.cut(session_id))
    return msgspec.convert(shown_data(msgspec.to_builtins(view), parts.redactor), NetworkView)


@get("/api/sessions/{session_id:str}/network/{number:int}", sync_to_thread=False)
def show_exchange(request: AnyRequest, session_id: FromPath[str], number: FromPath[int]) -> ExchangeView:
    """One of them, with the beginnings of its bodies where they are kept."""
    parts = parts_of(request)
    view = _one(parts, parts.sessions.get(session_id).id, number)
    return msgspec.convert(shown_data(msgspec.to_builtins(view), parts.redactor), ExchangeView)


@get("/network/{session_id:str}/{number:int}", include_in_schema=False, sync_to_thread=False)
def exchange(request: AnyRequest, session_id: FromPath[str], number: FromPath[int]) -> Response[str]:
    """The page of one exchange: headers and bodies, as text."""
    parts = parts_of(request)
    view = _one(parts, parts.sessions.get(session_id).id, number)
    keeps = parts.sessions.get(session_id).keep_bodies
    values = {"one": _exchange(parts, view.exchange), "bodies": view.bodies, "keeps": keeps}
    return page_values.page(request, "exchange.html", "network", **values)


@post("/network/{session_id:str}/bodies", include_in_schema=False, status_code=200, sync_to_thread=False)
def switch_bodies(request: AnyRequest, session_id: FromPath[str], data: Form) -> Response[str]:
    """The switch of the page: keep the beginnings of bodies from now on, or keep them no more."""
    parts = parts_of(request)
    error = ""
    try:
        parts.sessions.keep_bodies(session_id, is_on=data.get("keep") == "yes", by=caller(request).name)
    except UserError as refused:
        error = str(refused)
    return page_values.html("parts/keep_bodies.html", **_keeping(parts, session_id, error))


@get("/parts/network/bodies", include_in_schema=False, sync_to_thread=False)
def switch_part(request: AnyRequest, session: FromQuery[str]) -> Response[str]:
    return page_values.html("parts/keep_bodies.html", **_keeping(parts_of(request), session))


@post("/api/sessions/{session_id:str}/network/bodies", status_code=200, sync_to_thread=False)
def keep_bodies(request: AnyRequest, session_id: FromPath[str], data: JSONBody[KeepBodiesBody]) -> Done:
    """From now on keep what the bodies of its decrypted requests and responses begin with, or keep it no more."""
    parts_of(request).sessions.keep_bodies(session_id, is_on=data.keep, by=caller(request).name)
    return Done()


@get("/api/sessions/{session_id:str}/network.har", sync_to_thread=False)
def archive(request: AnyRequest, session_id: FromPath[str]) -> Response[bytes]:
    """What was looked into, as an HTTP Archive (HAR 1.2), to open in a browser's developer tools."""
    parts = parts_of(request)
    found = reversed(parts.network_log.of_session(parts.sessions.get(session_id).id))
    text = msgspec.json.encode(
        parts.redactor.data(har(found, supervisor.__version__, parts.network_log.bodies(session_id)))
    )
    name = f"gatehouse-{session_id}-{datetime.fromtimestamp(parts.clock.now(), UTC):%Y%m%dT%H%M%S}.har"
    return Response(
        text, media_type="application/json", headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


def handlers() -> list[ControllerRouterHandler]:
    """The page, its parts and its switch."""
    return [network, network_part, exchange, switch_bodies, switch_part]


def api_handlers() -> list[ControllerRouterHandler]:
    """The same as data."""
    return [list_exchanges, show_exchange, keep_bodies, archive]


def _one(parts: Parts, session_id: str, number: int) -> ExchangeView:
    for found in parts.network_log.of_session(session_id):
        if found.number == number:
            return ExchangeView(exchange=found, bodies=parts.network_log.bodies(session_id).get(number, NO_BODIES))
    raise NotFoundError(f"no exchange has the number {number}", "the Network page lists those that are held")


def _values(parts: Parts, session_id: str) -> dict[str, Any]:
    recent = parts.sessions.recent()
    chosen = parts.sessions.get(session_id) if session_id else (recent[0] if recent else None)
    found = parts.network_log.of_session(chosen.id) if chosen is not None else []
    by_name: dict[str, list[Exchange]] = {}
    for one in found:
        by_name.setdefault(name_of(one.action), []).append(one)
    return {
        "waiting": _waiting(parts, chosen.id) if chosen is not None else [],
        "sessions": [(one.id, workspace_name(one.workspace), clock_text(one.created_at)) for one in recent],
        "chosen": chosen.id if chosen is not None else "",
        "hosts": [_host(parts, host, by_name[host.host]) for host in by_host(found)],
        "cut": parts.network_log.cut(chosen.id) if chosen is not None else 0,
        "held": len(found),
    }


def _keeping(parts: Parts, session_id: str, error: str = "") -> dict[str, Any]:
    """What the switch shows."""
    session = parts.sessions.get(session_id)
    has_ended = session.ended_at is not None
    return {"session": session.id, "keeps": session.keep_bodies, "has_ended": has_ended, "error": error}


def _waiting(parts: Parts, session_id: str) -> list[tuple[str, float, str, bool]]:
    """What waits for an answer, oldest first: as words, since when, the same as a clock shows it, and whether a program is held for it still."""
    now = parts.clock.now()
    waiting = parts.queue.pending_but([session_id], session_id, limit=MOST_SHOWN)
    return [
        (
            parts.redactor.text(visible(title(one.action), one_line=True)),
            one.asked_at,
            clock_text(one.asked_at),
            (one.hold_until or 0) > now,
        )
        for one in waiting
        if isinstance(one.action, Network)
    ]


def _host(parts: Parts, host: Host, found: list[Exchange]) -> dict[str, Any]:
    return {
        "host": host,
        "up": size_text(host.up_bytes),
        "down": size_text(host.down_bytes),
        "last_text": clock_text(host.last_at),
        "exchanges": [_exchange(parts, one) for one in found[:MOST_SHOWN]],
        "more": max(0, len(found) - MOST_SHOWN),
    }


def _exchange(parts: Parts, one: Exchange) -> dict[str, Any]:
    return {
        "view": one,
        "title": parts.redactor.text(visible(title(one.action), one_line=True)),
        "at_text": clock_text(one.at),
        "took": duration_text(one.duration_s) if one.duration_s is not None else "",
        "up": size_text(one.up_bytes),
        "down": size_text(one.down_bytes),
        "badge_class": _CLASS[one.verdict],
        "verdict": _WORD[one.verdict],
        "call": call_words(one.call) if one.call is not None else "",
    }


def call_words(call: CallOfModel) -> str:
    """What a call of a model used and cost, in words."""
    cached = [
        f"{count:,} {words}"
        for count, words in ((call.cache_read_tokens, "from the cache"), (call.cache_write_tokens, "into the cache"))
        if count
    ]
    tokens = ", ".join([f"{call.input_tokens:,} tokens in", *cached, f"{call.output_tokens:,} out"])
    remarks = "".join(f"; {CALL_WORDS.get(flag, flag)}" for flag in call.flags)
    model = visible(call.model, one_line=True) or "no model named"
    return f"{model}: {tokens}, {dollars(call.cost_microusd * MICROUSD)}{remarks}"


def size_text(size_bytes: int) -> str:
    """Bytes as people read them."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:,.1f} {unit}"
    return f"{size_bytes} B"
