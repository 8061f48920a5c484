"""Metering end to end: a real egress, the real gate and ledger, and servers with the shapes of
the model APIs."""

import asyncio
import contextlib
import json
import os
import signal
from typing import Any

import pytest

from supervisor.core.money import PICOUSD, microusd
from supervisor.core.network.egress_wire import Credential
from supervisor.core.sessions import Session
from supervisor.server.operator.pages.network_page import call_words
from tests.fakes.model_api import MODEL, ModelApi
from tests.fakes.waiting import PATIENCE_S
from tests.network.conftest import Setting, really_started

HAIKU_4 = {"model": MODEL, "max_tokens": 1000, "messages": []}


def budget(place: Setting, text: str) -> Session:
    return place.office.open(place.session_id, budget=text)


async def post(
    place: Setting,
    api: ModelApi,
    body: dict[str, Any],
    path: str = "/v1/messages",
    host: str = "models.test",
    extra: str = "",
) -> tuple[int, bytes, str]:
    """Status, body (as it came) and head of the answer to one call."""
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    try:
        head = (
            f"POST http://{host}:{api.port}{path} HTTP/1.1\r\nHost:"
            f" {host}:{api.port}\r\nContent-Length: {len(data)}\r\n{extra}Connection: close\r\n\r\n"
        )
        writer.write(head.encode() + data)
        said = await reader.read()
    finally:
        writer.close()
    top, _, rest = said.partition(b"\r\n\r\n")
    return int(top.split()[1]) if top else 0, rest, top.decode()


async def let_out(place: Setting, count: int) -> None:
    """Once so many calls were let out."""
    async with asyncio.timeout(PATIENCE_S):
        while len(place.office.audited("spend_reserved")) < count:
            await asyncio.sleep(0.01)


async def settled(place: Setting, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(PATIENCE_S):
        while len(found := place.office.audited("spend_settled")) < count:
            await asyncio.sleep(0.01)
    return [json.loads(line) for line in found]


SHAPES = [
    ("/v1/messages", False, {}),
    ("/v1/messages", True, {}),
    ("/v1/messages", True, {"gzip": True, "step": 3}),
    ("/gateway/v1/messages?beta=true", True, {"cached": 900}),
    ("/v1/chat/completions", False, {"cached": 5}),
    ("/api/v1/chat/completions", True, {"cached": 5}),
    ("/v1/responses", True, {"cached": 5}),
    ("/v1/responses", False, {"gzip": True}),
    (f"/model/us.anthropic.{MODEL}-20251001-v1%3A0/converse", False, {}),
    (f"/model/us.anthropic.{MODEL}-20251001-v1%3A0/converse-stream", True, {"step": 7}),
]


@pytest.mark.parametrize(("path", "streams", "stub"), SHAPES)
async def test_every_shape_is_metered_to_the_token(
    desk: Setting, api: ModelApi, path: str, streams: bool, stub: dict[str, Any]
) -> None:
    status, _, head = await post(
        desk,
        api,
        HAIKU_4 | {"stream": streams, "stub": stub},
        path,
        extra="Accept-Encoding: br, gzip\r\n",
    )
    assert status == 200, head
    (line,) = await settled(desk, 1)
    assert line["cost_picousd"] == api.billed > 0
    assert line["flags"] == []
    assert line["counts"]["output"] == 7


async def test_the_network_page_says_of_each_call_what_it_cost(
    desk: Setting, api: ModelApi
) -> None:
    await post(desk, api, HAIKU_4 | {"stream": True, "stub": {"cached": 900, "write": 5}})
    billed = api.billed
    await post(desk, api, {"text": "no call"}, path="/other")
    await settled(desk, 1)
    other, one = desk.office.network_log.of_session(desk.session_id)
    assert one.call is not None
    found = one.call
    assert (found.model, found.input_tokens, found.output_tokens) == (MODEL, 11, 7)
    assert (found.cache_read_tokens, found.cache_write_tokens, found.flags) == (900, 5, ())
    assert found.cost_microusd == -(-billed // 10**6) > 0
    assert other.call is None


async def test_a_body_longer_than_what_is_streamed_elsewhere_is_held_and_metered(
    desk: Setting, api: ModelApi
) -> None:
    status, _, _ = await post(
        desk, api, HAIKU_4 | {"messages": [{"role": "user", "content": "x" * 300_000}]}
    )
    assert status == 200
    (line,) = await settled(desk, 1)
    assert line["cost_picousd"] == api.billed
    (reserved,) = (json.loads(one) for one in desk.office.audited("spend_reserved"))
    assert reserved["tokens"] == 200_000 + 1000  # no more than the model takes


async def test_what_only_shares_a_path_isnt_metered(desk: Setting, api: ModelApi) -> None:
    status, _, _ = await post(desk, api, {"text": "hello"}, host="origin.test")
    assert status == 200
    assert desk.office.audited("spend_reserved") == []


async def test_errors_cost_nothing(desk: Setting, api: ModelApi) -> None:
    for fault in ("429", "500", "529"):
        status, _, _ = await post(desk, api, HAIKU_4 | {"stub": {"fault": fault}})
        assert status == int(fault)
    lines = await settled(desk, 3)
    assert [(line["cost_picousd"], line["flags"]) for line in lines] == [(0, ["failed"])] * 3


@pytest.mark.parametrize(
    ("fault", "flags"),
    [
        ("cut", {"estimated", "cut_off"}),
        ("error", {"estimated", "failed"}),
        ("no-usage", {"estimated"}),
    ],
)
async def test_what_the_provider_didnt_say_counts_as_reserved(
    desk: Setting, api: ModelApi, fault: str, flags: set[str]
) -> None:
    await post(desk, api, HAIKU_4 | {"stream": True, "stub": {"fault": fault}})
    (line,) = await settled(desk, 1)
    assert set(line["flags"]) == flags
    assert line["counts"]["output"] == 1000


async def begun(
    desk: Setting, api: ModelApi, **more: object
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A call whose answer has begun, and goes on no further."""
    data = json.dumps(HAIKU_4 | more | {"stream": True, "stub": {"fault": "hang"}}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", desk.port)
    writer.write(
        f"POST http://models.test:{api.port}/v1/messages HTTP/1.1\r\nHost:"
        f" models.test:{api.port}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
    )
    await reader.readuntil(b"content_block_delta")
    return reader, writer


async def test_a_client_that_hangs_up_in_the_midst(desk: Setting, api: ModelApi) -> None:
    _, writer = await begun(desk, api)
    writer.transport.abort()
    (line,) = await settled(desk, 1)
    assert "cut_off" in line["flags"]
    assert line["counts"]["input"] == 11
    assert line["counts"]["output"] == 1000


async def test_a_client_that_hangs_up_while_the_provider_searches_pays_what_was_reserved(
    desk: Setting, api: ModelApi
) -> None:
    """The count that the answer begins with is that of the first step; the provider goes on
    reading by itself."""
    _, writer = await begun(desk, api, tools=[{"type": "web_fetch_20250910", "name": "web_fetch"}])
    writer.transport.abort()
    (line,) = await settled(desk, 1)
    (reserved,) = [json.loads(line) for line in desk.office.audited("spend_reserved")]
    assert line["cost_picousd"] == reserved["cost_picousd"]


async def test_an_origin_that_isnt_there_costs_nothing(desk: Setting, api: ModelApi) -> None:
    gone = ModelApi(port=1)
    desk.office.policy("allow:\n  - network(127.0.0.1:1)\n  - network(models.test:1)\n")
    status, _, _ = await post(desk, gone, HAIKU_4)
    assert status == 502
    (line,) = await settled(desk, 1)
    assert line["cost_picousd"] == 0


async def test_over_the_limit_the_call_is_held_and_goes_on_when_a_person_adds_to_it(
    desk: Setting, api: ModelApi
) -> None:
    mine = budget(desk, "0.001usd")
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(post(desk, api, HAIKU_4)) for _ in range(4)]
        request = await desk.office.asked()
        assert not api.requests
        assert request.reason.startswith(
            f"a call of `{MODEL}` at models.test: the budget of this session is $0.0010: $0.00 of"
            " it are used or reserved"
        )
        desk.office.gate.resolve(
            request.id, "approved", by="operator", shown_fingerprint=request.fingerprint
        )
    assert [call.result()[0] for call in calls] == [200] * 4
    await settled(desk, 4)
    found = desk.office.spending.summary(mine)
    assert found.used["session"].cost == api.billed
    assert found.limits["session"].cost == PICOUSD // 1000 + PICOUSD
    assert len(desk.office.audited("budget_raised")) == 1


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            "my-own`7\u202e\n",
            (
                "a call of `my-own'7\\u{202e}\\n` at models.test, priced at the highest for want of"
                " a price: "
            ),
        ),
        ("x" * 300, f"a call of `{'x' * 80}` at models.test, priced at"),
        ("", "a call that names no model at models.test, priced at"),
    ],
)
async def test_the_card_says_which_call_asks_for_more_whatever_its_model_is_called(
    desk: Setting, api: ModelApi, model: str, said: str
) -> None:
    budget(desk, "0.001usd")
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(post(desk, api, HAIKU_4 | {"model": model}))
        request = await desk.office.asked()
        assert request.reason.startswith(said)
        desk.office.gate.resolve(request.id, "denied", by="operator")
    assert call.result()[0] == 402
    assert not api.requests


async def test_the_card_says_why_a_call_that_searches_may_need_so_much(
    desk: Setting, api: ModelApi
) -> None:
    budget(desk, "0.01usd")
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(
            post(desk, api, HAIKU_4 | {"tools": [{"type": "web_search_20250305"}]})
        )
        request = await desk.office.asked()
        assert "tools that the provider runs itself" in request.reason
        desk.office.gate.resolve(request.id, "denied", by="operator")
    assert call.result()[0] == 402


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/v1/messages", 402, "billing_error"),
        ("/v1/chat/completions", 429, "insufficient_quota"),
        ("/v1/responses", 429, "insufficient_quota"),
        (f"/model/{MODEL}/converse", 400, "ServiceQuotaExceededException"),
    ],
)
async def test_a_denial_is_said_in_the_providers_own_words(
    desk: Setting, api: ModelApi, path: str, status: int, kind: str
) -> None:
    budget(desk, "0usd")
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(post(desk, api, HAIKU_4, path))
        request = await desk.office.asked()
        desk.office.gate.resolve(request.id, "denied", by="operator", reason="enough")
    found, body, head = call.result()
    assert found == status
    assert kind in body.decode() + head
    assert "enough" in json.loads(body)["gatehouse"]["why"]
    assert "x-should-retry: false" in head.lower()
    assert not api.requests
    # Once denied it isn't asked again in this session.
    again, _, _ = await post(desk, api, HAIKU_4, path)
    assert (again, desk.office.pending()) == (status, [])
    assert len(desk.office.audited("budget_refused")) == 2


async def test_64_parallel_calls_add_up_and_overrun_nothing(desk: Setting, api: ModelApi) -> None:
    mine = budget(desk, "0.1usd")
    api.gate.clear()
    desk.broker._ask_at_limit = False  # as GATEHOUSE_AT_LIMIT=deny
    desk.broker.end_connections()
    await desk.broker.wait_healthy(after_starts=1)
    async with asyncio.TaskGroup() as tasks:
        calls = [
            tasks.create_task(post(desk, api, HAIKU_4 | {"stub": {"output": number}}))
            for number in range(64)
        ]
        # Each reserves about $0.0071: fourteen fit, though all of them together cost far less.
        await let_out(desk, 14)
        assert desk.office.spending.summary(mine).used["session"].cost <= PICOUSD // 10
        api.gate.set()
    codes = [call.result()[0] for call in calls]
    assert set(codes) <= {200, 402}
    assert codes.count(200) >= 14
    await settled(desk, codes.count(200))
    assert desk.office.spending.summary(mine).used["session"].cost == api.billed
    assert len(api.requests) == codes.count(200)


@really_started
async def test_when_egress_is_killed_what_was_under_way_counts_as_reserved(
    desk: Setting, api: ModelApi
) -> None:
    api.gate.clear()
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(post(desk, api, HAIKU_4))
        await let_out(desk, 1)
        async with asyncio.timeout(PATIENCE_S):
            while not api.requests:
                await asyncio.sleep(0.01)
        assert desk.broker.pid is not None
        os.kill(desk.broker.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            await call
    (line,) = await settled(desk, 1)
    assert line["flags"] == ["lost"]
    (reserved,) = (json.loads(one) for one in desk.office.audited("spend_reserved"))
    assert line["cost_picousd"] == reserved["cost_picousd"]


@really_started
async def test_of_a_call_that_a_killed_egress_left_the_network_page_has_what_it_counts_as(
    desk: Setting, api: ModelApi
) -> None:
    """One call is over when egress is killed, of one the answer has begun, one waits for its
    answer, and one for its budget."""
    await post(desk, api, HAIKU_4)
    (exact,) = await settled(desk, 1)
    began = asyncio.Event()

    async def answered() -> None:
        reader, writer = await begun(desk, api)
        began.set()
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()

    async def waits(max_tokens: int) -> None:
        with contextlib.suppress(OSError):
            await post(desk, api, HAIKU_4 | {"max_tokens": max_tokens})

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(answered())
        await began.wait()
        api.gate.clear()
        tasks.create_task(waits(2000))
        await let_out(desk, 3)
        budget(desk, "0.01usd")
        tasks.create_task(waits(64000))
        await desk.office.asked()
        assert desk.broker.pid is not None
        os.kill(desk.broker.pid, signal.SIGKILL)
    await settled(desk, 3)
    held, waited, streamed, whole = desk.office.network_log.of_session(desk.session_id)
    assert (whole.call is not None, held.call) == (True, None)
    ledger = {line["reservation"]: line["cost_picousd"] for line in await settled(desk, 3)}
    del ledger[exact["reservation"]]
    shown = []
    for one, output in ((waited, 2000), (streamed, 1000)):
        assert one.call is not None
        assert (one.call.model, one.call.output_tokens, one.call.flags) == (
            MODEL,
            output,
            ("lost",),
        )
        assert (one.ended_at is not None, one.error) == (True, "egress ended")
        shown.append(one.call.cost_microusd)
        assert "an estimate that stands" in call_words(one.call)
    assert sorted(shown) == sorted(microusd(cost) for cost in ledger.values())
    assert all(shown)


async def test_what_cant_be_metered_is_denied_under_a_budget(desk: Setting, api: ModelApi) -> None:
    budget(desk, "5usd")
    status, body, _ = await post(desk, api, {"requests": []}, "/v1/messages/batches")
    assert (status, "can't be metered" in body.decode()) == (402, True)
    budget(desk, "")
    assert (await post(desk, api, {"requests": []}, "/v1/messages/batches"))[0] == 200


async def test_at_a_host_that_gets_a_key_a_body_that_cant_be_read_is_the_largest_call(
    desk: Setting, api: ModelApi
) -> None:
    key = Credential(
        placeholder="gatehouse-placeholder-x", secret="a-real-key-0123", header="authorization",
        hosts=(f"origin.test:{api.port}",), scheme="http"
    )  # fmt: skip
    encoded = "Content-Encoding: gzip\r\n"
    assert (await post(desk, api, HAIKU_4, host="origin.test", extra=encoded))[0] == 200
    assert desk.office.audited("spend_reserved") == []
    await desk.broker.open_session(desk.session_id, desk.listener, [key])
    assert (await post(desk, api, HAIKU_4, host="origin.test", extra=encoded))[0] == 200
    (reserved,) = (json.loads(one) for one in desk.office.audited("spend_reserved"))
    assert reserved["flags"] == ["unknown_model", "unknown_tier", "bills_more"]
    assert reserved["tokens"] > 10**6


async def test_a_call_under_way_that_the_rules_allow_no_longer_counts_like_one_that_hangs_up(
    desk: Setting, api: ModelApi
) -> None:
    _, writer = await begun(desk, api)
    desk.office.policy(f"deny:\n  - network(models.test:{api.port})\n")
    desk.broker.reconsider()
    (line,) = await settled(desk, 1)
    assert "cut_off" in line["flags"]
    assert line["counts"]["input"] == 11
    assert line["counts"]["output"] == 1000
    writer.close()
