"""A folder in the place of a file or a link, or the other way round: one question, one answer,
all of it or nothing."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.core.actions import FileChange
from supervisor.core.approvals import Request, status
from supervisor.core.files.undo_steps import Selection
from tests.fakes.own_process import KILLED, KilledAt, exit_code
from tests.workspace.conftest import Desk
from tests.workspace.model_tree import read_tree


def flat(copy: Path) -> str:
    """A folder becomes a file."""
    shutil.rmtree(copy / "src")
    (copy / "src").write_text("flat\n")
    return "src"


def linked(copy: Path) -> str:
    """A folder becomes a link."""
    shutil.rmtree(copy / "src")
    (copy / "src").symlink_to("free")
    return "src"


def grown(copy: Path) -> str:
    """A file becomes a folder, with a script, a link, a folder of its own and an empty one in
    it."""
    (copy / "README.md").unlink()
    (copy / "README.md/sub/deep").mkdir(parents=True)
    (copy / "README.md/empty").mkdir(mode=0o700)
    (copy / "README.md/one.txt").write_text("one\n")
    (copy / "README.md/one.txt").chmod(0o755)
    (copy / "README.md/sub/deep/two.txt").write_text("two\n")
    (copy / "README.md/sub/here").symlink_to("deep")
    return "README.md"


def unlinked(copy: Path) -> str:
    """A link becomes a folder."""
    (copy / "link").unlink()
    (copy / "link").mkdir()
    (copy / "link/in.txt").write_text("in\n")
    return "link"


SWAPS = [flat, linked, grown, unlinked]
everyone = pytest.mark.parametrize("swap", SWAPS)
type SwapOf = Callable[[Path], str]


@pytest.fixture(autouse=True)
def _link(host: Path) -> None:
    (host / "link").symlink_to("free")


def tree(folder: Path) -> dict[str, object]:
    return {
        name: entry for name, entry in read_tree(folder, {}).items() if name.split("/")[0] != ".git"
    }


async def asked(desk: Desk) -> Request:
    """The one card that there is."""
    await desk.compared()
    (request,) = desk.pending().values()
    assert isinstance(request.action, FileChange)
    assert request.action.operation == "swap"
    return request


async def answered(desk: Desk, request: Request) -> Request:
    desk.approve(request)
    return await desk.settled(request)


async def undone(desk: Desk, request: Request) -> None:
    async with desk.channel.undoing() as undo:
        plan = await undo.plan(Selection(ids=(request.id,)))
        assert not plan.problems
        await undo.carry_out(Selection(ids=(request.id,)), token=plan.token, by="tester")


@everyone
async def test_one_question_one_answer_and_undone_as_one(desk: Desk, swap: SwapOf) -> None:
    async with desk.running(start=False):
        before = tree(desk.host)
        path = swap(desk.copy)
        request = await asked(desk)
        assert request.action.path == path  # type: ignore[union-attr]
        done = await answered(desk, request)
        assert done.outcome is not None
        assert done.outcome["ok"], done.outcome
        assert tree(desk.host) == tree(desk.copy)
        await desk.compared()
        assert len(desk.requests()) == 1
        await undone(desk, request)
        assert tree(desk.host) == before
        assert not list(desk.host.rglob(".gatehouse-*"))


@pytest.mark.parametrize("swap", [flat, grown])
async def test_a_denial_holds_for_all_of_it(desk: Desk, swap: SwapOf) -> None:
    async with desk.running(start=False):
        before = tree(desk.host)
        swap(desk.copy)
        desk.deny(await asked(desk))
        await desk.compared()
        assert not desk.pending()
        assert len(desk.requests()) == 1
        assert tree(desk.host) == before


async def test_what_a_rule_allows_is_not_asked_and_one_denied_path_denies_all(desk: Desk) -> None:
    async with desk.running(start=False):
        shutil.rmtree(desk.copy / "free")
        (desk.copy / "free").write_text("flat\n")
        await desk.compared()
        (request,) = desk.requests()
        assert request.decision == "allow"
        assert (desk.host / "free").read_text() == "flat\n"
        shutil.rmtree(desk.copy / "closed")
        (desk.copy / "closed").write_text("flat\n")
        await desk.compared()
        assert (desk.host / "closed/c.txt").read_text() == "c\n"
        assert not desk.pending()
        assert "closed" in desk.refusals() or any(
            status(one) == "denied" for one in desk.requests("closed")
        )


@pytest.mark.parametrize("name", ["build/out.o", "made.txt", "x.log"])
async def test_what_the_session_never_had_stays_and_says_why(desk: Desk, name: str) -> None:
    """Ignored, or made on the host since: nobody is asked to delete it, and nothing else of the
    folder goes."""
    async with desk.running(start=False):
        await desk.walk_host()
        flat(desk.copy)
        theirs = desk.host / "src" / name
        theirs.parent.mkdir(exist_ok=True)
        theirs.write_text("mine\n")
        before = tree(desk.host)
        await desk.compared()
        assert not desk.pending()
        assert "which this session never had" in desk.channel.refused()["src"]
        assert tree(desk.host) == before
        theirs.unlink()
        if theirs.parent.name == "build":
            theirs.parent.rmdir()
        assert (await answered(desk, await asked(desk))).outcome["ok"]  # type: ignore[index]
        assert (desk.host / "src").read_text() == "flat\n"
        assert not desk.channel.refused()


async def test_made_on_the_host_while_the_card_waits(desk: Desk) -> None:
    async with desk.running(start=False):
        flat(desk.copy)
        request = await asked(desk)
        (desk.host / "src/made.txt").write_text("mine\n")
        before = tree(desk.host)
        done = await answered(desk, request)
        assert not done.outcome["ok"]  # type: ignore[index]
        assert "`src/made.txt` is in the folder, too" in done.outcome["error"]  # type: ignore[index]
        assert tree(desk.host) == before
        await desk.compared()
        assert not desk.pending()


async def test_a_newer_version_takes_the_cards_place_and_swapping_back_withdraws_it(
    desk: Desk,
) -> None:
    async with desk.running(start=False):
        (desk.copy / "src/app.py").write_text("edited\n")
        await desk.compared()
        assert list(desk.pending()) == ["src/app.py"]
        shutil.move(desk.copy / "src", desk.folder / "aside")
        (desk.copy / "src").write_text("flat\n")
        first = await asked(desk)
        (desk.copy / "src").write_text("flatter\n")
        second = await asked(desk)
        assert status(desk.gate.queue.get(first.id)) == "superseded"
        (desk.copy / "src").unlink()
        shutil.move(desk.folder / "aside", desk.copy / "src")
        await desk.compared()
        assert status(desk.gate.queue.get(second.id)) not in ("pending", "approved")
        assert list(desk.pending()) == ["src/app.py"]


async def test_a_file_in_the_new_folder_changes_while_the_card_waits(desk: Desk) -> None:
    async with desk.running(start=False):
        grown(desk.copy)
        first = await asked(desk)
        await desk.compared()
        assert (await asked(desk)).id == first.id
        (desk.copy / "README.md/sub/deep/two.txt").write_text("newer\n")
        second = await asked(desk)
        assert second.id != first.id
        assert (await answered(desk, second)).outcome["ok"]  # type: ignore[index]
        assert (desk.host / "README.md/sub/deep/two.txt").read_text() == "newer\n"


async def test_the_persons_edit_in_the_folder_is_a_conflict(desk: Desk) -> None:
    async with desk.running(start=False):
        flat(desk.copy)
        first = await asked(desk)
        (desk.host / "src/app.py").write_text("person\n")
        before = tree(desk.host)
        assert not (await answered(desk, first)).outcome["ok"]  # type: ignore[index]
        assert tree(desk.host) == before
        second = await asked(desk)
        assert second.action.hazards == ("conflict",)  # type: ignore[union-attr]
        assert (await answered(desk, second)).outcome["ok"]  # type: ignore[index]
        assert (desk.host / "src").read_text() == "flat\n"
        await undone(desk, second)
        assert tree(desk.host) == before


@pytest.mark.parametrize("swap", [flat, grown])
async def test_the_hosts_version_can_be_given_to_the_agent_whole(desk: Desk, swap: SwapOf) -> None:
    async with desk.running(start=False):
        await desk.walk_host()
        theirs = desk.host / ("src/app.py" if swap is flat else "README.md")
        path = swap(desk.copy)
        theirs.write_text("person\n")
        await asked(desk)
        before = tree(desk.host)
        request = desk.pending()[path]
        assert (await desk.channel.conflict_card(request)).why_not == "only files can be merged"
        await desk.channel.give_host(request.id, by="tester", fingerprint=request.fingerprint)
        assert tree(desk.copy) == before == tree(desk.host)
        await desk.compared()
        assert not desk.pending()


async def test_protected_and_special_things_below_count(desk: Desk) -> None:
    async with desk.running(start=False):
        (desk.copy / "free/a.txt").unlink()
        (desk.copy / "free/a.txt").mkdir()
        (desk.copy / "free/a.txt/.envrc").write_text("x\n")
        os.mkfifo(desk.copy / "free/a.txt/pipe")
        request = await asked(desk)
        assert "protected name .envrc" in request.why
        assert [step.path for step in request.action.steps] == ["free/a.txt/.envrc"]  # type: ignore[union-attr]


async def test_ignored_things_of_the_agents_stay_its_own(desk: Desk) -> None:
    async with desk.running(start=False):
        grown(desk.copy)
        (desk.copy / "README.md/x.log").write_text("log\n")
        (desk.copy / "README.md/build").mkdir()
        (desk.copy / "README.md/build/out.o").write_text("o\n")
        assert (await answered(desk, await asked(desk))).outcome["ok"]  # type: ignore[index]
        assert not (desk.host / "README.md/x.log").exists()
        assert not (desk.host / "README.md/build").exists()
        assert (desk.host / "README.md/one.txt").read_text() == "one\n"


@pytest.mark.parametrize("swap", [flat, grown])
@pytest.mark.parametrize("step", ["intended", "placed", "batch done"])
async def test_what_fails_half_way_is_put_back(desk: Desk, swap: SwapOf, step: str) -> None:
    """From the second time on that an effect comes by this step, the disk is full; until it is
    put back."""
    left = 2 if step in ("intended", "placed") else 1

    def at(now: str) -> None:
        nonlocal left
        if now == step:
            left -= 1
            if not left:
                raise OSError(28, "No space left on device")

    desk.new_channel(at)
    async with desk.running(start=False):
        before = tree(desk.host)
        swap(desk.copy)
        done = await answered(desk, await asked(desk))
        if not left:
            assert "nothing of this was carried out" in done.outcome["error"]  # type: ignore[index]
            assert tree(desk.host) == before
        assert not list(desk.host.rglob(".gatehouse-*"))


async def test_what_came_into_the_folder_in_the_last_instant(desk: Desk) -> None:
    """Somebody whose working directory it is writes a file there while it is swapped out."""

    def at(step: str) -> None:
        if step == "swapped":
            (aside,) = (one for one in desk.host.glob(".gatehouse-*") if one.is_dir())
            (aside / "mine.txt").write_text("mine\n")

    desk.new_channel(at)
    async with desk.running(start=False):
        before = tree(desk.host)
        flat(desk.copy)
        assert not (await answered(desk, await asked(desk))).outcome["ok"]  # type: ignore[index]
        assert (desk.host / "src/mine.txt").read_text() == "mine\n"
        (desk.host / "src/mine.txt").unlink()
        assert tree(desk.host) == before


@pytest.mark.parametrize("saved", ["saved", "written", "taken away"])
async def test_what_came_there_and_into_the_folder_in_the_last_instant(
    desk: Desk, saved: str
) -> None:
    """Both are the person's, and only one can have the name: neither is lost, or left where
    nobody looks."""

    def at(step: str) -> None:
        if step != "swapped":
            return
        (aside,) = (one for one in desk.host.glob(".gatehouse-*") if one.is_dir())
        (aside / "mine.txt").write_text("mine\n")
        new = desk.host / "src"
        if saved == "taken away":
            new.unlink()
        elif saved == "written":
            new.write_text("saved\n")
        else:
            (desk.host / "new").write_text("saved\n")
            (desk.host / "new").replace(new)

    desk.new_channel(at)
    async with desk.running(start=False):
        flat(desk.copy)
        assert not (await answered(desk, await asked(desk))).outcome["ok"]  # type: ignore[index]
        if saved == "taken away":
            assert (desk.host / "src/mine.txt").read_text() == "mine\n"
        else:
            (beside,) = desk.host.glob("src.gatehouse-*")
            assert (beside / "mine.txt").read_text() == "mine\n"
            assert (desk.host / "src").read_text() == "saved\n"
        assert not list(desk.host.rglob(".gatehouse-*"))


async def test_a_link_of_the_persons_is_replaced_by_nobodys_rule(desk: Desk) -> None:
    (desk.host / "free/link").symlink_to("a.txt")
    async with desk.running(start=False):
        await desk.walk_host()
        (desk.copy / "free/link").unlink()
        (desk.copy / "free/link").mkdir()
        (desk.copy / "free/link/in.txt").write_text("in\n")
        request = await asked(desk)
        assert request.decision == "ask"
        assert "symlink" in request.action.hazards  # type: ignore[union-attr]


async def test_a_large_content_that_another_request_let_go_of(desk: Desk) -> None:
    """The folder's card still needs it."""
    large = "x" * 300_000
    async with desk.running(start=False):
        (desk.copy / "README.md").unlink()
        (desk.copy / "README.md").mkdir()
        (desk.copy / "README.md/large").write_text(large)
        (desk.copy / "other").write_text(large)
        await desk.compared()
        assert set(desk.pending()) == {"README.md", "other"}
        (desk.copy / "other").unlink()
        assert (await answered(desk, await asked(desk))).outcome["ok"]  # type: ignore[index]
        assert (desk.host / "README.md/large").read_text() == large


POINTS = [
    ("intended", 1),
    ("written", 1),
    ("batch staged", 1),
    ("placed", 1),
    ("placed", 3),
    ("batch done", 1),
    ("batch ended", 1),
]


async def run_and_die(tmp_path: Path, host: Path, swap: SwapOf, at: KilledAt) -> None:
    """In a process of its own: ask, approve, and be killed."""
    desk = Desk(tmp_path / "data", host)
    desk.new_channel(at)
    async with desk.running(start=False):
        swap(desk.copy)
        await answered(desk, await asked(desk))


@pytest.mark.parametrize(
    ("swap", "point", "number"),
    [*((swap, *point) for swap in (flat, grown) for point in POINTS), (flat, "swapped", 1)],
)
def test_kill_at_each_point(
    tmp_path: Path, host: Path, swap: SwapOf, point: str, number: int
) -> None:
    """The next start has all of it, once, and it can be taken back."""
    before = tree(host)
    assert exit_code(run_and_die, tmp_path, host, swap, KilledAt(point, number)) == KILLED

    async def next_start() -> None:
        desk = Desk(tmp_path / "data", host)
        async with desk.running(copy=False, start=False):
            desk.gate.answers.offer_ready()
            await desk.compared()
            request = desk.requests()[0]
            done = await desk.settled(request)
            assert done.outcome["ok"], done.outcome  # type: ignore[index]
            assert len(desk.requests()) == 1
            assert tree(host) == tree(desk.copy)
            await undone(desk, request)
            assert tree(host) == before
        desk.close()

    asyncio.run(next_start())
    assert not list(host.rglob(".gatehouse-*"))


def test_an_edit_after_the_crash_takes_nothing_back(tmp_path: Path, host: Path) -> None:
    """All was done and only not yet said: what the person made of it since is theirs, and the
    rest stays done."""
    assert exit_code(run_and_die, tmp_path, host, grown, KilledAt("batch ended")) == KILLED
    (host / "README.md/one.txt").write_text("person\n")

    async def next_start() -> None:
        desk = Desk(tmp_path / "data", host)
        async with desk.running(copy=False, start=False):
            await desk.compared()
            (request, *_) = desk.requests()
            assert (await desk.settled(request)).outcome["ok"]  # type: ignore[index]
            assert (host / "README.md/one.txt").read_text() == "person\n"
            assert (host / "README.md/sub/deep/two.txt").read_text() == "two\n"
        desk.close()

    asyncio.run(next_start())


def test_what_came_into_the_folder_after_the_crash(tmp_path: Path, host: Path) -> None:
    """The supervisor is dead, the folder has no name of its own, and somebody's working
    directory is there."""
    assert exit_code(run_and_die, tmp_path, host, flat, KilledAt("swapped")) == KILLED
    (aside,) = (one for one in host.glob(".gatehouse-*") if one.is_dir())
    (aside / "mine.txt").write_text("mine\n")

    async def next_start() -> None:
        desk = Desk(tmp_path / "data", host)
        async with desk.running(copy=False, start=True):
            assert (host / "src").read_text() == "flat\n"
            (beside,) = host.glob("src.gatehouse-*")
            assert (beside / "mine.txt").read_text() == "mine\n"
            assert not list(host.glob(".gatehouse-*"))
            (said,) = desk.channel.host_changes().notices()  # type: ignore[union-attr]
            assert beside.name in said
        desk.close()

    asyncio.run(next_start())
