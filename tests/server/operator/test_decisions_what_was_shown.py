"""Every way to answer names what was shown, on a real socket: without it, or with another one,
it is a conflict and nothing happens."""

from typing import Any

import httpx
import pytest

from supervisor.core.actions import Action, Exec, FileChange
from supervisor.core.approvals import Request, status
from supervisor.server.app import build_operator_app
from supervisor.server.common.listening import listen
from supervisor.server.common.serve import serve_operator
from tests.fakes.parts import FakeParts
from tests.server.conftest import on_socket, sign_in

OTHER = "0" * 64


class Door:
    """Session `one` with a command that waits, and the operator's door."""

    def __init__(self, parts: FakeParts, cli: httpx.AsyncClient, page: httpx.AsyncClient) -> None:
        self.parts, self.cli, self.page = parts, cli, page
        self.request = self.ask(Exec(command="make all"))

    def ask(self, action: Action) -> Request:
        return self.parts.gate.ask(action, session_id="one")

    def waits(self) -> bool:
        return status(self.parts.queue.get(self.request.id)) == "pending"

    async def rules(self) -> set[str]:
        return {one["rule"] for one in (await self.cli.get("/api/rules")).json()}


@pytest.fixture
async def door(running: FakeParts) -> Any:
    sock = listen(0)
    auth = running.new_auth(sock.getsockname()[1])
    app = build_operator_app(running, auth)
    async with on_socket(serve_operator(app, sock)) as serving:
        url = f"http://127.0.0.1:{serving.port}"
        bearer = {"authorization": f"Bearer {auth.cli_token}"}
        async with (
            httpx.AsyncClient(base_url=url, headers=bearer) as cli,
            httpx.AsyncClient(base_url=url) as page,
        ):
            await sign_in(page, auth)
            yield Door(running, cli, page)


API: list[tuple[str, dict[str, Any], str]] = [
    ("/api/requests/{id}/approve", {}, "fingerprint"),
    ("/api/requests/{id}/approve", {"always": "exec(make all)"}, "fingerprint"),
    ("/api/requests/{id}/deny", {}, "fingerprint"),
    ("/api/requests/{id}/deny", {"always": "exec(make all)", "lasts": "15m"}, "fingerprint"),
    ("/api/requests/bulk", {"category": "exec", "answer": "approved"}, "shown"),
    ("/api/requests/bulk", {"category": "exec", "answer": "denied"}, "shown"),
    ("/api/requests/bulk", {"category": "exec", "answer": "approved", "ids": ["{id}"]}, "shown"),
]


@pytest.mark.parametrize(("path", "body", "field"), API)
@pytest.mark.parametrize("wrong", ["none", "empty", "another"])
async def test_the_api_answers_nothing_that_was_not_shown(
    door: Door, path: str, body: dict[str, Any], field: str, wrong: str
) -> None:
    sent = body | {"ids": [door.request.id]} if "ids" in body else dict(body)
    if wrong != "none":
        mark = "" if wrong == "empty" else OTHER
        sent[field] = {door.request.id: mark} if field == "shown" else mark
    answer = await door.cli.post(path.replace("{id}", door.request.id), json=sent)
    assert answer.status_code == 409, answer.text
    said = answer.json()
    if wrong == "another":
        assert "not " in said["why"]
        assert "shown" in said["why"]
    else:
        assert "doesn't say what was shown" in said["why"]
        assert "GET /api/requests" in said["remedy"]
    assert door.waits()
    assert "exec(make all)" not in await door.rules()


FORMS: list[tuple[str, dict[str, str], str]] = [
    ("/requests/{id}/approved", {}, "fingerprint"),
    ("/requests/{id}/denied", {"reason": "no"}, "fingerprint"),
    ("/requests/{id}/always/allow", {"rule": "exec(make all)"}, "fingerprint"),
    ("/requests/{id}/always/deny", {"rule": "exec(make all)"}, "fingerprint"),
    ("/batch/approved", {}, "shown"),
    ("/batch/denied", {}, "shown"),
    ("/changes/one/approved", {"one": "{id}"}, "fingerprint"),
]


@pytest.mark.parametrize(("path", "form", "field"), FORMS)
@pytest.mark.parametrize("wrong", ["none", "another"])
async def test_a_form_of_the_page_answers_nothing_that_was_not_shown(
    door: Door, path: str, form: dict[str, str], field: str, wrong: str
) -> None:
    sent = {name: value.replace("{id}", door.request.id) for name, value in form.items()}
    if wrong == "another":
        sent[field] = f"{door.request.id}:{OTHER}" if field == "shown" else OTHER
    elif field == "shown":
        sent["ids"] = door.request.id
    answer = await door.page.post(path.replace("{id}", door.request.id), data=sent)
    assert answer.status_code == 409, answer.text
    assert door.waits()
    assert "exec(make all)" not in await door.rules()


async def test_of_several_none_is_answered_where_one_is_another_by_now(door: Door) -> None:
    older = door.ask(FileChange(operation="write", path="a", after="1"))
    other = door.ask(FileChange(operation="write", path="b", after="1"))
    shown = {one.id: one.fingerprint for one in (older, other)}
    newer = door.ask(FileChange(operation="write", path="a", after="2"))
    body: dict[str, Any] = {"category": "filesystem", "answer": "approved", "shown": shown}
    for sent in (body, body | {"shown": shown | {newer.id: newer.fingerprint}}):
        answer = await door.cli.post("/api/requests/bulk", json=sent)
        assert (answer.status_code, "not what was shown" in answer.json()["why"]) == (409, True)
    wrong_kind = body | {"shown": {door.request.id: door.request.fingerprint}}
    assert (await door.cli.post("/api/requests/bulk", json=wrong_kind)).status_code == 409
    assert [status(door.parts.queue.get(one.id)) for one in (older, newer, other)] == [
        "superseded",
        "pending",
        "pending",
    ]
    shown = {one.id: one.fingerprint for one in (newer, other)}
    answer = await door.cli.post("/api/requests/bulk", json=body | {"shown": shown})
    assert [one["status"] for one in answer.json()] == ["approved", "approved"]


async def test_an_answer_to_a_version_that_was_superseded_is_a_conflict(door: Door) -> None:
    older = door.ask(FileChange(operation="write", path="a", after="1"))
    newer = door.ask(FileChange(operation="write", path="a", after="2"))
    answer = await door.cli.post(
        f"/api/requests/{older.id}/approve", json={"fingerprint": older.fingerprint}
    )
    assert (answer.status_code, answer.json()["why"]) == (
        409,
        "this request was already superseded",
    )
    assert status(door.parts.queue.get(newer.id)) == "pending"


async def test_a_set_and_an_undo_name_what_was_shown_too(door: Door) -> None:
    door.ask(FileChange(operation="write", path="a", after="1"))
    answer = await door.cli.post("/api/sessions/one/changes", json={"answer": "approved"})
    assert (answer.status_code, "GET /api/sessions/ID/changes" in answer.json()["remedy"]) == (
        409,
        True,
    )
    other = {"until": 1e12, "plain": OTHER, "careful": OTHER}
    answer = await door.cli.post(
        "/api/sessions/one/changes", json={"answer": "denied", "shown": other}
    )
    assert answer.status_code == 409
    assert (await door.page.post("/changes/one/approved", data={"below": ""})).status_code == 409
    answer = await door.cli.post("/api/undo", json={"session": "one"})
    assert (answer.status_code, "/api/undo/preview" in answer.json()["remedy"]) == (409, True)
    assert not [one for one in door.parts.queue.of_session("one") if one.answer is not None]


async def test_every_route_that_answers_is_in_this_test(door: Door) -> None:
    """A new one must be tried here, or in the tests of conflicts, hunks and undo, which need a
    real workspace."""
    app = build_operator_app(door.parts, door.parts.new_auth())
    posts = {
        path
        for route in app.routes
        for path in [route.path_format]
        if "POST" in getattr(route, "methods", ()) and not path.startswith("/mcp")
    }
    answers = {
        one
        for one in posts
        if any(word in one for word in ("request", "change", "bulk", "batch", "undo"))
    }
    elsewhere = {
        "/api/requests/{request_id}/approve-part", "/requests/{request_id}/hunks",
        "/api/requests/{request_id}/merge", "/api/requests/{request_id}/give-host",
        "/requests/{request_id}/conflict/{how}",
        "/requests/{request_id}/act", "/requests/{request_id}/open-pull",
        "/sessions/{session_id}/undo", "/api/undo/preview",
        # takes back, exactly or not at all, what was just applied: nothing that waits
        "/undo",
        # takes back what stands on a forge: nothing that waits
        "/api/reviews/undo",
        # say nothing of what waits
        "/parts/batch",
        "/api/requests/{request_id}/lift", "/requests/{request_id}/lift",
    }  # fmt: skip
    here = {path.replace("{id}", "{request_id}") for path, _, _ in [*API, *FORMS]} | {
        "/api/sessions/{session_id}/changes",
        "/api/undo",
    }
    concrete = {
        "/requests/{request_id}/{answer}": "/requests/{request_id}/approved",
        "/requests/{request_id}/always/{effect}": "/requests/{request_id}/always/allow",
        "/batch/{answer}": "/batch/approved",
        "/changes/{session_id}/{answer}": "/changes/one/approved",
    }
    assert {concrete.get(one, one) for one in answers - elsewhere} <= here
