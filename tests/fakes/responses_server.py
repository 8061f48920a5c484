"""A local server that speaks OpenAI's Responses API over real HTTP, streamed, scripted turn by
turn, and counts what it would bill.

It decides nothing: a request gets the turn that follows the results of tools it carries. It
takes no WebSocket: what asks for one is noted in `upgrades`, and reads a 500, as from a provider
that has a bad day. The wire format is that of OpenAI's API reference. It never reaches out.
"""

import json
import ssl
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from supervisor.core.models.model_calls import Tokens
from tests.fakes.model_api import bill_picousd
from tests.fakes.quiet_http import QuietHandler, QuietServer

type Json = dict[str, Any]

TOKENS = Tokens(input=60, cache_read=40, output=7)
_MAX_BODY_BYTES = 32 * 1024 * 1024


def says(words: str) -> Json:
    """A turn that ends the conversation."""
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": words}],
    }


def runs(command: str) -> Json:
    """A turn that calls Codex's tool for commands."""
    return {
        "type": "function_call",
        "name": "exec_command",
        "arguments": json.dumps({"cmd": command}),
    }


@dataclass
class ResponsesServer:
    """`with ResponsesServer([runs("make"), says("done")]) as server:`; `requests` are the bodies
    that came, `billed_picousd` their cost."""

    script: list[Json]
    api_key: str | None = None
    tls: ssl.SSLContext | None = None
    requests: list[Json] = field(default_factory=list)
    upgrades: list[str] = field(default_factory=list)
    billed_picousd: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.fake = self
        if self.tls:
            self._http.socket = self.tls.wrap_socket(self._http.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(timeout=5)

    def results(self) -> list[str]:
        """What the tools gave, as the last request has it."""
        return [
            str(one["output"])
            for one in self.requests[-1]["input"]
            if one["type"] == "function_call_output"
        ]

    def events(self, body: Json) -> list[Json]:
        """The stream that answers one request."""
        position = sum(one["type"] == "function_call_output" for one in body["input"])
        with self._lock:
            self.requests.append(body)
            number = len(self.requests)
            self.billed_picousd += bill_picousd(body["model"], TOKENS)
        item = self.script[position] | {"id": f"item_{number}", "call_id": f"call_{number}"}
        used = {
            "input_tokens": TOKENS.input + TOKENS.cache_read,
            "input_tokens_details": {"cached_tokens": TOKENS.cache_read},
            "output_tokens": TOKENS.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": TOKENS.total,
        }
        reply = {"id": f"resp_{number}", "model": body["model"], "error": None}
        return [
            {"type": "response.created", "response": reply | {"usage": None}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": reply | {"usage": used}},
        ]


class _Server(QuietServer):
    fake: ResponsesServer


class _Handler(QuietHandler):
    server: _Server

    def do_GET(self) -> None:
        if "upgrade" in self.headers:
            self.server.fake.upgrades.append(self.path)
            return self._json(500, _error("server_error", "no WebSocket today"))
        return self._json(404, _error("invalid_request_error", f"no such path `{self.path}`"))

    def do_POST(self) -> None:
        raw = self.rfile.read(min(int(self.headers.get("content-length") or 0), _MAX_BODY_BYTES))
        if urlsplit(self.path).path != "/v1/responses":
            return self._json(404, _error("invalid_request_error", f"no such path `{self.path}`"))
        key = self.server.fake.api_key
        if key is not None and self.headers.get("authorization") != f"Bearer {key}":
            return self._json(401, _error("invalid_request_error", "incorrect API key"))
        return self._stream(self.server.fake.events(json.loads(raw)))

    def _stream(self, events: list[Json]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, body: Json) -> None:
        self.respond(status, "application/json", json.dumps(body).encode())


def _error(kind: str, message: str) -> Json:
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}
