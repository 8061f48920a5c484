"""The operator's pages: Jinja2 and htmx, no build step. Each handler parses, calls one function, renders.

They decide nothing of their own: answers go through `decisions`, as those of the JSON API and the CLI do. A refusal of a form is
shown in its place with status 200, since htmx leaves a page as it is on an error status.
"""

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from litestar import Response, delete, get, post
from litestar.enums import MediaType, RequestEncodingType
from litestar.params import Body
from litestar.types import ControllerRouterHandler

from supervisor import audit
from supervisor.core import protected_names
from supervisor.core.actions import RULE_CATEGORIES, Category, Effect
from supervisor.core.approvals import Answer, Request, status
from supervisor.core.duration import parse_duration
from supervisor.errors import GatehouseError
from supervisor.server import decisions, rules_view
from supervisor.server.errors import ErrorBody
from supervisor.server.operator_api import AnyRequest, caller, live_of, parts_of
from supervisor.server.output import as_text
from supervisor.server.page_views import card, groups, record_data, session_data
from supervisor.server.parts import Parts
from supervisor.server.render import render
from supervisor.session_manager import StartSession
from supervisor.store import requests as store

type Form = Annotated[dict[str, str], Body(media_type=RequestEncodingType.URL_ENCODED)]
HISTORY_ROWS = 100
REQUEST_ROWS = 200
_ANSWER_OF: dict[str, Answer] = {"allow": "approved", "deny": "denied"}


def error_page(code: int, body: ErrorBody) -> str:
    """What the door shows a browser that it turns away."""
    text = {
        "title": "Not signed in" if code == 401 else "Gatehouse",
        "text": body.why,
        "remedy": body.remedy,
        "bad": True,
    }
    return render("message.html", **text)


# -- whole pages ---------------------------------------------------------------------------------------------------------


@get("/", include_in_schema=False, sync_to_thread=False)
def inbox(request: AnyRequest) -> Response[str]:
    """What waits, by category."""
    parts = parts_of(request)
    return _page(request, "inbox.html", "inbox", groups=groups(parts, _pending(parts)), live_sessions=_live(parts))


@get("/sessions", include_in_schema=False, sync_to_thread=False)
def sessions(request: AnyRequest) -> Response[str]:
    """Every session, and a form to start one."""
    parts = parts_of(request)
    recent = parts.sessions.recent()
    values = {
        "sessions": [session_data(parts, session) for session in recent],
        "default_workspace": recent[0].workspace if recent else str(Path.cwd()),
        "default_uptime": f"{parts.settings.max_uptime_s:g}s",
    }
    return _page(request, "sessions.html", "sessions", **values)


@get("/sessions/{session_id:str}", include_in_schema=False, sync_to_thread=False)
def session(request: AnyRequest, session_id: str) -> Response[str]:
    """One session: state, time, output, review, requests."""
    parts = parts_of(request)
    found = parts.sessions.get(session_id)
    data, offset = parts.sessions.output(session_id, 0)
    while data:
        more, offset = parts.sessions.output(session_id, offset)
        data = data + more if more else data
        if not more:
            break
    values = {
        "session": session_data(parts, found),
        "output": as_text(data, parts.redactor),
        "output_offset": offset,
        "groups": groups(parts, _pending(parts, session_id)),
        "answered": _answered(parts, session_id),
    }
    return _page(request, "session.html", "sessions", **values)


@get("/rules", include_in_schema=False, sync_to_thread=False)
def rules(request: AnyRequest) -> Response[str]:
    """Every rule in force, and what is always protected."""
    return _page(request, "rules.html", "rules", **_rules(parts_of(request)))


@get("/history", include_in_schema=False, sync_to_thread=True)
def history(request: AnyRequest) -> Response[str]:
    """The audit log, newest first."""
    return _page(request, "history.html", "history", **_history(parts_of(request), None))


# -- parts of pages --------------------------------------------------------------------------------------------------------


@get("/parts/cards", include_in_schema=False, sync_to_thread=False)
def cards_part(request: AnyRequest, session: str | None = None) -> Response[str]:
    parts = parts_of(request)
    return _html("parts/cards.html", groups=groups(parts, _pending(parts, session)))


@get("/parts/card/{request_id:str}", include_in_schema=False, sync_to_thread=False)
def card_part(request: AnyRequest, request_id: str) -> Response[str]:
    return _card(parts_of(request), request_id)


@get("/parts/strip", include_in_schema=False, sync_to_thread=False)
def strip_part(request: AnyRequest) -> Response[str]:
    return _html("parts/strip.html", live_sessions=_live(parts_of(request)))


@get("/parts/banner", include_in_schema=False, sync_to_thread=False)
def banner_part(request: AnyRequest) -> Response[str]:
    return _html("parts/banner.html", **_banner(parts_of(request)))


@get("/parts/sessions", include_in_schema=False, sync_to_thread=False)
def sessions_part(request: AnyRequest) -> Response[str]:
    parts = parts_of(request)
    return _html("parts/sessions.html", sessions=[session_data(parts, one) for one in parts.sessions.recent()])


@get("/parts/sessions/{session_id:str}", include_in_schema=False, sync_to_thread=False)
def session_part(request: AnyRequest, session_id: str) -> Response[str]:
    parts = parts_of(request)
    return _html("parts/session.html", session=session_data(parts, parts.sessions.get(session_id)))


@get("/parts/requests/{session_id:str}", include_in_schema=False, sync_to_thread=False)
def requests_part(request: AnyRequest, session_id: str) -> Response[str]:
    return _html("parts/requests.html", answered=_answered(parts_of(request), session_id))


@get("/parts/rules", include_in_schema=False, sync_to_thread=False)
def rules_part(request: AnyRequest) -> Response[str]:
    return _html("parts/rules.html", **_rules(parts_of(request)))


@get("/parts/history", include_in_schema=False, sync_to_thread=True)
def history_part(request: AnyRequest, before: int) -> Response[str]:
    return _html("parts/history.html", **_history(parts_of(request), before))


# -- answering -----------------------------------------------------------------------------------------------------------


@post("/requests/{request_id:str}/{answer:str}", include_in_schema=False, status_code=200, sync_to_thread=False)
def answer(request: AnyRequest, request_id: str, answer: Answer, data: Form) -> Response[str]:
    """Approve or Deny: the card as it is afterwards, also where somebody else was faster."""
    parts = parts_of(request)
    found = parts.gate.get(request_id)
    if status(found) == "pending":
        decisions.answer(
            parts,
            request_id,
            answer,
            by=caller(request).name,
            reason=data.get("reason", ""),
            fingerprint=data.get("fingerprint", ""),
        )
    return _card(parts, request_id)


@get("/requests/{request_id:str}/always/{effect:str}", include_in_schema=False, sync_to_thread=False)
def always(request: AnyRequest, request_id: str, effect: Literal["allow", "deny"]) -> Response[str]:
    """The rules that could be saved; nothing is saved yet."""
    return _always(parts_of(request), request_id, effect)


@post("/requests/{request_id:str}/always/{effect:str}", include_in_schema=False, status_code=200, sync_to_thread=False)
def save_always(request: AnyRequest, request_id: str, effect: Literal["allow", "deny"], data: Form) -> Response[str]:
    """Save the chosen rule and answer; an error is shown in the form, and nothing was answered then."""
    parts = parts_of(request)
    rule = data.get("rule") or data.get("own", "")
    try:
        decisions.answer(
            parts,
            request_id,
            _ANSWER_OF[effect],
            by=caller(request).name,
            fingerprint=data.get("fingerprint", ""),
            always=rule.strip(),
        )
    except GatehouseError as error:
        if status(parts.gate.get(request_id)) != "pending":
            return _card(parts, request_id)
        return _always(parts, request_id, effect, error=str(error), retarget=True)
    live_of(request).policy_changed()
    return _card(parts, request_id)


@post("/bulk/{category:str}/{answer:str}", include_in_schema=False, status_code=200, sync_to_thread=False)
def bulk(request: AnyRequest, category: Category, answer: Answer, data: Form) -> Response[str]:
    """Answer all of a category that the page showed; those that came since stay."""
    parts = parts_of(request)
    shown = [one for one in data.get("ids", "").split(",") if one]
    decisions.answer_category(parts, category, answer, by=caller(request).name, ids=shown)
    session_id = data.get("session") or None
    return _html("parts/cards.html", groups=groups(parts, _pending(parts, session_id)))


# -- doing -----------------------------------------------------------------------------------------------------------


@post("/rules", include_in_schema=False, status_code=200, sync_to_thread=False)
def add_rule(request: AnyRequest, data: Form) -> Response[str]:
    parts = parts_of(request)
    effects: dict[str, Effect] = {"allow": "allow", "ask": "ask", "deny": "deny"}
    try:
        decisions.add_rule(
            parts,
            effects[data.get("effect", "ask")],
            data.get("rule", "").strip(),
            why=data.get("why", ""),
            by=caller(request).name,
        )
    except GatehouseError as error:
        return _html("parts/rules.html", **_rules(parts, error=str(error)))
    live_of(request).policy_changed()
    return _html("parts/rules.html", **_rules(parts))


@delete("/rules/{rule_id:str}", include_in_schema=False, status_code=200, sync_to_thread=False)
def remove_rule(request: AnyRequest, rule_id: str) -> Response[str]:
    parts = parts_of(request)
    try:
        decisions.remove_rule(parts, rule_id, by=caller(request).name)
    except GatehouseError as error:
        return _html("parts/rules.html", **_rules(parts, error=str(error)))
    live_of(request).policy_changed()
    return _html("parts/rules.html", **_rules(parts))


@post("/sessions", include_in_schema=False, status_code=200)
async def start_session(request: AnyRequest, data: Form) -> Response[str]:
    """Start a session and go to its page; an error is shown under the form."""
    parts = parts_of(request)
    try:
        started = await parts.sessions.start(_wanted(data))
    except (GatehouseError, ValueError) as error:
        return _html("parts/error.html", error=str(error))
    return Response("", headers={"HX-Redirect": f"/sessions/{started.id}"}, media_type=MediaType.HTML)


@post("/sessions/{session_id:str}/stop", include_in_schema=False, status_code=200)
async def stop_session(request: AnyRequest, session_id: str) -> Response[str]:
    parts = parts_of(request)
    await parts.sessions.stop(session_id, reason="stopped by the operator", by=caller(request).name)
    return _html("parts/session.html", session=session_data(parts, parts.sessions.get(session_id)))


@post("/stop-all", include_in_schema=False, status_code=200, sync_to_thread=False)
def stop_all(request: AnyRequest) -> Response[str]:
    parts = parts_of(request)
    decisions.stop_all(parts, by=caller(request).name)
    live_of(request).status_changed()
    return _html("parts/banner.html", **_banner(parts))


@post("/resume", include_in_schema=False, status_code=200, sync_to_thread=False)
def resume(request: AnyRequest) -> Response[str]:
    parts = parts_of(request)
    decisions.resume(parts, by=caller(request).name)
    live_of(request).status_changed()
    return _html("parts/banner.html", **_banner(parts))


def handlers() -> list[ControllerRouterHandler]:
    """Every page and part, for `app.build_operator_app`."""
    return [
        inbox, sessions, session, rules, history,
        cards_part, card_part, strip_part, banner_part, sessions_part, session_part, requests_part, rules_part, history_part,
        answer, always, save_always, bulk,
        add_rule, remove_rule, start_session, stop_session, stop_all, resume,
    ]  # fmt: skip


# -- inside -----------------------------------------------------------------------------------------------------


def _page(request: AnyRequest, template: str, page: str, **values: Any) -> Response[str]:
    parts = parts_of(request)
    frame = {"page": page, "csrf": caller(request).csrf, "pending_count": len(_pending(parts))}
    return _html(template, **frame, **_banner(parts), **values)


def _html(template: str, **values: Any) -> Response[str]:
    return Response(render(template, **values), media_type=MediaType.HTML)


def _card(parts: Parts, request_id: str) -> Response[str]:
    return _html("parts/card.html", card=card(parts, parts.gate.get(request_id)))


def _always(parts: Parts, request_id: str, effect: Effect, *, error: str = "", retarget: bool = False) -> Response[str]:
    found = parts.gate.get(request_id)
    response = _html(
        "parts/always.html",
        card=card(parts, found),
        effect=effect,
        candidates=decisions.suggestions(parts, request_id, effect),
        error=error,
    )
    if retarget:
        response.headers["HX-Retarget"] = f"#always-{request_id}"
        response.headers["HX-Reswap"] = "innerHTML"
    return response


def _banner(parts: Parts) -> dict[str, Any]:
    return {
        "stopped": parts.kill_switch.reason(),
        "audit_failure": parts.audit.failure,
        "policy_banner": parts.policies.banner,
    }


def _pending(parts: Parts, session_id: str | None = None) -> list[Request]:
    return parts.queue.read(lambda connection: store.pending(connection, session_id))


def _answered(parts: Parts, session_id: str) -> list[dict[str, Any]]:
    found = parts.queue.read(lambda connection: store.of_session(connection, session_id, REQUEST_ROWS))
    return [card(parts, request) for request in found if status(request) != "pending"]


def _live(parts: Parts) -> list[dict[str, Any]]:
    return [session_data(parts, one) for one in parts.sessions.recent(20) if one.ended_at is None]


def _rules(parts: Parts, *, error: str = "") -> dict[str, Any]:
    policy = parts.policies.current()
    return {
        "error": error,
        "warnings": policy.warnings,
        "rules": rules_view.rules(parts),
        "modes": [(category, policy.mode_of(category)) for category in RULE_CATEGORIES],
        "protected_deny": protected_names.shown("deny", policy),
        "protected_ask": protected_names.shown("ask", policy),
    }


def _history(parts: Parts, before: int | None) -> dict[str, Any]:
    path = parts.settings.data_dir / "audit.log"
    found = audit.newest_first(path, HISTORY_ROWS, before)
    return {
        "records": [record_data(record, parts.redactor) for record in found],
        "next_before": found[-1]["seq"] if len(found) == HISTORY_ROWS else None,
        "older": before is not None,
    }


def _wanted(data: dict[str, str]) -> StartSession:
    """The form of the Sessions page. The second field is a command, or the base revision of a review."""
    text = data.get("command", "").strip()
    is_review = data.get("kind") == "review"
    uptime = data.get("max_uptime", "").strip()
    return StartSession(
        workspace=Path(data.get("workspace", "")),
        kind="review" if is_review else "agent",
        command=() if is_review else tuple(shlex.split(text)),
        base=text or None if is_review else None,
        max_uptime_s=parse_duration(uptime, "the time") if uptime else None,
    )
