"""A pull request from its webhook to the review that stands on it, over real HTTP, git and
sandboxes, with a recorded model."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.core.actions import Exec, Git, RefUpdate
from supervisor.core.approvals import Request, RequestId, status
from supervisor.core.forge_acts import Act
from supervisor.errors import ChangedError, GatehouseError, UserError
from supervisor.reviews.demo.state import Tongue
from supervisor.reviews.forges.base import ForgeError, RepositoryFacts
from tests.fakes.reviewed import NAME, POSTING, bare, forge_with_people, reviewed, reviewing_at

pytestmark = pytest.mark.xdist_group("reviews")
POST_ALLOWED = "version: 1\nallow: [review(* */*)]\n"

QUERY = 'found = connection.execute(f"select * from orders where number = {number}")'


def posts_policy(folder: Path, text: str = POST_ALLOWED) -> Path:
    file = folder / "acts.yaml"
    file.write_text(text)
    return file


@pytest.mark.on_both
async def test_a_pull_request_is_reviewed_and_a_person_lets_it_be_posted(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        pull = on.open_pull()
        (request,) = await on.posts()
        assert on.reviews(pull) == [], "nobody has answered yet"
        assert isinstance(request.action, Act)
        (comment,) = request.action.comments
        assert (comment.path, comment.line) == ("shop/cart.py", 5)
        on.running.approve(request)
        outcome = await on.running.done(request)
        (review,) = on.reviews(pull)
        assert review["id"] == outcome["id"]
        assert on.verdict(pull) == ""
        assert pull.comments[0]["line"] == 5
        receipt = await on.receipt("found")
        assert on.service.receipts.is_signed(receipt)
        check = await on.check(pull.head_sha, "neutral")
        assert "1 low" in on.words(check)
        session = on.running.parts.sessions.recent()[0]
        assert "turns" not in (session.review or {})
        report = on.running.parts.sessions.folder(session.id) / "review.json"
        first, last = json.loads(report.read_text())["turns"]
        assert first["calls"][0]["tool"] == "git_diff"
        assert "def count(items)" in first["calls"][0]["result"]
        assert "<review>" in last["said"]
        assert not (report.parent / "merged").exists(), "its copy is of no use any more"


async def test_rules_alone_post_it(tmp_path: Path, forge: Tongue) -> None:
    async with reviewed(tmp_path, forge, policy_file=posts_policy(tmp_path)) as on:
        pull = on.open_pull()
        (request,) = await on.posts()
        await on.running.done(request)
        assert len(on.reviews(pull)) == 1
        assert all(one.answer is None for one in on.acts())


async def test_denied_nothing_is_posted_and_the_reason_is_kept(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        pull = on.open_pull()
        (request,) = await on.posts()
        denied = on.running.deny(request, "we know")
        assert denied.answer_reason == "we know"
        receipt = await on.receipt("skipped")
        assert receipt.reason == "denied"
        assert on.reviews(pull) == []


@pytest.mark.many
async def test_a_newer_review_takes_the_place_of_one_that_waits(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        pull = on.open_pull()
        (first,) = await on.posts()
        on.forge.push(NAME, pull.number, {"shop/new.py": "x = 1\n"}, "More")
        both = await on.posts(2)
        assert status(on.running.parts.queue.get(first.id)) == "superseded"
        second = both[-1].action
        assert isinstance(second, Act)
        assert second.head == pull.head_sha


async def test_where_the_head_moved_on_nothing_is_posted_at_the_old_one(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        pull = on.open_pull()
        (request,) = await on.posts()
        on.forge.loses_webhooks = True
        on.forge.push(NAME, pull.number, {"shop/new.py": "x = 1\n"}, "More")
        on.running.approve(request)
        outcome = await on.running.done(request)
        assert outcome["ok"] is False
        assert on.reviews(pull) == []
        assert (await on.receipt("skipped")).reason == "head-moved"


async def test_thirty_pushes_in_a_burst_are_two_runs_at_most(tmp_path: Path, forge: Tongue) -> None:
    policy = posts_policy(tmp_path)
    async with reviewed(tmp_path, forge, policy_file=policy, review_debounce_s=(0.5, 2.0)) as on:
        pull = on.open_pull()
        for number in range(30):
            on.forge.push(NAME, pull.number, {f"shop/m{number}.py": "x = 1\n"}, "More")
        await on.check(pull.head_sha, "neutral")
        with on.service.engine.connect() as connection:
            runs = connection.exec_driver_sql("select head_sha from runs").all()
        assert len(runs) <= 2
        assert runs[-1][0] == pull.head_sha


@pytest.mark.parametrize(
    ("more", "reason"), [({"is_draft": True}, "draft"), ({"author": "ours"}, "own")]
)
async def test_what_is_not_reviewed_leaves_a_receipt_with_its_reason(
    tmp_path: Path, forge: Tongue, more: dict[str, Any], reason: str
) -> None:
    async with reviewed(tmp_path, forge) as on:
        if reason == "own":
            more = {"author": on.forge.app_login}
            if forge == "bitbucket":  # whose a token is, is known from the first thing it makes
                on.open_pull(branch="first", is_draft=True)
                on.forge.comment(NAME, 1, author="ada", body="@gatehouse why")
                (asked,) = await on.running.until_soon(lambda: on.acts()[1:] or None, "an answer")
                on.running.approve(asked)
                await on.running.done(asked)
        known = len(on.acts())
        pull = on.open_pull(**more)
        receipt = await on.receipt("skipped", number=pull.number)
        assert receipt.reason == reason
        if reason == "own":
            assert len(on.acts()) == known
        else:
            await on.check(pull.head_sha, "neutral")


async def test_a_fork_waits_for_a_writer_and_is_then_read_only(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        on.forge.add_repository("mallory/shop", {}, parent=NAME)
        on.forge.commit("mallory/shop", "evil", {"shop/x.py": "x = 1\n"}, "Hi", base="main")
        pull = on.forge.open_pull(
            NAME, "evil", title="@ada <b>", author="mallory", head_repository="mallory/shop"
        )
        assert (await on.receipt("held")).reason == "waits-for-writer"
        on.let_in(pull)
        (request,) = await on.posts()
        assert isinstance(request.action, Act)
        assert request.action.fork
        session = next(one for one in on.running.parts.sessions.recent() if one.kind == "review")
        assert {"--read-only", "--quarantine"} <= set(session.command)
        assert session.policy_file.endswith("reader.yaml")


async def test_a_redelivery_and_a_lost_webhook(tmp_path: Path, forge: Tongue) -> None:
    async with reviewed(tmp_path, forge) as on:
        on.forge.loses_webhooks = True
        pull = on.open_pull()
        await asyncio.to_thread(on.forge.until_sent)
        on.forge.loses_webhooks = False
        assert on.acts() == []
        await on.service.reconcile.poll()
        (request,) = await on.posts()
        on.forge.redeliver(on.forge.sent[0].id)
        on.forge.redeliver(on.forge.sent[0].id)
        await asyncio.to_thread(on.forge.until_sent)
        on.running.approve(request)
        await on.running.done(request)
        await on.service.reconcile.poll()
        assert len(on.reviews(pull)) == 1
        assert len(await on.posts()) == 1


@pytest.mark.many
@pytest.mark.only_on("bitbucket", "it sends nothing again by itself")
async def test_a_webhook_that_fails_here_is_sent_again_and_done_once(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        intake = on.service.intakes[forge]
        take, tries = intake.take, list[str]()

        def fails(*facts: Any) -> Any:
            tries.append("")
            if len(tries) < 3:
                raise OSError("the disk is full")
            return take(*facts)

        intake.take = fails  # type: ignore[method-assign]
        pull = on.open_pull()
        await on.posts()
        assert [one.status for one in on.forge.sent] == [500, 500, 202]
        assert len({one.guid for one in on.forge.sent}) == 1
        with on.service.engine.connect() as connection:
            runs = connection.exec_driver_sql("select head_sha from runs").all()
        assert [head for (head,) in runs] == [pull.head_sha]


async def test_post_forbidden_is_a_failed_receipt_and_never_a_success(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge, policy_file=posts_policy(tmp_path)) as on:
        on.forge.refuses[POSTING[forge]] = 403
        pull = on.open_pull()
        receipt = await on.receipt("failed")
        assert receipt.reason == "not-posted"
        check = await on.check(pull.head_sha, "failure")
        assert "The review failed" in on.words(check)


async def test_disabled_leaves_a_receipt_here_and_nothing_there(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        await on.service.reconcile.repositories()
        on.service.set_enabled(on.service.repository_named(NAME).id, is_enabled=False)
        on.open_pull()
        assert (await on.receipt("skipped")).reason == "disabled"
        assert on.acts() == []


@pytest.mark.many
async def test_closed_in_the_middle_ends_the_run(tmp_path: Path, forge: Tongue) -> None:
    async with reviewed(tmp_path, forge) as on:
        pull = on.open_pull()
        (request,) = await on.posts()
        on.forge.close(NAME, pull.number)
        await on.running.became(request, "expired", "denied", "superseded")


@pytest.mark.many
async def test_a_person_posts_some_of_it_in_other_words(tmp_path: Path, forge: Tongue) -> None:
    async with reviewed(tmp_path, forge) as on:
        change = {"a.py": f"{QUERY}\n"}
        change["b.py"] = "return total(items) / len(items)\n"
        pull = on.open_pull(change)
        (request,) = await on.posts()
        assert isinstance(request.action, Act)
        first, second = request.action.comments
        code = on.service.code_of(request.action)
        assert code[second.finding] == [
            (1, "return total(items) / len(items)", True),
            (2, "", False),
        ]
        part = on.service.answer_part(
            request.id,
            [second.finding],
            {"body": request.action.body, second.finding: "Mind the **empty** cart."},
            by="the test",
            fingerprint=request.fingerprint,
        )
        await on.running.done(part)
        (comment,) = pull.comments
        assert bare(comment) == "Mind the **empty** cart."
        assert comment["path"] == "b.py"
        assert "Findings: 1 medium." in on.reviews(pull)[0]["body"]
        assert first.finding not in on.reviews(pull)[0]["body"]
        assert status(on.running.parts.queue.get(request.id)) == "superseded"
        with pytest.raises(ChangedError):
            on.service.answer_part(
                request.id, [], {}, by="the test", fingerprint=request.fingerprint
            )


@pytest.mark.many
async def test_a_forge_that_is_down_is_waited_for(tmp_path: Path, forge: Tongue) -> None:
    async with reviewed(tmp_path, forge, policy_file=posts_policy(tmp_path)) as on:
        waited: list[float] = []

        async def wait(seconds: float) -> None:
            waited.append(seconds)
            if sum(waited) > 600:
                on.forge.refuses.clear()

        on.service.poster._sleep = wait
        on.forge.refuses[POSTING[forge]] = 503
        pull = on.open_pull()
        (request,) = await on.posts()
        await on.running.done(request)
        assert len(on.reviews(pull)) == 1
        assert waited[:3] == [15.0, 30.0, 60.0]
        assert max(waited) == 300.0


@pytest.mark.many
async def test_where_the_forge_takes_no_place_the_words_stand_in_the_text(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge, policy_file=posts_policy(tmp_path)) as on:
        on.forge.places = lambda repository, pull: {}  # type: ignore[method-assign]
        pull = on.open_pull()
        (request,) = await on.posts()
        assert (await on.running.done(request))["ok"]
        assert pull.comments == []
        assert "shop/cart.py:5" in on.reviews(pull)[0]["body"]


async def test_of_an_approved_push_a_pull_request_is_opened_once(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        await on.service.reconcile.repositories()
        sha = on.forge.commit(NAME, "fix", {"a.py": "x = 1\n"}, "Fix", base="main")
        update = RefUpdate("refs/heads/fix", "", sha)
        push = Request(
            id=RequestId("p"),
            session_id="s",
            origin="agent_api",
            action=Git(operation="push", url=f"{on.forge.url}/{NAME}.git", updates=(update,)),
            fingerprint="",
            subject="",
            asked_at=0.0,
            decision="allow",
            why="",
            outcome={"ok": True},
        )
        numbers = [
            (await on.running.done(on.service.open_pull(push, by="the test")))["id"]
            for _ in range(2)
        ]
        assert numbers == [1, 1]
        (pull,) = on.forge.repositories[NAME].pulls.values()
        assert (pull.head_ref, pull.base_ref, pull.author) == ("fix", "main", on.forge.app_login)
        elsewhere = Git(operation="push", url="https://other.example/a/b.git", updates=(update,))
        for other in (
            {"outcome": {"ok": False}},
            {"action": elsewhere},
            {"action": Exec(command="git push")},
        ):
            with pytest.raises(UserError):
                on.service.open_pull(msgspec.structs.replace(push, **other), by="the test")


async def test_a_review_that_fails_is_said_and_taken_up_by_the_poll_three_times(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    async with reviewed(tmp_path, forge) as on:

        async def fails(run: object, *rest: object, **more: object) -> None:
            raise GatehouseError("the reader gave no review")

        on.service.runs._read = fails  # type: ignore[assignment]
        pull = on.open_pull()
        receipt = await on.receipt("failed")
        assert receipt.reason == "the reader gave no review"
        await on.check(pull.head_sha, "failure")

        def ended(count: int) -> bool | None:
            with on.service.engine.connect() as connection:
                query = "select count(*) from runs where outcome = 'failed'"
                return connection.exec_driver_sql(query).scalar_one() == count or None

        for count in (2, 3):
            await on.service.reconcile.poll()
            await on.running.until_soon(partial(ended, count), f"{count} runs")
        await on.service.reconcile.poll()
        await asyncio.sleep(1.0)
        assert ended(3)
        assert await on.service.review_pull(NAME, pull.number) == "wanted"
        await on.running.until_soon(partial(ended, 4), "a person's wish")


@pytest.mark.many
async def test_a_run_that_may_go_better_is_tried_again(tmp_path: Path, forge: Tongue) -> None:
    async with reviewed(tmp_path, forge, policy_file=posts_policy(tmp_path)) as on:
        real, later_s, tries = on.running.parts.clock.now, [0.0], 0
        token = on.client.clone_token

        async def once(repository: RepositoryFacts) -> str:
            nonlocal tries
            tries += bool(on.service.runs.under_way)
            if tries == 1 and on.service.runs.under_way:
                raise ForgeError("no server is there", status=503, may_retry=True)
            return await token(repository)

        on.client.clone_token = once  # type: ignore[method-assign]
        on.running.parts.clock.now = lambda: real() + later_s[0]  # type: ignore[method-assign]
        pull = on.open_pull()
        await on.running.until_soon(lambda: tries or None, "the first try")
        later_s[0] = 40.0
        await on.check(pull.head_sha, "neutral")
        with on.service.engine.connect() as connection:
            (run,) = connection.exec_driver_sql("select attempt, outcome from runs").all()
        assert tuple(run) == (2, "found")


@pytest.mark.many
async def test_a_forge_that_is_down_for_ten_minutes_loses_no_webhook(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge) as on:
        await asyncio.to_thread(on.forge.until_sent)
        real, gone_s = on.running.parts.clock.now, [0.0]
        on.forge.is_down = True
        pull = on.open_pull()
        await asyncio.to_thread(on.forge.until_sent)

        def attempts() -> int:
            with on.service.engine.connect() as connection:
                query = "select attempts from deliveries where event like 'pull%'"
                return int(connection.exec_driver_sql(query).scalar() or 0)

        await on.running.until_soon(lambda: attempts() or None, "the first try")
        on.running.parts.clock.now = lambda: real() + gone_s[0]  # type: ignore[method-assign]
        for minutes in range(1, 11):
            gone_s[0] = minutes * 60.0
            await asyncio.sleep(0.05)
            await on.service.reconcile.handle_all()
        assert 3 <= attempts() <= 6
        on.forge.is_down = False
        gone_s[0] = 2000.0
        await on.service.reconcile.handle_all()
        assert (await on.posts())[0].action.head == pull.head_sha  # type: ignore[union-attr]


async def test_a_crash_between_the_post_and_the_record_posts_nothing_twice(
    tmp_path: Path, forge: Tongue
) -> None:
    with forge_with_people(tmp_path / "stage", forge) as stage:
        async with reviewing_at(stage, tmp_path) as on:
            pull = on.open_pull()
            (request,) = await on.posts()
            # What a kill leaves: the forge has it, and nothing says so here.
            on.running.parts.gate.settle = lambda *_: None  # type: ignore[method-assign]
            on.running.approve(request)
            await on.running.until_soon(lambda: on.reviews(pull) or None, "the review is posted")
        async with reviewing_at(stage, tmp_path) as on:
            outcome = await on.running.done(request)
            assert outcome["id"] == on.reviews(pull)[0]["id"]
            assert len(on.reviews(pull)) == 1
