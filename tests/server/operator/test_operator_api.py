"""Answering, always, bulk, rules, sessions, history and stopping everything, through the
operator's door."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from litestar import Litestar

from supervisor.cli import terminal
from supervisor.core.actions import Exec, FileChange, Network, content_hash
from supervisor.core.approvals import Request, status
from supervisor.core.budget import Over
from supervisor.core.models.model_calls import ModelCall
from supervisor.server.common.auth import OperatorAuth
from supervisor.server.common.session_views import session_view
from supervisor.server.common.views import MOST_LISTED_CHARS
from tests.fakes.parts import SECRET, FakeParts
from tests.fakes.waiting import settled
from tests.server.conftest import PATIENCE_S, client_of, sign_in

RLO = "\u202e"


def ask(parts: FakeParts, command: str = "make test", session: str = "one", **more: Any) -> Request:
    return parts.gate.ask(Exec(command=command), session_id=session, **more)


def fetch(host: str) -> Network:
    return Network(operation="connect", host=host, port=443)


async def test_pending_requests_are_listed_oldest_first(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    first = ask(parts, "make one", reason="to see")
    parts.clock.advance(1)
    second = ask(parts, "make two", session="two")
    listed = (await cli.get("/api/requests")).json()
    assert [one["id"] for one in listed] == [first.id, second.id]
    assert (listed[0]["title"], listed[0]["reason"], listed[0]["status"]) == (
        "make one",
        "to see",
        "pending",
    )
    assert listed[0]["fingerprint"] == first.fingerprint
    of_two = (await cli.get("/api/requests", params={"session_id": "two", "status": "all"})).json()
    assert [one["id"] for one in of_two] == [second.id]
    everything = (await cli.get("/api/requests", params={"status": "all", "limit": 1})).json()
    assert [one["id"] for one in everything] == [second.id]


async def test_lists_and_pages_hold_no_more_than_is_made_at_once(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    for number in range(25):
        ask(parts, f"ü {number} " + "ö" * 60_000)
        parts.clock.advance(1)
    answer = await cli.get("/api/requests")
    assert len(answer.content) < 8 * MOST_LISTED_CHARS
    shown = [one["title"][:3] for one in answer.json()]
    assert shown == [f"ü {one}" for one in range(len(shown))]
    assert 1 < len(shown) < 10
    everything = await cli.get("/api/requests", params={"status": "all"})
    assert len(everything.content) < 8 * MOST_LISTED_CHARS
    page = await cli.get("/")
    assert page.text.count("data-row=") == 25
    assert len(page.content) < MOST_LISTED_CHARS


async def test_those_that_nobody_waits_for_any_more_come_last(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    asked = []
    for hold_s in (5.0, 5.0, 60.0, None):
        asked.append(ask(parts, f"make {len(asked)}", hold_s=hold_s))
        parts.clock.advance(1)
    first, second, third, fourth = (one.id for one in asked)
    for gone_s, order in (
        (0, [first, second, third, fourth]),
        (10, [third, fourth, first, second]),
    ):
        parts.clock.advance(gone_s)
        for more in ({}, {"session_id": "one"}):
            assert [
                one["id"] for one in (await cli.get("/api/requests", params=more)).json()
            ] == order
    assert [one["id"] for one in (await cli.get("/api/requests", params={"limit": 1})).json()] == [
        third
    ]


async def test_approve_records_the_authenticated_caller(
    browser: httpx.AsyncClient, cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    by_page, by_cli = ask(parts, "make a"), ask(parts, "make b")
    answer = await browser.post(
        f"/api/requests/{by_page.id}/approve", json={"fingerprint": by_page.fingerprint}
    )
    assert answer.status_code == 200
    assert answer.json()["request"]["status"] == "approved"
    await cli.post(
        f"/api/requests/{by_cli.id}/deny",
        json={"fingerprint": by_cli.fingerprint, "reason": "use make test"},
    )
    assert parts.queue.get(by_page.id).answered_by == "operator (browser)"
    assert parts.queue.get(by_cli.id).answered_by == "operator (cli)"
    assert parts.queue.get(by_cli.id).answer_reason == "use make test"


@pytest.mark.parametrize(
    "field", ["resolved_by", "answered_by", "by", "approved", "status", "session_id", "__proto__"]
)
async def test_a_body_cannot_say_who_answers(
    cli: httpx.AsyncClient, parts: FakeParts, field: str
) -> None:
    request = ask(parts)
    for verb in ("approve", "deny"):
        answer = await cli.post(f"/api/requests/{request.id}/{verb}", json={field: "somebody"})
        assert answer.status_code == 400
        assert field in answer.json()["why"]
    assert status(parts.queue.get(request.id)) == "pending"


async def test_a_request_is_answered_once(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    request = ask(parts)
    assert (
        await cli.post(
            f"/api/requests/{request.id}/deny", json={"fingerprint": request.fingerprint}
        )
    ).status_code == 200
    second = await cli.post(
        f"/api/requests/{request.id}/approve", json={"fingerprint": request.fingerprint}
    )
    assert (second.status_code, second.json()["why"]) == (409, "this request was already denied")
    assert status(parts.queue.get(request.id)) == "denied"


async def test_of_two_tabs_at_once_one_wins(
    cli: httpx.AsyncClient, browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    for number in range(5):
        request = ask(parts, f"make {number}")
        always = {"always": f"exec(make {number})"}
        answers = await asyncio.gather(
            cli.post(
                f"/api/requests/{request.id}/approve",
                json=always | {"fingerprint": request.fingerprint},
            ),
            browser.post(
                f"/api/requests/{request.id}/deny",
                json=always | {"fingerprint": request.fingerprint},
            ),
            browser.post(
                f"/api/requests/{request.id}/approve",
                json=always | {"fingerprint": request.fingerprint},
            ),
        )
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
        rules = [
            one
            for one in (await cli.get("/api/rules")).json()
            if one["rule"] == f"exec(make {number})"
        ]
        assert len(rules) == 1


async def test_superseded_and_closed_requests_cannot_be_approved(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    older = parts.gate.ask(FileChange(operation="write", path="a", after="1"), session_id="one")
    newer = parts.gate.ask(FileChange(operation="write", path="a", after="2"), session_id="one")
    assert (
        await cli.post(f"/api/requests/{older.id}/approve", json={"fingerprint": older.fingerprint})
    ).json()["why"] == ("this request was already superseded")
    parts.gate.answers.close("MAX_UPTIME was reached", newer.id)
    assert (
        await cli.post(f"/api/requests/{newer.id}/approve", json={"fingerprint": newer.fingerprint})
    ).json()["why"] == ("this request was already expired")


async def test_an_unknown_id_is_not_found(cli: httpx.AsyncClient) -> None:
    for method, path in (
        ("GET", "/api/requests/nope"),
        ("POST", "/api/requests/nope/approve"),
        ("GET", "/api/requests/nope/suggestions?effect=allow"),
        ("DELETE", "/api/rules/nope"),
        ("GET", "/api/sessions/nope"),
        ("GET", "/api/sessions/nope/output"),
        ("POST", "/api/sessions/nope/stop"),
        ("GET", "/api/nope"),
    ):
        answer = await cli.request(method, path, json={} if method == "POST" else None)
        assert (answer.status_code, sorted(answer.json())) == (
            404,
            ["error", "remedy", "request_id", "rule", "why"],
        )


async def test_bulk_answers_only_what_was_shown(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    seen = [ask(parts, f"make {n}") for n in range(3)]
    other = parts.gate.ask(fetch("example.com"), session_id="one")
    unseen = ask(parts, "make unseen")
    body = {
        "category": "exec",
        "answer": "approved",
        "shown": {one.id: one.fingerprint for one in seen},
    }
    answered = (await cli.post("/api/requests/bulk", json=body)).json()
    assert {one["id"] for one in answered} == {one.id for one in seen}
    assert status(parts.queue.get(unseen.id)) == status(parts.queue.get(other.id)) == "pending"
    body = {
        "category": "exec",
        "answer": "denied",
        "reason": "no",
        "shown": {unseen.id: unseen.fingerprint},
    }
    await cli.post("/api/requests/bulk", json=body)
    assert parts.queue.get(unseen.id).answer_reason == "no"
    assert status(parts.queue.get(other.id)) == "pending"


async def test_rules_are_listed_added_and_removed(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    waiting = ask(parts, "pytest -q")
    saved = (
        await cli.post(
            "/api/rules", json={"effect": "allow", "rule": "exec(pytest -q)", "why": "fast"}
        )
    ).json()
    assert [one["id"] for one in saved["also"]] == [waiting.id]
    listed = {one["rule"]: one for one in (await cli.get("/api/rules")).json()}
    mine = listed["exec(pytest -q)"]
    assert (mine["effect"], mine["why"], mine["can_remove"], mine["id"]) == (
        "allow",
        "fast",
        True,
        saved["id"],
    )
    assert listed["exec(git status)"]["can_remove"] is False
    assert (await cli.delete(f"/api/rules/{saved['id']}")).status_code == 200
    assert "exec(pytest -q)" not in {one["rule"] for one in (await cli.get("/api/rules")).json()}
    events = [one["event"] for one in (await cli.get("/api/audit")).json()]
    assert events.count("rule_added") == events.count("rule_removed") == 1


async def test_hits_of_rules_are_shown(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    ask(parts, "git status")
    ask(parts, "git status")
    parts.gate.pending_writes.write()
    listed = {one["rule"]: one for one in (await cli.get("/api/rules")).json()}
    assert listed["exec(git status)"]["hits"] == 2
    assert listed["exec(git status)"]["last_at"] == parts.clock.now()


async def test_sessions_are_started_shown_and_stopped(
    cli: httpx.AsyncClient, parts: FakeParts, tmp_path: Path
) -> None:
    started = await cli.post(
        "/api/sessions", json={"workspace": str(tmp_path), "command": ["sh", "-c", f"x{RLO}"]}
    )
    assert started.status_code == 201, started.text
    session = started.json()
    assert session["state"] == "running"
    assert session["command"][2] == "x\\u{202e}"
    assert not {"token", "token_hash", "policy_text"} & set(session)
    assert (await cli.get(f"/api/sessions/{session['id']}")).json() == session
    assert session["id"] in {one["id"] for one in (await cli.get("/api/sessions")).json()}
    await cli.post(f"/api/sessions/{session['id']}/stop")
    assert parts.sessions.stopped == [(session["id"], "stopped by the operator", "operator (cli)")]
    for bad in (
        {"workspace": "/nowhere/at/all"},
        {"workspace": str(tmp_path), "token_hash": "x"},
    ):
        answer = await cli.post("/api/sessions", json=bad)
        assert answer.status_code == 400
        assert answer.json()["error"] == "bad request"


async def test_output_comes_line_by_line_and_safe(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    parts.sessions.say("one", f"\x1b[31mred\x1b[0m {RLO}evil {SECRET[:7]}".encode())
    first = (await cli.get("/api/sessions/one/output")).json()
    assert (first["text"], first["next_offset"]) == ("", 0)
    parts.sessions.say("one", f"{SECRET[7:]}\r\nnext: \u00fc".encode()[:-1])
    second = (await cli.get("/api/sessions/one/output")).json()
    assert second["text"] == "red \\u{202e}evil [redacted]\n"
    parts.sessions.say("one", "\u00fc".encode()[1:])
    parts.sessions.change("one", ended_at=parts.clock.now())
    third = (
        await cli.get("/api/sessions/one/output", params={"offset": second["next_offset"]})
    ).json()
    assert (third["text"], third["is_final"]) == ("next: \u00fc", False)
    last = (
        await cli.get("/api/sessions/one/output", params={"offset": third["next_offset"]})
    ).json()
    assert (last["text"], last["is_final"]) == ("", True)


async def test_history_is_paged_newest_first(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    for number in range(5):
        ask(parts, f"make {number}\x1b[2J")
    newest = (await cli.get("/api/audit", params={"limit": 2})).json()
    assert [one["seq"] for one in newest] == [5, 4]
    assert "\x1b" not in newest[0]["action"]["command"]
    older = (await cli.get("/api/audit", params={"limit": 2, "before": newest[-1]["seq"]})).json()
    assert [one["seq"] for one in older] == [3, 2]
    for bad in ("limit=0", "limit=100000", "before=x"):
        assert (await cli.get(f"/api/audit?{bad}")).status_code == 400


async def test_stopping_everything_and_resuming(cli: httpx.AsyncClient, running: FakeParts) -> None:
    waiting = ask(running, "make late")
    stopped = (await cli.post("/api/stop-all", json={"reason": "lunch"})).json()
    assert stopped["kill_switch"] == "lunch (operator (cli))"
    assert status(ask(running, "git status")) == "denied"
    # What is approved meanwhile isn't carried out, and is once everything goes on.
    await cli.post(f"/api/requests/{waiting.id}/approve", json={"fingerprint": waiting.fingerprint})
    await asyncio.sleep(0)
    assert running.carried_out == []
    assert (await cli.post("/api/resume")).json()["kill_switch"] is None
    assert (await settled(running.queue, waiting.id, PATIENCE_S)).outcome == {
        "ok": True,
        "exit_code": 0,
        "stdout": "done",
    }
    events = [one["event"] for one in (await cli.get("/api/audit")).json()]
    assert {"all_stopped", "all_resumed"} <= set(events)


async def test_the_status_says_what_is_wrong(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    assert (await cli.get("/api/status")).json()["banner"] is None
    parts.settings.policy_file.write_text("version: 1\nallow: [{nonsense\n")
    assert "base.yaml" in (await cli.get("/api/status")).json()["banner"]


async def test_a_request_shows_its_card(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    action = FileChange(operation="delete", path="a", before=content_hash(b"old\n"))
    request = parts.gate.ask(action, session_id="one")
    card = (await cli.get(f"/api/requests/{request.id}")).json()["card"]
    assert (card["path"], card["operation"], card["before"]) == ("a", "delete", action.before)
    assert (await cli.get(f"/api/requests/{ask(parts).id}")).json()["card"] is None


async def test_text_of_the_agent_is_shown_safely(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    request = ask(parts, f"echo {RLO} \x1b[2J\x07 {SECRET}", reason=f"<script>{RLO}{SECRET}")
    text = (await cli.get(f"/api/requests/{request.id}")).text
    for raw in (RLO, "\x1b", "\\u001b", "\\u202e", SECRET):
        assert raw not in text
    assert "\\\\u{202e}" in text
    assert "[redacted]" in text


async def test_a_login_link_of_the_cli_signs_a_browser_in(
    cli: httpx.AsyncClient, app: Litestar, auth: OperatorAuth
) -> None:
    url = (await cli.post("/api/login-token")).json()["url"]
    async with client_of(app) as client:
        assert (await client.get(url)).status_code == 200
        assert (await client.get("/api/status")).status_code == 200
        await sign_in(client, auth)


@pytest.mark.parametrize(
    ("method", "path", "content", "wanted"),
    [
        ("POST", "/api/rules", b"{", 400),
        ("POST", "/api/rules", b"[]", 400),
        ("POST", "/api/rules", b'{"effect": "maybe", "rule": "exec(ls)"}', 400),
        ("POST", "/api/rules", b'{"effect": "allow"}', 400),
        ("POST", "/api/rules", b'{"effect": "allow", "rule": "x((("}', 400),
        ("POST", "/api/rules", b"\xff\xfe", 400),
        ("POST", "/api/rules", b"[" * 100_000, 400),
        ("POST", "/api/rules", b'{"effect": "allow", "rule": "' + b"a" * 2_000_000 + b'"}', 413),
        ("PUT", "/api/rules", b"{}", 405),
        ("GET", "/nothing", b"", 404),
        ("GET", "/api/requests?status=never", b"", 400),
        ("GET", "/api/requests/x", b"", 404),
    ],
)  # fmt: skip
async def test_every_error_has_the_one_shape(
    cli: httpx.AsyncClient, method: str, path: str, content: bytes, wanted: int
) -> None:
    answer = await cli.request(
        method, path, content=content, headers={"content-type": "application/json"}
    )
    assert answer.status_code == wanted, answer.text
    body = answer.json()
    assert sorted(body) == ["error", "remedy", "request_id", "rule", "why"]
    assert body["why"]
    assert body["remedy"]


async def test_a_mistake_of_ours_says_nothing_about_itself(
    cli: httpx.AsyncClient, parts: FakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> list[Any]:
        raise RuntimeError(f"secret {SECRET}")

    monkeypatch.setattr(parts.sessions, "recent", fail)
    answer = await cli.get("/api/sessions")
    assert (answer.status_code, answer.json()["error"]) == (500, "internal error")
    assert "secret" not in answer.text


async def test_the_openapi_document_names_every_route(
    cli: httpx.AsyncClient, app: Litestar
) -> None:
    document = json.loads((await cli.get("/api/openapi.json")).text)
    for route in app.routes:
        path = route.path_format
        if (
            path.startswith("/api/")
            and not path.startswith("/api/openapi.json")
            and hasattr(route, "methods")
        ):
            documented = {method.upper() for method in document["paths"][path]}
            assert set(route.methods) - {"OPTIONS"} <= documented, path


async def test_a_sessions_spending_is_shown(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    session = parts.sessions.add("three", budget="0.01usd")
    call = ModelCall(
        api="messages",
        model="claude-haiku-4-5",
        body_bytes=952,
        max_output_tokens=1000,
        writes_cache=False,
    )
    call = msgspec.structs.replace(call, writes_long_cache=False)
    parts.spending.reserve("three", "h", call)
    reserved = parts.spending.reserve(
        "three", "h", msgspec.structs.replace(call, body_bytes=0, max_output_tokens=1)
    )
    assert isinstance(reserved, Over)
    found = (await cli.get("/api/sessions/three")).json()["spend"]
    assert (found["cost"], found["cost_microusd"], found["limit"], found["calls"]) == (
        "$0.0080",
        8000,
        "$0.0100",
        1,
    )
    assert found["models"] == [
        {"model": "claude-haiku-4-5", "calls": 1, "cost": "$0.0080", "cost_microusd": 8000}
        | {
            "tokens": 4000,
            "input_tokens": 3000,
            "output_tokens": 1000,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
        }
    ]
    assert found["notices"] == [
        "$0.0080 of $0.0100 of the budget of this session are used or reserved"
    ]
    parts.spending.lose_all()
    shown = await session_view(parts, session.id)  # type: ignore[arg-type]
    assert shown.spend.notices == found["notices"]
    assert shown.spend.remarks == ["1 call whose end was lost, at what was reserved"]
    line = terminal.session_line((await cli.get("/api/sessions/three")).json())
    assert "$0.0080 of $0.0100 (!)" in line
