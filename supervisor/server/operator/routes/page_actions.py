"""Forms and buttons of the pages: answer, "always", all of a category, rules, sessions, stop
everything.

Each handler parses, calls one function of `decisions` or of the session manager, and renders
what it changed. A refusal is shown in its place with status 200, since htmx leaves a page as it
is on an error status.
"""

import contextlib
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from litestar import Response, delete, get, post
from litestar.enums import MediaType
from litestar.params import FromPath, FromQuery, URLEncodedBody
from litestar.types import ControllerRouterHandler

from supervisor.core.actions import Category, Effect
from supervisor.core.agents.agents import NAMES, AgentName, agent_named
from supervisor.core.approvals import Answer, status
from supervisor.core.jobs import Job
from supervisor.core.sessions import Kind
from supervisor.core.text.duration import parse_duration
from supervisor.errors import ChangedError, GatehouseError, NotFoundError, UserError
from supervisor.server.common.parts import Parts
from supervisor.server.common.views import shown
from supervisor.server.operator import decisions, rules_view
from supervisor.server.operator.routes import page_values
from supervisor.server.operator.routes.operator_api import AnyRequest, caller, live_of, parts_of
from supervisor.server.operator.routes.page_views import MOST_CARDS, DiffTime, card
from supervisor.server.operator.routes.session_views import session_data
from supervisor.sessions.start_session import StartSession
from supervisor.settings import copy_mode, network_mode

Form = URLEncodedBody[dict[str, str]]
type YesOrNo = Literal["allow", "deny"]
MOST_REASON_CHARS = 500
_LASTING = (
    ("always", "until you remove it"),
    ("session", "until this session ends"),
    ("15m", "for 15 minutes"),
    ("1h", "for an hour"),
    ("24h", "for a day"),
)
_ANSWER_OF: dict[YesOrNo, Answer] = {"allow": "approved", "deny": "denied"}


# -- answering ------------------------------------------------------------------------------------


@post("/requests/{request_id:str}/{answer:str}", include_in_schema=False, status_code=200)
async def answer(
    request: AnyRequest, request_id: FromPath[str], answer: FromPath[Answer], data: Form
) -> Response[str]:
    """Approve or Deny: the card as it is afterwards, also where somebody else was faster."""
    parts = parts_of(request)
    try:
        await decisions.answer(
            parts,
            request_id,
            answer,
            by=caller(request).name,
            reason=data.get("reason", "").strip()[:MOST_REASON_CHARS] if answer == "denied" else "",
            fingerprint=data.get("fingerprint", ""),
            with_scripts=data.get("with_scripts") == "yes",
            seen=data.get("seen", ""),
        )
    except NotFoundError:
        raise
    except GatehouseError as error:
        return await _unanswered(parts, request_id, error)
    return page_values.html(
        "parts/some_cards.html", cards=[await card(parts, parts.queue.get(request_id))]
    )


@get("/requests/{request_id:str}/always/{effect:str}", include_in_schema=False)
async def always(
    request: AnyRequest,
    request_id: FromPath[str],
    effect: FromPath[YesOrNo],
    lasts: FromQuery[str] = "always",
) -> Response[str]:
    """The rules that could be saved, and for how long; nothing is saved yet."""
    return await _always(parts_of(request), request_id, effect, filled={"lasts": lasts})


@post("/requests/{request_id:str}/always/{effect:str}", include_in_schema=False, status_code=200)
async def save_always(
    request: AnyRequest, request_id: FromPath[str], effect: FromPath[YesOrNo], data: Form
) -> Response[str]:
    """Save the chosen rule and answer; an error is shown in the form, and nothing was answered
    then."""
    parts = parts_of(request)
    rule = (data.get("rule") or data.get("own", "")).strip()
    try:
        if not rule:
            raise UserError("no rule was chosen", "choose one, or write your own")
        done = await decisions.answer(
            parts,
            request_id,
            _ANSWER_OF[effect],
            by=caller(request).name,
            fingerprint=data.get("fingerprint", ""),
            always=rule,
            lasts=data.get("lasts", "always"),
            seen=data.get("seen", ""),
        )
    except NotFoundError:
        raise
    except GatehouseError as error:
        if isinstance(error, ChangedError):
            return await _unanswered(parts, request_id, error)
        return await _always(parts, request_id, effect, error=str(error), filled=data)
    live_of(request).policy_changed()
    # Of the others that it answered the page hears by itself: there can be thousands.
    return page_values.html("parts/some_cards.html", cards=[await card(parts, done.request)])


@post("/bulk/{category:str}/{answer:str}", include_in_schema=False, status_code=200)
async def bulk(
    request: AnyRequest, category: FromPath[Category], answer: FromPath[Answer], data: Form
) -> Response[str]:
    """Answer all of a category that the page showed, `id:fingerprint` each; those that came
    since stay. Where one is another by now none is answered, and each says so. What an approval
    left out says why."""
    parts = parts_of(request)
    shown = dict(one.split(":", 1) for one in data.get("shown", "").split(",") if ":" in one)
    try:
        sets = request.app.state["change_sets"]
        done = await decisions.answer_category(
            parts, sets, category, answer, by=caller(request).name, shown=shown
        )
    except UserError as error:
        return await _cards(parts, list(shown)[:MOST_CARDS], error)
    why = {one: f"left out, answer it alone: {note}" for one, note in done.left_out.items()}
    return await _cards(parts, list(shown)[:MOST_CARDS], left_out=why)


# -- doing ----------------------------------------------------------------------------------------


@post("/rules", include_in_schema=False, status_code=200)
async def add_rule(request: AnyRequest, data: Form) -> Response[str]:
    """Save a rule; it answers what waits and matches. An error is shown above the list."""
    parts = parts_of(request)
    rule = data.get("rule", "").strip()
    try:
        effect = _effect(data.get("effect", ""))
        why = data.get("why", "").strip()
        _, also = await decisions.add_rule(parts, effect, rule, why=why, by=caller(request).name)
    except GatehouseError as error:
        return page_values.html("parts/rules.html", **page_values.rules(parts, error=str(error)))
    live_of(request).policy_changed()
    answered = f" It answered {len(also)} that waited." if also else ""
    return page_values.html(
        "parts/rules.html", **page_values.rules(parts, done=f"Saved {effect}: {rule}.{answered}")
    )


@get("/rules/preview", include_in_schema=False, sync_to_thread=False)
def preview_rule(
    request: AnyRequest,
    effect: FromQuery[str] = "",
    rule: FromQuery[str] = "",
    own: FromQuery[str] = "",
    request_id: FromQuery[str] = "",
) -> Response[str]:
    """Return what a rule that was typed would have answered; nothing is saved. `own` is its name
    in the form of the card `request_id`."""
    parts, text = parts_of(request), (own or rule).strip()
    try:
        if request_id:
            decisions.check_candidate(parts, parts.queue.get(request_id), _effect(effect), text)
        seen = rules_view.preview_of_rule(parts, _effect(effect), text, leaving_out=request_id)
    except GatehouseError as error:
        return page_values.html("parts/error.html", error=str(error))
    return page_values.html("parts/seen.html", seen=seen, typed=True)


@delete("/rules/{rule_id:str}", include_in_schema=False, status_code=200)
async def remove_rule(request: AnyRequest, rule_id: FromPath[str]) -> Response[str]:
    """Remove a saved rule."""
    parts = parts_of(request)
    try:
        text = await decisions.remove_rule(parts, rule_id, by=caller(request).name)
    except GatehouseError as error:
        return page_values.html("parts/rules.html", **page_values.rules(parts, error=str(error)))
    live_of(request).policy_changed()
    return page_values.html("parts/rules.html", **page_values.rules(parts, done=f"Removed {text}."))


@post("/sessions", include_in_schema=False, status_code=200)
async def start_session(request: AnyRequest, data: Form) -> Response[str]:
    """Start a session and go to its page; an error is shown under the form."""
    return await _started(request, lambda: _wanted(data))


@post("/sessions/{session_id:str}/resume", include_in_schema=False, status_code=200)
async def resume_session(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    """Start a session that goes on with the copy of one that has ended, and go to its page."""
    return await _started(request, lambda: StartSession(resume=session_id))


async def _started(request: AnyRequest, wanted: Callable[[], StartSession]) -> Response[str]:
    try:
        started = await parts_of(request).sessions.start(wanted())
    except GatehouseError as error:
        return page_values.html("parts/error.html", error=str(error))
    return Response(
        "", headers={"HX-Redirect": f"/sessions/{started.id}"}, media_type=MediaType.HTML
    )


@post("/sessions/{session_id:str}/stop", include_in_schema=False, status_code=200)
async def stop_session(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    """Begin the orderly end of a session."""
    parts = parts_of(request)
    await parts.sessions.stop(session_id, reason="stopped by the operator", by=caller(request).name)
    return page_values.html(
        "parts/session.html", session=session_data(parts, parts.sessions.get(session_id))
    )


@post(
    "/sessions/{session_id:str}/pause",
    include_in_schema=False,
    status_code=200,
    sync_to_thread=False,
)
def pause_session(request: AnyRequest, session_id: FromPath[str], data: Form) -> Response[str]:
    """Stop its processes where they stand, or let them go on; the session as it is afterwards."""
    parts = parts_of(request)
    do = parts.sessions.unpause if data.get("go_on") else parts.sessions.pause
    with contextlib.suppress(UserError):  # it went on, or ended, meanwhile: the page shows it
        do(session_id, by=caller(request).name)
    return page_values.html(
        "parts/session.html", session=session_data(parts, parts.sessions.get(session_id))
    )


@post("/sessions/{session_id:str}/take", include_in_schema=False, status_code=200)
async def take_branch(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
    """Make the agent's branch a branch of the host's repository."""
    parts = parts_of(request)
    try:
        taken = await decisions.take_branch(parts, session_id, "", by=caller(request).name)
    except GatehouseError as error:
        return page_values.html("parts/taken.html", error=shown(str(error), parts.redactor))
    return page_values.html(
        "parts/taken.html",
        branch=shown(taken.branch, parts.redactor),
        source=shown(taken.source, parts.redactor),
        commits=taken.commits,
    )


@post("/stop-all", include_in_schema=False, status_code=200, sync_to_thread=False)
def stop_all(request: AnyRequest) -> Response[str]:
    """The kill switch."""
    parts = parts_of(request)
    try:
        decisions.stop_all(parts, by=caller(request).name)
    finally:
        live_of(request).status_changed()
    return page_values.html("parts/banner.html", **page_values.banner(parts))


@post("/resume", include_in_schema=False, status_code=200, sync_to_thread=False)
def resume(request: AnyRequest) -> Response[str]:
    """Back to the rules."""
    parts = parts_of(request)
    decisions.resume(parts, by=caller(request).name)
    live_of(request).status_changed()
    return page_values.html("parts/banner.html", **page_values.banner(parts))


def handlers() -> list[ControllerRouterHandler]:
    """Every route of this module."""
    return [
        answer,
        always,
        save_always,
        bulk,
        add_rule,
        preview_rule,
        remove_rule,
        start_session,
        stop_session,
        pause_session,
        take_branch,
        stop_all,
        resume,
        resume_session,
    ]


# -- inside ---------------------------------------------------------------------------------------


async def _unanswered(parts: Parts, request_id: str, error: GatehouseError) -> Response[str]:
    """The card as it is, and above it why the answer didn't count: it waits still, or somebody
    else was faster."""
    return await _cards(parts, [request_id], error)


async def _cards(
    parts: Parts,
    request_ids: list[str],
    error: GatehouseError | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Response[str]:
    """Cards as they are now, each with the error where there is one."""
    budget = DiffTime(parts)
    said = dict.fromkeys(request_ids, str(error)) if error is not None else left_out or {}
    shown = [
        await card(parts, one, budget) | ({"error": said[one.id]} if one.id in said else {})
        for one in parts.queue.get_all(request_ids)
    ]
    return page_values.html("parts/some_cards.html", error, cards=shown)


async def _always(
    parts: Parts,
    request_id: str,
    effect: YesOrNo,
    *,
    error: str = "",
    filled: dict[str, str] | None = None,
) -> Response[str]:
    """`filled` is the form as it was sent, where it is shown again with an error."""
    sent = filled or {}
    found = parts.queue.get(request_id)
    if status(found) != "pending":
        return page_values.html("parts/some_cards.html", cards=[await card(parts, found)])
    offered = [
        (one, rules_view.preview_of_rule(parts, effect, one.rule, leaving_out=request_id))
        for one in decisions.suggestions(parts, request_id, effect)
    ]
    chosen = sent.get("rule", "") if error else (offered[0][0].rule if offered else "")
    shown_card = await card(parts, found)
    return page_values.html(
        "parts/always.html",
        card=shown_card,
        effect=effect,
        offered=offered,
        chosen=chosen,
        own=sent.get("own") or (offered[0][0].rule if offered else f"{shown_card['category']}()"),
        error=error,
        lasting=_LASTING,
        saved_in=str(parts.gate.rulings.policies_of(found.session_id).saved_file),
        lasts=sent.get("lasts", "always"),
    )


def _effect(text: str) -> Effect:
    effects: dict[str, Effect] = {"allow": "allow", "ask": "ask", "deny": "deny"}
    if text not in effects:
        raise UserError("the effect is missing", "choose allow, ask or deny")
    return effects[text]


def _wanted(data: dict[str, str]) -> StartSession:
    """The form of the Sessions page."""
    kind = data.get("kind", "review")
    uptime = data.get("max_uptime", "").strip()
    workspace = data.get("workspace", "").strip()
    if not Path(workspace).is_absolute():
        raise UserError(
            f"`{workspace}` is not a whole path",
            "write the folder from / on, such as /home/me/project",
        )
    named = agent_named(kind) if kind in NAMES else None
    try:
        words = tuple(shlex.split(data.get("arguments" if named else "command", "")))
    except ValueError as error:
        raise UserError(
            f"the command can't be read: {str(error).lower()}", "close every quote"
        ) from error
    if kind == "agent" and not words:
        raise UserError(
            "the command is missing", "write the command that runs as the agent, such as claude"
        )
    return StartSession(
        workspace=Path(workspace),
        kind=_kind(kind),
        command=(named, *words) if named else words if kind == "agent" else (),
        agent=named or _worker(data) if kind != "review" else None,
        job=_job(data) if kind == "maintenance" else None,
        base=data.get("base", "").strip() or None if kind == "review" else None,
        max_uptime_s=parse_duration(uptime, "the time") if uptime else None,
        budget=data.get("budget", "").strip() or None,
        include_ignored="include_ignored" in data,
        copy=copy_mode(data["copy"], "the private copy") if data.get("copy") else None,
        network=network_mode(data["network"], "the network") if data.get("network") else None,
        keep_bodies="keep_bodies" in data,
    )


def _kind(text: str) -> Kind:
    kinds: dict[str, Kind] = {"review": "review", "maintenance": "maintenance"}
    return kinds.get(text, "agent")


def _worker(data: dict[str, str]) -> AgentName | None:
    """Return who does a job; None for the built-in agent."""
    name = data.get("agent", "") if data.get("kind") == "maintenance" else ""
    return agent_named(name) if name else None


def _job(data: dict[str, str]) -> Job:
    prompt = data.get("prompt", "").strip()
    if not prompt:
        raise UserError("the job has no prompt", "say what is to be done")
    return Job(
        prompt=prompt,
        scope=tuple(data.get("scope", "").split()),
        tests=data.get("tests", "").strip(),
        branch="branch" in data,
    )
