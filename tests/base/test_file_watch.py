"""Files are read anew as they are saved: however an editor does that, wherever the file appears,
and with the old one kept on an error."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from supervisor.base import file_watch
from supervisor.base.file_watch import FileWatch, WatchedFiles
from supervisor.errors import UserError
from tests.fakes.waiting import PATIENCE_S


class Watched:
    """One file, watched. `text` is what was read last."""

    def __init__(self, path: Path, busy: Path) -> None:
        self.path = path
        self.text = path.read_text() if path.exists() else ""
        self.reads = 0
        self.kind = WatchedFiles("one", lambda: [path], self._read)
        self.watch = FileWatch([self.kind], busy=busy)

    async def _read(self) -> None:
        self.reads += 1
        text = self.path.read_text() if self.path.exists() else ""
        if "bad" in text:
            raise UserError(f"{self.path}: it is bad", "mend it")
        self.text = text

    def on_reload(self, _kind: str, _error: str | None) -> None:
        self._woken.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self._woken.clear()
                await self._woken.wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Watched"]:
        self._woken = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.watch.run(self.on_reload))
            yield self
            task.cancel()


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


def by_rename(path: Path, text: str) -> None:
    new = path.with_name(f".#{path.name}.swp")
    new.write_text(text)
    new.replace(path)


def moved_away_first(path: Path, text: str) -> None:
    """As vim does with `backupcopy=no`."""
    if path.exists():
        path.rename(path.with_name(f"{path.name}~"))
    path.write_text(text)


@pytest.fixture(autouse=True)
def only_events(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what passes is woken by events, not by the look each second."""
    if "busy" not in request.node.name:
        monkeypatch.setattr(file_watch, "LOOK_EVERY_S", 3600.0)


@pytest.mark.parametrize("save", [in_place, by_rename, moved_away_first])
async def test_a_file_is_read_anew_however_it_is_saved(
    tmp_path: Path, save: Callable[[Path, str], None]
) -> None:
    path = tmp_path / "it.yaml"
    path.write_text("one")
    async with Watched(path, tmp_path / "data").running() as it:
        await started(it)
        for text in ("two", "three", "four"):
            save(path, text)
            await it.until(lambda text=text: it.text == text)  # type: ignore[misc]


async def started(it: Watched) -> None:
    """The watch says not from when on it watches: that a change beside the file woke it does."""
    probe = it.path.parent
    while not probe.exists():
        probe = probe.parent
    woken = asyncio.Event()
    look = it.kind.look

    async def noted() -> bool:
        woken.set()
        return await look()

    it.kind.look = noted  # type: ignore[method-assign]
    async with asyncio.timeout(PATIENCE_S):
        for number in range(10_000):
            (probe / "probe").write_text(str(number))
            with contextlib.suppress(TimeoutError):
                woken.clear()
                await asyncio.wait_for(woken.wait(), 0.3)
                break
    it.kind.look = look  # type: ignore[method-assign]


async def test_a_file_that_appears_later_is_read_though_its_folder_is_missing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a/b/it.yaml"
    async with Watched(path, tmp_path / "data").running() as it:
        await started(it)
        path.parent.mkdir(parents=True)
        path.write_text("one")
        await it.until(lambda: it.text == "one")
        await started(it)
        by_rename(path, "two")
        await it.until(lambda: it.text == "two")
        path.unlink()
        await it.until(lambda: it.text == "")


async def test_a_link_to_a_file_is_followed_where_it_leads_and_when_it_is_swapped(
    tmp_path: Path,
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "it.yaml").write_text(name)
    (tmp_path / "here").mkdir()
    path = tmp_path / "here/it.yaml"
    path.symlink_to("../old/it.yaml")
    async with Watched(path, tmp_path / "data").running() as it:
        await started(it)
        (tmp_path / "old/it.yaml").write_text("saved")
        await it.until(lambda: it.text == "saved")
        (tmp_path / "here/next").symlink_to("../new/it.yaml")
        (tmp_path / "here/next").replace(path)
        await it.until(lambda: it.text == "new")


async def test_what_cant_be_used_keeps_the_old_and_is_a_banner_until_it_is_mended(
    tmp_path: Path,
) -> None:
    path = tmp_path / "it.yaml"
    path.write_text("good")
    async with Watched(path, tmp_path / "data").running() as it:
        await started(it)
        assert it.watch.banner is None
        by_rename(path, "bad")
        await it.until(lambda: it.watch.banner is not None)
        assert (
            it.watch.banner == f"{path}: it is bad; mend it (what was read before stays in force)"
        )
        assert it.text == "good"
        by_rename(path, "better")
        await it.until(lambda: it.watch.banner is None)
        assert it.text == "better"


@pytest.mark.parametrize("save", [in_place, by_rename])
async def test_a_file_in_the_busy_folder_is_read_too(
    tmp_path: Path, save: Callable[[Path, str], None]
) -> None:
    """What we write there ourselves wakes nobody."""
    path = tmp_path / "it.yaml"
    async with Watched(path, tmp_path).running() as it:
        for text in ("one", "two", "three"):
            save(path, text)
            await it.until(lambda text=text: it.text == text)  # type: ignore[misc]
        places = {place for place, _ in it.watch._places()}
        assert places == {path}


async def test_where_nothing_can_be_watched_it_is_looked_at_though_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_watches(*_: object, **__: object) -> object:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(file_watch, "awatch", no_watches)
    path = tmp_path / "it.yaml"
    async with Watched(path, tmp_path / "data").running() as it:
        path.write_text("one")
        await it.until(lambda: it.text == "one")


async def test_nothing_is_read_twice_that_was_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    path.write_text("one")
    async with Watched(path, tmp_path / "data").running() as it:
        await started(it)
        assert it.reads == 0
        path.write_text("two")
        await it.until(lambda: it.text == "two")
        await started(it)
        assert it.reads <= 2  # once emptied, once written
