"""F5: the forge, the clone or the provider fails. Back-off, three tries, dead with a receipt; and
the review comes back by itself once what failed answers again."""

import socket
from pathlib import Path

import pytest
from sqlalchemy import text

from supervisor.errors import UserError
from supervisor.reviews.demo.state import Tongue
from supervisor.reviews.forges.base import ForgeError, RepositoryFacts
from tests.fakes.messages_server import Failure, Step
from tests.fakes.messages_server import text as said
from tests.fakes.reviewed import (
    CLEAN,
    MODEL_HOST,
    MODEL_KEY,
    Reviewed,
    reviewed,
    reviewed_by_model,
)

pytestmark = pytest.mark.xdist_group("reviews-held")
POST_ALLOWED = "version: 1\nallow: [review(* */*)]\n"


def attempts(on: Reviewed) -> list[tuple[int, str]]:
    """Attempts and outcome of each run, oldest first."""
    with on.service.engine.connect() as connection:
        query = text(
            "select attempt, outcome from runs where ended_at is not null order by wanted_at"
        )
        return [(attempt, outcome) for attempt, outcome in connection.execute(query)]


async def test_three_tries_then_dead_with_a_receipt_and_back_by_itself(
    tmp_path: Path, forge: Tongue
) -> None:
    policy = tmp_path / "acts.yaml"
    policy.write_text(POST_ALLOWED)
    async with reviewed(tmp_path, forge, policy_file=policy) as on:
        real, later_s = on.running.parts.clock.now, [0.0]
        on.running.parts.clock.now = lambda: real() + later_s[0]  # type: ignore[method-assign]
        token, waits = on.client.clone_token, list[float]()

        async def fails(repository: RepositoryFacts) -> str:
            raise ForgeError("no server is there", status=503, may_retry=True)

        on.client.clone_token = fails  # type: ignore[method-assign]
        pull = on.open_pull()
        for attempt, wait_s in ((1, 30.0), (2, 60.0)):
            await on.running.until_soon(
                lambda n=attempt: attempts(on) == [(n, "failed")] or None, f"try {attempt}"
            )
            with on.service.engine.connect() as connection:
                due_at = connection.execute(text("select due_at from slots")).scalar_one()
            waits.append(due_at - on.running.parts.clock.now())
            assert waits[-1] == pytest.approx(wait_s, abs=5)
            later_s[0] += wait_s + 1
        receipt = await on.receipt("failed")
        assert receipt.reason.startswith("no server is there")
        assert attempts(on) == [(3, "dead")]
        await on.check(pull.head_sha, "failure")

        # The forge is asked again, and the code can't be had still: it rests longer each time.
        await on.service.reconcile.poll()
        assert attempts(on) == [(3, "dead")]
        on.client.clone_token = token  # type: ignore[method-assign]
        await on.service.reconcile.poll()
        assert attempts(on) == [(3, "dead")], "it rests five minutes"
        later_s[0] += 301.0
        await on.service.reconcile.poll()
        wanted = [(3, "dead"), (1, "found")]
        await on.running.until_soon(lambda: attempts(on) == wanted or None, "the next run")
        await on.check(pull.head_sha, "neutral")


async def first_try(on: Reviewed) -> str:
    """Why the first try came to nothing, once another one is due."""
    await on.running.until_soon(lambda: on.service.runs._running or None, "a reader")
    await on.running.until_soon(lambda: attempts(on) == [(1, "failed")] or None, "a try")
    with on.service.engine.connect() as connection:
        found = connection.execute(text("select runs.reason, due_at, ended_at from runs, slots"))
        reason, due_at, ended_at = found.one()
    assert due_at == pytest.approx(ended_at + 30, abs=5)
    assert on.receipts() == [], "its check isn't red"
    return str(reason)


@pytest.mark.many
async def test_a_gateway_without_a_provider_is_tried_again(tmp_path: Path, forge: Tongue) -> None:
    """It is a server of this machine's, of which the shipped policies of readers say nothing."""
    broken = Failure(502, headers=(("retry-after", "0.01"),), body={"error": "bad gateway"})
    script: list[Step] = [broken] * 6
    async with reviewed_by_model(tmp_path, forge, [*script, said(CLEAN)]) as on:
        real, later_s = on.running.parts.clock.now, [0.0]
        on.running.parts.clock.now = lambda: real() + later_s[0]  # type: ignore[method-assign]
        pull = on.open_pull()
        assert await first_try(on) == "the model's provider has trouble (502)"
        later_s[0] = 40.0
        await on.receipt("clean")
        await on.check(pull.head_sha, "success")


@pytest.mark.many
async def test_a_provider_that_refuses_connections_is_tried_again(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        async with reviewed(
            tmp_path,
            anthropic_api_key=MODEL_KEY,
            anthropic_base_url=f"http://{MODEL_HOST}:{port}",
            names={MODEL_HOST: ("127.0.0.1",)},
        ) as on:
            on.open_pull()
            why = await first_try(on)
    assert why.startswith("the model's provider can't be reached: `model.test` port")
    assert "refused" in why


async def test_a_model_on_this_machines_loopback_is_told_at_start(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ANTHROPIC_BASE_URL .* is this machine's loopback"):
        async with reviewed(
            tmp_path, anthropic_api_key=MODEL_KEY, anthropic_base_url="http://localhost:8000"
        ):
            pass


@pytest.mark.only_on("github", "it is asked about each repository apart: the poll goes on")
async def test_nothing_comes_back_while_the_forge_does_not_answer(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        await on.service.reconcile.repositories()
        on.forge.is_down = True
        with pytest.raises(ForgeError):
            await on.service.reconcile.poll()
