"""A local server that speaks the Messages API over real HTTP, scripted turn by turn.

It decides nothing: each request for a reply gets the script's next turn. It is strict where the
real API is strict (missing fields, a tool call without its result, no key), so that a client which
passes here isn't passing by luck. It serves the anthropic SDK and the Claude Code CLI alike; a
request without tools while the script has tool calls (a title, a summary, a warm-up) gets a filler
reply and leaves the script alone.

The wire format is that of https://docs.anthropic.com/en/api/messages-streaming, below any prefix
(AWS has one); at `/v1/chat/completions` the same script is told in OpenAI's words. It never reaches
out.
"""

import itertools
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from tests.fakes.quiet_http import QuietHandler, QuietServer

type Json = dict[str, Any]
type Step = Turn | Failure | Callable[[Json], Turn | Failure]
# How the next turn is found: the next one whoever asks, or by the number of replies that the
# request carries.
type Follow = Literal["order", "conversation"]

_PIECE = 7  # characters per delta: short, so that every reply really comes in pieces
_MAX_BODY_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Turn:
    """One reply. `cut_after` ends the stream after that many events, as a lost connection does."""

    content: tuple[Json, ...]
    stop_reason: str = ""
    cut_after: int | None = None
    error_after: int | None = None
    output_tokens: int = 42


@dataclass(frozen=True)
class Failure:
    """An HTTP error instead of a reply; `body` replaces the API's error body (a proxy's refusal,
    say)."""

    status: int
    kind: str = "api_error"
    message: str = "scripted failure"
    headers: tuple[tuple[str, str], ...] = ()
    body: Json | None = None


@dataclass(frozen=True)
class Recorded:
    """One request as it came; `body` is None where it wasn't JSON."""

    method: str
    path: str
    headers: dict[str, str]
    body: Json | None


def text(words: str, **options: Any) -> Turn:
    """A turn that ends the conversation with `words`."""
    return Turn(({"type": "text", "text": words},), **options)


_call_numbers = itertools.count(1)


def tool_use(name: str, arguments: Json) -> Json:
    """A tool call block with an id of its own."""
    return {
        "type": "tool_use",
        "id": f"toolu_fake{next(_call_numbers):06d}",
        "name": name,
        "input": arguments,
    }


def calls(*blocks: Json, words: str = "", **options: Any) -> Turn:
    """A turn that makes the given tool calls, after some `words`."""
    opening: tuple[Json, ...] = ({"type": "text", "text": words},) if words else ()
    return Turn((*opening, *blocks), **options)


@dataclass
class MessagesServer:
    """`with MessagesServer([turns]) as server:` serves on `server.url`; `server.requests` is
    what came."""

    script: list[Step]
    follow: Follow = "order"
    api_key: str | None = None
    # Judges a request instead, as AWS does by its signature: why it isn't taken, or None.
    why_not: Callable[[str, str, dict[str, str], bytes], str | None] | None = None
    tls: ssl.SSLContext | None = None
    # Which it says that it has.
    models: tuple[str, ...] = ()
    # Its own books: model, tokens in and tokens out of each reply that it gave.
    served: list[tuple[str, int, int]] = field(default_factory=list)
    requests: list[Recorded] = field(default_factory=list)
    conversations: list[Json] = field(default_factory=list)
    fillers: int = 0
    connections: int = 0

    def __post_init__(self) -> None:
        self._next = 0
        self._lock = threading.Lock()
        self._scripted_tools = any(not isinstance(step, Failure) for step in self.script)
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

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def turns_left(self) -> int:
        return max(0, len(self.script) - self._next)

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

    def record(self, request: Recorded) -> None:
        with self._lock:
            self.requests.append(request)

    def reply_to(self, body: Json) -> Turn | Failure:
        """The script's answer to one request for a reply."""
        with self._lock:
            if self._is_aside(body):
                self.fillers += 1
                return text("ok")
            self.conversations.append(body)
            if self.follow == "conversation":
                position = sum(message["role"] == "assistant" for message in body["messages"])
            else:
                position = self._next
            self._next = max(self._next, position + 1)
            if position >= len(self.script):
                return text("the script has ended")
            step = self.script[position]
        return step(body) if callable(step) else step

    def _is_aside(self, body: Json) -> bool:
        return self.follow == "conversation" and not body.get("tools")


class _Server(QuietServer):
    fake: MessagesServer

    def get_request(self) -> tuple[Any, Any]:
        self.fake.connections += 1
        return super().get_request()


class _Handler(QuietHandler):
    server: _Server

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self._record(None)
        path = urlsplit(self.path).path
        if path.endswith("/v1/models"):
            return self._json(
                200, {"data": [], "has_more": False, "first_id": None, "last_id": None}
            )
        if path.rpartition("/")[2] in self.server.fake.models:
            return self._json(200, {"type": "model", "id": path.rpartition("/")[2]})
        return self._json(404, _error("not_found_error", f"no such path `{self.path}`"))

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(min(length, _MAX_BODY_BYTES))
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        self._record(body)
        path = urlsplit(self.path).path
        is_chat = path.endswith("/v1/chat/completions")
        if not is_chat and not path.endswith(("/v1/messages", "/v1/messages/count_tokens")):
            return self._json(404, _error("not_found_error", f"no such path `{path}`"))
        if problem := self._unauthorised(raw):
            return self._json(401, _error("authentication_error", problem))
        if is_chat:
            if problem := invalid_chat(body):
                return self._json(400, _error("invalid_request_error", problem))
            step = self.server.fake.reply_to(body)
            if isinstance(step, Failure):
                error = step.body or {"error": {"code": step.kind, "message": step.message}}
                return self._json(step.status, error, step.headers)
            return self._json(200, _completion(step, body["model"], len(raw) // 4))
        if problem := invalid(body, counting=path.endswith("count_tokens")):
            return self._json(400, _error("invalid_request_error", problem))
        if path.endswith("count_tokens"):
            return self._json(200, {"input_tokens": len(raw) // 4})
        return self._reply(body, len(raw) // 4)

    def _record(self, body: Json | None) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.fake.record(Recorded(self.command, self.path, headers, body))

    def _unauthorised(self, raw: bytes) -> str | None:
        if self.server.fake.why_not is not None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            return self.server.fake.why_not(self.command, self.path, headers, raw)
        bearer = (self.headers.get("authorization") or "").removeprefix("Bearer ")
        key = self.headers.get("x-api-key") or bearer
        if not key:
            return "x-api-key header is required"
        if self.server.fake.api_key is not None and key != self.server.fake.api_key:
            return "invalid x-api-key"
        return None

    def _reply(self, body: Json, input_tokens: int) -> None:
        step = self.server.fake.reply_to(body)
        if isinstance(step, Failure):
            return self._json(
                step.status, step.body or _error(step.kind, step.message), step.headers
            )
        self.server.fake.served.append((body["model"], input_tokens, step.output_tokens))
        message = _message(step, body["model"], input_tokens)
        if not body.get("stream"):
            return self._json(200, message)
        return self._stream(step, message)

    def _stream(self, turn: Turn, message: Json) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("request-id", "req_fake")
        self.end_headers()
        for number, (name, data) in enumerate(events(message)):
            if number == turn.cut_after:
                self.close_connection = True  # no last chunk: a connection lost in the middle
                return
            if number == turn.error_after:
                self._chunk("error", _error("overloaded_error", "Overloaded"))
                break
            self._chunk(name, data)
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, name: str, data: Json) -> None:
        payload = f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(payload), payload))
        self.wfile.flush()

    def _json(self, status: int, body: Json, headers: tuple[tuple[str, str], ...] = ()) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        self.send_header("request-id", "req_fake")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)


def _error(kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"}


def _message(turn: Turn, model: str, input_tokens: int) -> Json:
    has_calls = any(block["type"] == "tool_use" for block in turn.content)
    return {
        "id": f"msg_fake{next(_call_numbers):06d}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(turn.content),
        "stop_reason": turn.stop_reason or ("tool_use" if has_calls else "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": input_tokens, "output_tokens": turn.output_tokens},
    }


def _completion(turn: Turn, model: str, input_tokens: int) -> Json:
    """The same reply as a chat completion."""
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"])},
        }
        for block in turn.content
        if block["type"] == "tool_use"
    ]
    words = "".join(block["text"] for block in turn.content if block["type"] == "text")
    message = {"role": "assistant", "content": words or None}
    reason = {"max_tokens": "length", "refusal": "content_filter"}.get(turn.stop_reason, "stop")
    return {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message | ({"tool_calls": calls} if calls else {}),
                "finish_reason": "tool_calls" if calls and reason == "stop" else reason,
            }
        ],
        "usage": {
            "prompt_tokens": input_tokens,
            "completion_tokens": turn.output_tokens,
            "total_tokens": input_tokens + turn.output_tokens,
        },
    }


def events(message: Json) -> Iterator[tuple[str, Json]]:
    """The stream of one reply: (event name, data), in the order of the API's documentation."""
    usage = {**message["usage"], "output_tokens": 1}
    opening = {**message, "content": [], "stop_reason": None, "usage": usage}
    yield "message_start", {"type": "message_start", "message": opening}
    yield "ping", {"type": "ping"}
    for index, block in enumerate(message["content"]):
        yield from _block_events(index, block)
    yield (
        "message_delta",
        {
            "type": "message_delta",
            "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
            "usage": {"output_tokens": message["usage"]["output_tokens"]},
        },
    )
    yield "message_stop", {"type": "message_stop"}


def _block_events(index: int, block: Json) -> Iterator[tuple[str, Json]]:
    if block["type"] == "tool_use":
        empty, whole = {**block, "input": {}}, json.dumps(block["input"])
        deltas = [
            {"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(whole))
        ]
    elif block["type"] == "thinking":
        empty, whole = {**block, "thinking": "", "signature": ""}, block["thinking"]
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(whole)]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    else:
        empty, whole = {**block, "text": ""}, block["text"]
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(whole)]
    yield (
        "content_block_start",
        {"type": "content_block_start", "index": index, "content_block": empty},
    )
    for delta in deltas:
        yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": index}


def _pieces(whole: str) -> Iterator[str]:
    size = max(_PIECE, len(whole) // 50)
    for start in range(0, len(whole), size):
        yield whole[start : start + size]


def invalid(body: Json | None, *, counting: bool = False) -> str | None:
    """Why the real API would answer 400, or None. Only what a client is likely to get wrong."""
    if not isinstance(body, dict):
        return "the body is not a JSON object"
    for name in ("model", "messages") if counting else ("model", "messages", "max_tokens"):
        if name not in body:
            return f"{name}: field required"
    if not body["messages"]:
        return "messages: at least one message is required"
    open_calls: set[str] = set()
    for position, message in enumerate(body["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else []
        if message["role"] == "assistant" and not message["content"]:
            return f"messages.{position}: content must not be empty"
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            return f"messages.{position}: text content blocks must contain non-whitespace text"
        if message["role"] == "user":
            answered = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
            if answered - open_calls:
                return (
                    f"messages.{position}: unexpected tool_use_id in tool_result:"
                    f" {sorted(answered - open_calls)}"
                )
            if open_calls - answered:
                return (
                    f"messages.{position}: tool_use ids without tool_result:"
                    f" {sorted(open_calls - answered)}"
                )
        if (
            message["role"] != "system"
        ):  # mid-conversation system notes leave the order of turns alone
            open_calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
    return (
        f"messages: tool_use without tool_result at the end: {sorted(open_calls)}"
        if open_calls
        else None
    )


def invalid_chat(body: Json | None) -> str | None:
    """Why OpenAI's API would answer 400, or None: as `invalid`."""
    if not isinstance(body, dict) or not body.get("model") or not body.get("messages"):
        return "you must provide a model and messages"
    open_calls: set[str] = set()
    for position, message in enumerate(body["messages"]):
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return f"messages.{position}: role 'tool' must follow a message with tool_calls"
            open_calls.discard(message["tool_call_id"])
            continue
        if open_calls:
            return f"messages.{position}: no response to tool_call_ids {sorted(open_calls)}"
        if message["role"] == "assistant":
            open_calls = {one["id"] for one in message.get("tool_calls", ())}
            if not open_calls and not message["content"]:
                return f"messages.{position}: content or tool_calls must be given"
    return f"no response to tool_call_ids {sorted(open_calls)}" if open_calls else None
