"""Some hunks of a card: exactly those reach the host, the rest is asked again or denied, and
nothing unseen is ever applied."""

import asyncio
import os
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange, content_hash
from supervisor.core.approvals import Request, RequestId, explanation, status
from supervisor.errors import NotFoundError, RefusedError, UserError
from supervisor.workspace.apply.partial import PartAnswered, Rest
from tests.fakes.own_process import KILLED, KilledAt, exit_code
from tests.workspace.conftest import Desk

LINES = [f"line {number}\n" for number in range(60)]
OLD = "".join(LINES)
PATH = "src/long.py"


def changed(*numbers: int) -> str:
    """The file with these lines changed."""
    return "".join(line.upper() if number in numbers else line for number, line in enumerate(LINES))


@pytest.fixture
def host(host: Path) -> Path:
    (host / PATH).write_text(OLD)
    (host / PATH).chmod(0o640)
    return host


async def asked(desk: Desk, *numbers: int) -> Request:
    (desk.copy / PATH).write_text(changed(*numbers))
    wanted = content_hash(changed(*numbers).encode())
    await desk.until(lambda: PATH in desk.pending() and desk.pending()[PATH].action.after == wanted)  # type: ignore[union-attr]
    return desk.pending()[PATH]


async def ids(desk: Desk, request: Request) -> list[str]:
    return [hunk.id for hunk in (await desk.channel.card(request)).diff.hunks]


async def answer(
    desk: Desk, request: Request, *places: int, rest: Rest = "pending"
) -> PartAnswered:
    chosen = [(await ids(desk, request))[place] for place in places]
    return await desk.channel.answer_part(
        request.id, chosen, rest, by="tester", fingerprint=request.fingerprint
    )


def on_host(desk: Desk) -> str:
    return (desk.host / PATH).read_text()


def rest_of(desk: Desk, *numbers: int) -> Request | None:
    """The pending request, if it is for exactly these lines, from what the host holds now."""
    found = desk.pending().get(PATH)
    if found is None or not isinstance(found.action, FileChange):
        return None
    is_it = found.action.after == content_hash(changed(*numbers).encode())
    return found if is_it and found.action.before == content_hash(on_host(desk).encode()) else None


async def test_the_chosen_hunk_is_applied_and_the_rest_is_asked_anew(desk: Desk) -> None:
    async with desk.running():
        request = await asked(desk, 5, 50)
        done = await answer(desk, request, 0)
        assert (done.taken, done.hunks, done.rest) == (1, 2, None)
        assert on_host(desk) == changed(5)
        assert (desk.host / PATH).stat().st_mode & 0o777 == 0o640
        assert (desk.copy / PATH).read_text() == changed(5, 50)
        old = desk.gate.queue.get(request.id)
        assert (status(old), old.superseded_by) == ("superseded", done.part.id)
        assert (done.part.answered_by, status(done.part)) == ("tester", "used")
        assert "1 of 2 changes" in explanation(done.part)
        assert (done.part.in_part, old.in_part) == (True, False)
        await desk.until(lambda: rest_of(desk, 5, 50))
        second = desk.pending()[PATH]
        assert [line.text for hunk in (await desk.channel.card(second)).diff.hunks for line in hunk.lines if line.kind == "added"] == [  # noqa: E501
            "LINE 50"
        ]  # fmt: skip
        desk.approve(second)
        await desk.settled(second)
        assert on_host(desk) == changed(5, 50)
        await desk.compared()
        assert not desk.pending()


async def test_dropped_hunks_are_denied_on_record_and_never_asked_again(desk: Desk) -> None:
    async with desk.running():
        request = await asked(desk, 5, 30, 50)
        done = await answer(desk, request, 0, 2, rest="drop")
        assert on_host(desk) == changed(5, 50)
        assert done.rest is not None
        assert status(done.rest) == "denied"
        assert "only 2 of 3 changes of this file were approved" in explanation(done.rest)
        for _ in range(3):
            os.utime(desk.copy / PATH)
            await desk.compared()
        assert not desk.pending()
        assert len(desk.requests(PATH)) == 3
        later = await asked(desk, 5, 30, 40, 50)  # another content is another question
        assert later.id != done.rest.id


async def test_all_hunks_are_the_whole_request(desk: Desk) -> None:
    async with desk.running():
        request = await asked(desk, 5, 50)
        done = await answer(desk, request, 1, 0, rest="drop")
        assert (done.part.id, done.rest, done.taken) == (request.id, None, 2)
        assert on_host(desk) == changed(5, 50)
        assert len(desk.requests(PATH)) == 1


async def test_the_mode_stays_with_the_rest(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / PATH).chmod(0o750)
        request = await asked(desk, 5, 50)
        await desk.compared()
        request = desk.pending()[PATH]
        assert "new-executable" in request.action.hazards  # type: ignore[union-attr]
        await answer(desk, request, 0)
        assert on_host(desk) == changed(5)
        assert (desk.host / PATH).stat().st_mode & 0o777 == 0o640
        await desk.until(lambda: rest_of(desk, 5, 50))
        assert "new-executable" in desk.pending()[PATH].action.hazards  # type: ignore[union-attr]


async def test_the_rest_of_a_file_with_a_new_mode_can_be_dropped(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / PATH).chmod(0o750)
        await asked(desk, 5, 50)
        await desk.compared()
        await answer(desk, desk.pending()[PATH], 0, rest="drop")
        await desk.compared()
        assert not desk.pending()
        assert (desk.host / PATH).stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("rest", ["pending", "drop"])
async def test_a_host_that_moved_on_is_left_alone(desk: Desk, rest: Rest) -> None:
    async with desk.running():
        request = await asked(desk, 5, 50)
        chosen = (await ids(desk, request))[:1]
        (desk.host / PATH).write_text("the person's\n")
        async with desk.channel._turn:  # neither comparison nor the host's watcher was faster
            waiting = asyncio.ensure_future(
                desk.channel.answer_part(
                    request.id, chosen, rest, by="tester", fingerprint=request.fingerprint
                )
            )
            await asyncio.sleep(0)
        with pytest.raises(UserError, match=r"changed on the host|already|not the request"):
            await waiting
        assert on_host(desk) == "the person's\n"
        assert all(one.answer != "approved" for one in desk.requests(PATH))


async def test_a_host_that_moves_on_while_it_is_applied_is_left_alone(desk: Desk) -> None:
    def at(step: str) -> None:
        if step == "part answered":
            (desk.host / PATH).write_text("the person's\n")

    desk.new_channel(at)
    async with desk.running():
        request = await asked(desk, 5, 50)
        done = await answer(desk, request, 0, rest="drop")
        assert done.part.outcome is not None
        assert done.part.outcome["stale"]
        assert on_host(desk) == "the person's\n"
        await desk.until(
            lambda: PATH in desk.pending()
        )  # asked anew, as the conflict that it is now
        assert "conflict" in desk.pending()[PATH].action.hazards  # type: ignore[union-attr]


async def test_the_agent_writes_again_meanwhile(desk: Desk) -> None:
    """Before it is noticed: what was shown is applied. After: the old card can't be answered any
    more."""
    async with desk.running():
        request = await asked(desk, 5, 50)
        chosen = await ids(desk, request)
        async with desk.channel._turn:
            (desk.copy / PATH).write_text(changed(7, 50, 55))
            waiting = asyncio.ensure_future(
                desk.channel.answer_part(
                    request.id, chosen[:1], "drop", by="tester", fingerprint=request.fingerprint
                )
            )
            await asyncio.sleep(0)
        try:
            await waiting
            assert on_host(desk) == changed(5)
        except UserError:
            assert on_host(desk) == OLD
        await desk.until(lambda: rest_of(desk, 7, 50, 55))
        with pytest.raises(UserError, match="already superseded"):
            await desk.channel.answer_part(
                request.id, chosen[:1], "pending", by="tester", fingerprint=request.fingerprint
            )


async def test_a_newer_version_keeps_the_ids_of_hunks_that_read_the_same(desk: Desk) -> None:
    async with desk.running():
        first = await ids(desk, await asked(desk, 5, 50))
        second = await ids(desk, await asked(desk, 5, 30, 50))
        assert [second[0], second[2]] == first


@pytest.mark.parametrize("wrong", ["fingerprint", "hunks", "none", "id", "answered"])
async def test_only_what_was_shown_is_answered(desk: Desk, wrong: str) -> None:
    async with desk.running():
        request = await asked(desk, 5, 50)
        chosen = (await ids(desk, request))[:1]
        mark, name = request.fingerprint, request.id
        expected: tuple[type[Exception], str] = (UserError, "")
        match wrong:
            case "fingerprint":
                mark, expected = "0" * 64, (UserError, "not the request that was shown")
            case "hunks":
                chosen, expected = (
                    [*chosen, "0" * 32],
                    (UserError, "not the changes that were shown"),
                )
            case "none":
                chosen, expected = [], (UserError, "no change was chosen")
            case "id":
                name, expected = RequestId("0" * 32), (NotFoundError, "no request")
            case _:
                desk.deny(request)
                expected = (UserError, "already denied")
        with pytest.raises(expected[0], match=expected[1]):
            await desk.channel.answer_part(name, chosen, "drop", by="tester", fingerprint=mark)
        assert on_host(desk) == OLD
        assert len(desk.requests(PATH)) == 1


async def test_a_request_of_another_session_is_refused(desk: Desk) -> None:
    async with desk.running():
        request = await asked(desk, 5, 50)
        desk.channel._now.partial._session_id = "another"
        with pytest.raises(UserError, match="another session"):
            await answer(desk, request, 0)


async def test_what_has_no_parts_is_answered_as_a_whole(desk: Desk) -> None:
    async with desk.running():
        (desk.copy / PATH).unlink()
        (desk.copy / "link").symlink_to("README.md")
        for path in (PATH, "link"):
            request = await desk.asked(path)
            with pytest.raises(UserError, match="has parts"):
                await desk.channel.answer_part(
                    request.id, ["x"], "drop", by="tester", fingerprint=request.fingerprint
                )


async def test_a_hunk_of_a_long_line_can_be_chosen(desk: Desk) -> None:
    async with desk.running():
        lines = [*LINES]
        lines[5], lines[50] = "x" * 5000 + "\n", "y\n"
        (desk.copy / PATH).write_text("".join(lines))
        request = await desk.asked(PATH)
        await answer(desk, request, 0)
        assert on_host(desk) == "".join([*LINES[:5], lines[5], *LINES[6:]])


async def test_a_rule_that_came_meanwhile_denies_the_part_too(desk: Desk) -> None:
    async with desk.running():
        request = await asked(desk, 5, 50)
        desk.gate.rulings._kill_switch.stop("enough")
        with pytest.raises(RefusedError, match="enough"):
            await answer(desk, request, 0, rest="drop")
        assert on_host(desk) == OLD
        assert status(desk.gate.queue.get(request.id)) == "pending"
        assert not [one for one in desk.requests(PATH) if one.answer == "approved"]


async def test_what_the_agent_asked_through_its_api_is_asked_again_for_the_rest(desk: Desk) -> None:
    async with desk.running():
        request = await desk.channel.write(PATH, changed(5, 50).encode(), "both are needed")
        done = await answer(desk, request, 0)
        assert on_host(desk) == (desk.copy / PATH).read_text() == changed(5)
        assert done.rest is not None
        assert (status(done.rest), done.rest.reason, done.rest.origin) == (
            "pending",
            "both are needed",
            "agent_api",
        )
        assert not (await desk.channel.card(done.rest)).is_stale
        desk.approve(done.rest)
        await desk.settled(done.rest)
        assert on_host(desk) == (desk.copy / PATH).read_text() == changed(5, 50)


async def test_what_the_agent_edited_through_its_api_can_be_dropped_in_part(desk: Desk) -> None:
    async with desk.running():
        request = await desk.channel.edit(PATH, "5\n", "FIVE\n", True, "all of them")
        done = await answer(desk, request, 0, rest="drop")
        assert on_host(desk).count("FIVE") == 1
        assert (desk.copy / PATH).read_text() == on_host(desk)
        assert done.rest is not None
        assert status(done.rest) == "denied"
        await desk.compared()
        assert not desk.pending()


async def test_two_tabs_answer_once(desk: Desk) -> None:
    async with desk.running():
        request = await asked(desk, 5, 50)
        both = await asyncio.gather(
            answer(desk, request, 0, rest="drop"),
            answer(desk, request, 1, rest="drop"),
            return_exceptions=True,
        )
        assert sorted(isinstance(one, UserError) for one in both) == [False, True]
        assert on_host(desk) in (changed(5), changed(50))


@pytest.mark.parametrize("step", ["part kept", "part answered", "intended", "written", "placed"])
def test_kill_at_each_step(tmp_path: Path, host: Path, step: str) -> None:
    """Before the answer is a fact the old card is asked again; after it, exactly the part is on
    the host and the rest denied."""
    assert exit_code(_live_and_die, tmp_path, host, step) == KILLED
    assert (host / PATH).read_text() in (OLD, changed(5))

    async def next_start() -> None:
        desk = Desk(tmp_path / "data", host)
        async with desk.running(copy=False, start=False):
            desk.gate.answers.offer_ready()
            if step == "part answered":  # what was begun is finished by `start`, before it compares
                await desk.until(lambda: on_host(desk) == changed(5))
            await desk.channel.start()
            if step == "part kept":
                await desk.until(lambda: rest_of(desk, 5, 50))
                assert on_host(desk) == OLD
            else:
                await desk.until(
                    lambda: all(
                        one.settled_at for one in desk.requests(PATH) if one.answer == "approved"
                    )
                )
                await desk.compared()
                assert not desk.pending()
                assert sorted(status(one) for one in desk.requests(PATH)) == [
                    "denied",
                    "superseded",
                    "used",
                ]
        desk.close()

    asyncio.run(next_start())


async def _live_and_die(tmp_path: Path, host: Path, step: str) -> None:
    desk = Desk(tmp_path / "data", host)
    desk.new_channel(KilledAt(step))
    async with desk.running():
        await answer(desk, await asked(desk, 5, 50), 0, rest="drop")
        await asyncio.sleep(60)  # killed long before
