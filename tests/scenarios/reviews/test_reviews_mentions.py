"""Comments that call the App, over real HTTP: who may, what comes of each, and what is ignored."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from supervisor.base.clock import RealClock
from supervisor.reviews.demo.forge import DemoPull
from supervisor.reviews.demo.state import Tongue
from supervisor.reviews.store import findings, queries
from tests.fakes.reviewed import CHANGE, NAME, Reviewed, reviewed

pytestmark = pytest.mark.xdist_group("reviews-more")
POLICY = "version: 1\nallow: [review(* */* --fork)]\n"


class LaterClock(RealClock):
    """The machine's clock, some seconds later."""

    def __init__(self) -> None:
        self.by = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        return RealClock.monotonic() + self.by


def policy(folder: Path) -> Path:
    file = folder / "acts.yaml"
    file.write_text(POLICY)
    return file


async def said(on: Reviewed, pull: DemoPull, body: str, author: str = "ada") -> dict[str, Any]:
    """A person's comment, once what it asks for is done or ignored."""
    comment = on.forge.comment(NAME, pull.number, author=author, body=body)
    return await heard(on, comment)


async def heard(on: Reviewed, comment: dict[str, Any]) -> dict[str, Any]:
    await asyncio.to_thread(on.forge.until_sent)
    told = sum("comment" in one.event for one in on.forge.sent)

    def handled() -> bool | None:
        with on.service.engine.connect() as connection:
            newest = queries.newest_deliveries(connection)
        done = [one for one in newest if one.handled_at is not None]
        return sum("comment" in f"{one.event}:{one.action}" for one in done) >= told or None

    await on.running.until_soon(handled, "the comment is handled")
    return comment


def answered(on: Reviewed, comment: dict[str, Any], words: str) -> bool:
    """Whether we said this after a comment."""
    pulls = on.forge.repositories[NAME].pulls.values()
    said = [one for pull in pulls for one in (*pull.comments, *pull.issue_comments)]
    ours = [one for one in said if one["by"] == on.forge.app_login and one["id"] > comment["id"]]
    return any(words in one["body"] for one in ours)


async def reacted(on: Reviewed, comment: dict[str, Any], content: str) -> None:
    """On Bitbucket, which has no reactions, an answer says so; nothing says that it was seen."""
    if on.forge.tongue == "bitbucket" and content == "eyes":
        return

    def found() -> bool | None:
        if on.forge.tongue == "bitbucket":
            return answered(on, comment, "Done" if content == "+1" else "") or None
        known = on.forge.reactions.get(comment["id"], [])
        return any(one["content"] == content for one in known) or None

    await on.running.until_soon(found, f"the reaction {content}")


async def test_a_writer_pauses_resumes_ignores_and_asks_why(tmp_path: Path, forge: Tongue) -> None:
    async with reviewed(tmp_path, forge, policy_file=policy(tmp_path)) as on:
        pull = on.open_pull()
        await on.receipt("found")
        await on.running.until_soon(lambda: pull.comments or None, "the review is posted")
        root = pull.comments[0]

        why = on.forge.reply(NAME, pull.number, to=root["id"], author="ada", body="@gatehouse why")
        await heard(on, why)
        await on.running.until_soon(lambda: len(pull.comments) > 2 or None, "an answer")
        assert "found by" in pull.comments[-1]["body"] or "state: open" in pull.comments[-1]["body"]
        assert pull.comments[-1]["in_reply_to"] == root["id"]

        ignore = on.forge.reply(
            NAME, pull.number, to=root["id"], author="ada", body="@gatehouse ignore it is meant"
        )
        await heard(on, ignore)
        await reacted(on, ignore, "+1")
        with on.service.engine.connect() as connection:
            (known,) = findings.history(connection, 1)
        assert (known["state"], known["said_by"], known["said_why"]) == (
            *("wont-fix", on.person("ada")),
            "it is meant",
        )

        await said(on, pull, "@gatehouse pause")
        await on.receipt("held", "found")
        on.forge.push(NAME, pull.number, {"shop/more.py": "x = 1\n"}, "More")
        assert (await on.receipt("held")).reason == "paused"
        again = await said(on, pull, "@gatehouse resume")
        await reacted(on, again, "+1")
        await on.receipt("clean", "found")


@pytest.mark.only_on("bitbucket", "GitHub is asked about each person")
async def test_the_forge_is_asked_once_a_minute_what_everybody_may_do(
    tmp_path: Path, forge: Tongue
) -> None:
    clock = LaterClock()
    async with reviewed(tmp_path, forge, policy_file=policy(tmp_path), clock=clock) as on:
        pull = on.open_pull()
        await on.receipt("found")

        def asked() -> int:
            return sum("/permissions/repositories/" in path for _, path in tuple(on.forge.calls))

        known = asked()
        for author in ("mallory", "mallory", "bob"):
            await said(on, pull, "@gatehouse pause", author=author)
        assert asked() == known, "who may write is known from the review"
        clock.by = 61.0
        on.forge.repositories[NAME].collaborators["mallory"] = "write"
        heard_ = await said(on, pull, "@gatehouse pause", author="mallory")
        await reacted(on, heard_, "+1")
        assert asked() == known + 1


@pytest.mark.only_on("github", "on Bitbucket one call tells what everybody may do")
async def test_the_forge_is_asked_once_a_minute_what_a_person_may_do(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge, policy_file=policy(tmp_path)) as on:
        pull = on.open_pull()
        await on.receipt("found")
        real, later_s = on.running.parts.clock.monotonic, [0.0]
        on.running.parts.clock.monotonic = lambda: real() + later_s[0]  # type: ignore[method-assign]

        def asked(person: str) -> int:
            return sum(
                path.endswith(f"/collaborators/{person}/permission")
                for _, path in tuple(on.forge.calls)
            )

        for _ in range(4):
            await said(on, pull, "@gatehouse why", author="mallory")
        assert asked("mallory") == 1
        await said(on, pull, "@gatehouse pause", author="bob")
        assert asked("bob") == 1, "each person is another"
        later_s[0] = 61.0
        on.forge.repositories[NAME].collaborators["mallory"] = "write"
        heard_ = await said(on, pull, "@gatehouse pause", author="mallory")
        await reacted(on, heard_, "+1")
        assert asked("mallory") == 2


async def test_a_writer_unlocks_a_fork_and_a_stranger_does_not(
    tmp_path: Path, forge: Tongue
) -> None:
    async with reviewed(tmp_path, forge, policy_file=policy(tmp_path)) as on:
        on.forge.add_repository("mallory/shop", {}, parent=NAME)
        on.forge.commit("mallory/shop", "evil", CHANGE, "Hi", base="main")
        pull = on.forge.open_pull(
            NAME, "evil", title="Hi", author="mallory", head_repository="mallory/shop"
        )
        assert (await on.receipt("held")).reason == "waits-for-writer"
        for author in ("mallory", "bob"):
            await said(on, pull, "@gatehouse review", author=author)
        await said(on, pull, "@gatehouse no-such-prompt")
        await said(on, pull, "> @gatehouse review")
        await said(on, pull, "@gatehouse ignore ffffffff because")
        assert on.receipts()[-1].reason == "waits-for-writer"
        heard_ = await said(on, pull, "@gatehouse review")
        await reacted(on, heard_, "eyes")
        await on.receipt("found", "clean")
        pushed = on.forge.commit("mallory/shop", "evil", {"y.py": "y = 1\n"}, "More")
        on.forge.pushed(NAME, pull.number)
        await on.running.until_soon(
            lambda: any(one.head_sha == pushed for one in on.receipts()) or None, "its next push"
        )
        assert on.receipts()[-1].outcome in ("found", "clean")
        with on.service.engine.connect() as connection:
            rows = connection.exec_driver_sql("select author, command, outcome from mentions").all()
        assert (on.person("mallory"), "review", "not-permitted") in rows
        assert (on.person("bob"), "review", "not-permitted") in rows
        assert (on.person("ada"), "no-such-prompt", "ignored") in rows, (
            "a run knows of no such prompt"
        )
        assert any("no finding here" in one["body"] for one in pull.issue_comments)


async def test_a_mention_stops_a_run_and_words_that_are_too_many_are_not_read(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    async with reviewed(tmp_path, forge, policy_file=policy(tmp_path)) as on:
        pull = on.open_pull()
        await on.running.until_soon(lambda: on.service.runs._running or None, "a reader")
        await said(on, pull, "@gatehouse stop")
        assert (await on.receipt("skipped")).reason == "called-off"
        long = await said(on, pull, "@gatehouse why " + "x" * 2_001)
        await reacted(on, long, "confused")
        await on.running.until_soon(
            lambda: any("2,000" in one["body"] for one in pull.issue_comments) or None, "an answer"
        )
        issue = on.forge.open_issue(NAME, title="A question", author="ada")
        runs = len(on.running.parts.sessions.recent())
        await heard(
            on, on.forge.comment(NAME, issue.number, author="ada", body="@gatehouse review")
        )
        assert len(on.running.parts.sessions.recent()) == runs


@pytest.mark.only_on("github", "Bitbucket counts all comments together")
async def test_a_comment_beside_the_code_may_have_the_number_of_another_one(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    """A forge counts both kinds apart."""
    async with reviewed(tmp_path, forge, policy_file=policy(tmp_path)) as on:
        pull = on.open_pull()
        await on.receipt("found")
        await on.running.until_soon(lambda: pull.comments or None, "the review is posted")
        root = pull.comments[0]["id"]
        for body in ("@gatehouse pause", "@gatehouse ignore it is meant"):
            on.forge.ids = itertools.repeat(7_000)  # type: ignore[assignment]
            if "ignore" in body:
                one = on.forge.reply(NAME, pull.number, to=root, author="ada", body=body)
            else:
                one = on.forge.comment(NAME, pull.number, author="ada", body=body)
            on.forge.ids = itertools.count(8_000 + len(pull.issue_comments))
            assert one["id"] == 7_000
            await heard(on, one)
        with on.service.engine.connect() as connection:
            (known,) = findings.history(connection, 1)
        assert (known["state"], known["said_why"]) == ("wont-fix", "it is meant")


async def test_a_strangers_mention_never_waits_for_a_run(tmp_path: Path, forge: Tongue) -> None:
    """Where the database fails right then, as where the supervisor is killed, nothing is kept."""

    def fail(_connection: Any, _cursor: Any, statement: str, *_facts: Any) -> None:
        if statement.startswith("UPDATE mentions"):
            raise RuntimeError("the disk is full")

    async with reviewed(tmp_path, forge, policy_file=policy(tmp_path)) as on:
        pull = on.open_pull()
        await on.receipt("found")
        event.listen(on.service.engine, "before_cursor_execute", fail)
        on.forge.comment(NAME, pull.number, author="bob", body="@gatehouse some-prompt")

        def failed() -> bool | None:
            with on.service.engine.connect() as connection:
                newest = queries.newest_deliveries(connection)
            return any("the disk is full" in one.error for one in newest) or None

        await on.running.until_soon(failed, "the comment can't be handled")
        with on.service.engine.connect() as connection:
            assert queries.waiting_mentions(connection, 1) == []
