"""What was refused on the way to an answer is on record, and a flood of it is a few lines."""

from typing import Any

import httpx
import pytest
from litestar import Litestar

from supervisor.core.actions import Exec
from supervisor.records.audit_chain import newest_first
from supervisor.server.common.auth import MOST_BAD_TOKENS, OperatorAuth
from supervisor.server.common.request_guard import CSRF_HEADER, MOST_CHARS, WINDOW_S
from tests.fakes.parts import FakeParts
from tests.server.conftest import ORIGIN, client_of


def refused(parts: FakeParts) -> list[dict[str, Any]]:
    """What is on record of it, oldest first."""
    found = newest_first(parts.settings.audit_log, 1000)[::-1]
    names = ("refused", "method", "path", "count", "request", "by")
    return [
        {name: one[name] for name in names if name in one}
        for one in found
        if one["event"] == "operator_refused"
    ]


WRONG = {
    "wrong token": {"authorization": "Bearer wrong"},
    "not signed in": {},
    "wrong host": {"host": "evil.example"},
    "foreign origin": {"origin": "http://evil.example"},
}


@pytest.mark.parametrize("kind", WRONG)
async def test_a_refused_answer_is_on_record(
    parts: FakeParts, nobody: httpx.AsyncClient, kind: str
) -> None:
    asked = parts.gate.ask(Exec(command="make it"), session_id="one")
    path = f"/api/requests/{asked.id}/approve"
    await nobody.post(path, json={}, headers=WRONG[kind])
    assert refused(parts) == [{"refused": kind, "method": "POST", "path": path, "count": 1}]


async def test_so_is_a_page_without_its_token_or_with_an_old_cookie(
    parts: FakeParts, browser: httpx.AsyncClient, auth: OperatorAuth
) -> None:
    headers = {"origin": ORIGIN, CSRF_HEADER: "wrong"}
    assert (await browser.post("/requests/x/approved", headers=headers)).status_code == 403
    async with client_of(browser._transport.app, cookie=f"{auth.cookie_name}=old") as old:  # type: ignore[attr-defined]
        assert (await old.post("/api/stop-all", headers={"origin": ORIGIN})).status_code == 401
    assert [one["refused"] for one in refused(parts)] == ["no csrf token", "wrong token"]


async def test_so_is_an_answer_to_another_request_than_was_shown(
    parts: FakeParts, cli: httpx.AsyncClient
) -> None:
    asked = parts.gate.ask(Exec(command="make it"), session_id="one")
    answer = await cli.post(f"/api/requests/{asked.id}/approve", json={"fingerprint": "0" * 64})
    assert answer.status_code == 409
    path = f"/api/requests/{asked.id}/approve"
    said = {
        "refused": "stale answer",
        "method": "POST",
        "path": path,
        "count": 1,
        "by": "operator (cli)",
    }
    assert refused(parts) == [said]


async def test_so_is_a_sign_in_link_that_is_none(
    parts: FakeParts, nobody: httpx.AsyncClient
) -> None:
    await nobody.get("/login?token=wrong-token-1234567890")
    assert refused(parts) == [
        {"refused": "wrong sign-in link", "method": "GET", "path": "/login", "count": 1}
    ]
    assert b"wrong-token" not in parts.settings.audit_log.read_bytes()


async def test_what_only_reads_is_not(parts: FakeParts, nobody: httpx.AsyncClient) -> None:
    await nobody.get("/api/requests", headers={"authorization": "Bearer wrong"})
    assert refused(parts) == []


async def test_a_flood_is_counted_and_a_few_lines(
    parts: FakeParts, nobody: httpx.AsyncClient, app: Litestar
) -> None:
    attempts = app.state["refused_attempts"]
    for number in range(500):
        await nobody.post(
            f"/api/{'x' * 5000}{number}", headers={"authorization": f"Bearer {number}"}
        )
    assert len(refused(parts)) == 2  # the first of each kind
    attempts.tell()
    assert len(refused(parts)) == 2
    parts.clock.advance(WINDOW_S)
    attempts.tell()
    found = refused(parts)
    assert {one["refused"]: one["count"] for one in found[2:]} == {
        "wrong token": MOST_BAD_TOKENS - 1,
        "too many wrong tokens": 500 - MOST_BAD_TOKENS - 1,
    }
    assert sum(one["count"] for one in found) == 500
    assert all(len(one["path"]) == MOST_CHARS for one in found)
