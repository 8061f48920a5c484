"""History that is rewritten while a review runs, and webhooks that come twice."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text

from supervisor.core.approvals import status
from supervisor.reviews.demo.state import Tongue
from supervisor.reviews.forges.base import RepositoryFacts
from tests.fakes.messages_server import text as said
from tests.fakes.reviewed import CHANGE, CLEAN, NAME, Reviewed, reviewed, reviewed_by_model
from tests.tables import share

pytestmark = pytest.mark.xdist_group("reviews-acts")
POST_ALLOWED = "version: 1\nallow: [review(* */*)]\n"
OTHER = {"shop/cart.py": CHANGE["shop/cart.py"] + "\n\ndef last(items):\n    return items[-1]\n"}


def heads(on: Reviewed) -> list[tuple[str, str]]:
    with on.service.engine.connect() as connection:
        rows = connection.execute(text("select head_sha, outcome from runs order by wanted_at"))
        return [(head, outcome) for head, outcome in rows]


@pytest.mark.parametrize("held_at", share(["clone_token", "pull"], "pull"))
async def test_a_forced_push_in_the_middle_of_a_run(
    tmp_path: Path, forge: Tongue, held_at: str
) -> None:
    """At first while the code is fetched, then right before the findings are posted."""
    policy = tmp_path / "acts.yaml"
    policy.write_text(POST_ALLOWED)
    async with reviewed(tmp_path, forge, policy_file=policy) as on:
        begun, go = asyncio.Event(), asyncio.Event()
        forge = on.client
        if held_at == "clone_token":
            token = forge.clone_token

            async def wait(repository: RepositoryFacts) -> str:
                if heads(on):  # the poll wants a token, too
                    begun.set()
                await go.wait()
                return await token(repository)

            forge.clone_token = wait  # type: ignore[method-assign]
        else:
            look = on.client.own_reviews

            async def wait_to_post(*facts: object) -> object:
                begun.set()
                await go.wait()
                return await look(*facts)  # type: ignore[arg-type]

            on.client.own_reviews = wait_to_post  # type: ignore
        pull = on.open_pull()
        old = pull.head_sha
        async with asyncio.timeout(45):
            await begun.wait()
        on.forge.commit(NAME, "feature", OTHER, "Rewritten", base="main")
        new = on.forge.pushed(NAME, pull.number)
        await asyncio.to_thread(on.forge.until_sent)
        assert new != old
        go.set()
        await on.check(new, "neutral")
        await on.running.until_soon(lambda: on.reviews(pull) or None, "the review of the new head")
        await on.running.until_soon(lambda: pull.comments or None, "its finding")
        there = {one["commit"] for one in pull.comments}
        assert (len(on.reviews(pull)), there) == (1, {new}), "nothing stands at the old head"
        assert [head for head, _ in heads(on)] == [old, new], "each was reviewed once"
        first = next(
            one
            for one in on.acts()
            if (one.action.operation, one.action.head) == ("post", old)  # type: ignore[union-attr]
        )
        assert status(on.running.parts.queue.get(first.id)) in ("used", "superseded")
        reasons = [one.reason for one in on.receipts() if one.head_sha == old]
        assert (
            reasons[-1] == "head-moved"
            or status(on.running.parts.queue.get(first.id)) == "superseded"
        )


async def test_a_person_who_redelivers_a_handled_webhook_changes_nothing(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        pull = on.open_pull()
        (request,) = await on.posts()
        await asyncio.to_thread(on.forge.until_sent)
        (sent,) = [one for one in on.forge.sent if one.event[:4] == "pull"]
        for _ in range(2):
            assert on.forge.redeliver(sent.id)
        await asyncio.to_thread(on.forge.until_sent)
        again = [one for one in on.forge.sent if one.guid == sent.guid]
        assert [one.status for one in again] == [202, 202, 202]
        await asyncio.sleep(1.5)
        with on.service.engine.connect() as connection:
            query = text("select count(*), sum(attempts) from deliveries where delivery_id = :id")
            assert connection.execute(query, {"id": sent.guid}).one() == (1, 1)
        assert heads(on) == [(pull.head_sha, "found")]
        assert [one.id for one in await on.posts()] == [request.id]


@pytest.mark.many
async def test_a_review_for_another_base_stands_for_nothing(tmp_path: Path, forge: Tongue) -> None:
    """What is reviewed for `dev`, which has most of it, is not yet reviewed for `main`."""
    rules = tmp_path / "approves.yaml"
    rules.write_text("version: 1\nallow: [review(* */* --approve)]\n")
    async with reviewed_by_model(tmp_path, forge, [said(CLEAN)] * 2, policy_file=rules) as on:
        on.forge.commit(NAME, "dev", {"evil.py": "evil()\n"}, "Into dev", base="main")
        on.forge.commit(NAME, "feature", {"good.py": "good()\n"}, "A change", base="dev")
        pull = on.forge.open_pull(NAME, "feature", title="x", base="dev")
        await on.check(pull.head_sha, "success")
        await on.running.until_soon(lambda: on.reviews(pull) or None, "the approval")
        pull.base_ref = "main"
        on.forge.tell(on.forge.repositories[NAME], pull, "edited")

        def is_done() -> bool:
            is_again = on.verdict(pull) == "approved" and len(on.all_said(pull)) == 2
            states = [one.get("state") for one in on.reviews(pull)]
            return is_again and states != ["APPROVED", "APPROVED"]

        await on.running.until_soon(lambda: is_done() or None, "it is reviewed again")
        await on.check(pull.head_sha, "success")
        assert [one.outcome for one in on.receipts()] == ["clean", "held", "clean"]
        assert [msgspec.json.decode(one.body)["files"] for one in on.receipts()] == [1, 0, 2]
        on.forge.tell(on.forge.repositories[NAME], pull, "edited")
        await asyncio.to_thread(on.forge.until_sent)
        await asyncio.sleep(1.5)
        assert len(heads(on)) == 2
