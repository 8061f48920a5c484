"""Reviews that are held, stopped, or in the middle when the supervisor ends: nothing is lost, and
the newest heads are reviewed afterwards."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from supervisor.core.approvals import status
from supervisor.core.forge_acts import Act
from supervisor.errors import GatehouseError, NotFoundError
from supervisor.reviews.demo.state import Tongue
from supervisor.reviews.forges.base import RepositoryFacts
from supervisor.reviews.store import queries
from supervisor.server.operator import decisions
from tests.fakes.messages_server import Json, Turn
from tests.fakes.messages_server import text as said
from tests.fakes.reviewed import (
    CLEAN,
    NAME,
    Reviewed,
    forge_with_people,
    reviewed,
    reviewed_by_model,
    reviewing_at,
)

pytestmark = pytest.mark.xdist_group("reviews-held")
POST_ALLOWED = "version: 1\nallow: [review(* */*)]\n"


def posts_policy(folder: Path) -> Path:
    file = folder / "acts.yaml"
    file.write_text(POST_ALLOWED)
    return file


def runs_of(on: Reviewed) -> list[tuple[str, str]]:
    """Head and outcome of each run, oldest first."""
    with on.service.engine.connect() as connection:
        rows = connection.execute(text("select head_sha, outcome from runs order by wanted_at"))
        return [(head, outcome) for head, outcome in rows]


def ended(on: Reviewed) -> list[str]:
    """Outcomes of the runs that ended, oldest first."""
    return [outcome for _, outcome in runs_of(on) if outcome]


@contextlib.contextmanager
def fetching(on: Reviewed) -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Let nobody fetch code before `go` is set; `begun` is set once a run wants to."""
    begun, go = asyncio.Event(), asyncio.Event()
    token = on.client.clone_token

    async def wait(repository: RepositoryFacts) -> str:
        if on.service.runs.under_way:
            begun.set()
        await go.wait()
        return await token(repository)

    on.client.clone_token = wait  # type: ignore[method-assign]
    try:
        yield begun, go
    finally:
        on.client.clone_token = token  # type: ignore[method-assign]


async def until_handled(on: Reviewed, count: int) -> None:
    def found() -> bool | None:
        with on.service.engine.connect() as connection:
            known = queries.newest_deliveries(connection)
        handled = [
            one for one in known if one.event in ("pull_request", "pullrequest") and one.handled_at
        ]
        return len(handled) >= count or None

    await on.running.until_soon(found, f"{count} handled webhooks")


async def test_held_nothing_starts_and_on_release_the_newest_head_alone_is_reviewed(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    async with reviewed(tmp_path, forge, policy_file=posts_policy(tmp_path)) as on:
        on.service.hold("all", "", by="ada", why="the model is being changed")
        pull = on.open_pull()
        first = pull.head_sha
        check = await on.check(first, "neutral")
        assert "held by ada: the model is being changed" in on.words(check)
        for number in range(3):
            on.forge.push(NAME, pull.number, {f"shop/m{number}.py": "x = 1\n"}, "More")
        await asyncio.to_thread(on.forge.until_sent)
        assert {one.status for one in on.forge.sent} == {202}
        await until_handled(on, 4)
        await on.check(pull.head_sha, "neutral")
        await asyncio.sleep(2.5)
        assert runs_of(on) == []
        held = [one for one in on.receipts() if one.head_sha == pull.head_sha]
        assert [one.outcome for one in held] == ["held"], "once, however often it is looked at"
        on.service.release("all", "", by="ada")
        await on.receipt("found", "clean")
        assert [head for head, _ in runs_of(on)] == [pull.head_sha]
        assert on.running.audit("reviews_held", by="ada", scope="all")
        assert on.running.audit("reviews_released", by="ada")


async def test_what_runs_finishes_and_what_it_would_post_waits_with_the_answer_of_a_person(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    async with reviewed(tmp_path, forge) as on:
        with fetching(on) as (begun, go):
            pull = on.open_pull()
            await begun.wait()
            on.service.hold("repository", NAME.upper(), by="ada", why="")
            go.set()
            (request,) = await on.posts()
        assert (await on.receipt("found")).reason == ""
        on.running.approve(request)
        await asyncio.sleep(2.5)
        assert status(on.running.parts.queue.get(request.id)) == "approved"
        assert on.reviews(pull) == []
        on.service.release("repository", NAME, by="ada")
        await on.running.done(request)
        assert len(on.reviews(pull)) == 1


@pytest.mark.many
async def test_an_act_that_is_held_waits_over_a_restart(tmp_path: Path, forge: Tongue) -> None:
    with forge_with_people(tmp_path / "stage", forge) as stage:
        async with reviewing_at(stage, tmp_path) as on:
            pull = on.open_pull()
            (request,) = await on.posts()
            page = "pull" if forge == "github" else "pull-requests"
            url = f"{on.forge.url}/{NAME}/{page}/{pull.number}"
            on.service.hold("pull", url, by="ada")
            on.running.approve(request)
            await asyncio.sleep(0.5)
        async with reviewing_at(stage, tmp_path) as on:
            (hold,) = on.service.holds.standing()
            assert (hold.scope, hold.key) == ("pull", f"{on.name()}#{pull.number}")
            await asyncio.sleep(1.5)
            assert on.reviews(pull) == []
            on.service.release("pull", f"{on.name()}#{pull.number}", by="ada")
            await on.running.done(request)
            assert len(on.reviews(pull)) == 1


@pytest.mark.many
async def test_a_hold_of_another_repository_or_pull_request_holds_nothing_here(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    others = {"acme/other": {"a.py": "x = 1\n"}}
    async with reviewed(tmp_path, forge, others=others) as on:
        await on.service.reconcile.repositories()
        on.service.hold("repository", "acme/other", by="ada")
        on.service.hold("pull", f"{NAME}#99", by="ada")
        other = "bitbucket" if forge == "github" else "github"
        on.service.hold("forge", other, by="ada")
        on.open_pull()
        await on.posts()
        with pytest.raises(NotFoundError):
            on.service.release("all", "", by="ada")
        for scope, key in (("forge", "gitlab"), ("pull", "nonsense"), ("repository", "no/such")):
            with pytest.raises(GatehouseError):
                on.service.hold(scope, key, by="ada")  # type: ignore[arg-type]


@pytest.mark.many
async def test_a_run_that_waits_for_its_turn_starts_at_the_newest_head_after_the_hold(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    more = {"review_concurrency": 1, "policy_file": posts_policy(tmp_path)}
    async with reviewed(tmp_path, forge, **more) as on:
        with fetching(on) as (begun, go):
            on.open_pull()
            await begun.wait()
            waiting = on.open_pull({"shop/b.py": "b = 1\n"}, branch="second")
            old = waiting.head_sha
            await on.running.until_soon(lambda: len(runs_of(on)) == 2 or None, "the second run")
            on.service.hold("all", "", by="ada")
            on.forge.push(NAME, waiting.number, {"shop/c.py": "c = 1\n"}, "More")
            go.set()
            await on.receipt("found", number=1)
            await until_handled(on, 3)
        on.service.release("all", "", by="ada")
        await on.receipt("found", "clean", number=2)
        ran = [(head, outcome) for head, outcome in runs_of(on) if outcome != "stopped"]
        assert old not in [head for head, _ in ran]
        assert waiting.head_sha in [head for head, _ in ran]


@pytest.mark.many
async def test_one_that_waits_long_for_its_turn_has_not_stopped_answering(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge, review_concurrency=1) as on:
        real, later_s = on.running.parts.clock.now, [0.0]
        on.running.parts.clock.now = lambda: real() + later_s[0]  # type: ignore[method-assign]
        with fetching(on) as (begun, go):
            on.open_pull()
            await begun.wait()
            on.open_pull({"shop/b.py": "b = 1\n"}, branch="second")
            await on.running.until_soon(lambda: len(runs_of(on)) == 2 or None, "the second run")
            for _ in range(5):
                later_s[0] += 61.0
                on.service.slots.drain()
            go.set()
        await on.receipt("found", "clean", number=2)


async def test_stopped_the_run_is_cut_and_wanted_again_afterwards(
    tmp_path: Path, forge: Tongue
) -> None:
    asked, answer = threading.Event(), threading.Event()

    def step(body: Json) -> Turn:
        asked.set()
        answer.wait(30)
        return said(CLEAN)

    async with reviewed_by_model(tmp_path, forge, [step] * 4) as on:
        pull = on.open_pull()
        await on.running.until_soon(lambda: asked.is_set() or None, "a call of the model")
        decisions.stop_all(on.running.parts, by="ada", reason="something is wrong")
        await on.running.until_soon(
            lambda: "stopped" in [outcome for _, outcome in runs_of(on)] or None, "the run's end"
        )
        assert on.receipts() == [], "it is neither failed nor reviewed"
        later = on.forge.push(NAME, pull.number, {"shop/new.py": "x = 1\n"}, "More")
        await until_handled(on, 2)
        await asyncio.sleep(1.5)
        assert len(runs_of(on)) == 1
        answer.set()
        decisions.resume(on.running.parts, by="ada")
        await on.check(later, "success")
        assert runs_of(on)[-1] == (later, "clean")
        assert len(runs_of(on)) == 2
        assert all(isinstance(one.action, Act) for one in on.acts())


async def test_at_the_end_what_runs_may_finish_and_nothing_new_starts(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge, policy_file=posts_policy(tmp_path)) as on:
        with fetching(on) as (begun, go):
            pull = on.open_pull()
            await begun.wait()
            draining = asyncio.ensure_future(on.service.drain())
            await asyncio.sleep(0)
            on.open_pull({"shop/b.py": "b = 1\n"}, branch="second")
            await until_handled(on, 2)
            await asyncio.sleep(1.5)
            assert not draining.done()
            go.set()
            await draining
        assert runs_of(on) == [(pull.head_sha, "found")]


@pytest.mark.many
async def test_what_does_not_finish_in_time_is_taken_up_at_once_by_the_next_start(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    with forge_with_people(tmp_path / "stage", forge) as stage:
        for attempt in range(3):
            async with reviewing_at(stage, tmp_path) as on:
                with fetching(on) as (begun, _):
                    if not attempt:
                        on.open_pull()
                    await asyncio.wait_for(begun.wait(), 10)
                    await on.service.drain(0.2)
        async with reviewing_at(stage, tmp_path) as on:
            await on.running.until_soon(lambda: ended(on)[-1] != "stopped" or None, "the end")
            assert ended(on) == ["stopped", "stopped", "stopped", "found"]


@pytest.mark.many
async def test_a_check_that_was_denied_while_all_was_stopped_is_set_afterwards(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    async with reviewed(tmp_path, forge) as on:
        await on.service.reconcile.repositories()
        decisions.stop_all(on.running.parts, by="ada")
        pull = on.open_pull(is_draft=True)
        assert (await on.receipt("skipped")).reason == "draft"
        await asyncio.sleep(1.5)
        assert on.forge.repositories[NAME].checks == []
        decisions.resume(on.running.parts, by="ada")
        await on.check(pull.head_sha, "neutral")


@pytest.mark.many
async def test_however_many_checks_a_crash_left_unset_all_are_asked_for_at_the_start(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    with forge_with_people(tmp_path / "stage", forge) as stage:
        async with reviewing_at(stage, tmp_path) as on:
            on.open_pull(is_draft=True)
            await on.receipt("skipped")
            on.service.receipts._ask = lambda *facts: None
            heads = {f"{number:040x}" for number in range(150)}
            for head in sorted(heads):
                on.service.receipts.leave(1, head, outcome="skipped", reason="draft")
        async with reviewing_at(stage, tmp_path) as on:

            def asked() -> set[str]:
                return {one.action.head for one in on.acts() if isinstance(one.action, Act)}

            await on.running.until_soon(lambda: heads <= asked() or None, "all checks")
        async with reviewing_at(stage, tmp_path) as on:
            await asyncio.sleep(0.5)
            checks = [one for one in on.acts() if isinstance(one.action, Act)]
            assert len(checks) == len(heads) + 1, "and none is asked for twice"
