"""A local server with the shapes of the model APIs: streamed and not, whole and broken. It counts
what it would bill, in pico-dollars.

Each request's body says what is wanted under `stub`: `{"input": 11, "output": 7, "fault":
"cut"}`. Prices are those of the table that ships.
"""

import asyncio
import base64
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import yaml
import zstandard

from supervisor.core.models.model_calls import Tokens
from supervisor.core.money import PICOUSD
from supervisor.ledger.spending import read_prices
from supervisor.settings import ROOT

TABLE = read_prices(ROOT / "policy/prices.yaml")
MODEL = "claude-haiku-4-5"
AWS_STREAM = "application/vnd.amazon.eventstream"
GZIP_MAGIC = b"\x1f\x8b"
# The provider's own books: dollars for a million tokens, read from the file by nothing of ours.
PRICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "policy/prices.yaml").read_text())[
    "models"
]
type Json = dict[str, Any]


@dataclass
class ModelApi:
    """`port` is its own. `requests` are the bodies that came, `billed` the sum of what they
    cost, `gate` holds answers back while it is clear."""

    port: int = 0
    requests: list[Json] = field(default_factory=list)
    billed: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ")[1]
                length = next(
                    (
                        int(line.split(":")[1])
                        for line in head.split("\r\n")
                        if line.lower().startswith("content-length:")
                    ),
                    0,
                )
                data = (
                    await _chunked(reader)
                    if "chunked" in head.lower()
                    else await reader.readexactly(length)
                )
                # A body may say that it is packed and not be.
                if "content-encoding: gzip" in head.lower() and data.startswith(GZIP_MAGIC):
                    data = gzip.decompress(data)
                elif "content-encoding: zstd" in head.lower():
                    data = zstandard.decompress(data)
                body = json.loads(data) if data else {}
                self.requests.append(body)
                if not await self._answer(writer, path, body):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, path: str, body: Json) -> bool:
        wanted = body.get("stub", {})
        fault = wanted.get("fault", "")
        if fault in ("429", "500", "529"):
            said = json.dumps(
                {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
            ).encode()
            writer.write(
                f"HTTP/1.1 {fault} No\r\nContent-Type: application/json\r\nContent-Length:"
                f" {len(said)}\r\n\r\n".encode()
                + said
            )
            await writer.drain()
            return True
        tokens = Tokens(
            input=wanted.get("input", 11),
            output=wanted.get("output", 7),
            cache_read=wanted.get("cached", 0),
            cache_write=wanted.get("write", 0),
            cache_write_long=wanted.get("write_long", 0),
        )
        if not fault:
            self.billed += bill_picousd(body.get("model", MODEL), tokens)
        await self.gate.wait()
        kind, pieces = _pieces(path, body, tokens, fault)
        encoding = "Content-Encoding: gzip\r\n" if wanted.get("gzip") else ""
        encoding = "Content-Encoding: br\r\n" if fault == "br" else encoding
        writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{encoding}Transfer-Encoding:"
            " chunked\r\n\r\n".encode()
        )
        data = b"".join(pieces)
        data = gzip.compress(data) if wanted.get("gzip") else data
        step = wanted.get("step", 50)
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if fault in ("cut", "hang"):
            if fault == "hang":
                await asyncio.Event().wait()
            writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def bill_picousd(model: str, tokens: Tokens) -> int:
    """What a plain call costs by those books, whose models are named as there; what isn't there
    costs the highest of each kind."""

    def rate(row: dict[str, Any], kind: str) -> Decimal:
        if kind not in row:
            kind = "cache_write" if kind == "cache_write_long" and "cache_write" in row else "input"
        return Decimal(str(row[kind]))

    rows = [PRICES[model]] if model in PRICES else list(PRICES.values())
    kinds = ("input", "output", "cache_read", "cache_write", "cache_write_long")
    dollars = (
        sum(max(rate(row, kind) for row in rows) * getattr(tokens, kind) for kind in kinds) / 10**6
    )
    return int(dollars * PICOUSD)


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    found = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        found += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return found


def _pieces(path: str, body: Json, tokens: Tokens, fault: str) -> tuple[str, list[bytes]]:
    streams = bool(body.get("stream")) or path.endswith("-stream")
    whole, events = _messages(body, tokens)
    if "chat" in path:
        whole, events = _chat(body, tokens)
    elif "responses" in path:
        whole, events = _responses(body, tokens)
    elif "converse" in path:
        whole, events = _converse(tokens)
    if path.endswith("-response-stream"):
        return AWS_STREAM, [aws_frame("chunk", wrapped(one)) for one in events]
    if not streams:
        return "application/json", [json.dumps({} if fault == "no-usage" else whole).encode()]
    if fault in ("cut", "hang", "no-usage"):
        events = events[:-1]
    if fault == "error":
        events = [
            *events[:-1],
            {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
        ]
    if "converse" in path:
        return AWS_STREAM, [aws_frame(str(one.pop("kind")), one) for one in events]
    return "text/event-stream", list(_sse(events))


def _sse(events: list[Json]) -> Iterator[bytes]:
    for event in events:
        yield f"event: {event.get('type', 'x')}\ndata: {json.dumps(event)}\n\n".encode()


def _messages(body: Json, tokens: Tokens) -> tuple[Json, list[Json]]:
    start: Json = {
        "input_tokens": tokens.input,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": 1,
    }
    if tokens.cache_write or tokens.cache_write_long:
        start["cache_creation_input_tokens"] = tokens.cache_write + tokens.cache_write_long
        start["cache_creation"] = {
            "ephemeral_5m_input_tokens": tokens.cache_write,
            "ephemeral_1h_input_tokens": tokens.cache_write_long
        }  # fmt: skip
    used = start | {"output_tokens": tokens.output}
    model = body.get("model", MODEL)
    text = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "word " * 20},
    }
    events = [
        {"type": "message_start", "message": {"model": model, "usage": start}},
        text,
        text,
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": tokens.output},
        },
    ]
    return {"type": "message", "model": model, "content": [], "usage": used}, events


def _chat(body: Json, tokens: Tokens) -> tuple[Json, list[Json]]:
    used = {
        "prompt_tokens": tokens.input + tokens.cache_read,
        "completion_tokens": tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read},
    }
    piece = {"choices": [{"delta": {"content": "word"}}], "usage": None}
    model = body.get("model", MODEL)
    return {"model": model, "choices": [{}], "usage": used}, [
        piece,
        piece,
        {"model": model, "choices": [], "usage": used},
    ]


def _responses(body: Json, tokens: Tokens) -> tuple[Json, list[Json]]:
    used = {
        "input_tokens": tokens.input + tokens.cache_read,
        "output_tokens": tokens.output,
        "input_tokens_details": {"cached_tokens": tokens.cache_read},
    }
    whole = {"model": body.get("model", MODEL), "status": "completed", "error": None, "usage": used}
    return whole, [
        {"type": "response.created", "response": {"usage": None}},
        {"type": "response.completed", "response": whole},
    ]


def _converse(tokens: Tokens) -> tuple[Json, list[Json]]:
    used = {
        "inputTokens": tokens.input,
        "outputTokens": tokens.output,
        "cacheReadInputTokens": tokens.cache_read,
        "cacheWriteInputTokens": tokens.cache_write,
    }
    return {"usage": used}, [
        {"kind": "contentBlockDelta", "delta": {"text": "word"}},
        {"kind": "metadata", "usage": used},
    ]


def aws_frame(kind: str, payload: Json) -> bytes:
    """One event of an AWS stream; its sums are left empty."""
    name, data = b":event-type", json.dumps(payload).encode()
    head = bytes([len(name)]) + name + b"\x07" + len(kind).to_bytes(2) + kind.encode()
    return (
        (16 + len(head) + len(data)).to_bytes(4)
        + len(head).to_bytes(4)
        + b"\0" * 4
        + head
        + data
        + b"\0" * 4
    )


def wrapped(event: Json) -> Json:
    """An event of a model as Bedrock's invoke carries it."""
    return {"bytes": base64.b64encode(json.dumps(event).encode()).decode()}
