"""Live state over real WebSockets: who may listen, what arrives, and that one who doesn't read
slows nobody down."""

import asyncio
import json
import socket
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from supervisor.core.actions import Exec
from supervisor.records.approval_queue import MOST_PENDING_PER_SESSION
from supervisor.server.common.auth import COOKIE_S, OperatorAuth
from supervisor.server.operator import live as live_module
from supervisor.server.operator.live import Live
from tests.fakes.parts import FakeParts
from tests.server.conftest import PATIENCE_S, OnSocket

RLO = "\u202e"
# As a page sends it: the last frame, masked, without a reason.
CLOSE_FRAME = b"\x88\x80\0\0\0\0"


def cookie_of(auth: OperatorAuth) -> str:
    cookie = auth.sign_in(auth.new_login_token())
    assert cookie is not None
    return f"{auth.cookie_name}={cookie}"


def listen_to(door: OnSocket, **headers: str) -> connect:
    """A page's connection, with its cookie and origin unless told otherwise; an empty header is
    left out."""
    given = {"Origin": door.url, "Cookie": cookie_of(door.auth)} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return connect(
        door.url.replace("http", "ws") + "/ws",
        additional_headers={name: value for name, value in given.items() if value},
        compression=None,
        proxy=None,
    )


async def event(socket: ClientConnection) -> Any:
    return json.loads(await asyncio.wait_for(socket.recv(), PATIENCE_S))


async def event_of(socket: ClientConnection, kind: str) -> Any:
    while True:
        found = await event(socket)
        if found["type"] == kind:
            return found


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"Cookie": ""}, 401),
        ({"Cookie": "", "Authorization": "Bearer wrong"}, 401),
        ({"Cookie": "gatehouse_1=x"}, 401),
        ({"Origin": ""}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example.org"}, 403),
        ({"Origin": "http://127.0.0.1:8000"}, 403),
        ({"Host": "evil.example.org"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
    ],
)
async def test_who_may_not_listen(
    operator_door: OnSocket, headers: dict[str, str], wanted: int, caplog: pytest.LogCaptureFixture
) -> None:
    if "Host" in headers:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            upgrade = {
                "connection": "upgrade",
                "upgrade": "websocket",
                "sec-websocket-version": "13",
            }
            key = {
                "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
                "cookie": cookie_of(operator_door.auth),
            }
            given = upgrade | key | headers | {"origin": f"http://{headers['Host']}"}
            answer = await client.get(f"{operator_door.url}/ws", headers=given)
            assert answer.status_code == wanted
        return
    with pytest.raises(InvalidStatus) as refused:
        async with listen_to(operator_door, **headers):
            pass
    assert refused.value.response.status_code == wanted
    assert sorted(json.loads(refused.value.response.body or b"{}")) == [
        "error",
        "remedy",
        "request_id",
        "rule",
        "why",
    ]
    assert caplog.messages == [], (
        "a page that is signed out tries again and again, and none of it is on the terminal"
    )


async def test_the_cli_may_listen_without_an_origin(operator_door: OnSocket) -> None:
    headers = {
        "Cookie": "",
        "Origin": "",
        "Authorization": f"Bearer {operator_door.auth.cli_token}",
    }
    async with listen_to(operator_door, **headers) as page:
        assert (await event(page))["type"] == "hello"
    with pytest.raises(InvalidStatus):
        async with listen_to(operator_door, **headers | {"Origin": "http://evil.example.org"}):
            pass


async def test_other_paths_take_no_websocket(operator_door: OnSocket) -> None:
    for path in ("/", "/api/requests", "/login", "/static/x"):
        with pytest.raises(InvalidStatus):
            async with connect(
                operator_door.url.replace("http", "ws") + path,
                additional_headers={"Origin": operator_door.url},
                proxy=None,
            ):
                pass


async def test_hello_tells_the_present_state(operator_door: OnSocket, running: FakeParts) -> None:
    request = running.gate.ask(Exec(command="make"), session_id="one")
    async with listen_to(operator_door) as page:
        hello = await event(page)
    assert hello["type"] == "hello"
    assert hello["pending_ids"] == [request.id]
    assert hello["requests"] == [
        {"id": request.id, "session_id": "one", "origin": request.origin, "category": "exec",
         "status": "pending", "title": "make"}
    ]  # fmt: skip


async def test_a_request_arrives_and_its_answer_too(
    operator_door: OnSocket, running: FakeParts
) -> None:
    async with listen_to(operator_door) as page, listen_to(operator_door) as other:
        await event(page)
        await event(other)
        request = running.gate.ask(Exec(command=f"make {RLO}"), session_id="one", reason="<script>")
        for each in (page, other):
            told = await event_of(each, "request")
            assert (told["request"]["id"], told["request"]["status"]) == (request.id, "pending")
            assert told["request"]["title"] == "make \\u{202e}"
        running.gate.resolve(request.id, "denied", by="operator (cli)")
        for each in (page, other):
            assert (await event_of(each, "request"))["request"]["status"] == "denied"


async def test_sessions_output_rules_and_banner_are_told(
    operator_door: OnSocket, running: FakeParts
) -> None:
    bearer = {"authorization": f"Bearer {operator_door.auth.cli_token}"}
    async with (
        listen_to(operator_door) as page,
        httpx.AsyncClient(headers=bearer, timeout=PATIENCE_S) as cli,
    ):
        await event(page)
        running.sessions.add("three")
        told = await event_of(page, "session")
        assert told["session"] == {"id": "three", "state": "running"}
        running.sessions.say("three", b"hi\n")
        assert (await event_of(page, "output"))["session_id"] == "three"
        await cli.post(
            f"{operator_door.url}/api/rules", json={"effect": "deny", "rule": "exec(shutdown)"}
        )
        await event_of(page, "rules")
        await cli.post(f"{operator_door.url}/api/stop-all", json={"reason": "lunch"})
        await event_of(page, "banner")
        told = (await cli.get(f"{operator_door.url}/api/status")).json()
        assert "lunch" in told["kill_switch"]


async def test_output_is_told_once_while_it_waits(
    operator_door: OnSocket, running: FakeParts
) -> None:
    async with listen_to(operator_door) as page:
        await event(page)
        for _ in range(1000):
            running.sessions.say("one", b"line\n")
        running.sessions.add("last")
        kinds = []
        while (found := await event(page))["type"] != "session":
            kinds.append(found["type"])
    assert kinds == ["output"]


@pytest.mark.many
async def test_a_page_that_does_not_read_is_dropped_and_slows_nobody(
    operator_door: OnSocket, running: FakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "MOST_WAITING", PATIENCE_S)
    live: Live = operator_door.app.state["live"]
    stalled = await _stalled(operator_door)
    async with listen_to(operator_door) as page:
        await event(page)
        assert len(live._clients) == 2
        # Until both kernels' buffers, the transport's and the queue are full; the page that reads
        # gets each event meanwhile.
        for number in range(MOST_PENDING_PER_SESSION):
            running.gate.ask(Exec(command=f"{number} {'x' * 60_000}"), session_id="one")
            assert (await event_of(page, "request"))["request"]["title"].startswith(f"{number} ")
            if len(live._clients) == 1:
                break
        assert len(live._clients) == 1
        running.sessions.add("later")
        assert (await event_of(page, "session"))["session"]["id"] == "later"
    stalled.close()


async def _stalled(door: OnSocket) -> socket.socket:
    """A page that shakes hands and never reads again."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await loop.sock_connect(sock, ("127.0.0.1", door.serving.port))
    head = (
        f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{door.serving.port}\r\nOrigin: {door.url}\r\nCookie:"
        f" {cookie_of(door.auth)}\r\nConnection: Upgrade\r\nUpgrade:"
        " websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key:"
        " AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    await loop.sock_sendall(sock, head.encode())
    assert (await loop.sock_recv(sock, 12)).startswith(b"HTTP/1.1 101")
    return sock


async def test_an_expired_cookie_ends_the_connection(
    operator_door: OnSocket, running: FakeParts
) -> None:
    async with listen_to(operator_door) as page:
        await event(page)
        running.clock.advance(COOKIE_S)
        running.gate.ask(Exec(command="make"), session_id="one")
        with pytest.raises(ConnectionClosed) as closed:
            await event(page)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == live_module.CLOSE_SIGNED_OUT


async def test_what_a_page_sends_is_thrown_away(
    operator_door: OnSocket, running: FakeParts
) -> None:
    async with listen_to(operator_door) as page:
        await event(page)
        await page.send('{"type": "approve"}')
        await page.send(b"\x00\xff")
        request = running.gate.ask(Exec(command="make"), session_id="one")
        assert (await event_of(page, "request"))["request"]["id"] == request.id
        await page.send("x" * 100_000)
        with pytest.raises(ConnectionClosed):
            await event_of(page, "never")


async def test_pages_hear_of_the_shutdown(operator_door: OnSocket) -> None:
    async with listen_to(operator_door) as page:
        await event(page)
        await operator_door.serving.stop("MAX_UPTIME was reached")
        assert await event(page) == {"type": "shutdown", "why": "MAX_UPTIME was reached"}
        with pytest.raises(ConnectionClosed) as closed:
            await event(page)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == live_module.CLOSE_SERVICE_RESTART


async def test_a_page_that_leaves_at_the_shutdown_breaks_it_off_for_nobody(
    operator_door: OnSocket,
) -> None:
    server = operator_door.serving._server
    async with listen_to(operator_door) as leaving, listen_to(operator_door) as page:
        await event(leaving)
        await event(page)
        for connection in server.server_state.connections:
            if connection.transport.get_extra_info("peername")[1] == leaving.local_address[1]:
                connection.conn.receive_data(CLOSE_FRAME)  # type: ignore[union-attr]
        await operator_door.serving.stop("it ends")
        assert await event(page) == {"type": "shutdown", "why": "it ends"}
        with pytest.raises(ConnectionClosed):
            await event(page)


async def test_too_many_pages_are_refused(
    operator_door: OnSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "MOST_CLIENTS", 1)
    async with listen_to(operator_door) as first, listen_to(operator_door) as second:
        await event(first)
        with pytest.raises(ConnectionClosed) as closed:
            await event(second)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == live_module.CLOSE_TRY_AGAIN_LATER


async def test_pages_that_leave_are_forgotten(operator_door: OnSocket) -> None:
    live: Live = operator_door.app.state["live"]
    for _ in range(3):
        async with listen_to(operator_door) as page:
            await event(page)
    while live._clients:
        await asyncio.sleep(0)
