"""The operator's JSON API, and signing in.

Each handler parses, calls one function and renders; `decisions` decides. The CLI's verbs and the
pages use the same functions. The door puts the caller's name into `caller(request).name`: no body
has a field for it, and unknown fields are refused.
"""

import asyncio
import contextlib
import html
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from litestar import MediaType, Request, Response, delete, get, post
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from supervisor.base.event_loop import slices
from supervisor.core.actions import Category, Effect
from supervisor.core.approvals import Answer
from supervisor.core.approvals import Request as Asked
from supervisor.core.files.change_card import ChangeCard
from supervisor.core.git.taken_branch import TakenBranch
from supervisor.core.sessions import state
from supervisor.errors import RefusedError, StorageError
from supervisor.parts import Parts
from supervisor.records import audit_chain
from supervisor.server.common.auth import COOKIE_S, Operator, OperatorAuth
from supervisor.server.common.request_views import RequestView, request_view
from supervisor.server.common.session_views import SessionView, session_view, session_views
from supervisor.server.common.views import listed, shown, shown_data
from supervisor.server.operator import decisions, rules_view
from supervisor.server.operator.change_views import card_without_secrets
from supervisor.server.operator.live import Banners, Live
from supervisor.server.operator.rules_view import RulePreview
from supervisor.server.operator.shown_changes import card_of, is_folded, seen_word
from supervisor.sessions.session_output import as_text, complete_part
from supervisor.sessions.start_session import StartSession

AnyRequest = Request[Any, Any, Any]
_AnyConnection = ASGIConnection[Any, Any, Any, Any]
# Requests answered by a new rule that are returned completely; and views made before others have a
# turn.
MOST_ALSO = 100
IN_TURN = 20
_Limit = Annotated[int, QueryParameter(ge=1, le=1000)]
_Text = Annotated[str, msgspec.Meta(max_length=2000)]
_Rule = Annotated[str, msgspec.Meta(min_length=1, max_length=4000)]
MOST_AT_ONCE = 1000
Seen = Annotated[str, msgspec.Meta(max_length=100)]
_Lasts = Annotated[str, msgspec.Meta(min_length=1, max_length=40)]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class AnswerBody(_Body, frozen=True, kw_only=True):
    """`fingerprint` is that of the request as it was shown; without it nothing is answered.
    `always` is the text of a rule to save, without its list's name.

    `lasts` is how long that rule holds: `always`, `session`, or a duration such as `15m`.
    `with_scripts`: an approved install may run its install scripts. `seen`: the word that came with
    the complete changed file (`RequestDetail`); a folded change needs it to be approved.
    """

    reason: _Text = ""
    fingerprint: str = ""
    always: _Rule | None = None
    lasts: _Lasts = "always"
    with_scripts: bool = False
    seen: Seen = ""


class BulkBody(_Body, frozen=True, kw_only=True):
    """`shown` maps the id of each shown request to its fingerprint: exactly these are answered, or
    none. `ids` alone don't say what was shown, so they answer nothing."""

    category: Category
    answer: Answer
    shown: Annotated[dict[str, str], msgspec.Meta(max_length=MOST_AT_ONCE)] = {}
    ids: Annotated[list[str], msgspec.Meta(max_length=MOST_AT_ONCE)] = []
    reason: _Text = ""


class RuleBody(_Body, frozen=True, kw_only=True):
    """`lasts`: `always`, or a duration such as `15m`."""

    effect: Effect
    rule: _Rule
    why: _Text = ""
    lasts: _Lasts = "always"


class KeepBodiesBody(_Body, frozen=True, kw_only=True):
    keep: bool


class TakeBody(_Body, frozen=True, kw_only=True):
    """`branch` of the agent's copy; by default the one that is checked out there."""

    branch: Annotated[str, msgspec.Meta(max_length=500)] = ""


class NameBody(_Body, frozen=True, kw_only=True):
    name: _Text


class StopBody(_Body, frozen=True, kw_only=True):
    reason: _Text = ""


class AnsweredView(msgspec.Struct, frozen=True, kw_only=True):
    """`also` are the first of the other waiting requests that the saved rule answered; `saved_in`
    is the rule's file."""

    request: RequestView
    rule_id: str | None
    saved_in: str | None
    also: list[RequestView]
    also_count: int


class RequestDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`card` has the workspace's facts about a changed file: its diff, and whether it still
    applies. `preview` is for a proposed rule. `seen` is sent back with the approval of a change
    that pages fold (`is_folded`): this answer has the whole change."""

    request: RequestView
    card: Any
    preview: RulePreview | None
    seen: str
    is_folded: bool


class HeldDenied(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections were denied."""

    denied: int


class RuleSaved(msgspec.Struct, frozen=True, kw_only=True):
    """`also` are the first of the waiting requests that it answered."""

    id: str
    also: list[RequestView]
    also_count: int


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """Text from `offset` on, in bytes. Ask again with `next_offset`; `is_final` when nothing
    follows."""

    text: str
    next_offset: int
    is_final: bool


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


# -- requests -------------------------------------------------------------------------------------


@get("/api/requests", sync_to_thread=False)
def list_requests(
    request: AnyRequest,
    filter_status: Annotated[
        Literal["pending", "ready", "all"], QueryParameter(name="status")
    ] = "pending",
    session_id: FromQuery[str | None] = None,
    limit: _Limit = 200,
    without_large_sets: FromQuery[bool] = False,
) -> list[RequestView]:
    """Return requests that wait for an answer: first those whose agent still waits, each group
    oldest first. `ready`: those that may be carried out; `all`: any, newest first.

    `without_large_sets` leaves out those that `/api/changes` has.
    """
    parts = parts_of(request)
    if filter_status == "pending":
        large = list(request.app.state["change_sets"].large()) if without_large_sets else []
        found = parts.queue.pending_but(large, session_id, limit=limit, now=parts.clock.now())
    elif filter_status == "ready":
        found = parts.queue.ready(session_id)
    else:
        found = (
            parts.queue.newest(limit)
            if session_id is None
            else parts.queue.of_session(session_id, limit)
        )
    return [request_view(one, parts) for one in listed(found[:limit])]


@get("/api/requests/{request_id:str}")
async def get_request(request: AnyRequest, request_id: FromPath[str]) -> RequestDetail:
    """Return one request, with what the workspace shows of it while it waits."""
    parts = parts_of(request)
    found = parts.queue.get(request_id)
    card = await card_of(parts, found)
    return RequestDetail(
        request=request_view(found, parts),
        card=None if card is None else await asyncio.to_thread(_as_shown, card, parts),
        preview=rules_view.preview_of_proposal(parts, found),
        seen=seen_word(found),
        is_folded=card is not None and is_folded(card),
    )


def _as_shown(card: ChangeCard, parts: Parts) -> Any:
    return shown_data(msgspec.to_builtins(card_without_secrets(card, parts)), parts.redactor)


@post("/api/requests/{request_id:str}/approve", status_code=200)
async def approve(
    request: AnyRequest, request_id: FromPath[str], data: JSONBody[AnswerBody]
) -> AnsweredView:
    """Approve a request. With `always`, save an allow rule, which also answers other matching
    requests."""
    return await _answer(request, request_id, "approved", data)


@post("/api/requests/{request_id:str}/deny", status_code=200)
async def deny(
    request: AnyRequest, request_id: FromPath[str], data: JSONBody[AnswerBody]
) -> AnsweredView:
    """Deny a request. With `always`, save a deny rule, which also answers other matching
    requests."""
    return await _answer(request, request_id, "denied", data)


async def _answer(
    request: AnyRequest, request_id: str, given: Answer, data: AnswerBody
) -> AnsweredView:
    parts = parts_of(request)
    done = await decisions.answer(
        parts,
        request_id,
        given,
        by=caller(request).name,
        reason=data.reason,
        fingerprint=data.fingerprint,
        always=data.always,
        lasts=data.lasts,
        with_scripts=data.with_scripts,
        seen=data.seen,
    )
    if done.rule_id is not None:
        live_of(request).policy_changed()
    return AnsweredView(
        request=request_view(done.request, parts),
        rule_id=done.rule_id,
        saved_in=done.saved_in and shown(done.saved_in, parts.redactor),
        also=await _views(parts, done.also[:MOST_ALSO]),
        also_count=len(done.also),
    )


async def _views(parts: Parts, requests: Sequence[Asked]) -> list[RequestView]:
    """Return views, made in portions: one takes a third of a millisecond."""
    return [request_view(one, parts) async for part in slices(requests, IN_TURN) for one in part]


@get("/api/requests/{request_id:str}/suggestions", sync_to_thread=False)
def suggestions(
    request: AnyRequest, request_id: FromPath[str], effect: FromQuery[Literal["allow", "deny"]]
) -> list[decisions.SavableRule]:
    """Return the rules that "always" offers, the default first; empty where it may not be
    offered."""
    return decisions.suggestions(parts_of(request), request_id, effect)


@post("/api/requests/bulk", status_code=200)
async def bulk(request: AnyRequest, data: JSONBody[BulkBody]) -> list[RequestView]:
    """Answer requests of a category: exactly those that were shown, or none. An approval leaves out
    changed files that need a separate look. Return the answered requests."""
    parts = parts_of(request)
    done = await decisions.answer_shown(
        parts,
        request.app.state["change_sets"],
        data.answer,
        by=caller(request).name,
        shown=data.shown,
        category=data.category,
        reason=data.reason,
    )
    return await _views(parts, done.answered)


# -- rules ----------------------------------------------------------------------------------------


@get("/api/rules", sync_to_thread=False)
def list_rules(request: AnyRequest) -> list[rules_view.RuleView]:
    """Return every rule in force, with who added it, why, and when it last matched."""
    return rules_view.rules(parts_of(request))


@post("/api/rules", status_code=200)
async def add_rule(request: AnyRequest, data: JSONBody[RuleBody]) -> RuleSaved:
    """Save a rule; it answers waiting requests that match."""
    parts = parts_of(request)
    holds = decisions.until(parts, data.lasts, None)
    rule_id, also = await decisions.add_rule(
        parts, data.effect, data.rule, why=data.why, by=caller(request).name, holds=holds
    )
    live_of(request).policy_changed()
    return RuleSaved(id=rule_id, also=await _views(parts, also[:MOST_ALSO]), also_count=len(also))


@get("/api/rules/preview", sync_to_thread=False)
def preview_rule(
    request: AnyRequest,
    effect: FromQuery[Effect],
    rule: Annotated[str, QueryParameter(min_length=1, max_length=4000)],
) -> rules_view.RulePreview:
    """Return which waiting requests a rule would answer, and which of the last ones it would have
    answered. Nothing is saved."""
    return rules_view.preview_of_rule(parts_of(request), effect, rule)


@delete("/api/rules/{rule_id:str}", status_code=200)
async def remove_rule(request: AnyRequest, rule_id: FromPath[str]) -> Ok:
    """Remove a saved rule."""
    await decisions.remove_rule(parts_of(request), rule_id, by=caller(request).name)
    live_of(request).policy_changed()
    return Ok()


# -- sessions -------------------------------------------------------------------------------------


@get("/api/sessions")
async def list_sessions(request: AnyRequest, limit: _Limit = 100) -> list[SessionView]:
    """Return the sessions, newest first."""
    parts = parts_of(request)
    return await session_views(parts, parts.sessions.recent(limit))


@post("/api/sessions", status_code=201)
async def start_session(request: AnyRequest, data: JSONBody[StartSession]) -> SessionView:
    """Start a session. It is recorded when this returns; copying and starting continue."""
    parts = parts_of(request)
    return await session_view(parts, await parts.sessions.start(data))


@get("/api/sessions/{session_id:str}")
async def get_session(request: AnyRequest, session_id: FromPath[str]) -> SessionView:
    """Return one session."""
    return await _session(parts_of(request), session_id)


@post("/api/sessions/{session_id:str}/stop", status_code=200)
async def stop_session(
    request: AnyRequest, session_id: FromPath[str], data: JSONBody[StopBody | None] = None
) -> SessionView:
    """Begin the orderly end of a session."""
    parts = parts_of(request)
    reason = (data.reason if data else "") or "stopped by the operator"
    await parts.sessions.stop(session_id, reason=reason, by=caller(request).name)
    return await _session(parts, session_id)


@post("/api/sessions/{session_id:str}/pause", status_code=200)
async def pause_session(request: AnyRequest, session_id: FromPath[str]) -> SessionView:
    """Stop all processes of a session; its uptime doesn't count meanwhile."""
    parts = parts_of(request)
    parts.sessions.pause(session_id, by=caller(request).name)
    return await _session(parts, session_id)


@post("/api/sessions/{session_id:str}/unpause", status_code=200)
async def unpause_session(request: AnyRequest, session_id: FromPath[str]) -> SessionView:
    """Let a paused session continue."""
    parts = parts_of(request)
    parts.sessions.unpause(session_id, by=caller(request).name)
    return await _session(parts, session_id)


@post("/api/sessions/{session_id:str}/name", status_code=200)
async def rename_session(
    request: AnyRequest, session_id: FromPath[str], data: JSONBody[NameBody]
) -> SessionView:
    """Give a session another name; an empty one gives the usual one back."""
    parts = parts_of(request)
    parts.sessions.rename(session_id, data.name, by=caller(request).name)
    return await _session(parts, session_id)


@post("/api/sessions/{session_id:str}/take", status_code=200)
async def take_branch(
    request: AnyRequest, session_id: FromPath[str], data: JSONBody[TakeBody | None] = None
) -> TakenBranch:
    """Copy the agent's branch into the host's repository; nothing else there changes."""
    parts = parts_of(request)
    branch = data.branch if data else ""
    return await decisions.take_branch(parts, session_id, branch, by=caller(request).name)


@get("/api/sessions/{session_id:str}/output", sync_to_thread=False)
def session_output(
    request: AnyRequest, session_id: FromPath[str], offset: Annotated[int, QueryParameter(ge=0)] = 0
) -> Output:
    """Return the agent's output from byte `offset` on, up to its last complete line."""
    parts = parts_of(request)
    has_ended = state(parts.sessions.get(session_id)) == "ended"
    data, after = parts.sessions.output(session_id, offset)
    start = after - len(data)
    whole = complete_part(data, is_final=has_ended)
    return Output(
        text=as_text(whole, parts.redactor),
        next_offset=start + len(whole),
        is_final=has_ended and not data,
    )


async def _session(parts: Parts, session_id: str) -> SessionView:
    return await session_view(parts, parts.sessions.get(session_id))


# -- the whole ------------------------------------------------------------------------------------


@get("/api/audit", sync_to_thread=True)
def audit_records(
    request: AnyRequest,
    limit: _Limit = 100,
    before: Annotated[int | None, QueryParameter(ge=1)] = None,
) -> list[dict[str, Any]]:
    """Return records of the audit log, newest first; only those before the sequence number `before`
    if that is given."""
    parts = parts_of(request)
    found = audit_chain.newest_first(parts.settings.data_dir / "audit.log", limit, before)
    return [shown_data(record, parts.redactor) for record in found]


@get("/api/status", sync_to_thread=False)
def get_status(request: AnyRequest) -> Banners:
    """Return the version and what is wrong: the policy's banner, the kill switch, an audit log that
    can't be written or was changed."""
    return live_of(request).status()


@post("/api/stop-all", status_code=200, sync_to_thread=False)
def stop_all(request: AnyRequest, data: JSONBody[StopBody | None] = None) -> Banners:
    """Deny everything from now on, whatever the rules say."""
    try:
        decisions.stop_all(
            parts_of(request), by=caller(request).name, reason=data.reason if data else ""
        )
    finally:
        live_of(request).status_changed()
    return live_of(request).status()


@post("/api/resume", status_code=200, sync_to_thread=False)
def resume(request: AnyRequest) -> Banners:
    """Return to the rules."""
    decisions.resume(parts_of(request), by=caller(request).name)
    live_of(request).status_changed()
    return live_of(request).status()
