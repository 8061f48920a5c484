"""Requests of HTTP/2 that are over before they would be: that is told at once, though their
connection goes on, and nobody is asked for them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme
from h2.errors import ErrorCodes

from supervisor.core.network.egress_wire import Question, Reserve, Settled
from supervisor.egress.mitm.held_bodies import TOO_LONG
from tests.egress.egress_harness import FakeSupervisor, running_egress, serving
from tests.egress.h2_client import H2Client, h2_client
from tests.fakes.h2_origin import HELLO, H2Origin, h2_origin

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOST = "api.openai.com"
CALL = "/v1/chat/completions"
NAMES = {HOST: ("127.0.0.1",)}
SHORT = """
from supervisor.egress.mitm import held_bodies
held_bodies.MOST_BODY_BYTES = 1000
"""
RAISES = """
from supervisor.egress.mitm.meter import Meter

async def reserve(self, flow):
    raise RuntimeError("broken by a test")

Meter.reserve = reserve
"""
SLOW = """
import asyncio
from supervisor.egress.mitm import meter

read = meter.said_by

async def said_by(*args):
    await asyncio.sleep(1)
    return await read(*args)

meter.said_by = said_by
"""


@pytest_asyncio.fixture(loop_scope="module")
async def h2(authority: trustme.CA) -> AsyncIterator[H2Origin]:
    async with h2_origin(authority, HOST) as origin:
        yield origin


@contextlib.asynccontextmanager
async def asking(
    folder: Path, upstream_ca: Path, origin: H2Origin, preface: str = ""
) -> AsyncIterator[tuple[FakeSupervisor, H2Client]]:
    """An egress that runs `preface` first, and a connection of HTTP/2 through it to the host of
    models."""
    async with (
        running_egress(folder, upstream_ca, preface=preface, names=NAMES) as supervisor,
        serving(supervisor, "s") as proxy,
        h2_client(proxy, f"{HOST}:{origin.port}", folder / "ca/mitmproxy-ca-cert.pem") as client,
    ):
        yield supervisor, client


@pytest.mark.parametrize(
    ("preface", "why"),
    [(SHORT, TOO_LONG), (RAISES, "egress failed while it looked at this")],
    ids=["its body is too long", "a hook raised"],
)
async def test_one_that_is_refused_after_all_is_told_as_that(
    tmp_path: Path, upstream_ca: Path, h2: H2Origin, preface: str, why: str
) -> None:
    async with asking(tmp_path, upstream_ca, h2, preface) as (supervisor, client):
        number, stream = client.ask(CALL, method="POST", end=False)
        client.send(number, b"x" * 2000, end=True)
        await client.until(lambda: stream.over)
        assert stream.status == 403
        settled = await supervisor.until(Settled)
        assert (settled.question_id, settled.outcome) == (
            supervisor.questions[-1].question_id,
            "failed",
        )
        assert settled.detail["error"] == why
    assert h2.untouched


async def test_no_budget_is_asked_for_a_call_that_is_given_up_while_its_body_is_looked_at(
    tmp_path: Path, upstream_ca: Path, h2: H2Origin
) -> None:
    async with asking(tmp_path, upstream_ca, h2, SLOW) as (supervisor, client):
        number, _ = client.ask(CALL, method="POST", end=False)
        await supervisor.until_one(
            lambda one: isinstance(one, Question) and one.action.path == CALL
        )
        client.send(number, b'{"model": "gpt-5"}', end=True)
        await asyncio.sleep(0.5)  # so that its body is looked at
        client.reset(number)
        settled = await supervisor.until(Settled)
        assert (settled.outcome, settled.detail["error"]) == ("failed", "the client went away")
        assert not supervisor.of_type(Reserve)
    assert not h2.requests


async def test_of_one_whose_reset_comes_together_with_its_end_nothing_goes_out(
    tmp_path: Path, upstream_ca: Path, h2: H2Origin
) -> None:
    async with asking(tmp_path, upstream_ca, h2) as (supervisor, client):
        client.ask_and_reset("/open")
        settled = await supervisor.until(Settled)
        assert settled.outcome == "failed"
        assert "the client went away" in str(settled.detail["error"])
        assert (await client.answered("/")).status == 200
    assert h2.requests == ["GET /"]


async def test_an_origin_may_say_in_one_breath_that_it_is_over_and_wants_no_more(
    tmp_path: Path, upstream_ca: Path, h2: H2Origin
) -> None:
    async with asking(tmp_path, upstream_ca, h2) as (supervisor, client):
        number, stream = client.ask("/no-more", method="POST", end=False)
        client.send(number, b"some")
        await client.until(lambda: bool(stream.resets))
        assert (stream.status, stream.body, stream.resets) == (413, HELLO, [ErrorCodes.NO_ERROR])
        settled = await supervisor.until(Settled)
        assert (settled.outcome, settled.detail["status"]) == ("done", 413)
