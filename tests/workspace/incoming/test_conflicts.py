"""What the person and the agent both changed: nobody's content is lost, and nothing happens
without an answer."""

import asyncio
import random
import shutil
import threading

import pytest

from supervisor.core.actions import content_hash
from supervisor.core.approvals import Request, status
from supervisor.errors import UserError
from tests.workspace.conftest import Desk

APP = "src/app.py"
BASE = "one = 1\ntwo = 2\nthree = 3\n"
LONG = "".join(f"line {n}\n" for n in range(40))


@pytest.fixture
def long(desk: Desk) -> Desk:
    """A file with room for two people in it."""
    (desk.host / APP).write_text(LONG)
    return desk


async def conflict_over(desk: Desk, path: str) -> Request:
    """The pending request for a path, once it is one of a conflict and about what the host holds
    now."""

    def found() -> bool:
        request = desk.pending().get(path)
        host = desk.host / path
        now = content_hash(host.read_bytes()) if host.is_file() else None
        return (
            request is not None
            and "conflict" in request.action.hazards
            and request.action.before == now
        )  # type: ignore[union-attr]

    await desk.until(found, f"a conflict over {path}")
    return desk.pending()[path]


async def both_edited(desk: Desk) -> Request:
    """The agent edits the end, is asked about, and the person edits the beginning."""
    await desk.until(lambda: not desk.channel._now.sides.without_digest())
    (desk.copy / APP).write_text(LONG.replace("line 39", "agent 39"))
    first = await desk.asked(APP)
    (desk.host / APP).write_text(LONG.replace("line 0\n", "person 0\n"))
    request = await conflict_over(desk, APP)
    assert status(desk.gate.queue.get(first.id)) == "superseded"
    return request


async def test_a_pending_card_becomes_a_conflict_when_the_host_changes(long: Desk) -> None:
    desk = long
    async with desk.running():
        request = await both_edited(desk)
        assert request.sticky or request.rule is None
        assert "replaces what is there now" in (await desk.channel.card(request)).notes[0]
        card = await desk.channel.conflict_card(request)
        assert (card.host_did, card.agent_did, card.is_stale) == ("edited", "edited", False)
        assert card.base == content_hash(LONG.encode())
        assert card.host_diff is not None
        assert card.agent_diff is not None
        assert card.merged_diff is not None
        both = LONG.replace("line 0\n", "person 0\n").replace("line 39", "agent 39")
        assert card.merged == content_hash(both.encode())
        added = [
            line.text
            for hunk in card.merged_diff.hunks
            for line in hunk.lines
            if line.kind == "added"
        ]
        assert added == ["agent 39"]
        changes = desk.channel.host_changes()
        assert changes is not None
        assert changes.conflicts() == [APP]


async def test_the_merge_reaches_both_sides(long: Desk) -> None:
    desk = long
    async with desk.running():
        request = await both_edited(desk)
        card = await desk.channel.conflict_card(request)
        assert card.merged is not None
        merged = await desk.channel.apply_merge(
            request.id, card.merged, by="tester", fingerprint=request.fingerprint
        )
        assert status(desk.gate.queue.get(request.id)) == "superseded"
        assert merged.answered_by == "tester"
        assert merged.action.after == card.merged  # type: ignore[union-attr]
        assert (await desk.settled(merged)).outcome["ok"]  # type: ignore[index]
        both = LONG.replace("line 0\n", "person 0\n").replace("line 39", "agent 39")
        assert (desk.host / APP).read_text() == both
        assert (desk.copy / APP).read_text() == both
        await desk.compared()
        assert not desk.pending()
        # And they go on from there as if nothing had been.
        (desk.copy / APP).write_text(both + "more\n")
        assert "conflict" not in (await desk.asked(APP)).action.hazards  # type: ignore[union-attr]


async def test_a_merge_that_was_not_shown_is_not_applied(long: Desk) -> None:
    desk = long
    async with desk.running():
        request = await both_edited(desk)
        card = await desk.channel.conflict_card(request)
        assert card.merged is not None
        with pytest.raises(UserError, match="not the merge that was shown"):
            await desk.channel.apply_merge(
                request.id, content_hash(b"other"), by="tester", fingerprint=request.fingerprint
            )
        with pytest.raises(UserError, match="not the request that was shown"):
            await desk.channel.apply_merge(
                request.id, card.merged, by="tester", fingerprint="other"
            )
        (desk.host / APP).write_text("the person goes on\n")
        with pytest.raises(UserError):
            await desk.channel.apply_merge(
                request.id, card.merged, by="tester", fingerprint=request.fingerprint
            )
        assert (desk.host / APP).read_text() == "the person goes on\n"
        newer = await conflict_over(desk, APP)
        desk.deny(newer)
        with pytest.raises(UserError, match="already denied"):
            await desk.channel.give_host(newer.id, by="tester", fingerprint=newer.fingerprint)


async def test_a_merge_while_the_agent_goes_on_stays_a_conflict(long: Desk) -> None:
    """The copy can't follow, so the two sides don't agree: the agent's newer version must not
    undo the person's edit."""
    desk = long
    async with desk.running():
        request = await both_edited(desk)
        card = await desk.channel.conflict_card(request)
        assert card.merged is not None
        content, mode = await desk.channel._now.conflicts.merged(
            request.id, card.merged, request.fingerprint
        )
        async with desk.channel._turn:
            (desk.copy / APP).write_text(
                LONG.replace("line 39", "agent 39").replace("line 20\n", "agent 20\n")
            )
            merged = await desk.channel._now.conflicts.apply_merge(
                request.id, content, mode, by="tester", fingerprint=request.fingerprint
            )
        assert (await desk.settled(merged)).outcome["ok"]  # type: ignore[index]
        newer = await conflict_over(desk, APP)
        again = await desk.channel.conflict_card(newer)
        assert again.merged is not None
        last = await desk.channel.apply_merge(
            newer.id, again.merged, by="tester", fingerprint=newer.fingerprint
        )
        assert (await desk.settled(last)).outcome["ok"]  # type: ignore[index]
        for side in (desk.host, desk.copy):
            text = (side / APP).read_text()
            assert "person 0" in text
            assert "agent 20" in text
            assert "agent 39" in text


async def test_edits_of_the_same_line_are_no_merge(desk: Desk) -> None:
    async with desk.running():
        await desk.until(lambda: not desk.channel._now.sides.without_digest())
        (desk.copy / APP).write_text(BASE.replace("two = 2", "two = 22"))
        await desk.asked(APP)
        (desk.host / APP).write_text(BASE.replace("two = 2", "two = 222"))
        request = await conflict_over(desk, APP)
        card = await desk.channel.conflict_card(request)
        assert card.merged is None
        assert "changed both ways" in card.why_not
        with pytest.raises(UserError, match="no merge"):
            await desk.channel.apply_merge(
                request.id, content_hash(b"x"), by="tester", fingerprint=request.fingerprint
            )
        desk.approve(request)
        assert (await desk.settled(request)).outcome["ok"]  # type: ignore[index]
        assert (desk.host / APP).read_text() == BASE.replace("two = 2", "two = 22")
        await desk.compared()
        assert not desk.pending()


async def test_binary_content_is_no_merge(desk: Desk) -> None:
    (desk.host / "image.bin").write_bytes(b"\0base")
    async with desk.running():
        await desk.until(lambda: not desk.channel._now.sides.without_digest())
        (desk.copy / "image.bin").write_bytes(b"\0agent")
        await desk.asked("image.bin")
        (desk.host / "image.bin").write_bytes(b"\0person")
        card = await desk.channel.conflict_card(await conflict_over(desk, "image.bin"))
        assert card.merged is None
        assert "not text" in card.why_not


async def test_the_hosts_version_is_given_to_the_agent(long: Desk) -> None:
    desk = long
    async with desk.running():
        request = await both_edited(desk)
        denied = await desk.channel.give_host(
            request.id, by="tester", fingerprint=request.fingerprint
        )
        assert (status(denied), denied.answered_by) == ("denied", "tester")
        assert (desk.copy / APP).read_text() == LONG.replace("line 0\n", "person 0\n")
        await desk.compared()
        assert not desk.pending()
        changes = desk.channel.host_changes()
        assert changes is not None
        assert changes.conflicts() == []
        (desk.host / APP).write_text("and on\n")
        await desk.until(lambda: (desk.copy / APP).read_text() == "and on\n")


async def test_denying_leaves_both_as_they_are(long: Desk) -> None:
    desk = long
    async with desk.running():
        request = await both_edited(desk)
        desk.deny(request)
        await desk.compared()
        (desk.host / APP).write_text("and on\n")
        async with desk.channel._turn:
            await desk.channel._now.incoming.run(None)
        await desk.compared()
        assert not desk.pending()
        assert (desk.host / APP).read_text() == "and on\n"
        assert (desk.copy / APP).read_text() == LONG.replace("line 39", "agent 39")


async def test_the_same_change_on_both_sides_is_agreed_in_silence(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / APP).write_text("same\n")
        first = await desk.asked(APP)
        (desk.host / APP).write_text("same\n")
        (desk.host / "new.py").write_text("same\n")
        (desk.copy / "new.py").write_text("same\n")
        await desk.until(lambda: not desk.pending())
        assert status(desk.gate.queue.get(first.id)) == "expired"
        await desk.compared()
        assert not desk.pending()
        (desk.host / APP).write_text("then the person alone\n")
        (desk.host / "new.py").write_text("then the person alone\n")
        await desk.until(lambda: (desk.copy / "new.py").read_text() == "then the person alone\n")
        await desk.until(lambda: (desk.copy / APP).read_text() == "then the person alone\n")


async def test_deleted_by_one_and_edited_by_the_other(desk: Desk) -> None:
    async with desk.running():
        await desk.until(lambda: not desk.channel._now.sides.without_digest())
        (desk.copy / APP).unlink()
        (desk.copy / "src/util.py").write_text("agent\n")
        await desk.asked(APP)
        await desk.asked("src/util.py")
        (desk.host / APP).write_text("person\n")
        (desk.host / "src/util.py").unlink()
        deleting = await conflict_over(desk, APP)
        creating = await conflict_over(desk, "src/util.py")
        card = await desk.channel.conflict_card(deleting)
        assert (card.host_did, card.agent_did) == ("edited", "deleted")
        assert card.why_not == "the agent deleted it"
        card = await desk.channel.conflict_card(creating)
        assert (card.host_did, card.agent_did) == ("deleted", "edited")
        assert card.why_not == "it was deleted on the host"
        await desk.channel.give_host(deleting.id, by="tester", fingerprint=deleting.fingerprint)
        await desk.channel.give_host(creating.id, by="tester", fingerprint=creating.fingerprint)
        assert (desk.copy / APP).read_text() == "person\n"
        assert not (desk.copy / "src/util.py").exists()
        await desk.compared()
        assert not desk.pending()


async def test_created_by_both_and_folder_against_file(desk: Desk) -> None:
    async with desk.running():
        async with desk.channel._turn:  # neither direction sees one without the other
            (desk.host / "free/new.txt").write_text("person\n")
            (desk.copy / "free/new.txt").write_text("agent\n")
            (desk.copy / "thing").write_text("agent\n")  # first: an overlay would show the folder
            (desk.host / "thing").mkdir()
            (desk.host / "thing/inner").write_text("person\n")
        request = await conflict_over(desk, "free/new.txt")
        card = await desk.channel.conflict_card(request)
        assert (card.host_did, card.agent_did) == ("created", "created")
        assert "both sides made it anew" in card.why_not
        # A folder of the person's that the session never had isn't asked about: it stays, and the
        # page says why.
        await desk.until(lambda: "thing" in desk.channel.refused())
        assert "`thing/inner`, which this session never had" in desk.channel.refused()["thing"]
        for waiting in list(desk.pending().values()):
            desk.approve(waiting)
            await desk.settled(waiting)
        assert (
            desk.host / "thing/inner"
        ).read_text() == "person\n"  # a folder with something in it isn't removed
        assert (desk.host / "free/new.txt").read_text() == "agent\n"
        assert (desk.copy / "thing").read_text() == "agent\n"


async def test_a_rule_never_answers_a_conflict(desk: Desk) -> None:
    async with desk.running():
        async with desk.channel._turn:
            (desk.host / "free/a.txt").write_text("person\n")
            (desk.copy / "free/a.txt").write_text("agent\n")
        request = await conflict_over(desk, "free/a.txt")
        assert request.decision == "ask"
        assert (desk.host / "free/a.txt").read_text() == "person\n"
        assert (desk.copy / "free/a.txt").read_text() == "agent\n"


async def test_the_agent_takes_its_change_back_and_gets_the_hosts(desk: Desk) -> None:
    async with desk.running():
        await desk.until(lambda: not desk.channel._now.sides.without_digest())
        (desk.copy / APP).write_text("agent\n")
        await desk.asked(APP)
        (desk.host / APP).write_text("person\n")
        await conflict_over(desk, APP)
        (desk.copy / APP).write_text(BASE)
        await desk.until(lambda: (desk.copy / APP).read_text() == "person\n")
        await desk.until(lambda: not desk.pending())


async def test_nothing_is_lost_between_racing_writers(desk: Desk) -> None:
    """Both rewrite the same file as fast as they can, the host by rename. At the end every
    content that was the last of its side is on that side, or on a card; and what the person
    wrote was never replaced without an answer."""
    rounds = 150
    path = "free/a.txt"  # a rule allows it: nobody is asked as long as only the agent writes
    written: set[str] = set()
    async with desk.running():
        await desk.until(lambda: not desk.channel._now.sides.without_digest())

        def person() -> None:
            pick = random.Random(1)
            for number in range(rounds):
                text = f"person {number}\n"
                draft = desk.host / "free/.draft"
                draft.write_text(text)
                draft.rename(desk.host / path)
                written.add(text)
                threading.Event().wait(pick.random() * 0.02)

        def agent() -> None:
            pick = random.Random(2)
            for number in range(rounds):
                (desk.copy / path).write_text(f"agent {number}\n")
                threading.Event().wait(pick.random() * 0.02)

        await asyncio.gather(asyncio.to_thread(person), asyncio.to_thread(agent))
        last = f"person {rounds - 1}\n"
        await asyncio.sleep(0)
        async with desk.channel._turn:
            await desk.channel._now.incoming.run(None)
        await desk.compared()
        host, copy = (desk.host / path).read_text(), (desk.copy / path).read_text()
        # The person wrote last on the host, or the agent's allowed write came after the person's
        # had reached the copy.
        if host != last:
            seen = {change.digest for change in desk.channel.host_changes().recent}  # type: ignore[union-attr]
            assert content_hash(last.encode()) in seen
        if host != copy:
            request = await desk.asked(path)
            assert "conflict" in request.action.hazards  # type: ignore[union-attr]
            assert request.action.after == content_hash(copy.encode())  # type: ignore[union-attr]
            assert request.action.before == content_hash(host.encode())  # type: ignore[union-attr]
        # Each content of the person's that an effect replaced had been in the agent's copy by then.
        known = {content_hash(text.encode()) for text in written}
        brought = {change.digest for change in desk.channel.host_changes().recent}  # type: ignore[union-attr]
        for request in desk.requests(path):
            before = request.action.before  # type: ignore[union-attr]
            if request.outcome and request.outcome["ok"] and before in known:
                assert before in brought


async def test_the_agents_folder_is_deleted_while_the_person_adds_to_it(desk: Desk) -> None:
    async with desk.running():
        shutil.rmtree(desk.copy / "src")
        await desk.asked(APP)
        (desk.host / "src/added.py").write_text("person\n")
        await desk.until(lambda: (desk.copy / "src/added.py").exists())
        await desk.approve_all()
        assert (desk.host / "src/added.py").read_text() == "person\n"
        assert not (desk.host / APP).exists()


async def test_the_agents_own_files_in_a_folder_that_the_person_deleted(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / "src/own.py").write_text("agent\n")
        (desk.copy / "src/build").mkdir()
        (desk.copy / "src/build/out.o").write_text("ignored\n")
        await desk.asked("src/own.py")
        shutil.rmtree(desk.host / "src")
        await desk.until(lambda: not (desk.copy / APP).exists())
        await desk.compared()
        assert (desk.copy / "src/own.py").read_text() == "agent\n"
        assert (desk.copy / "src/build/out.o").exists()
        assert "src/own.py" in desk.pending()
        desk.approve(desk.pending()["src/own.py"])
        await desk.until((desk.host / "src/own.py").exists)


async def test_a_write_by_the_api_that_waits_becomes_a_conflict(desk: Desk) -> None:
    async with desk.running():
        first = await desk.channel.write(APP, b"agent\n", "a reason")
        (desk.host / APP).write_text("person\n")
        request = await conflict_over(desk, APP)
        assert (request.origin, request.reason) == ("agent_api", "a reason")
        assert status(desk.gate.queue.get(first.id)) == "superseded"
        await desk.until(lambda: (desk.copy / APP).read_text() == "person\n")
        desk.approve(request)
        assert (await desk.settled(request)).outcome["ok"]  # type: ignore[index]
        assert (desk.host / APP).read_text() == (desk.copy / APP).read_text() == "agent\n"


async def test_an_edit_by_the_api_that_waits_goes_along_with_the_host(desk: Desk) -> None:
    async with desk.running():
        first = await desk.channel.edit(APP, "two = 2", "two = 22", False, "a reason")
        other = await desk.channel.edit("src/util.py", "x = 1", "x = 2", False, "")
        (desk.host / APP).write_text("zero = 0\n" + BASE)
        (desk.host / "src/util.py").write_text("y = 1\n")
        await desk.until(lambda: APP in desk.pending() and desk.pending()[APP].id != first.id)
        request = desk.pending()[APP]
        assert request.reason == "a reason"
        assert "conflict" not in request.action.hazards  # type: ignore[union-attr]
        await desk.until(lambda: status(desk.gate.queue.get(other.id)) == "expired")
        why = desk.gate.queue.get(other.id).closed_why
        assert f"its content is now {content_hash(b'y = 1\n')}" in why
        assert "the old text isn't in the file" in why
        desk.approve(request)
        assert (await desk.settled(request)).outcome["ok"]  # type: ignore[index]
        both = "zero = 0\n" + BASE.replace("two = 2", "two = 22")
        assert (desk.host / APP).read_text() == both
        await desk.until(lambda: (desk.copy / APP).read_text() == both)
        await desk.compared()
        assert not desk.pending()


async def test_an_edit_that_does_not_fit_names_what_is_there(desk: Desk) -> None:
    async with desk.running():
        with pytest.raises(UserError, match=content_hash(BASE.encode())):
            await desk.channel.edit(APP, "gone", "new", False, "")
