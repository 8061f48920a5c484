"""A record that can't be written, or was changed, is said on every page and on the terminal, at
the start and while running."""

import asyncio
import re
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from supervisor.app.app import Supervisor
from supervisor.core.actions import Exec
from supervisor.core.approvals import status
from supervisor.errors import StorageError
from supervisor.records.audit_chain import GENESIS, line_hash
from supervisor.settings import Settings
from tests.fakes.supervised import PATIENCE_S, Supervised, settings_in, supervised
from tests.records.test_audit_place import disk, fill

__all__ = ["disk"]

POLICY = "version: 1\nallow: [exec(echo *)]\n"
_BANNER = re.compile(r'role="alert"[^>]*>.*?<p>(.*?)</p>', re.DOTALL)
PAGES = ["/", "/history", "/rules", "/sessions"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "workspace").mkdir()
    return settings_in(tmp_path, POLICY)


async def shown(running: Supervised, text: str, *, is_there: bool = True) -> None:
    """Wait until the banner of every page says it, or says it no more."""
    supervisor = running.supervisor
    token = {"Authorization": f"Bearer {supervisor.auth.cli_token}", "Accept": "text/html"}
    async with asyncio.timeout(PATIENCE_S):
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{supervisor.port}", headers=token
        ) as client:
            for page in PAGES:
                # Not the whole page: History shows what is on record of it, too.
                while (
                    text
                    in "".join(_BANNER.findall((await client.get(page)).raise_for_status().text))
                ) != is_there:
                    await asyncio.sleep(0.05)


async def told(capfd: pytest.CaptureFixture[str], text: str) -> None:
    """Wait until the terminal is told."""
    said = ""
    async with asyncio.timeout(PATIENCE_S):
        while text not in said:
            said += capfd.readouterr().err
            await asyncio.sleep(0.05)


def asked(running: Supervised, session: str) -> str:
    return status(running.parts.gate.ask(Exec(command="echo one"), session_id=session))


def swapped(log: Path) -> Callable[[], object]:
    moved = log.rename(log.with_name("moved.log"))
    log.symlink_to(moved.name)
    return lambda: moved.replace(log)


def cut(log: Path) -> Callable[[], object]:
    whole = log.read_bytes()
    with log.open("r+b") as file:
        file.truncate(len(whole) // 2)

    def mend() -> None:
        with log.open("r+b") as file:
            file.write(whole)

    return mend


@pytest.mark.parametrize("spoil", [swapped, cut])
async def test_a_log_that_somebody_takes_away_stops_everything_until_it_is_back(
    settings: Settings,
    spoil: Callable[[Path], Callable[[], object]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with supervised(settings) as running:
        session = await running.start(settings.data_dir.parent / "workspace", "sleep", "300")
        assert asked(running, session.id) == "used"
        mend = spoil(settings.audit_log)
        await shown(running, "Nothing is allowed:")
        assert asked(running, session.id) == "denied"
        await told(capfd, "the audit log can't be written")
        mend()
        await shown(running, "Nothing is allowed:", is_there=False)
        assert asked(running, session.id) == "used"


async def test_a_record_that_is_changed_while_running_is_said(
    settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    async with supervised(settings) as running:
        await shown(running, "The record was changed:", is_there=False)
        whole = settings.audit_log.read_bytes()
        with settings.audit_log.open("r+b") as file:
            file.write(whole.replace(b"supervisor_started", b"supervisor_STARTED"))
        await shown(running, "The record was changed:")
        await told(capfd, "is not the one that was written")
        with settings.audit_log.open("r+b") as file:
            file.write(whole)
        await shown(running, "The record was changed:", is_there=False)


async def test_a_record_that_was_changed_while_nothing_ran_is_said_at_the_start(
    settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    async with supervised(settings):
        pass
    settings.audit_log.write_bytes(
        b"".join(settings.audit_log.read_bytes().splitlines(keepends=True)[:1])
    )
    async with supervised(settings) as running:
        await shown(running, "The record was changed:")
        await shown(running, "its end is missing")
        await told(capfd, "its end is missing")


async def test_a_link_in_place_of_the_log_ends_the_start(settings: Settings) -> None:
    async with supervised(settings):
        pass
    swapped(settings.audit_log)
    with pytest.raises(StorageError, match="it is a symlink"):
        Supervisor(settings)


@pytest.fixture
def no_room_for_the_log(settings: Settings) -> Iterator[Path]:
    """No file may grow beyond what the log has; others are smaller."""
    settings.data_dir.mkdir()
    settings.audit_log.touch(0o600)
    with settings.audit_log.open("wb") as file:
        previous = GENESIS.encode()
        for seq in range(1, 201):
            line = b'{"seq":%d,"at":1,"event":"supervisor_started","x":"%b","prev":"%b"}' % (
                seq,
                b"x" * 100_000,
                previous,
            )
            previous = line_hash(line).encode()
            file.write(line + b"\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (settings.audit_log.stat().st_size, before[1]))
    yield settings.audit_log
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_log_that_cant_be_written_at_the_start_is_said_on_the_page(
    settings: Settings, no_room_for_the_log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with supervised(settings) as running:
        await shown(running, "Nothing is allowed:")
        await told(capfd, "the audit log can't be written: File too large")


async def test_a_disk_that_fills_up_is_said_while_running_and_at_the_start(
    disk: Path, tmp_path: Path
) -> None:
    import subprocess

    subprocess.run(["mount", "-o", "remount,size=24m", str(disk)], check=True)
    settings = settings_in(tmp_path, POLICY, data_dir=disk / "data")
    async with supervised(settings) as running:
        filler = fill(disk)
        await shown(running, "its disk is full")
        filler.unlink()
        await shown(running, "its disk is full", is_there=False)
    fill(disk)
    with pytest.raises(StorageError, match="is full: 0 kB are free; free 8 MB"):
        Supervisor(settings)
