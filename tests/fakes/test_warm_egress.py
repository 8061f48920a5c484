"""A fork is an egress of its own: it ends as one does, and with the program that stands for it."""

import asyncio
import os
import signal
from pathlib import Path

from tests.egress.egress_harness import PATIENCE_S, running_egress


async def test_a_fork_ends_with_its_supervisor(tmp_path: Path, upstream_ca: Path) -> None:
    async with (
        running_egress(tmp_path / "one", upstream_ca) as one,
        running_egress(tmp_path / "two", upstream_ca) as two,
        asyncio.timeout(PATIENCE_S),
    ):
        one.sock.close()
        assert await one.child.wait() == 0
        assert two.child.returncode is None


async def test_a_fork_is_killed_with_its_client(tmp_path: Path, upstream_ca: Path) -> None:
    async with running_egress(tmp_path, upstream_ca) as supervisor:
        os.kill(supervisor.child.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            await supervisor.ended.wait()
