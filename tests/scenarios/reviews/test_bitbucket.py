"""Reviews on Bitbucket Cloud: what its API asks for that GitHub's doesn't."""

import asyncio
import contextlib
import hashlib
import hmac
import html
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from supervisor.core.approvals import Request
from supervisor.core.forge_acts import Act, InlineComment
from supervisor.reviews.app.reviewing import reviewing
from supervisor.reviews.core.deliveries import Webhook
from supervisor.reviews.core.posts import mark
from supervisor.reviews.core.receipts import HEAD_MOVED
from supervisor.reviews.demo.bitbucket_json import uuid_of
from supervisor.reviews.demo.forge import DemoPull
from supervisor.reviews.demo.stage import JOB, NAME, Stage, staged
from supervisor.reviews.forges import bitbucket_calls
from supervisor.reviews.forges.base import RepositoryFacts
from supervisor.reviews.forges.bitbucket import Bitbucket, OwnAccount
from supervisor.reviews.pages import review_views
from supervisor.reviews.reconcile import facts_of
from supervisor.reviews.store import queries
from supervisor.reviews.webhooks import WebhookAnswer
from tests.fakes.reviewed import CHANGE, LOOK_EVERY_S, Reviewed
from tests.fakes.supervised import settings_in, supervised
from tests.tables import share

pytestmark = pytest.mark.xdist_group("bitbucket")
ALL = "version: 1\nallow: [review(* bitbucket:*/* --fork --approve)]\n"


@contextlib.asynccontextmanager
async def on_bitbucket(
    folder: Path, stage: Stage | None = None, policy: str = ALL, **changes: Any
) -> AsyncIterator[Reviewed]:
    with contextlib.ExitStack() as opened:
        if stage is None:
            stage = opened.enter_context(staged(folder / "stage", "bitbucket"))
            stage.forge.repositories[NAME].collaborators = {"ada": "write", "bob": "read"}
        (folder / "acts.yaml").write_text(policy)
        more: dict[str, Any] = {
            "forge_port": 0,
            "review_debounce_s": (0.2, 2.0),
            "review_poll_s": 3600.0,
            "policy_file": folder / "acts.yaml",
        }
        settings = settings_in(folder)._replace(**stage.settings() | more | changes)
        async with (
            supervised(settings) as running,
            reviewing(running.parts, look_every_s=LOOK_EVERY_S) as on,
        ):
            stage.tell(f"http://127.0.0.1:{on.port}")
            yield Reviewed(stage.forge, running, on)


def send(on: Reviewed, body: Any, **headers: str) -> tuple[int, str]:
    """What the door answers to a webhook; signed, unless a signature is given."""
    assert on.forge.hook is not None
    data = json.dumps(body).encode()
    signature = "sha256=" + hmac.new(on.forge.hook[1], data, hashlib.sha256).hexdigest()
    given = {
        "X-Hub-Signature": signature,
        "X-Event-Key": "pullrequest:created",
        "X-Request-UUID": "9a1c8ff1-0000-4000-8000-000000000001",
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"http://127.0.0.1:{on.port}/bitbucket"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, given), timeout=20) as answer:
            return answer.status, json.loads(answer.read())["outcome"]
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["outcome"]


def loses_answer(on: Reviewed, method: str, part: str) -> None:
    """The forge does what it is told once, and its answer is lost."""

    def once() -> None:
        on.forge.after.pop((method, part), None)
        raise ConnectionError("the answer is lost")

    on.forge.after[method, part] = once


async def settled(on: Reviewed, operation: str) -> Request:
    """The newest act of this kind, once it was carried out."""

    def found() -> Request | None:
        known = [one for one in on.acts() if one.action.operation == operation]  # type: ignore[union-attr]
        return known[-1] if known and known[-1].settled_at is not None else None

    return await on.running.until_soon(found, f"a settled {operation}")


async def page(on: Reviewed, path: str) -> str:
    """A page of the operator's."""
    supervisor = on.running.supervisor
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{supervisor.port}",
        headers={"Authorization": f"Bearer {supervisor.auth.cli_token}"},
    ) as operator:
        return (await operator.get(path)).text


def texts(pull: DemoPull) -> list[str]:
    """What we say on the pull request, oldest first, without the marks."""
    found = [one["body"] for one in pull.issue_comments if one["by"] == "gatehouse"]
    return [one.rpartition("\n\n`gatehouse:")[0] for one in found]


async def test_a_review_is_comments_then_a_summary_and_a_build_status(tmp_path: Path) -> None:
    async with on_bitbucket(tmp_path) as on:
        pull = on.open_pull()
        assert (await settled(on, "post")).outcome is not None
        (comment,), (summary,) = pull.comments, pull.issue_comments
        assert summary["id"] > comment["id"]
        assert summary["body"].startswith("## Review\n")
        assert "<" not in summary["body"] + comment["body"], "Bitbucket shows HTML as it is written"
        await settled(on, "check")
        (status,) = on.forge.repositories[NAME].checks
        assert (status["conclusion"], status["head_sha"]) == ("STOPPED", pull.head_sha)
        assert status["url"] == f"{on.forge.url}/{NAME}/pull-requests/1"
        (run,) = review_views.reviews(on.service)
        assert (run.repository, run.url, run.author) == (f"bitbucket:{NAME}", status["url"], "ada")
        shown = await page(on, f"/reviews/{run.id}")
        assert f'href="{status["url"]}"' in shown
        assert "Open on Bitbucket" in shown
        # A token that could be had nowhere else isn't in what was stored or shown.
        token = (tmp_path / "stage" / "bitbucket.token").read_text()
        kept = [one.read_bytes() for one in (tmp_path / "data").rglob("*") if one.is_file()]
        assert not any(token.encode() in one for one in kept)


async def test_webhooks_are_signed_and_handled_once(tmp_path: Path) -> None:
    async with on_bitbucket(tmp_path) as on:
        answer = partial(asyncio.to_thread, send, on)
        body = {"repository": {"full_name": NAME}, "pullrequest": {"id": 1}}
        assert (await answer(body, X_Hub_Signature=""))[0] == 401
        assert (await answer(body, X_Hub_Signature=f"sha256={'0' * 64}"))[0] == 401
        assert (await answer(body, X_Request_UUID="../x"))[0] == 400
        assert (await answer(body, X_Event_Key="nonsense"))[0] == 400
        assert await answer(body, X_Event_Key="repo:fork", X_Request_UUID="a") == (202, "stored")
        assert await answer({}, X_Event_Key="issue:created", X_Request_UUID="b") == (202, "ignored")
        on.forge.loses_webhooks = True
        on.open_pull()
        assert await answer(body) == (202, "stored")
        await on.receipt("found")
        # An answer that came late: Bitbucket sends it again, with the same id.
        assert await answer(body) == (202, "duplicate")
        assert len(await on.posts()) == 1
        # What we couldn't take is sent again by itself, and taken once.
        on.forge.loses_webhooks = False
        intake, failed = on.service.intakes["bitbucket"], list[bytes]()
        take = intake.take

        def fails_once(head: Webhook, body: bytes) -> WebhookAnswer:
            if not failed:
                failed.append(body)
                raise RuntimeError("the disk is full")
            return take(head, body)

        intake.take = fails_once  # type: ignore[method-assign]
        other = on.open_pull(branch="other")
        await on.receipt("found", number=other.number)
        assert len(failed) == 1


@pytest.mark.many
async def test_a_lost_webhook_and_a_push_are_found(tmp_path: Path) -> None:
    async with on_bitbucket(tmp_path) as on:
        on.forge.loses_webhooks = True
        on.open_pull()
        await on.service.reconcile.poll()
        await on.receipt("found")
        other = on.open_pull(branch="other")
        answer = partial(asyncio.to_thread, send, on)
        body = {"repository": {"full_name": NAME}, "push": {"changes": []}}
        assert await answer(body, X_Event_Key="repo:push") == (202, "stored")
        await on.receipt("found", number=other.number)


async def test_pushes_that_wait_cost_one_poll_and_others_repositories_no_call(
    tmp_path: Path,
) -> None:
    async with quiet(tmp_path) as (on, _):
        answer = partial(asyncio.to_thread, send, on)
        count, on.service.reconcile._rests_until["bitbucket"] = len(on.forge.calls), 1e12
        for number, name in enumerate((NAME, NAME, "other/one", NAME)):
            body = {"repository": {"full_name": name}, "push": {"changes": []}}
            said = await answer(body, X_Event_Key="repo:push", X_Request_UUID=f"p{number}")
            assert said == (202, "stored")
        on.service.reconcile._rests_until.clear()

        def handled() -> bool | None:
            with on.service.engine.connect() as connection:
                return not queries.unhandled(connection, 100) or None

        await on.running.until_soon(handled, "no webhook that waits")
        calls = [path for _, path in on.forge.calls[count:]]
        assert len([one for one in calls if one.endswith("/pullrequests")]) == 1
        assert not [one for one in calls if one.endswith(f"/repositories/{NAME}")]


@pytest.mark.many
async def test_a_push_that_nobody_told_of_is_seen_before_the_code_is_read(tmp_path: Path) -> None:
    with staged(tmp_path / "stage", "bitbucket") as stage:
        stage.forge.repositories[NAME].collaborators = {"ada": "write"}
        async with on_bitbucket(tmp_path, stage, repo_day_cost="0usd") as on:
            pull = on.open_pull()
            await on.receipt("held")
            on.forge.loses_webhooks = True
            on.forge.push(NAME, pull.number, {"shop/new.py": "x = 1\n"}, "More")
        async with on_bitbucket(tmp_path, stage) as on:
            receipt = await on.receipt("found")
            assert receipt.head_sha == pull.head_sha
            assert len(on.running.parts.sessions.recent()) == 1, "the older head is read by nobody"


@contextlib.asynccontextmanager
async def quiet(folder: Path) -> AsyncIterator[tuple[Reviewed, DemoPull]]:
    """A pull request that nobody reviews, and acts that need nobody."""
    async with on_bitbucket(folder) as on:
        await on.service.reconcile.repositories()
        on.service.set_enabled(on.service.repository_named(NAME).id, is_enabled=False)

        async def at_once(seconds: float) -> None:
            """A forge that gave no answer is asked again without a wait."""

        on.service.poster._sleep = at_once
        pull = on.open_pull()
        await on.receipt("skipped")
        yield on, pull


async def done(on: Reviewed, pull: DemoPull, operation: str, **more: Any) -> dict[str, Any]:
    """The outcome of an act."""
    act = Act(
        operation=operation,  # type: ignore[arg-type]
        forge="bitbucket",
        repository=NAME,
        number=pull.number,
        **{"head": pull.head_sha} | more,
    )
    session_id = on.service.repository_named(NAME).session_id
    asked = on.running.parts.gate.ask(act, session_id=session_id, origin="reviews")
    return await on.running.done(asked)


def client(on: Reviewed) -> Bitbucket:
    found = on.service.poster._forges.named("bitbucket")
    assert isinstance(found, Bitbucket)
    return found


def review(run_id: str, *findings: str, verdict: str = "comment") -> dict[str, Any]:
    comments = tuple(
        InlineComment(finding=one, path="shop/cart.py", line=5, body=one, severity="low")
        for one in findings
    )
    body = f"Round {run_id}.\n\n{mark(run_id, 'bitbucket')}"
    return {"body": body, "comments": comments, "verdict": verdict}


@pytest.mark.parametrize(
    "lost",
    share(
        [(), ("POST", "/comments"), ("POST", "/approve"), ("PUT", "/comments/")],
        ("POST", "/comments"),
    ),
)
async def test_whatever_answer_is_lost_nothing_stands_twice(
    tmp_path: Path, lost: tuple[str, str]
) -> None:
    async with quiet(tmp_path) as (on, pull):
        for run_id, finding, verdict in (("a1", "f1", "comment"), ("b2", "f2", "approve")):
            if lost:
                loses_answer(on, *lost)
            outcome = await done(on, pull, "post", **review(run_id, finding, verdict=verdict))
            assert outcome["ok"], outcome
        assert [one["body"].split("\n")[0] for one in pull.comments] == ["f1", "f2"]
        assert texts(pull) == ["Round b2.", "1 new finding; the summary above is up to date."]
        assert pull.verdicts == {"gatehouse": "approved"}
        # Another head: it takes its approval back, and says so on record.
        (ours,) = [one for one in pull.issue_comments if ":approve:" in one["body"]]
        assert f":approve:{pull.head_sha}`" in ours["body"]
        assert (await done(on, pull, "dismiss", targets=(str(ours["id"]),)))["ok"]
        assert pull.verdicts == {}
        assert (await done(on, pull, "dismiss", targets=(str(ours["id"]),)))["ok"]


async def test_an_approval_never_stands_without_the_text_that_says_of_which_head(
    tmp_path: Path,
) -> None:
    async with quiet(tmp_path) as (on, pull):
        # The text is refused for good: nothing is approved.
        on.forge.refuses["POST", "/comments"] = 400
        assert not (await done(on, pull, "post", **review("a1", verdict="approve")))["ok"]
        assert pull.verdicts == {}
        on.forge.refuses.clear()
        # The verdict is refused for now: it comes after the text, which isn't said again.
        on.forge.refuses["POST", "/approve"] = 503

        async def mended(seconds: float) -> None:
            assert texts(pull) == ["Round a1."]
            on.forge.refuses.clear()

        on.service.poster._sleep = mended
        assert (await done(on, pull, "post", **review("a1", verdict="approve")))["ok"]
        assert texts(pull) == ["Round a1."]
        assert pull.verdicts == {"gatehouse": "approved"}
        # One whose text somebody deleted is of no head, and is taken back.
        pull.issue_comments.clear()
        forge, facts = client(on), facts_of(on.service.repository_named(NAME))
        (orphan,) = await forge.own_reviews(facts, pull.number)
        assert (orphan.state, orphan.commit) == ("approved", "")
        assert (await done(on, pull, "dismiss", targets=(str(orphan.id),)))["ok"]
        assert pull.verdicts == {}


@pytest.mark.parametrize("after", ["comments", "summary"])
async def test_a_push_between_a_review_and_its_verdict_is_not_approved(
    tmp_path: Path, after: str
) -> None:
    async with quiet(tmp_path) as (on, pull):

        def moves() -> None:
            on.forge.after.clear()
            on.forge.push(NAME, pull.number, {"shop/new.py": "x = 1\n"}, "More")

        on.forge.after["POST", "/comments"] = moves
        findings = ("f1",) if after == "comments" else ()
        outcome = await done(on, pull, "post", **review("a1", *findings, verdict="approve"))
        assert not outcome["ok"]
        assert "the head is" in outcome["error"]
        assert pull.verdicts == {}
        assert texts(pull) == ([] if findings else ["Round a1."])


async def test_after_another_account_has_the_token_reviews_go_on(tmp_path: Path) -> None:
    """What the earlier one said is still ours; what it approved only a person can take back."""
    async with quiet(tmp_path) as (on, pull):
        assert (await done(on, pull, "post", **review("a1", verdict="approve")))["ok"]
        (first,) = pull.issue_comments
        # To the forge it is another account's by now.
        first["by"], pull.verdicts = "former", {"former": "approved"}
        forge = client(on)
        forge._account, forge._earlier = None, (f"former {uuid_of('former')}",)
        kept = OwnAccount(token="0", person=f"former {uuid_of('former')}")
        forge._account_file.write_bytes(msgspec.json.encode(kept))
        for run_id in ("b2", "c3", "c3"):
            outcome = await done(on, pull, "post", **review(run_id, verdict="comment"))
            assert outcome["ok"], outcome
        assert texts(pull) == ["Round c3."], "one summary by the new account, brought up to date"
        assert first["body"].startswith("Round a1.")
        account = msgspec.json.decode(forge._account_file.read_bytes(), type=OwnAccount)
        assert (account.person, account.earlier) == (
            f"gatehouse {uuid_of('gatehouse')}",
            (kept.person,),
        )
        outcome = await done(on, pull, "dismiss", targets=(str(first["id"]),))
        assert not outcome["ok"]
        assert "take it back by hand" in outcome["error"]
        assert pull.verdicts == {"former": "approved"}


async def test_the_diff_of_a_fork_that_is_gone_is_that_of_the_head(tmp_path: Path) -> None:
    async with on_bitbucket(tmp_path) as on:
        fork, files = "mallory/shop", {"shop/x.py": "def x():\n    return 1\n"}
        on.forge.add_repository(fork, {}, parent=NAME)
        on.forge.commit(fork, "x", files, "X", base="main")
        pull = on.forge.open_pull(NAME, "x", title="X", author="mallory", head_repository=fork)
        await on.receipt("held")
        on.forge.repositories[fork].is_gone, first = True, pull.head_sha
        forge = client(on)
        read = forge.pull_diff

        async def pull_diff(repository: RepositoryFacts, number: int) -> bytes:
            if pull.head_sha == first:
                on.forge.loses_webhooks = True
                on.forge.push(NAME, number, {"shop/y.py": "y = 1\n"}, "Y")
            return await read(repository, number)

        forge.pull_diff = pull_diff  # type: ignore[method-assign]
        on.forge.comment(NAME, pull.number, author="ada", body="@gatehouse review")

        def moved() -> bool | None:
            return (first, HEAD_MOVED) in [
                (one.head_sha, one.reason) for one in on.receipts()
            ] or None

        await on.running.until_soon(moved, "a receipt that says so")
        assert on.running.parts.sessions.recent() == [], "nobody read it as the first head's"


@pytest.mark.many
async def test_a_place_that_the_forge_does_not_take_stands_in_the_summary(tmp_path: Path) -> None:
    async with quiet(tmp_path) as (on, pull):
        wanted = review("a1", "f1", "f2")
        first, second = wanted["comments"]
        wanted["comments"] = (first, msgspec.structs.replace(second, line=400))
        assert (await done(on, pull, "post", **wanted))["ok"]
        assert [one["body"].split("\n")[0] for one in pull.comments] == ["f1"]
        assert texts(pull) == ["Round a1.\n\n`shop/cart.py:400`\n\nf2"]


async def test_a_fork_that_is_gone_is_read_by_its_diff_alone(tmp_path: Path) -> None:
    async with on_bitbucket(tmp_path) as on:
        fork, files = "mallory/shop", {"shop/x.py": "def x():\n    return 1\n"}
        on.forge.add_repository(fork, {}, parent=NAME)
        on.forge.commit(fork, "x", files, "X", base="main")
        pull = on.forge.open_pull(NAME, "x", title="X", author="mallory", head_repository=fork)
        assert (await on.receipt("held")).reason == "waits-for-writer"
        on.forge.repositories[fork].is_gone = True
        on.forge.comment(NAME, pull.number, author="ada", body="@gatehouse review")
        receipt = await on.receipt("found")
        assert "only its diff was looked at" in receipt.body
        await settled(on, "post")
        assert any("only its diff was looked at" in one for one in texts(pull))
        assert [one["path"] for one in pull.comments] == ["shop/x.py"]


@pytest.mark.many
async def test_a_fork_waits_for_a_writer_and_is_fetched_from_its_own_repository(
    tmp_path: Path,
) -> None:
    async with on_bitbucket(tmp_path) as on:
        fork, files = "mallory/shop", {"shop/x.py": "def x():\n    return 1\n"}
        on.forge.add_repository(fork, {}, parent=NAME)
        on.forge.commit(fork, "x", files, "X", base="main")
        pull = on.forge.open_pull(NAME, "x", title="X", author="mallory", head_repository=fork)
        assert (await on.receipt("held")).reason == "waits-for-writer"
        on.forge.comment(NAME, pull.number, author="bob", body="@gatehouse review")
        on.forge.comment(NAME, pull.number, author="ada", body="> @gatehouse review")
        await asyncio.to_thread(on.forge.until_sent)
        assert (await on.receipt("held")).reason == "waits-for-writer"
        on.forge.comment(NAME, pull.number, author="ada", body="@gatehouse review")
        receipt = await on.receipt("found")
        assert "only its diff" not in receipt.body
        assert ("GET", "/mallory/shop.git/info/refs") in on.forge.calls
        run = on.service.run_of((await settled(on, "post")).action)  # type: ignore[arg-type]
        assert run is not None
        assert (run.head_sha, run.trust) == (pull.head_sha, "base")


@pytest.mark.many
async def test_a_mention_is_answered_in_words(tmp_path: Path) -> None:
    async with on_bitbucket(tmp_path) as on:
        pull = on.open_pull()
        await settled(on, "post")
        on.forge.comment(NAME, pull.number, author="ada", body="@gatehouse pause")
        await settled(on, "comment")
        assert texts(pull)[-1] == "Done."
        (finding,) = pull.comments
        short = finding["body"].partition("`")[2][:8]
        on.forge.reply(NAME, pull.number, to=finding["id"], author="ada", body="@gatehouse why")

        def said() -> bool | None:
            answers = [one for one in pull.comments[2:] if short in one["body"]]
            return [one["in_reply_to"] for one in answers] == [finding["id"]] or None

        await on.running.until_soon(said, "why")
        assert not [one for one in on.acts() if one.action.operation == "react"]  # type: ignore[union-attr]


async def test_a_limit_holds_a_run_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bitbucket_calls, "REST_S", 1.0)
    async with on_bitbucket(tmp_path) as on:
        pull = on.open_pull()
        await on.running.until_soon(lambda: on.service.runs.under_way or None, "a run")
        on.forge.calls_left = 0
        other = on.open_pull(branch="other")
        await asyncio.to_thread(on.forge.until_sent)
        await asyncio.sleep(3)
        assert pull.issue_comments == other.issue_comments == []
        on.forge.calls_left = None
        for one in (pull, other):
            await on.running.until_soon(lambda it=one: it.issue_comments or None, "a review")
        outcomes = {one.outcome for one in (*on.receipts(1), *on.receipts(2))}
        assert "failed" not in outcomes


async def test_a_token_that_ends_soon_is_told(tmp_path: Path) -> None:
    with staged(tmp_path / "stage", "bitbucket") as stage:
        soon = datetime.now(UTC) + timedelta(days=6)
        token = stage.token_file.read_text()
        stage.token_file.write_text(f"{token}\nexpires: {soon:%Y-%m-%d}\n")
        async with on_bitbucket(tmp_path, stage) as on:
            said = f"Bitbucket's token expires on {soon:%Y-%m-%d}"
            assert said in html.unescape(await page(on, "/reviews"))
            (told,) = on.running.audit("forge_credentials")
            assert told["why"].startswith(said)


async def test_one_service_reviews_on_both_forges(tmp_path: Path) -> None:
    """Each has a repository of the same name."""
    with (
        staged(tmp_path / "github") as github,
        staged(tmp_path / "bitbucket", "bitbucket") as bitbucket,
    ):
        both = github.settings()
        async with on_bitbucket(
            tmp_path, bitbucket, "version: 1\nallow: [review(* bitbucket:*/*)]\n", **both
        ) as on:
            github.tell(f"http://127.0.0.1:{on.port}")
            there = on.open_pull()
            github.forge.commit(NAME, "feature", CHANGE, "A change", base="main")
            here = github.forge.open_pull(NAME, "feature", title="Add the average")
            await on.running.until_soon(lambda: there.issue_comments or None, "Bitbucket's")
            waiting = {one.action.operation: one for one in await waits(on, "github")}
            assert waiting.keys() == {"check", "post"}
            assert here.reviews == []
            names = [repository.name for repository in review_views.repositories(on.service)]
            assert sorted(names) == [NAME, f"bitbucket:{NAME}"]
            assert on.service.repository_named(NAME).forge == "github"
            assert on.service.repository_named(f"bitbucket:{NAME}").forge == "bitbucket"
            on.service.hold("repository", f"bitbucket:{NAME}", by="ada")
            assert on.service.holds.keeps(act_of(waiting["post"], "bitbucket"))
            assert not on.service.holds.keeps(act_of(waiting["post"], "github"))


async def waits(on: Reviewed, forge: str) -> list[Request]:
    """What waits of a forge's acts, once that is a review."""

    def found() -> list[Request] | None:
        acts = [one for one in on.acts() if one.action.forge == forge]  # type: ignore[union-attr]
        is_there = any(one.action.operation == "post" for one in acts)  # type: ignore[union-attr]
        return acts if is_there else None

    return await on.running.until_soon(found, "a review that waits")


def act_of(request: Request, forge: str) -> Act:
    assert isinstance(request.action, Act)
    return msgspec.structs.replace(request.action, forge=forge)


@pytest.mark.many
async def test_a_job_opens_a_pull_request_and_brings_it_up_to_date(tmp_path: Path) -> None:
    with staged(tmp_path / "stage", "bitbucket") as stage:
        stage.plan_night()
        policy = "version: 1\nallow: [review(* bitbucket:*/*)]\n"
        async with on_bitbucket(tmp_path, stage, policy) as on:
            await on.service.schedule.run_once_known(f"bitbucket:{NAME}", JOB, by="ada")
            opened = (await settled(on, "open-pr")).outcome
            assert opened is not None
            assert opened["ok"], opened
            (pull,) = on.forge.repositories[NAME].pulls.values()
            assert (pull.number, pull.author) == (opened["id"], "gatehouse")
            assert pull.body.splitlines()[-1].startswith("`gatehouse:job:")
            # It is ours: nobody reviews it.
            await on.running.until_soon(lambda: on.receipts() or None, "its receipt")
            assert [one.reason for one in on.receipts()] == ["own"]
            pull.reviewers = [{"uuid": uuid_of("ada"), "type": "user"}]
            on.forge.commit(NAME, "main", {"README.md": "# Moved on\n"}, "Meanwhile")
            await on.service.schedule.run_once_known(f"bitbucket:{NAME}", JOB, by="ada")
            updated = (await settled(on, "update-pr")).outcome
            assert updated is not None
            assert updated["ok"], updated
            assert [one["uuid"] for one in pull.reviewers] == [uuid_of("ada")]
            on.forge.merge(NAME, pull.number)
            await on.service.job_pulls.tidy()
            assert ((await settled(on, "delete-branch")).outcome or {})["ok"]
            assert pull.head_ref not in branches(on)


def branches(on: Reviewed) -> list[str]:
    folder = on.forge.repositories[NAME].folder
    words = ("git", "-C", str(folder), "for-each-ref", "--format=%(refname:short)", "refs/heads")
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
