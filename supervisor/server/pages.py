"""The operator's pages: Jinja2 and htmx, no build step. Each handler parses, calls one function, renders.

They decide nothing of their own: answers go through `decisions`, as those of the JSON API and the CLI do. A refusal of a form is
shown in its place with status 200, since htmx leaves a page as it is on an error status. What else goes wrong is `errors`' to show:
a page of its own for a visit, and for htmx the one JSON body, whose text the page's script shows.
"""

import shlex
from pathlib import Path
from typing import Any, Literal

from litestar import Response, delete, get, post
from litestar.enums import MediaType
from litestar.params import FromPath, FromQuery, URLEncodedBody
from litestar.types import ControllerRouterHandler

from supervisor import audit
from supervisor.core.actions import RULE_CATEGORIES, Category, Effect, title
from supervisor.core.approvals import Answer, Request, status
from supervisor.core.duration import format_duration, parse_duration
from supervisor.core.file_rules import built_in as protected_names
from supervisor.errors import GatehouseError, NotFoundError, UserError
from supervisor.server import decisions, rule_previews, rules_view
from supervisor.server.errors import ErrorBody
from supervisor.server.history_views import record_data
from supervisor.server.operator_api import AnyRequest, caller, live_of, parts_of
from supervisor.server.page_views import MOST_CARDS, card, change, sections
from supervisor.server.parts import Parts
from supervisor.server.render import render
from supervisor.server.session_views import session_data
from supervisor.server.time_words import clock_text
from supervisor.session_manager import StartSession
from supervisor.store import requests as store

Form = URLEncodedBody[dict[str, str]]
type YesOrNo = Literal["allow", "deny"]
HISTORY_ROWS = 100
REQUEST_ROWS = 100
MOST_REASON_CHARS = 500
# Of an agent's output, what a page starts with.
OUTPUT_TAIL_BYTES = 256 * 1024
_ANSWER_OF: dict[YesOrNo, Answer] = {"allow": "approved", "deny": "denied"}


def error_page(code: int, body: ErrorBody) -> str:
    """What a browser is shown that is turned away, or whose page can't be made."""
    heading = {401: "Not signed in", 403: "Not let in", 404: "Not found"}.get(code, "That did not work")
    return render("message.html", title=heading, text=body.why, remedy=body.remedy, is_sign_in=code in (401, 403))


# -- whole pages -------------------------------------------------------------------------------------------------------------


@get("/", include_in_schema=False, sync_to_thread=False)
def inbox(request: AnyRequest) -> Response[str]:
    """What waits, by category."""
    parts = parts_of(request)
    return _page(request, "inbox.html", "inbox", live_sessions=_live(parts), **_cards(parts))


@get("/sessions", include_in_schema=False, sync_to_thread=False)
def sessions(request: AnyRequest) -> Response[str]:
    """Every session, and a form to start one."""
    parts = parts_of(request)
    recent = parts.sessions.recent()
    values = {
        "sessions": [session_data(parts, one) for one in recent],
        "default_workspace": recent[0].workspace if recent else "",
        "default_uptime": format_duration(parts.settings.max_uptime_s),
    }
    return _page(request, "sessions.html", "sessions", **values)


@get("/sessions/{session_id:str}", include_in_schema=False, sync_to_thread=False)
def session(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    """One session: state, time, output, review, requests."""
    parts = parts_of(request)
    found = parts.sessions.get(session_id)
    start = max(0, parts.sessions.output_size(session_id) - OUTPUT_TAIL_BYTES)
    values = {
        "session": session_data(parts, found),
        "output_start": start,
        "answered": _answered(parts, session_id),
        **_cards(parts, session_id),
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


# -- parts of pages ----------------------------------------------------------------------------------------------------------


@get("/parts/cards", include_in_schema=False, sync_to_thread=False)
def cards_part(request: AnyRequest, ids: FromQuery[str]) -> Response[str]:
    """The cards with these ids, comma-separated, as they are now; unknown ones are left out."""
    parts = parts_of(request)
    found = [parts.queue.get(one) for one in ids.split(",")[:MOST_CARDS]]
    return _html("parts/some_cards.html", cards=[card(parts, one) for one in found if one is not None])


@get("/parts/change/{request_id:str}", include_in_schema=False, sync_to_thread=False)
def change_part(request: AnyRequest, request_id: FromPath[str]) -> Response[str]:
    """The whole diff of a card."""
    parts = parts_of(request)
    return _html("parts/change.html", change=change(parts, parts.gate.get(request_id), whole=True))


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
def session_part(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    parts = parts_of(request)
    return _html("parts/session.html", session=session_data(parts, parts.sessions.get(session_id)))


@get("/parts/requests/{session_id:str}", include_in_schema=False, sync_to_thread=False)
def requests_part(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    return _html("parts/requests.html", answered=_answered(parts_of(request), session_id))


@get("/parts/rules", include_in_schema=False, sync_to_thread=False)
def rules_part(request: AnyRequest) -> Response[str]:
    return _html("parts/rules.html", **_rules(parts_of(request)))


@get("/parts/history", include_in_schema=False, sync_to_thread=True)
def history_part(request: AnyRequest, before: FromQuery[int]) -> Response[str]:
    return _html("parts/history.html", **_history(parts_of(request), before))


# -- answering ---------------------------------------------------------------------------------------------------------------


@post("/requests/{request_id:str}/{answer:str}", include_in_schema=False, status_code=200, sync_to_thread=False)
def answer(request: AnyRequest, request_id: FromPath[str], answer: FromPath[Answer], data: Form) -> Response[str]:
    """Approve or Deny: the card as it is afterwards, also where somebody else was faster."""
    parts = parts_of(request)
    try:
        decisions.answer(
            parts,
            request_id,
            answer,
            by=caller(request).name,
            reason=data.get("reason", "").strip()[:MOST_REASON_CHARS] if answer == "denied" else "",
            # Never None: what was shown must be named, or nothing is answered.
            fingerprint=data.get("fingerprint", ""),
        )
    except NotFoundError:
        raise
    except GatehouseError as error:
        return _unanswered(parts, request_id, error)
    return _html("parts/some_cards.html", cards=[card(parts, parts.gate.get(request_id))])


@get("/requests/{request_id:str}/always/{effect:str}", include_in_schema=False, sync_to_thread=False)
def always(request: AnyRequest, request_id: FromPath[str], effect: FromPath[YesOrNo]) -> Response[str]:
    """The rules that could be saved; nothing is saved yet."""
    return _always(parts_of(request), request_id, effect)


@post("/requests/{request_id:str}/always/{effect:str}", include_in_schema=False, status_code=200, sync_to_thread=False)
def save_always(request: AnyRequest, request_id: FromPath[str], effect: FromPath[YesOrNo], data: Form) -> Response[str]:
    """Save the chosen rule and answer; an error is shown in the form, and nothing was answered then."""
    parts = parts_of(request)
    rule = (data.get("rule") or data.get("own", "")).strip()
    try:
        if not rule:
            raise UserError("no rule was chosen", "choose one, or write your own")
        done = decisions.answer(
            parts,
            request_id,
            _ANSWER_OF[effect],
            by=caller(request).name,
            fingerprint=data.get("fingerprint", ""),
            always=rule,
        )
    except NotFoundError:
        raise
    except GatehouseError as error:
        if status(parts.gate.get(request_id)) != "pending":
            return _unanswered(parts, request_id, error)
        return _always(parts, request_id, effect, error=str(error), rule=data.get("rule", ""), own=data.get("own", ""))
    live_of(request).policy_changed()
    return _html("parts/some_cards.html", cards=[card(parts, one) for one in (done.request, *done.also)])


@post("/bulk/{category:str}/{answer:str}", include_in_schema=False, status_code=200, sync_to_thread=False)
def bulk(request: AnyRequest, category: FromPath[Category], answer: FromPath[Answer], data: Form) -> Response[str]:
    """Answer all of a category that the page showed; those that came since stay."""
    parts = parts_of(request)
    shown = [one for one in data.get("ids", "").split(",") if one]
    answered = decisions.answer_category(parts, category, answer, by=caller(request).name, ids=shown)
    return _html("parts/some_cards.html", cards=[card(parts, parts.gate.get(one.id)) for one in answered])


# -- doing -------------------------------------------------------------------------------------------------------------------


@post("/rules", include_in_schema=False, status_code=200, sync_to_thread=False)
def add_rule(request: AnyRequest, data: Form) -> Response[str]:
    """Save a rule; it answers what waits and matches. An error is shown above the list."""
    parts = parts_of(request)
    effects: dict[str, Effect] = {"allow": "allow", "ask": "ask", "deny": "deny"}
    rule = data.get("rule", "").strip()
    try:
        effect = effects.get(data.get("effect", ""))
        if effect is None:
            raise UserError("the effect is missing", "choose allow, ask or deny")
        _, also = decisions.add_rule(parts, effect, rule, why=data.get("why", "").strip(), by=caller(request).name)
    except GatehouseError as error:
        return _html("parts/rules.html", **_rules(parts, error=str(error)))
    live_of(request).policy_changed()
    answered = f" It answered {len(also)} that waited." if also else ""
    return _html("parts/rules.html", **_rules(parts, done=f"Saved {effect}: {rule}.{answered}"))


@delete("/rules/{rule_id:str}", include_in_schema=False, status_code=200, sync_to_thread=False)
def remove_rule(request: AnyRequest, rule_id: FromPath[str]) -> Response[str]:
    """Take a saved rule away."""
    parts = parts_of(request)
    try:
        text = decisions.remove_rule(parts, rule_id, by=caller(request).name)
    except GatehouseError as error:
        return _html("parts/rules.html", **_rules(parts, error=str(error)))
    live_of(request).policy_changed()
    return _html("parts/rules.html", **_rules(parts, done=f"Removed {text}."))


@post("/sessions", include_in_schema=False, status_code=200)
async def start_session(request: AnyRequest, data: Form) -> Response[str]:
    """Start a session and go to its page; an error is shown under the form."""
    parts = parts_of(request)
    try:
        started = await parts.sessions.start(_wanted(data))
    except GatehouseError as error:
        return _html("parts/error.html", error=str(error))
    return Response("", headers={"HX-Redirect": f"/sessions/{started.id}"}, media_type=MediaType.HTML)


@post("/sessions/{session_id:str}/stop", include_in_schema=False, status_code=200)
async def stop_session(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    """Begin the orderly end of a session."""
    parts = parts_of(request)
    await parts.sessions.stop(session_id, reason="stopped by the operator", by=caller(request).name)
    return _html("parts/session.html", session=session_data(parts, parts.sessions.get(session_id)))


@post("/stop-all", include_in_schema=False, status_code=200, sync_to_thread=False)
def stop_all(request: AnyRequest) -> Response[str]:
    """The kill switch."""
    parts = parts_of(request)
    try:
        decisions.stop_all(parts, by=caller(request).name)
    finally:
        live_of(request).status_changed()
    return _html("parts/banner.html", **_banner(parts))


@post("/resume", include_in_schema=False, status_code=200, sync_to_thread=False)
def resume(request: AnyRequest) -> Response[str]:
    """Back to the rules."""
    parts = parts_of(request)
    decisions.resume(parts, by=caller(request).name)
    live_of(request).status_changed()
    return _html("parts/banner.html", **_banner(parts))


def handlers() -> list[ControllerRouterHandler]:
    """Every page and part, for `app.build_operator_app`."""
    return [
        inbox, sessions, session, rules, history,
        cards_part, change_part, strip_part, banner_part, sessions_part, session_part, requests_part, rules_part, history_part,
        answer, always, save_always, bulk,
        add_rule, remove_rule, start_session, stop_session, stop_all, resume,
    ]  # fmt: skip


# -- inside ------------------------------------------------------------------------------------------------------------------


def _page(request: AnyRequest, template: str, page: str, **values: Any) -> Response[str]:
    parts = parts_of(request)
    frame = {
        "page": page,
        "csrf": caller(request).csrf,
        "now": parts.clock.now(),
        "pending_count": len(_pending(parts)),
    }
    return _html(template, **frame, **_banner(parts), **values)


def _html(template: str, **values: Any) -> Response[str]:
    return Response(render(template, **values), media_type=MediaType.HTML)


def _cards(parts: Parts, session_id: str | None = None) -> dict[str, Any]:
    waiting = _pending(parts, session_id)
    return {"sections": sections(parts, waiting), "more": max(0, len(waiting) - MOST_CARDS)}


def _unanswered(parts: Parts, request_id: str, error: GatehouseError) -> Response[str]:
    """The card as it is, and above it why the answer didn't count: it waits still, or somebody else was faster."""
    shown = card(parts, parts.gate.get(request_id)) | {"error": str(error)}
    return _html("parts/some_cards.html", cards=[shown])


def _always(
    parts: Parts, request_id: str, effect: YesOrNo, *, error: str = "", rule: str = "", own: str = ""
) -> Response[str]:
    found = parts.gate.get(request_id)
    if status(found) != "pending":
        return _html("parts/some_cards.html", cards=[card(parts, found)])
    offered = [
        (one, rule_previews.preview(parts, found, effect, one.rule))
        for one in decisions.suggestions(parts, request_id, effect)
    ]
    chosen = rule if error else (offered[0][0].rule if offered else "")
    return _html(
        "parts/always.html",
        card=card(parts, found),
        effect=effect,
        offered=offered,
        chosen=chosen,
        own=own or (offered[0][0].rule if offered else f"{card(parts, found)['category']}()"),
        error=error,
    )


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
    return [card(parts, one) for one in found if status(one) != "pending"]


def _live(parts: Parts) -> list[dict[str, Any]]:
    return [session_data(parts, one) for one in parts.sessions.recent(20) if one.ended_at is None]


def _rules(parts: Parts, *, error: str = "", done: str = "") -> dict[str, Any]:
    policy, protection = parts.policies.current(), parts.policies.current().protection
    built_in = protected_names()
    added = dict.fromkeys(sorted(protection.ask | protection.deny), "added by the policy")
    return {
        "error": error,
        "done": done,
        "warnings": rules_view.warnings(parts),
        "rules": [
            {
                "view": rule,
                "source_name": rule.source.rpartition("/")[2],
                "added_text": clock_text(rule.added_at or 0),
                "last_text": clock_text(rule.last_at or 0),
            }
            for rule in rules_view.rules(parts)
        ],
        "modes": [(category, policy.mode_of(category)) for category in RULE_CATEGORIES],
        "policy_file": str(parts.settings.policy_file),
        "protected": [
            ("deny", built_in["deny"] | {name: why for name, why in added.items() if name in protection.deny}),
            (
                "ask",
                {name: why for name, why in built_in["ask"].items() if name not in protection.lifted}
                | {name: why for name, why in added.items() if name in protection.ask},
            ),
        ],
        "lifted": sorted(protection.lifted),
    }


def _history(parts: Parts, before: int | None) -> dict[str, Any]:
    path = parts.settings.data_dir / "audit.log"
    found = audit.newest_first(path, HISTORY_ROWS, before)
    ids = {str(record["request"]) for record in found if record.get("request") and not record.get("action")}
    known = parts.queue.read(lambda connection: [store.get(connection, one) for one in ids])
    titles: dict[str, str] = {one.id: title(one.action) for one in known if one is not None}
    return {
        "records": [record_data(record, parts.redactor, titles) for record in found],
        "next_before": found[-1].get("seq") if len(found) == HISTORY_ROWS else None,
        "is_older": before is not None,
    }


def _wanted(data: dict[str, str]) -> StartSession:
    """The form of the Sessions page."""
    is_review = data.get("kind") != "agent"
    uptime = data.get("max_uptime", "").strip()
    workspace = data.get("workspace", "").strip()
    if not Path(workspace).is_absolute():
        raise UserError(f"`{workspace}` is not a whole path", "write the folder from / on, such as /home/me/project")
    try:
        words = tuple(shlex.split(data.get("command", "")))
    except ValueError as error:
        raise UserError(f"the command can't be read: {str(error).lower()}", "close every quote") from error
    if not is_review and not words:
        raise UserError("the command is missing", "write the command that runs as the agent, such as claude")
    return StartSession(
        workspace=Path(workspace),
        kind="review" if is_review else "agent",
        command=() if is_review else words,
        base=data.get("base", "").strip() or None if is_review else None,
        max_uptime_s=parse_duration(uptime, "the time") if uptime else None,
    )
