"""Everything that Gatehouse needs of the machine, checked for real: the sandbox's needs, the page's port, the CA, the data folder."""

import os
from pathlib import Path

from supervisor.brokers.ca import check_ca
from supervisor.clock import RealClock
from supervisor.errors import GatehouseError
from supervisor.sandbox.base import Finding
from supervisor.sandbox.bubblewrap import Bubblewrap
from supervisor.server.serve import listen
from supervisor.settings import Settings


async def findings(settings: Settings) -> list[Finding]:
    """Every finding, the most fundamental first."""
    sandbox = Bubblewrap()
    try:
        found = await sandbox.check()
    finally:
        await sandbox.close()
    return [*found, _port(settings.port), _authority(settings.data_dir / "ca"), _data_dir(settings.data_dir)]


def _port(port: int) -> Finding:
    try:
        listen(port).close()
    except GatehouseError as error:
        return Finding(name="port", ok=False, detail=error.message, remedy=error.remedy, needed=False)
    return Finding(name="port", ok=True, detail=f"127.0.0.1:{port} is free")


def _authority(folder: Path) -> Finding:
    if not folder.exists():
        return Finding(name="certificate authority", ok=True, detail="is made at the first start")
    problem = check_ca(folder, RealClock())
    if problem is None:
        return Finding(name="certificate authority", ok=True, detail=f"{folder}")
    return Finding(name="certificate authority", ok=False, detail=problem[0], remedy=problem[1])


def _data_dir(folder: Path) -> Finding:
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return Finding(
            name="data folder", ok=False, detail=f"{nearest} can't be written", remedy="give another with --data-dir"
        )
    return Finding(name="data folder", ok=True, detail=str(folder))
