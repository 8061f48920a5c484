"""Who comes in. Every route of both doors is walked without credentials, and with every wrong
kind of them."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from litestar import Litestar
from litestar.handlers import WebsocketRouteHandler

from supervisor.server.agent import agent_api, agent_calls, mcp, mcp_server, mcp_tools
from supervisor.server.app import PUBLIC_PATHS, build_agent_app, build_operator_app
from supervisor.server.common.auth import COOKIE_S, LOGIN_TOKEN_S, MOST_BAD_TOKENS, OperatorAuth
from supervisor.server.common.request_guard import CSRF_HEADER
from tests.fakes.parts import FakeParts
from tests.server.conftest import ORIGIN, client_of, sign_in

EVERY_METHOD = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
OUTSIDE = (
    "/",
    "/api",
    "/nothing/here",
    "/api/../api/rules",
    "//api/rules",
    "/static",
    "/login/",
    "/health/x",
    "/metrics",
)


def routes(app: Litestar) -> Iterator[tuple[str, str]]:
    """Method and path of every HTTP route, with something in the place of parameters."""
    for route in app.routes:
        path = re.sub(r"\{\w+\}", "x", route.path_format.replace("{number}", "1"))
        for method in getattr(route, "methods", ()):
            yield method, path


def closed(app: Litestar) -> list[tuple[str, str]]:
    """Every route that needs a caller, and paths that no route has, with every method."""
    found = {
        (method, path)
        for method, path in routes(app)
        if not is_public(path) or method not in ("GET", "HEAD")
    }
    found |= {
        (method, path)
        for path in {path for _, path in routes(app)}
        for method in ("PUT", "PATCH", "POST")
    }
    found |= {(method, path) for path in OUTSIDE for method in EVERY_METHOD}
    return sorted(
        (method, path)
        for method, path in found
        if not (is_public(path) and method in ("GET", "HEAD", "OPTIONS"))
    )


def is_public(path: str) -> bool:
    return path in PUBLIC_PATHS or path.startswith("/static/")


async def test_every_operator_route_is_closed_without_credentials(
    app: Litestar, nobody: httpx.AsyncClient
) -> None:
    walked = closed(app)
    assert len(walked) > 100
    for method, path in walked:
        answer = await nobody.request(method, path, json={})
        assert answer.status_code == 401, (method, path, answer.text)


async def test_every_agent_route_is_closed_without_credentials(parts: FakeParts) -> None:
    app = build_agent_app(parts, "one")
    async with client_of(app) as client:
        for method, path in sorted(
            {*routes(app), *((m, p) for p in OUTSIDE for m in EVERY_METHOD)}
        ):
            answer = await client.request(method, path, json={})
            assert answer.status_code == 401, (method, path)


async def test_the_second_lock_holds_where_the_first_is_missing(
    parts: FakeParts, auth: OperatorAuth
) -> None:
    app = build_operator_app(parts, auth)
    app.asgi_handler = app._create_asgi_handler()  # the app without its door
    async with client_of(app) as client:
        for method, path in routes(app):
            answer = await client.request(method, path, json={})
            assert answer.status_code in (401, 403) or is_public(path), (method, path)


async def test_public_paths_have_no_data(nobody: httpx.AsyncClient) -> None:
    assert (await nobody.get("/health")).json() == {"ok": True}
    assert (await nobody.get("/login")).status_code == 403
    for path in (
        "/static/../../data/operator.token",
        "/static/%2e%2e/%2e%2e/pyproject.toml",
        "/static/nothing",
    ):
        assert (await nobody.get(path)).status_code in (401, 404)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1",
        "127.0.0.1:3701",
        "localhost",
        "evil.example.org:3700",
        "127.0.0.1:3700.evil.example.org",
        "LOCALHOST:3700",
    ],
)
async def test_a_wrong_host_is_refused_with_any_credentials(
    app: Litestar, auth: OperatorAuth, host: str
) -> None:
    async with client_of(app, authorization=f"Bearer {auth.cli_token}", host=host) as client:
        for path in ("/api/requests", "/health", "/login?token=x", "/static/x"):
            answer = await client.get(path)
            assert answer.status_code == 403
            assert answer.json()["error"] == "wrong host"


async def test_two_hosts_are_refused(app: Litestar, auth: OperatorAuth) -> None:
    async with client_of(app, authorization=f"Bearer {auth.cli_token}") as client:
        headers = [
            ("host", "127.0.0.1:3700"),
            ("host", "evil.example.org"),
            ("authorization", f"Bearer {auth.cli_token}"),
        ]
        request = httpx.Request("GET", f"{ORIGIN}/api/requests", headers=headers)
        assert (await client.send(request)).status_code == 403


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://evil.example.org",
        "http://127.0.0.1:8000",
        "http://localhost:3700",
        "https://127.0.0.1:3700",
        ORIGIN + "/",
        "",
    ],
)
async def test_a_foreign_origin_is_refused_with_any_credentials(
    browser: httpx.AsyncClient, cli: httpx.AsyncClient, origin: str
) -> None:
    for client in (browser, cli):
        for method, path in (
            ("GET", "/api/requests"),
            ("POST", "/api/stop-all"),
            ("POST", "/api/rules"),
            ("GET", "/login"),
        ):
            answer = await client.request(method, path, headers={"origin": origin})
            assert answer.status_code == 403, (method, path)
            assert answer.json()["error"] == "foreign origin"


async def test_a_cookie_changes_nothing_without_origin(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    del browser.headers["origin"]
    assert (await browser.post("/api/stop-all")).status_code == 403
    assert parts.kill_switch.reason() is None
    assert (await browser.get("/api/status")).status_code == 200


@pytest.mark.parametrize("token", [None, "", "wrong", "0" * 64, "ü"])
async def test_a_cookie_changes_nothing_without_its_csrf_token(
    browser: httpx.AsyncClient, parts: FakeParts, token: str | None
) -> None:
    del browser.headers[CSRF_HEADER]
    headers = {} if token is None else {CSRF_HEADER: token.encode("latin-1")}
    answer = await browser.post("/api/stop-all", headers=headers)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["error"]) == (403, "no csrf token")
    assert parts.kill_switch.reason() is None


async def test_a_csrf_token_belongs_to_one_cookie(
    app: Litestar, auth: OperatorAuth, browser: httpx.AsyncClient
) -> None:
    async with client_of(app) as other:
        await sign_in(other, auth)
        answer = await browser.post(
            "/api/stop-all", headers={CSRF_HEADER: other.headers[CSRF_HEADER]}
        )
        assert answer.status_code == 403


async def test_a_form_of_another_site_is_refused(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    del browser.headers[CSRF_HEADER]
    for origin in ("null", "http://evil.example.org", "http://127.0.0.1:9999"):
        headers = {
            "origin": origin,
            "content-type": "application/x-www-form-urlencoded",
            "sec-fetch-site": "cross-site",
        }
        assert (
            await browser.post("/api/stop-all", content="reason=x", headers=headers)
        ).status_code == 403
    assert parts.kill_switch.reason() is None


@pytest.mark.parametrize("site", ["cross-site", "same-site", "unheard-of"])
async def test_fetch_metadata_of_another_site_is_refused(
    browser: httpx.AsyncClient, site: str
) -> None:
    del browser.headers["origin"]
    embedded = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}
    framed = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
    followed = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert (await browser.get("/api/requests", headers=embedded)).status_code == 403
    assert (await browser.get("/api/requests", headers=framed)).status_code == 403
    assert (await browser.get("/api/requests", headers=followed)).status_code == 200
    assert (
        await browser.post("/api/stop-all", headers=followed | {"origin": ORIGIN})
    ).status_code == 403


async def test_a_login_token_works_once(app: Litestar, auth: OperatorAuth) -> None:
    token = auth.new_login_token()
    async with client_of(app) as first, client_of(app) as second:
        answer = await first.get("/login", params={"token": token})
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert "Max-Age=43200" in cookie
        assert (await first.get("/api/status")).status_code == 200
        stolen = await second.get("/login", params={"token": token})
        assert stolen.status_code == 403
        assert "set-cookie" not in stolen.headers
        assert (await second.get("/api/status")).status_code == 401
        # The one who is signed in may open the old link again.
        again = await first.get("/login", params={"token": token})
        assert again.status_code == 200


async def test_login_tokens_and_cookies_expire(
    app: Litestar, auth: OperatorAuth, parts: FakeParts
) -> None:
    token = auth.new_login_token()
    parts.clock.advance(LOGIN_TOKEN_S)
    async with client_of(app) as client:
        assert (await client.get("/login", params={"token": token})).status_code == 403
        await sign_in(client, auth)
        parts.clock.advance(COOKIE_S - 1)
        assert (await client.get("/api/status")).status_code == 200
        parts.clock.advance(1)
        assert (await client.get("/api/status")).status_code == 401


async def test_signing_out_ends_the_cookie(browser: httpx.AsyncClient) -> None:
    assert (await browser.post("/api/logout")).status_code == 200
    assert (await browser.get("/api/status")).status_code == 401


async def test_a_restart_signs_browsers_out(browser: httpx.AsyncClient, parts: FakeParts) -> None:
    async with client_of(build_operator_app(parts, parts.new_auth())) as client:
        client.cookies = browser.cookies
        assert (await client.get("/api/status")).status_code == 401


async def test_wrong_tokens_are_throttled_and_right_ones_pass(
    app: Litestar, auth: OperatorAuth, parts: FakeParts
) -> None:
    async with client_of(app) as client:
        answers = [
            (await client.get("/api/status", headers={"authorization": f"Bearer {n}"})).status_code
            for n in range(MOST_BAD_TOKENS + 5)
        ]
        assert answers == [401] * MOST_BAD_TOKENS + [429] * 5
        right = {"authorization": f"Bearer {auth.cli_token}"}
        assert (await client.get("/api/status", headers=right)).status_code == 200
        parts.clock.advance(61)
        assert (
            await client.get("/api/status", headers={"authorization": "Bearer x"})
        ).status_code == 401


@pytest.mark.parametrize(
    "header",
    ["{token}", "Basic {token}", "Bearer", "Bearer ", "Bearer {token}x", "Bearer  x {token}"],
)
async def test_malformed_bearer_headers_are_refused(
    nobody: httpx.AsyncClient, auth: OperatorAuth, header: str
) -> None:
    answer = await nobody.get(
        "/api/status", headers={"authorization": header.format(token=auth.cli_token)}
    )
    assert answer.status_code == 401


async def test_a_wrong_bearer_never_falls_back_to_the_cookie(browser: httpx.AsyncClient) -> None:
    assert (
        await browser.get("/api/status", headers={"authorization": "Bearer wrong"})
    ).status_code == 401


async def test_a_planted_cookie_of_the_same_name_does_no_harm(
    browser: httpx.AsyncClient, auth: OperatorAuth
) -> None:
    mine = browser.cookies[auth.cookie_name]
    browser.cookies.clear()
    headers = {"cookie": f"{auth.cookie_name}=planted; {auth.cookie_name}={mine}; other=1"}
    assert (await browser.get("/api/status", headers=headers)).status_code == 200


async def test_an_agents_token_opens_no_operator_route(app: Litestar, parts: FakeParts) -> None:
    for headers in (
        {"authorization": "Bearer token-of-one"},
        {"cookie": "gatehouse_3700=token-of-one"},
    ):
        async with client_of(app, **headers) as client:
            for method, path in closed(app):
                assert (await client.request(method, path, json={})).status_code in (401, 429)


async def test_operators_credentials_open_no_agent_route(
    parts: FakeParts, auth: OperatorAuth, browser: httpx.AsyncClient
) -> None:
    app = build_agent_app(parts, "one")
    async with client_of(app) as client:
        client.cookies = browser.cookies
        for headers in ({"authorization": f"Bearer {auth.cli_token}"}, {}):
            for method, path in routes(app):
                assert (
                    await client.request(method, path, json={}, headers=headers)
                ).status_code in (401, 429)


async def test_a_token_opens_only_its_own_sessions_door(parts: FakeParts) -> None:
    app = build_agent_app(parts, "one")
    for token in ("token-of-two", "token-of-on", "one", ""):
        async with client_of(app, authorization=f"Bearer {token}") as client:
            assert (await client.get("/v1/session")).status_code == 401


async def test_a_token_ends_with_its_session(parts: FakeParts, agent: httpx.AsyncClient) -> None:
    assert (await agent.get("/v1/session")).status_code == 200
    parts.sessions.change("one", ended_at=parts.clock.now())
    assert (await agent.get("/v1/session")).status_code == 401


async def test_the_door_of_an_unknown_session_stays_shut(parts: FakeParts) -> None:
    async with client_of(
        build_agent_app(parts, "never-was"), authorization="Bearer token-of-one"
    ) as client:
        assert (await client.get("/v1/session")).status_code == 401


async def test_every_answer_carries_the_security_headers(
    nobody: httpx.AsyncClient, browser: httpx.AsyncClient
) -> None:
    answers = [
        await nobody.get("/health"),
        await nobody.get("/api/status"),
        await nobody.get("/health", headers={"host": "evil"}),
        await browser.get("/api/status"),
        await browser.get("/nothing"),
        await browser.post("/api/requests/bulk", content=b"{"),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


async def test_a_browser_without_credentials_gets_a_page_where_there_is_one(
    parts: FakeParts, auth: OperatorAuth
) -> None:
    app = build_operator_app(
        parts, auth, error_page=lambda status, body: f"<h1>{status} {body.error}</h1>"
    )
    async with client_of(app, accept="text/html") as client:
        answer = await client.get("/")
        assert (answer.status_code, answer.text) == (401, "<h1>401 not signed in</h1>")
        assert answer.headers["content-type"].startswith("text/html")
        used = await client.get("/login", params={"token": "used"})
        assert (used.status_code, used.text) == (403, "<h1>403 refused</h1>")
        await sign_in(client, auth)
        assert (await client.get("/no/such/page")).text == "<h1>404 not found</h1>"
        assert (await client.get("/api/requests/x")).json()["error"] == "not found"
    async with client_of(app) as client:
        assert json.loads((await client.get("/")).text)["error"] == "not signed in"


def test_every_websocket_route_is_known() -> None:
    """A new one must be walked like `/ws` in test_live, and the terminal's in test_terminals."""
    found = set()
    for file in Path("supervisor/server").rglob("*.py"):
        found |= {
            line.strip()
            for line in file.read_text().splitlines()
            if line.strip().startswith("@websocket")
        }
    terminal = '@websocket("/ws/sessions/{session_id:str}/terminal", name="terminal")'
    assert found == {'@websocket("/ws", name="live")', terminal}


@pytest.mark.parametrize("module", [agent_api, agent_calls, mcp, mcp_server, mcp_tools])
def test_the_agents_door_has_no_websocket_and_no_way_to_an_answer(
    parts: FakeParts, module: ModuleType
) -> None:
    app = build_agent_app(parts, "one")
    assert not [
        h
        for route in app.routes
        for h in getattr(route, "route_handlers", [])
        if isinstance(h, WebsocketRouteHandler)
    ]
    tree = ast.parse(Path(module.__file__ or "").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & {
        "supervisor.server.operator.decisions",
        "supervisor.server.operator.operator_api",
        "supervisor.server.operator.live",
    }
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not called & {
        "resolve",
        "rejudge_pending",
        "claim",
        "settle",
        "close",
        "add_rule",
        "remove_rule",
        "stop",
        "resume",
    }
