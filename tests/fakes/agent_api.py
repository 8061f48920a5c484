"""A small stand-in for the agent API: a real HTTP server on loopback, with a person who answers by
a table.

It keeps what was asked (`asks`), answers each by `answers` (route -> status), and can be stopped
and started again on the same port with everything it knew, as a restarted supervisor is.
"""

import json
import os
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.quiet_http import QuietServer

type Json = dict[str, Any]
# Of this machine, and of this process alone: nobody else is given the port meanwhile that it comes
# back to.
ADDRESS = f"127.72.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 255}"
ASK_ROUTES = (
    "/v1/exec",
    "/v1/files/write",
    "/v1/files/edit",
    "/v1/packages",
    "/v1/git",
    "/v1/policy-proposals",
)


@dataclass
class AgentApi:
    """`answers` maps a route to the status that its requests get; what isn't named stays pending
    until `resolve`."""

    token: str = "session-token"
    answers: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, Json] = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)
    asks: list[tuple[str, Json]] = field(default_factory=list)
    requests: dict[str, Json] = field(default_factory=dict)
    reviews: list[Json] = field(default_factory=list)
    calls: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    on_ask: Callable[[str, Json], None] | None = None
    # How often the session's budget allows another turn.
    turns_with_money: int = 1000
    port: int = 0

    def __post_init__(self) -> None:
        self.changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}"

    def __enter__(self) -> "AgentApi":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._http = _Server((ADDRESS, self.port), _Handler)
        self._http.api = self
        self.port = int(self._http.server_address[1])
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop as a killed server does: long polls are cut, not answered."""
        with self.changed:
            self._http.stopping = True
            self.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(timeout=60)

    def resolve(self, request_id: str, status: str, **facts: Any) -> None:
        """Answer a request, as the operator would."""
        with self.changed:
            self.requests[request_id].update(status=status, **facts)
            self.changed.notify_all()

    def wait_for_asks(self, count: int, timeout_s: float = 60.0) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.asks) >= count, timeout_s), self.asks

    def take(self, route: str, body: Json) -> Json:
        with self.changed:
            request_id = f"request-{len(self.asks) + 1}"
            status = self.answers.get(route, "pending")
            outcome = (
                self.outcomes.get(route, {"ok": True})
                if status in ("allowed", "approved", "used")
                else None
            )
            why = f"{status} in this test"
            made = {
                "id": request_id,
                "status": status,
                "why": why,
                "rule": None,
                "remedy": "",
                "outcome": outcome,
            }
            self.requests[request_id] = made | {"settled": outcome is not None}
            self.asks.append((route, body))
            self.changed.notify_all()
        if self.on_ask:
            self.on_ask(route, self.requests[request_id])
        return self.requests[request_id]


class _Server(QuietServer):
    allow_reuse_address = True
    stopping = False
    api: AgentApi

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # its own class's asks for the name of the address


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Quiet."""

    def do_GET(self) -> None:
        if not self._admitted():
            return None
        url = urlsplit(self.path)
        if url.path == "/v1/session":
            return self._json(200, {"id": "session-1"})
        if url.path == "/v1/budget":
            conclude = self.server.api.turns_with_money <= 0
            self.server.api.turns_with_money -= 1
            return self._json(200, {"used_percent": 90 if conclude else 10, "conclude": conclude})
        request = self.server.api.requests.get(url.path.removeprefix("/v1/requests/"))
        if request is None:
            return self._json(404, {"error": "no such request", "remedy": "check the id"})
        wait_s = float(parse_qs(url.query).get("wait", ["0"])[0])
        with self.server.api.changed:
            done = lambda: request["status"] != "pending" or self.server.stopping  # noqa: E731
            self.server.api.changed.wait_for(done, min(wait_s, 30.0))
        return None if self.server.stopping else self._json(200, request)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
        if not self._admitted():
            return None
        if self.path == "/v1/review":
            self.server.api.reviews.append(body)
            return self._json(200, {"ok": True})
        if self.path not in ASK_ROUTES:
            return self._json(404, {"error": "no such route"})
        request = self.server.api.take(self.path, body)
        return self._json(202 if request["status"] == "pending" else 200, request)

    def _admitted(self) -> bool:
        api = self.server.api
        api.calls.append(
            (self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
        )
        if api.failures:
            self._json(
                api.failures.pop(0),
                {"error": "scripted failure", "why": "the test says so", "rule": "exec(x)"},
            )
            return False
        if self.headers.get("authorization") != f"Bearer {api.token}":
            self._json(401, {"error": "not this session's token", "remedy": "use GATEHOUSE_TOKEN"})
            return False
        return True

    def _json(self, status: int, body: Json) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)
