"""Acts on a forge beyond a first review: a second round in place, comments, answers, reactions,
threads, dismissals, and all of it taken back; each once, also where an answer is lost."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.approvals import Request, failure
from supervisor.core.forge_acts import Act, InlineComment
from supervisor.errors import GatehouseError, NotFoundError, UserError
from supervisor.reviews.core.posts import mark, note_mark
from supervisor.reviews.demo.forge import DemoPull
from supervisor.reviews.reconcile import facts_of
from supervisor.reviews.store import queries
from tests.fakes.reviewed import NAME, Reviewed, reviewed
from tests.tables import share

pytestmark = pytest.mark.xdist_group("reviews-acts")
POLICY = "version: 1\nallow: [review(* */* --approve --request-changes)]\n"
APP = "gatehouse[bot]"


@contextlib.asynccontextmanager
async def quiet(folder: Path, **permissions: str) -> AsyncIterator[tuple[Reviewed, DemoPull]]:
    """A pull request that nobody reviews, and acts that need nobody."""
    policy = folder / "acts.yaml"
    policy.write_text(POLICY)
    async with reviewed(folder, policy_file=policy) as on:
        on.forge.permissions |= permissions
        await on.service.reconcile.repositories()
        on.service.set_enabled(on.service.repository_named(NAME).id, is_enabled=False)

        async def at_once(seconds: float) -> None:
            """A forge that gave no answer is asked again without a wait."""

        on.service.poster._sleep = at_once
        pull = on.open_pull()
        await on.receipt("skipped")
        yield on, pull


def ask(on: Reviewed, pull: DemoPull, operation: str, **more: Any) -> Request:
    act = Act(
        operation=operation,  # type: ignore[arg-type]
        forge="github",
        repository=NAME,
        number=pull.number,
        **{"head": pull.head_sha} | more,
    )
    session_id = on.service.repository_named(NAME).session_id
    return on.running.parts.gate.ask(act, session_id=session_id, origin="reviews")


async def done(on: Reviewed, pull: DemoPull, operation: str, **more: Any) -> dict[str, Any]:
    outcome = await on.running.done(ask(on, pull, operation, **more))
    assert outcome["ok"], outcome
    return outcome


def review(run_id: str, *findings: str, verdict: str = "comment", line: int = 5) -> dict[str, Any]:
    comments = tuple(
        InlineComment(finding=one, path="shop/cart.py", line=line, body=one, severity="low")
        for one in findings
    )
    return {"body": f"Round {run_id}.\n\n{mark(run_id)}", "comments": comments, "verdict": verdict}


def loses_answers(on: Reviewed, *calls: tuple[str, str]) -> None:
    """The forge does what it is told, and its answer is lost, once for each of these calls."""

    def lose(call: tuple[str, str]) -> Callable[[], None]:
        def once() -> None:
            on.forge.after.pop(call, None)
            raise ConnectionError("the answer is lost")

        return once

    for call in calls:
        on.forge.after[call] = lose(call)


@pytest.mark.parametrize(
    "lost", share([(), (("POST", "/reviews"),), (("PUT", "/reviews/"),)], (("POST", "/reviews"),))
)
async def test_a_second_round_edits_the_summary_and_posts_only_what_is_new(
    tmp_path: Path, lost: tuple[tuple[str, str], ...]
) -> None:
    async with quiet(tmp_path) as (on, pull):
        first = await done(on, pull, "post", **review("a1", "one", "two"))
        assert [one["id"] for one in pull.reviews] == [first["id"]]
        on.forge.push(NAME, pull.number, {"README.md": "# Other\n"}, "more")
        loses_answers(on, *lost)
        second = await done(on, pull, "post", **review("b2", "three"))
        loses_answers(on, *lost)
        await done(on, pull, "post", **review("c3"))
        summary, note = pull.reviews
        assert summary["body"] == f"Round c3.\n\n{mark('c3')}"
        assert (
            note["body"] == f"1 new finding; the summary above is up to date.\n\n{note_mark('b2')}"
        )
        assert note["id"] == second["id"]
        assert [one["body"] for one in pull.comments] == ["one", "two", "three"]
        assert pull.comments[-1]["review"] == note["id"]


@pytest.mark.many
async def test_a_verdict_gets_a_review_of_its_own(tmp_path: Path) -> None:
    async with quiet(tmp_path) as (on, pull):
        await done(on, pull, "post", **review("a1", "one"))
        await done(on, pull, "post", **review("b2", verdict="approve"))
        assert [one["state"] for one in pull.reviews] == ["COMMENTED", "APPROVED"]
        assert pull.reviews[0]["body"].startswith("Round b2.")
        assert pull.reviews[1]["body"].startswith("Approved; ")


async def test_a_mark_in_somebody_elses_text_is_none_of_ours(tmp_path: Path) -> None:
    async with quiet(tmp_path) as (on, pull):
        repository = on.forge.repositories[NAME]
        for body in (mark("a1"), mark("ff")):
            on.forge.add_review(repository, pull, "mallory", body, "COMMENTED", pull.head_sha)
        await done(on, pull, "post", **review("a1", "one"))
        assert [one["by"] for one in pull.reviews] == ["mallory", "mallory", APP]
        assert pull.reviews[0]["body"] == mark("a1")


@pytest.mark.many
async def test_where_the_head_moved_a_second_round_posts_nothing(tmp_path: Path) -> None:
    async with quiet(tmp_path) as (on, pull):
        await done(on, pull, "post", **review("a1", "one"))
        old = pull.head_sha
        on.forge.push(NAME, pull.number, {"README.md": "# Other\n"}, "more")
        outcome = await on.running.done(
            ask(on, pull, "post", **review("b2", "two") | {"head": old})
        )
        assert not outcome["ok"]
        assert "the head is" in outcome["error"]
        assert [one["body"] for one in pull.reviews] == [f"Round a1.\n\n{mark('a1')}"]


async def test_a_comment_is_posted_once_and_the_same_words_twice_where_asked_twice(
    tmp_path: Path,
) -> None:
    async with quiet(tmp_path) as (on, pull):
        loses_answers(on, ("POST", "/issues/1/comments"))
        await done(on, pull, "comment", body="Out of money for today.")
        await done(on, pull, "comment", body="Out of money for today.")
        first, second = pull.issue_comments
        for one in (first, second):
            shown, _, hidden = one["body"].partition("\n\n")
            assert shown == "Out of money for today."
            assert hidden.startswith("<!-- gatehouse:act:")
        assert first["body"] != second["body"]
        assert first["by"] == APP


@pytest.mark.many
async def test_an_answer_stands_in_its_thread_once(tmp_path: Path) -> None:
    async with quiet(tmp_path) as (on, pull):
        await done(on, pull, "post", **review("a1", "one"))
        (comment,) = pull.comments
        asked = on.forge.reply(NAME, 1, to=comment["id"], author="ada", body="Why?")
        loses_answers(on, ("POST", "/replies"))
        await done(on, pull, "reply", body="Because.", targets=(f"review:{asked['id']}",))
        _, question, answer = pull.comments
        assert (question["body"], answer["body"].split("\n")[0]) == ("Why?", "Because.")
        assert answer["in_reply_to"] == comment["id"]


@pytest.mark.many
async def test_a_reaction_is_one_however_often_it_is_asked(tmp_path: Path) -> None:
    async with quiet(tmp_path) as (on, pull):
        said = on.forge.comment(NAME, 1, author="ada", body="Hm")
        await done(on, pull, "post", **review("a1", "one"))
        beside = pull.comments[0]["id"]
        for target in (str(said["id"]), f"review:{beside}"):
            loses_answers(on, ("POST", "/reactions"))
            await done(on, pull, "react", body="eyes", targets=(target,))
        for one in (said["id"], beside):
            assert [it["content"] for it in on.forge.reactions[one]] == ["eyes"]
        outcome = await on.running.done(ask(on, pull, "react", body="party", targets=("1",)))
        assert "`party` is no reaction" in outcome["error"]


@pytest.mark.many
async def test_a_thread_is_resolved_where_the_app_may(tmp_path: Path) -> None:
    async with quiet(tmp_path) as (on, pull):
        await done(on, pull, "post", **review("a1", "one", "two"))
        facts = facts_of(on.service.repository_named(NAME))
        threads = await on.client.threads(facts, 1)
        assert [one.comments for one in threads] == [(one["id"],) for one in pull.comments]
        targets = tuple(one.id for one in threads)
        refused = await on.running.done(ask(on, pull, "resolve", targets=targets))
        assert "the App may not resolve threads" in refused["error"]
        on.forge.permissions["contents"] = "write"
        await on.service.reconcile.repositories()
        loses_answers(on, ("POST", "/graphql"))
        await done(on, pull, "resolve", targets=targets)
        assert all(one.is_resolved for one in await on.client.threads(facts, 1))


async def test_only_a_verdict_of_ours_is_dismissed(tmp_path: Path) -> None:
    async with quiet(tmp_path) as (on, pull):
        approval = await done(on, pull, "post", **review("a1", verdict="approve"))
        loses_answers(on, ("PUT", "/dismissals"))
        await done(on, pull, "dismiss", targets=(str(approval["id"]),), body="It is old.")
        assert [one["state"] for one in pull.reviews] == ["DISMISSED"]
        noted = await done(on, pull, "post", **review("b2", "one"))
        repository = on.forge.repositories[NAME]
        theirs = on.forge.add_review(repository, pull, "ada", "", "APPROVED", pull.head_sha)
        for review_id, why in (
            (noted["id"], "only an approval"),
            (theirs["id"], "none of ours"),
        ):
            request = ask(on, pull, "dismiss", targets=(str(review_id),))
            await on.running.done(request)
            assert why in failure(on.running.parts.queue.get(request.id))
        assert theirs["state"] == "APPROVED"


async def test_what_a_run_posted_is_taken_back(tmp_path: Path) -> None:
    async with quiet(tmp_path) as (on, pull):
        keep_runs(on, pull, "a1", "b2")
        for run_id, verdict, findings in (("a1", "comment", ("one",)), ("b2", "approve", ("two",))):
            await done(on, pull, "post", **review(run_id, *findings, verdict=verdict))
        on.forge.reply(NAME, 1, to=pull.comments[1]["id"], author="ada", body="No.")
        loses_answers(on, ("DELETE", "/pulls/comments/"), ("PUT", "/dismissals"))
        assert await on.service.take_back.undo("b2", by="ada (cli)") == ["b2"]
        assert [one["body"] for one in pull.comments] == ["one", "No."]
        said = "This review was taken back by ada (cli)."
        assert [one["body"] for one in pull.reviews[:2]] == [said, said]
        assert [one["state"] for one in pull.reviews[:2]] == ["COMMENTED", "DISMISSED"]
        assert await on.service.take_back.undo(f"{NAME}#1", by="ada (cli)") == ["a1"]
        assert [one["body"] for one in pull.comments] == ["No."]
        with pytest.raises(UserError, match="nothing that"):
            await on.service.take_back.undo("b2", by="ada (cli)")
        with pytest.raises(NotFoundError):
            await on.service.take_back.undo("nothing", by="ada (cli)")
        undone = [one for one in on.acts() if one.action.operation == "undo"]  # type: ignore[union-attr]
        assert len(undone) == 2
        settled = {line["request"] for line in on.running.audit("effect_settled")}
        assert {one.id for one in undone} <= settled


@pytest.mark.many
async def test_a_policy_that_denies_it_takes_nothing_back(tmp_path: Path) -> None:
    async with quiet(tmp_path) as (on, pull):
        keep_runs(on, pull, "a1")
        await done(on, pull, "post", **review("a1", "one"))
        (tmp_path / "acts.yaml").write_text("version: 1\ndeny: [review(undo */*)]\n")
        with pytest.raises(GatehouseError, match="not taken back"):
            await on.service.take_back.undo("a1", by="ada (cli)")
        assert len(pull.comments) == 1


def keep_runs(on: Reviewed, pull: DemoPull, *run_ids: str) -> None:
    """Runs as they are after their review."""
    with on.service.engine.begin() as connection:
        repository = queries.repository(connection, "github", NAME)
        assert repository is not None
        row = queries.pull_numbered(connection, repository.id, pull.number)
        assert row is not None
        for number, run_id in enumerate(run_ids):
            facts = {"kind": "review", "head_sha": pull.head_sha, "attempt": 1, "full": False}
            queries.put_run(connection, run_id, pull_id=row.id, wanted_at=float(number), **facts)
