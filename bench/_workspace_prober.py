"""Write files on one side and wait until all of them are on the other, as an agent does.

It is a process of its own: in the measured process it would compete with what it measures. It reads
tasks and prints times, a line of JSON each.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Self

PAUSE_S = 0.001
MOST_PAUSES = 60_000


class Prober:
    """The process, as a context manager."""

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench._workspace_prober", stdin=pipe, stdout=pipe
        )
        return self

    async def __aexit__(self, *raised: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def taken_ms(self, source: Path, target: Path, names: list[str], text: str) -> float:
        """Return the time from before the first of these is written to `source` until the last is
        in `target`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([str(source), str(target), names, text]).encode() + b"\n")
        return float(await stdout.readline())


def _serve() -> None:
    for line in sys.stdin:
        source, target, names, text = json.loads(line)
        started = time.perf_counter()
        for name in names:
            (Path(source) / name).write_text(f"{name}\n{text}")  # each another content
        for name in names:
            _wait_for(f"{target}/{name}")
        sys.stdout.write(f"{(time.perf_counter() - started) * 1000}\n")
        sys.stdout.flush()


def _wait_for(path: str) -> None:
    for _ in range(MOST_PAUSES):
        if os.access(path, os.F_OK):
            return
        time.sleep(PAUSE_S)
    raise TimeoutError(path)


if __name__ == "__main__":
    _serve()
