"""What is metered is what the provider bills, to the pico-dollar: every shape at once, through a
crash, and whatever a call is dressed as."""

import asyncio
import contextlib
import gzip
import json
import os
import shutil
import signal
import zlib
from typing import Any

import pytest
import trustme
import zstandard

from supervisor.egress.mitm.held_bodies import MOST_BODY_BYTES
from tests.egress.egress_harness import Proxy, answer_of, server_context, status_of
from tests.egress.h2_client import h2_client
from tests.fakes.model_api import MODEL, ModelApi
from tests.fakes.waiting import PATIENCE_S
from tests.network.conftest import VENDORS, Setting, really_started
from tests.network.test_metering import HAIKU_4, budget, post, settled

BEDROCK = f"/model/us.anthropic.{MODEL}-20251001-v1%3A0"
CACHES = {"cached": 5, "write": 31, "write_long": 17}
# Path, whether it streams, and what the stub does: each API as its vendor, OpenRouter and a gateway
# with a path of its own offer it.
SHAPES: list[tuple[str, bool, dict[str, Any]]] = [
    (prefix + path, streams, stub)
    for prefix, path, stub in [
        ("", "/v1/messages", CACHES),
        ("/api", "/v1/messages", CACHES),
        ("/team-a/anthropic", "/v1/messages?beta=true", {"cached": 900}),
        ("", "/v1/chat/completions", {"cached": 5}),
        ("/api", "/v1/chat/completions", {"cached": 5}),
        ("/team-a/openai", "/chat/completions?api-version=1", {}),
        ("", "/v1/responses", {"cached": 5}),
        ("/api", "/v1/responses", {"gzip": True}),
        ("/team-a/openai", "/responses", {}),
    ]
    for streams in (False, True)
] + [
    (f"{prefix}{BEDROCK}/{verb}", streams, stub | {"step": 11})
    for prefix in ("", "/aws")
    for verb, streams, stub in [
        ("invoke", False, CACHES),
        ("invoke-with-response-stream", True, CACHES),
        ("converse", False, {"cached": 3, "write": 4}),
        ("converse-stream", True, {"cached": 3, "write": 4}),
    ]
]


def call(number: int) -> tuple[str, dict[str, Any]]:
    """The path and the body of one of many calls, each with tokens of its own."""
    path, streams, stub = SHAPES[number % len(SHAPES)]
    body = HAIKU_4 | {"input": [], "stub": stub | {"input": 11 + number, "output": 7 + 3 * number}}
    return path, body if "/model/" in path else body | {"stream": streams}


async def test_64_parallel_calls_of_every_shape_sum_up_to_what_the_provider_bills(
    desk: Setting, api: ModelApi
) -> None:
    async with asyncio.TaskGroup() as tasks:
        calls = [
            tasks.create_task(post(desk, api, call(number)[1], call(number)[0]))
            for number in range(64)
        ]
    assert [one.result()[0] for one in calls] == [200] * 64
    lines = await settled(desk, 64)
    assert sum(line["cost_picousd"] for line in lines) == api.billed > 0
    assert [line for line in lines if line["flags"]] == []
    mine = desk.office.open(desk.session_id)
    assert desk.office.spending.summary(mine).used["session"].cost == api.billed


@really_started
async def test_after_kill_9_what_ended_before_is_exact_and_what_was_under_way_counts_as_reserved(
    desk: Setting, api: ModelApi
) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(26):
            tasks.create_task(post(desk, api, call(number)[1], call(number)[0]))
    exact = await settled(desk, 26)
    billed = api.billed
    assert sum(line["cost_picousd"] for line in exact) == billed
    api.gate.clear()
    async with asyncio.TaskGroup() as tasks:
        for number in range(26):
            tasks.create_task(_whatever(desk, api, number))
        async with asyncio.timeout(PATIENCE_S):
            while len(api.requests) < 52:
                await asyncio.sleep(0.01)
        assert desk.broker.pid is not None
        os.kill(desk.broker.pid, signal.SIGKILL)
    lost = (await settled(desk, 52))[26:]
    assert {tuple(line["flags"]) for line in lost} == {("lost",)}
    reserved = {
        line["reservation"]: line["cost_picousd"]
        for line in map(json.loads, desk.office.audited("spend_reserved"))
    }
    assert all(line["cost_picousd"] == reserved[line["reservation"]] for line in lost)
    # The provider bills what nobody saw the end of: never more than what counts for it.
    assert sum(line["cost_picousd"] for line in lost) >= api.billed - billed > 0
    await desk.broker.wait_healthy(after_starts=1)
    api.gate.set()
    before = api.billed
    await post(desk, api, HAIKU_4)
    assert (await settled(desk, 53))[-1]["cost_picousd"] == api.billed - before


async def _whatever(desk: Setting, api: ModelApi, number: int) -> None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        await post(desk, api, call(number)[1], call(number)[0])


async def test_a_retry_after_a_refusal_is_billed_once(desk: Setting, api: ModelApi) -> None:
    for fault in ("429", "529", ""):
        await post(desk, api, HAIKU_4 | {"stub": {"fault": fault}})
    lines = await settled(desk, 3)
    assert sum(line["cost_picousd"] for line in lines) == api.billed > 0


async def test_an_unknown_model_is_flagged_and_priced_at_the_highest(
    desk: Setting, api: ModelApi
) -> None:
    await post(desk, api, HAIKU_4 | {"model": "vendor/never-heard-of"})
    (line,) = await settled(desk, 1)
    assert (line["flags"], line["cost_picousd"]) == (["unknown_model"], api.billed)


async def test_an_answer_in_an_encoding_that_wasnt_offered_counts_as_reserved(
    desk: Setting, api: ModelApi
) -> None:
    await post(desk, api, HAIKU_4 | {"stub": {"fault": "br"}}, extra="Accept-Encoding: br\r\n")
    (line,) = await settled(desk, 1)
    assert line["flags"] == ["estimated"]
    assert line["counts"]["output"] == 1000


async def test_what_is_free_is_let_through_under_an_empty_budget(
    desk: Setting, api: ModelApi
) -> None:
    budget(desk, "0usd")
    assert (await post(desk, api, HAIKU_4, "/v1/messages/count_tokens"))[0] == 200
    assert desk.office.audited("spend_reserved") == []


@pytest.mark.parametrize(
    "head",
    [
        "GET /v1/models\r\n",
        "DELETE /v1/responses\r\nContent-Length: 0\r\n",
        "GET /v1/chat/completions\r\n",
    ],
)
async def test_a_request_without_a_body_whose_method_has_none_is_no_call(
    desk: Setting, api: ModelApi, head: str
) -> None:
    budget(desk, "0usd")
    assert status_of(await raw(desk, api, head, b"")) == 200
    assert desk.office.audited("spend_reserved") == []


async def raw(
    place: Setting, api: ModelApi, head: str, body: bytes, host: str = "models.test"
) -> bytes:
    """The answer to a request as it is written."""
    first, _, rest = head.partition("\r\n")
    method, path = first.split(" ")
    rest += "" if "Upgrade" in rest else "Connection: close\r\n"
    lines = (
        f"{method} http://{host}:{api.port}{path} HTTP/1.1\r\nHost: {host}:{api.port}\r\n{rest}\r\n"
    )
    return await Proxy(None, place.session_id, place.port).send(lines.encode() + body)  # type: ignore[arg-type]


PLAIN = json.dumps(HAIKU_4).encode()
DOUBLED = b'{"model": "gpt-5-nano", "max_tokens": 1000, "messages": [], "model": "claude-opus-4-1"}'


@pytest.mark.parametrize(
    ("head", "body", "is_exact"),
    [
        ("POST /v1/messages\r\nContent-Type: text/plain\r\n", PLAIN, True),
        ("POST /V1/%6dessages/?a=b\r\nContent-Type: image/png\r\n", PLAIN, True),
        ("PUT /v1/messages\r\n", PLAIN, True),
        ("PATCH /v1/messages\r\n", PLAIN, True),
        ("GET /v1/messages\r\n", PLAIN, True),
        (
            "DELETE /v1/messages\r\nTransfer-Encoding: chunked\r\n",
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(PLAIN), PLAIN),
            True,
        ),
        ("POST /v1/messages\r\n", PLAIN.decode().encode("utf-16"), True),
        (
            "POST /v1/messages\r\nTransfer-Encoding: chunked\r\n",
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(PLAIN), PLAIN),
            True,
        ),
        ("POST /v1/messages\r\nContent-Encoding: gzip\r\n", gzip.compress(PLAIN), True),
        ("POST /v1/messages\r\nContent-Encoding: zstd\r\n", zstandard.compress(PLAIN), True),
        ("POST /v1/messages\r\nContent-Encoding: gzip\r\n", PLAIN, False),
        ("POST /v1/messages\r\nContent-Encoding: br\r\n", PLAIN, False),
        (
            "POST /v1/messages\r\nContent-Encoding: gzip\r\n",
            gzip.compress(PLAIN + b" " * MOST_BODY_BYTES),
            False,
        ),
        ("POST /v1/messages\r\n", DOUBLED, False),
    ],
    ids=[
        "type",
        "path",
        "put",
        "patch",
        "get",
        "delete",
        "utf-16",
        "chunked",
        "gzip",
        "zstd",
        "not-gzip",
        "br",
        "unpacks-to-much",
        "doubled",
    ],
)
async def test_however_a_call_is_dressed_it_is_metered(
    desk: Setting, api: ModelApi, head: str, body: bytes, is_exact: bool
) -> None:
    if "chunked" not in head:
        head += f"Content-Length: {len(body)}\r\n"
    assert status_of(await raw(desk, api, head, body)) == 200
    (line,) = await settled(desk, 1)
    # What can't be read is reserved as the largest call of the dearest model; the answer then says
    # what it was.
    assert line["cost_picousd"] == api.billed if is_exact else line["cost_picousd"] >= api.billed
    budget(desk, "0.000001usd")
    desk.broker._ask_at_limit = False
    desk.broker.end_connections()
    await desk.broker.wait_healthy(after_starts=1)
    seen = len(api.requests)
    assert status_of(await raw(desk, api, head, body)) == 402
    assert len(api.requests) == seen


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("POST /v1/messages/batches\r\nContent-Length: 2\r\n", 402),
        ("POST /v1/batches\r\nContent-Length: 2\r\n", 429),
        ("POST /v1/images/generations\r\nContent-Length: 2\r\n", 429),
        ("POST /any-alias-of-a-gateway\r\nContent-Length: 2\r\n", 429),
        ("POST /anything%3F/count_tokens\r\nContent-Length: 2\r\n", 429),
        ("POST /v1/messages%3F/count_tokens\r\nContent-Length: 2\r\n", 402),
        ("POST /v1/chat/completions/;/..\r\nContent-Length: 2\r\n", 429),
        (
            (
                "GET /v1/realtime?model=x\r\nUpgrade: websocket\r\nConnection:"
                " Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key:"
                " AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            ),
            429,
        ),
    ],
    ids=[
        "message-batches",
        "batches",
        "images",
        "alias",
        "question-mark",
        "free-by-one-reading",
        "parameter",
        "websocket",
    ],
)
async def test_what_cant_be_metered_is_refused_under_a_budget_and_says_so(
    desk: Setting, api: ModelApi, head: str, status: int
) -> None:
    budget(desk, "5usd")
    answer = await raw(desk, api, head, b"{}" if "Length" in head else b"")
    assert status_of(answer) == status
    assert b"can't be metered" in answer
    assert api.requests == []


@pytest.mark.parametrize(
    "said", [{"model": f"{MODEL},{MODEL}"}, {"extra_body": {"model": "claude-opus-4-1"}}]
)
async def test_a_body_that_a_gateway_makes_other_calls_of_is_refused_under_a_budget(
    desk: Setting, api: ModelApi, said: dict[str, Any]
) -> None:
    body = HAIKU_4 | said
    assert (await post(desk, api, body, "/v1/chat/completions"))[0] == 200
    budget(desk, "5usd")
    status, answer, _ = await post(desk, api, body, "/v1/chat/completions")
    assert status == 429
    assert b"can't be metered" in answer
    assert len(api.requests) == 1


TOOL = b'"tools": [{"type": "code_interpreter"}]'


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("", b'{"model": "gpt-5-nano", "input": [], "tools": [], %s}' % TOOL),
        (
            "Content-Type: application/json; charset=utf-7\r\n",
            b'{"model": "gpt-5-nano", "input": [], %s}' % TOOL,
        ),
        (
            "Content-Encoding: deflate\r\n",
            zlib.compress(b'{"model": "gpt-5-nano", "input": [], %s}' % TOOL),
        ),
    ],
    ids=["doubled", "charset", "deflate"],
)
async def test_a_body_that_cant_be_read_hides_no_tool_that_costs_more_than_tokens(
    desk: Setting, api: ModelApi, head: str, body: bytes
) -> None:
    """However large the budget is: what such a tool costs, no answer says."""
    budget(desk, "1000000usd")
    answer = await raw(
        desk, api, f"POST /v1/responses\r\n{head}Content-Length: {len(body)}\r\n", body
    )
    assert status_of(answer) == 429
    assert b"can't be metered" in answer
    assert api.requests == []


@pytest.mark.parametrize("host", ["models.test", "origin.test", "other.test"])
async def test_calls_over_a_websocket_are_refused_anywhere_so_that_a_client_goes_on_with_plain_requests(  # noqa: E501
    desk: Setting, api: ModelApi, host: str
) -> None:
    """With a budget or without, by rule or not: nothing that is said there would count."""
    upgrade = (
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version:"
        " 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    )
    answer = await raw(desk, api, f"GET /v1/responses\r\n{upgrade}", b"", host)
    assert status_of(answer) == 426
    assert (
        b"calls of a model over a WebSocket can't be metered; send each call as a request of"
        b" its own" in answer
    )
    assert api.requests == []
    # Nobody is asked for it, either: whatever a person says, it isn't to be had.
    assert desk.office.audited("spend_reserved") == desk.office.audited("request_asked") == []
    async with asyncio.timeout(20):
        while not any("can't be metered" in line for line in desk.office.audited("verdict_given")):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("spelling", ["{}", "{}.", "{}.:443"])
async def test_no_websocket_to_a_host_of_models_is_opened_under_a_budget(
    desk: Setting, api: ModelApi, spelling: str
) -> None:
    hosts = (*VENDORS, "models.test")
    allowed = [f"{one}{port}" for one in ("127.0.0.1", *hosts) for port in ("", f":{api.port}")]
    desk.office.policy("allow:\n" + "".join(f"  - network({one})\n" for one in allowed))
    upgrade = (
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version:"
        " 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    )
    budget(desk, "5usd")
    for host in hosts:
        for path in ("/", "/realtime?model=x", "/v1/realtime", "/%77s;v=1"):
            named, _, port = spelling.format(host.title()).partition(":")
            head = (
                f"GET http://{named}:{port or api.port}{path} HTTP/1.1\r\nHost:"
                f" {named}:{port or api.port}\r\n{upgrade}\r\n"
            )
            answer = await Proxy(None, desk.session_id, desk.port).send(head.encode())  # type: ignore[arg-type]
            assert status_of(answer) == (
                402 if "anthropic" in host else 400 if "bedrock" in host else 429
            ), (
                host,
                path,
            )
            assert b"can't be metered" in answer
    assert api.requests == desk.office.audited("spend_reserved") == []


async def test_a_body_longer_than_any_call_is_refused(desk: Setting, api: ModelApi) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", desk.port)
    writer.write(
        f"POST http://models.test:{api.port}/v1/messages HTTP/1.1\r\nHost:"
        f" models.test:{api.port}\r\nContent-Length: {40 << 20}\r\n\r\n".encode()
    )

    async def pour() -> None:
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                writer.write(b" " * (1 << 20))
                await writer.drain()

    async with asyncio.TaskGroup() as tasks:
        pouring = tasks.create_task(pour())
        answer = await answer_of(reader)
        pouring.cancel()
    writer.transport.abort()
    assert status_of(answer) == 403
    assert b"longer than 32 MB" in answer
    assert api.requests == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
@pytest.mark.parametrize("streams", [False, True])
async def test_over_http2_it_is_the_same(
    desk: Setting, api: ModelApi, authority: trustme.CA, streams: bool
) -> None:
    server = await asyncio.start_server(
        api.serve, "127.0.0.1", 0, ssl=server_context(authority, "models.test", "127.0.0.1")
    )
    port = server.sockets[0].getsockname()[1]
    desk.office.policy(f"allow:\n  - network(127.0.0.1:{port})\n  - network(models.test:{port})\n")
    body = json.dumps(HAIKU_4 | {"stream": streams})
    words = ["curl", "-sS", "--http2", "-x", desk.url, "--cacert", str(desk.ca_file), "-o",
    "/dev/null", "-w", "%{http_version} %{http_code}", "-d", body]  # fmt: skip
    try:
        curl = await asyncio.create_subprocess_exec(
            *words, f"https://models.test:{port}/v1/messages", stdout=asyncio.subprocess.PIPE
        )
        said, _ = await curl.communicate()
    finally:
        server.close()
    assert said == b"2 200"
    (line,) = await settled(desk, 1)
    assert (line["cost_picousd"], line["flags"]) == (api.billed, [])


async def test_over_http2_a_body_that_its_head_doesnt_tell_of_is_a_call_under_any_method(
    desk: Setting, api: ModelApi, authority: trustme.CA
) -> None:
    server = await asyncio.start_server(
        api.serve, "127.0.0.1", 0, ssl=server_context(authority, "models.test", "127.0.0.1")
    )
    port = server.sockets[0].getsockname()[1]
    desk.office.policy(f"allow:\n  - network(127.0.0.1:{port})\n  - network(models.test:{port})\n")
    budget(desk, "0usd")
    place = Proxy(None, desk.session_id, desk.port)  # type: ignore[arg-type]
    async with h2_client(place, f"models.test:{port}", desk.ca_file) as client:
        assert (await client.answered("/v1/models")).status == 200
        seen = len(api.requests)
        number, _ = client.ask("/v1/messages", end=False)
        client.send(number, PLAIN, end=True)
        asked = await desk.office.asked()
        assert len(api.requests) == seen
    server.close()
    assert asked.reason.startswith(f"a call of `{MODEL}` at models.test")
