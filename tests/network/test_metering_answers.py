"""Whatever form an answer has, and wherever it breaks off, it counts as what the provider bills,
or as what was reserved."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

from supervisor.core.models.model_calls import ModelCall, Tokens
from supervisor.core.money import PICOUSD
from tests.egress.egress_harness import Proxy, status_of
from tests.fakes.model_api import AWS_STREAM, MODEL, TABLE, aws_frame, wrapped
from tests.network.conftest import Setting
from tests.network.test_metering import HAIKU_4, settled

USED = {"input_tokens": 11, "output_tokens": 7}
WHOLE = json.dumps({"type": "message", "model": MODEL, "usage": USED}).encode()
START = {"type": "message_start", "message": {"model": MODEL, "usage": USED | {"output_tokens": 1}}}
END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}


@contextlib.asynccontextmanager
async def origin(answer: bytes) -> AsyncIterator[int]:
    """A server that answers the first request so, byte for byte, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def events(*several: object) -> bytes:
    return b"".join(b"data: %s\r\n\r\n" % json.dumps(one).encode() for one in several)


def chunked(body: bytes, size: int, trailer: bytes = b"") -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return (
        b"".join(b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        + b"0\r\n"
        + trailer
        + b"\r\n"
    )


def head(kind: str = "application/json", *more: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"HTTP/{version} 200 OK", f"Content-Type: {kind}", *more, "", ""]).encode()


SSE = "text/event-stream"
LENGTH = f"Content-Length: {len(WHOLE)}"
EXACT = {
    "early-hints": (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + head("application/json", LENGTH) + WHOLE
    ),
    "continue-twice": (
        b"HTTP/1.1 100 Continue\r\n\r\n" * 2 + head("application/json", LENGTH) + WHOLE
    ),
    "http-1.0": head(version="1.0") + WHOLE,
    "to-the-end": head() + WHOLE,
    "byte-by-byte": head(SSE, "Transfer-Encoding: chunked") + chunked(events(START, END), 1),
    "trailers": (
        head(SSE, "Transfer-Encoding: chunked") + chunked(events(START, END), 9, b"X-Usage: 0\r\n")
    ),
    "packed-twice": (
        head("application/json", "Content-Encoding: gzip, gzip")
        + gzip.compress(gzip.compress(WHOLE))
    ),
    "two-starts": head(SSE, version="1.0") + events(START, START, END, END),
    "late-smaller-count": head(SSE) + events(START, END, END | {"usage": {"output_tokens": 2}}),
}
RESERVED = {
    "http-1.0-cut": head(SSE, version="1.0") + events(START),
    "cut-in-an-event": (
        head(SSE, "Transfer-Encoding: chunked") + b"ffff\r\n" + events(START, END)[:-9]
    ),
    "negative": head() + WHOLE.replace(b"7", b"-7"),
    "huge": head() + WHOLE.replace(b"7", b"9" * 400),
    "float": head() + WHOLE.replace(b": 7", b": 7.5"),
    "no-such-coding": head("application/json", "Content-Encoding: lzma") + WHOLE,
    "empty": head("application/json", "Content-Length: 0"),
    "two-objects": head() + WHOLE + b"\n" + WHOLE,
}
BROKEN_FRAMES = [
    aws_frame("chunk", wrapped(START)) + aws_frame("chunk", wrapped(END))[:-5],
    aws_frame("chunk", wrapped(START)) + b"\0\0\0\x05" + aws_frame("chunk", wrapped(END)),
    aws_frame("chunk", wrapped(START)) + b"\xff" * 12 + aws_frame("chunk", wrapped(END)),
    b"",
]


async def called(
    desk: Setting, answer: bytes, path: str = "/v1/messages", **more: object
) -> tuple[int, dict[str, Any]]:
    """The status of a call that is answered so, and how it was settled."""
    before = len(desk.office.audited("spend_settled"))
    async with origin(answer) as port:
        desk.office.policy(
            f"allow:\n  - network(127.0.0.1:{port})\n  - network(models.test:{port})\n"
        )
        body = json.dumps(HAIKU_4 | more).encode()
        wanted = (
            f"POST http://models.test:{port}{path} HTTP/1.1\r\nHost:"
            f" models.test:{port}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        said = await Proxy(None, desk.session_id, desk.port).send(wanted.encode() + body)  # type: ignore[arg-type]
        return status_of(said), (await settled(desk, before + 1))[-1]


async def test_an_answer_in_any_form_counts_as_it_says(desk: Setting) -> None:
    cost = TABLE.cost_picousd(
        TABLE.find(MODEL).price, Tokens(input=11, output=7), ModelCall(api="messages")
    )
    for name, answer in EXACT.items():
        status, line = await called(desk, answer)
        assert (status, line["cost_picousd"], line["flags"]) == (200, cost, []), name


async def test_an_answer_that_says_no_count_counts_as_reserved(desk: Setting) -> None:
    for name, answer in RESERVED.items():
        _, line = await called(desk, answer)
        assert line["counts"]["output"] == HAIKU_4["max_tokens"], name
        assert {"estimated", "lost"} & set(line["flags"]), name


async def test_an_event_stream_of_aws_that_breaks_counts_as_reserved(desk: Setting) -> None:
    for frames in BROKEN_FRAMES:
        _, line = await called(
            desk,
            head(AWS_STREAM) + frames,
            f"/model/us.anthropic.{MODEL}/invoke-with-response-stream",
        )
        assert line["counts"]["output"] == HAIKU_4["max_tokens"], frames


async def test_what_was_made_before_it_came_counts_as_reserved_though_the_model_was_told_not_to_think(  # noqa: E501
    desk: Setting,
) -> None:
    """Of what streams no more is billed than was seen; of a whole answer, and of a tool's
    arguments, the first byte says nothing."""
    quiet = {"thinking": {"type": "disabled"}}
    cut = b"Transfer-Encoding: chunked\r\n\r\nff\r\n"
    for kind, body, is_reserved in (
        (SSE, quiet, False),
        (SSE, quiet | {"tools": [{"name": "write"}]}, True),
        ("application/json", quiet, True),
    ):
        answer = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n".encode() + cut + events(START)[:99]
        _, line = await called(desk, answer, **body)
        assert (line["counts"]["output"] == HAIKU_4["max_tokens"]) is is_reserved, (kind, body)


async def test_what_a_provider_bills_beyond_its_tokens_counts(desk: Setting) -> None:
    used = {
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "cost": 0.25,
        "is_byok": True,
        "cost_details": {"upstream_inference_cost": 0.5},
    }
    _, line = await called(
        desk, head() + json.dumps({"usage": used}).encode(), "/api/v1/chat/completions"
    )
    assert line["cost_picousd"] == 75 * PICOUSD // 100
