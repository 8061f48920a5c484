"""Everything that Gatehouse needs of the machine, checked for real: kernel, sandbox, the page's port, the CA, the data folder.

Each finding is printed as it is found, and each check imports what it needs when its turn comes: the first line is there at once.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from supervisor.core.display import visible
from supervisor.errors import GatehouseError
from supervisor.sandbox import kernel
from supervisor.sandbox.findings import Finding, bad
from supervisor.settings import Settings


def report(settings: Settings) -> int:
    """Print every finding; 1 where something that is needed is missing."""
    code = 0
    for finding in _findings(settings):
        mark = "ok  " if finding.ok else "FAIL" if finding.needed else "note"
        print(f"{mark}  {finding.name}: {visible(finding.detail, one_line=True)}", flush=True)
        if not finding.ok and finding.remedy:
            print(f"      -> {visible(finding.remedy, one_line=True)}", flush=True)
        if not finding.ok and finding.needed:
            code = 1
    return code


def _findings(settings: Settings) -> Iterator[Finding]:
    """The most fundamental first."""
    yield from kernel.findings()
    yield from _sandbox(settings.data_dir)
    yield _port(settings.port)
    yield _authority(settings.data_dir / "ca")
    yield _data_dir(settings.data_dir)


def _sandbox(data_dir: Path) -> list[Finding]:
    import asyncio

    from supervisor.sandbox import overlay_mount
    from supervisor.sandbox.bubblewrap import Bubblewrap

    async def check() -> list[Finding]:
        sandbox = Bubblewrap()
        try:
            # Where the data folder isn't made yet, its file system is that of the nearest folder above it.
            place = next(folder for folder in (data_dir, *data_dir.parents) if folder.is_dir())
            return [*await sandbox.check(), await overlay_mount.check(place)]
        finally:
            await sandbox.close()

    return asyncio.run(check())


def _port(port: int) -> Finding:
    from supervisor.server.listening import listen

    try:
        listen(port).close()
    except GatehouseError as error:
        return bad("port", error.message, error.remedy, needed=False)
    return Finding("port", ok=True, detail=f"127.0.0.1:{port} is free")


def _authority(folder: Path) -> Finding:
    from supervisor.brokers.ca import check_ca
    from supervisor.clock import RealClock

    name = "certificate authority"
    if not folder.exists():
        return Finding(name, ok=True, detail="is made at the first start")
    problem = check_ca(folder, RealClock())
    return Finding(name, ok=True, detail=str(folder)) if problem is None else bad(name, *problem)


def _data_dir(folder: Path) -> Finding:
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return bad("data folder", f"{nearest} can't be written", "give another with --data-dir")
    return Finding("data folder", ok=True, detail=str(folder))
