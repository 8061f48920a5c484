"""What is looked at while the copy gets quiet is only ever used where it would be found again."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from supervisor.workspace import channel
from supervisor.workspace.compare.examining import LARGEST_BYTES, LookedAhead
from supervisor.workspace.compare.path_findings import PathFinding
from supervisor.workspace.disk import watch
from supervisor.workspace.disk.beneath import Root
from supervisor.workspace.disk.watch import Watcher
from tests.workspace.conftest import Desk

DEBOUNCE_S = 0.5


@pytest.fixture
async def still(desk: Desk) -> AsyncIterator[Desk]:
    """A session that nobody watches: each test looks when it says so."""
    async with desk.running(start=False):
        await desk.compared()
        yield desk


async def ahead(desk: Desk, *names: str) -> None:
    """What the channel does while it gets quiet."""
    await desk.channel._expect(set(names))


def found(desk: Desk) -> set[str]:
    """What was looked at ahead, and not used yet."""
    return set(desk.channel._now.comparison._examiner.ahead._found)


def examined(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are examined from now on."""
    seen: list[str] = []
    examiner = desk.channel._now.comparison._examiner
    real = examiner.one

    def examine(name: str, *rest: object) -> PathFinding:
        seen.append(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(examiner, "one", examine)
    return seen


async def test_it_is_used_where_nothing_changed(
    still: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    (still.copy / "src/new.py").write_text("new\n")
    (still.copy / "src/app.py").write_text("changed\n")
    await ahead(still, "src/new.py", "src/app.py")
    assert found(still) == {"src/new.py", "src/app.py"}
    seen = examined(still, monkeypatch)
    await still.compared()
    assert {"src/new.py", "src/app.py"}.isdisjoint(seen)
    assert still.pending().keys() == {"src/new.py", "src/app.py"}
    assert found(still) == set()
    await still.approve_all()
    assert (still.host / "src/new.py").read_text() == "new\n"
    assert (still.host / "src/app.py").read_text() == "changed\n"


@pytest.mark.parametrize("rewritten", ["later\n", "other\n"])
async def test_what_is_written_later_is_what_is_asked_and_applied(
    still: Desk, rewritten: str
) -> None:
    path = still.copy / "src/new.py"
    path.write_text("first\n")  # as long as one of the others
    await ahead(still, "src/new.py")
    path.write_text(rewritten)
    await still.approve_all()
    assert (still.host / "src/new.py").read_text() == rewritten


async def test_a_change_of_the_persons_meanwhile_is_seen(still: Desk) -> None:
    (still.copy / "src/app.py").write_text("the agent's\n")
    (still.copy / "free/new.txt").write_text("the agent's\n")
    await ahead(still, "src/app.py", "free/new.txt")
    (still.host / "src/app.py").write_text("the person's\n")
    (still.host / "free/new.txt").write_text("the person's\n")
    await still.compared()
    for name in ("src/app.py", "free/new.txt"):
        assert still.pending()[name].action.hazards == ("conflict",)  # type: ignore[union-attr]
        assert (still.host / name).read_text() == "the person's\n"


async def test_what_is_gone_again_is_asked_about_by_nobody(still: Desk) -> None:
    (still.copy / "src/new.py").write_text("new\n")
    (still.copy / "src/app.py").write_text("changed\n")
    await ahead(still, "src/new.py", "src/app.py")
    (still.copy / "src/new.py").unlink()
    (still.copy / "src/app.py").unlink()
    (still.copy / "src/app.py").symlink_to("util.py")
    await still.compared()
    assert [(name, request.action.operation) for name, request in still.pending().items()] == [  # type: ignore[union-attr]
        ("src/app.py", "symlink")
    ]


async def test_an_agreement_meanwhile_is_seen(still: Desk) -> None:
    """The same was asked for by the agent's API and applied: nothing is left to ask."""
    still.gate.handlers.on_ready(
        "filesystem", "agent_api", lambda request: still.channel.carry_out(request)
    )  # type: ignore[arg-type]
    (still.copy / "free/new.txt").write_text("the same\n")
    await ahead(still, "free/new.txt")
    await still.settled(await still.channel.write("free/new.txt", b"the same\n", ""))
    before = len(still.requests("free/new.txt"))
    await still.compared()
    assert len(still.requests("free/new.txt")) == before


async def test_a_move_is_one_request_whether_or_not_it_was_looked_at(still: Desk) -> None:
    (still.copy / "src/app.py").rename(still.copy / "src/main.py")
    await ahead(still, "src/main.py")
    await still.compared()
    assert [(r.action.operation, r.action.to) for r in still.pending().values()] == [
        ("rename", "src/main.py")
    ]  # type: ignore[union-attr]


async def test_what_is_ignored_hidden_large_or_no_file_is_not_read(still: Desk) -> None:
    copy = still.copy
    (copy / "noise.log").write_text("ignored\n")
    (copy / "src/.gatehouse-1").write_text("ours\n")
    (copy / "src/large.bin").write_bytes(b"x" * (LARGEST_BYTES + 1))
    (copy / "src/folder").mkdir()
    (copy / "src/link").symlink_to("app.py")
    os.mkfifo(copy / "src/fifo")
    blobs = still.folder / "blobs"
    kept = set(blobs.iterdir())
    await ahead(
        still, "noise.log", "src/.gatehouse-1", "src/large.bin", "src/folder/", "src/folder",
        "src/link", "src/fifo",
        "src/none", ".git/config", "../outside", "/etc/passwd",
    )  # fmt: skip
    assert found(still) == set()
    assert set(blobs.iterdir()) == kept


async def test_not_more_than_so_many_are_looked_at(
    still: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.workspace.compare.examining.MOST_FOUND", 2)
    names = [f"src/{number}.py" for number in range(3)]
    for name in names:
        (still.copy / name).write_text("new\n")
    for name in names:
        await ahead(still, name)
    assert found(still) == set(names[:2])
    await still.compared()
    assert still.pending().keys() == set(names)


async def test_a_file_that_is_written_to_while_it_is_read_is_left(
    still: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = still.copy / "src/new.py"
    path.write_text("first\n")
    blobs = still.channel._now.sides.blobs
    real = blobs.keep_file

    def keep_file(source: int, before: os.stat_result | None) -> str:
        with path.open("a") as file:
            file.write("more\n")
        return real(source, before)

    monkeypatch.setattr(blobs, "keep_file", keep_file)
    await ahead(still, "src/new.py")
    assert found(still) == set()


async def test_a_change_between_a_look_and_its_end_is_noticed(
    still: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signature that counts is the one from before the look."""
    sides = still.channel._now.sides
    path = still.copy / "src/new.py"
    path.write_text("first\n")

    def examine(name: str) -> PathFinding:
        finding = PathFinding(name)
        path.write_text("then\n")
        return finding

    looked = LookedAhead(sides, examine)
    looked.look(["src/new.py"])
    assert looked.take("src/new.py") is None


# -- the watcher ----------------------------------------------------------------------------------


@pytest.fixture
async def watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Watcher, Path]]:
    # Longer than a busy machine keeps this process from running: what a batch holds is told by
    # events, not by that.
    monkeypatch.setattr(watch, "DEBOUNCE_S", DEBOUNCE_S)
    monkeypatch.setattr(watch, "LONGEST_BATCH_S", 60.0)
    (tmp_path / "folder").mkdir()
    root = Root(tmp_path)
    watcher = Watcher(root)
    watcher.add("folder")
    yield watcher, tmp_path / "folder"
    watcher.close()
    root.close()


async def test_it_tells_of_what_is_new_and_what_is_written_until_it_is_quiet(
    watched: tuple[Watcher, Path],
) -> None:
    watcher, folder = watched
    (folder / "old").write_text("")
    told: list[set[str]] = []

    async def meanwhile(names: set[str]) -> None:
        told.append(names)
        if len(told) == 1:
            (folder / "second").write_text("")
            await asyncio.sleep(0)
        elif len(told) == 2:
            (folder / "inner").mkdir()
            raise OSError("whatever it is")

    assert await watcher.batch(5.0, meanwhile) == {"folder"}
    assert told == [{"folder/old"}, {"folder/second"}, {"folder/inner/"}]
    (folder / "old").open("a").close()
    assert await watcher.batch(5.0, meanwhile) == {"folder"}
    assert told[3:] == [{"folder/old"}]


async def test_a_batch_ends_after_what_was_told(watched: tuple[Watcher, Path]) -> None:
    """So that no two of them use the same snapshots at once."""
    watcher, folder = watched
    over = asyncio.Event()
    ended = []

    async def meanwhile(names: set[str]) -> None:
        await over.wait()
        ended.append(names)

    (folder / "file").write_text("")
    batch = asyncio.create_task(watcher.batch(5.0, meanwhile))
    done, _ = await asyncio.wait([batch], timeout=2 * DEBOUNCE_S)
    assert not done
    over.set()
    await batch
    assert ended == [{"folder/file"}]


def flood(first: Path, second: Path) -> None:
    """More events than the kernel keeps for one watcher, nobody reading meanwhile: it drops what
    comes after them."""
    kept = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if kept > 200_000:
        pytest.skip("this machine keeps very many events")
    # Two files in turn: an event like the one before it isn't queued.
    modes = {path: path.stat().st_mode for path in (first, second)}
    for _ in range(kept // 2 + 1):
        for path, mode in modes.items():
            path.chmod(mode)


async def test_dropped_events_may_have_been_about_anything(watched: tuple[Watcher, Path]) -> None:
    watcher, folder = watched
    noisy = folder.with_name("noisy")
    noisy.mkdir()
    for name in ("one", "two"):
        (noisy / name).write_text("")
    watcher.add("noisy")
    flood(noisy / "one", noisy / "two")
    (folder / "dropped").write_text("")
    assert await watcher.batch(5.0) is None
    # And then it listens as before.
    (folder / "heard").write_text("")
    assert await watcher.batch(5.0) == {"folder"}


async def test_what_an_overflow_hides_reaches_the_host(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "FULL_COMPARISON_S", 3600.0)  # which would find it some time later
    async with desk.running():
        flood(desk.copy / "src/app.py", desk.copy / "src/util.py")
        (desk.copy / "free/late.txt").write_text("late\n")
        await desk.until(lambda: (desk.host / "free/late.txt").exists())


async def test_a_session_that_stops_waits_for_a_look(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptors are closed only then: their numbers could be another file's."""
    begun, go_on, over = asyncio.Event(), asyncio.Event(), []
    loop = asyncio.get_running_loop()
    async with desk.running():
        comparison = desk.channel._now.comparison

        def look(names: object) -> None:
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(20)
            over.append(desk.channel._now.sides.copy.fd >= 0)

        monkeypatch.setattr(comparison._examiner.ahead, "look", look)
        (desk.copy / "free/new.txt").write_text("new\n")
        await begun.wait()
        stopping = asyncio.create_task(desk.channel.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        go_on.set()
        await stopping
        assert over == [True]
