"""Reload the person's files on save: policies, prices, credentials.

A file that can't be used leaves the last good one in force, and is a banner until it is mended. An
event only wakes: what counts is whether a file changed, which is checked once a second, too (a file
system may report no events). It is for the person's own files: watchfiles follows links, so it must
never watch what an agent can write.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from pathlib import Path

from watchfiles import awatch

from supervisor.base import log
from supervisor.errors import GatehouseError

# An editor's save is a few steps: they are waited for as long as they follow each other this fast,
# and no longer than `MOST_WAIT_MS`.
STEP_MS, MOST_WAIT_MS = 20, 500
LOOK_EVERY_S = 1.0

type Stamp = tuple[int, ...] | None
type OnReload = Callable[[str, str | None], None]


class WatchedFiles:
    """One kind of files, and its reader. `error` is their fault; None while all is well."""

    def __init__(
        self, name: str, files: Callable[[], Iterable[Path]], read: Callable[[], Awaitable[None]]
    ) -> None:
        self.name = name
        self.files = files
        self.error: str | None = None
        self._read = read
        self._seen = {path: _stamp(path) for path in files()}

    async def look(self) -> bool:
        """Read the files anew where one is another than it was; whether that was so."""
        found = {path: _stamp(path) for path in self.files()}
        is_same = all(self._seen.get(path, stamp) == stamp for path, stamp in found.items())
        self._seen = found
        if is_same:
            return False
        try:
            await self._read()
        except (GatehouseError, OSError) as error:
            self.error = f"{error} (what was read before stays in force)"
        else:
            self.error = None
        return True


class FileWatch:
    """All kinds. `busy` is the folder that we write ourselves all the time: files in it are
    watched one by one."""

    def __init__(self, kinds: Iterable[WatchedFiles], *, busy: Path) -> None:
        self._kinds = tuple(kinds)
        self._busy = busy

    @property
    def banner(self) -> str | None:
        """Return the files' faults; None while all is well."""
        return "; ".join(kind.error for kind in self._kinds if kind.error) or None

    async def run(self, on_reload: OnReload) -> None:
        """Until cancelled. `on_reload(kind, error)` is called after each reading."""
        while True:
            await self._look(on_reload)
            places = self._places()
            async with contextlib.aclosing(_wakes([path for path, _ in places])) as wakes:
                async for _ in wakes:
                    await self._look(on_reload)
                    if self._places() != places:
                        break  # a folder or a file that is watched is another one now

    async def _look(self, on_reload: OnReload) -> None:
        for kind in self._kinds:
            try:
                if await kind.look():
                    on_reload(kind.name, kind.error)
            except Exception as error:  # a bug in what reads one kind must not end the others
                log.error("a file can't be read anew", kind=kind.name, error=type(error).__name__)

    def _places(self) -> frozenset[tuple[Path, int]]:
        """Return the folders to watch, each with its inode: there a file may come, go or be
        replaced."""
        found = set()
        for path in {one for kind in self._kinds for one in kind.files()}:
            for name in {path.absolute(), _resolved(path)}:
                place = name if name.parent == self._busy else name.parent
                while place != self._busy and not place.exists():
                    place = place.parent
                with contextlib.suppress(OSError):
                    if place != self._busy:
                        found.add((place, place.stat().st_ino))
        return frozenset(found)


async def _wakes(places: list[Path]) -> AsyncGenerator[None]:
    """Once something happened, and each second. It ends where nothing can be watched: try again."""
    try:
        if places:
            events = awatch(
                *places,
                watch_filter=None,
                debounce=MOST_WAIT_MS,
                step=STEP_MS,
                rust_timeout=round(LOOK_EVERY_S * 1000),
                yield_on_timeout=True,
                recursive=False,
            )
            async with contextlib.aclosing(events):
                async for _ in events:
                    yield
    except OSError as error:  # gone meanwhile, or no more watches on this machine
        log.warning("files can't be watched, and are looked at each second", error=str(error))
    await asyncio.sleep(LOOK_EVERY_S)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path.absolute()


def _stamp(path: Path) -> Stamp:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_ino, facts.st_dev
