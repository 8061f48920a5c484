"""What a review waits for: the answer to its webhook at 200 a second, and the code of a second run
of a repository of 50,000 files, over that of the first.

The forge is the demo's, on loopback; nothing of ours is left out.
"""

import asyncio
import hashlib
import hmac
import tempfile
import time
from pathlib import Path

import httpx2

from bench import Figure
from supervisor.app.app import Supervisor
from supervisor.app.reviewing import reviewing
from supervisor.demo.stage import NAME, Stage, staged
from supervisor.reviews.clones import Clones, WantedCode
from supervisor.settings import from_environment

A_SECOND, SECONDS = 200, 10
MOST_MS = 50.0
FILES = 50_000
MOST_OF_FIRST = 0.25


def main() -> list[Figure]:
    """See the module's text."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with staged(folder) as stage:
            return [*asyncio.run(_webhooks(folder, stage)), *asyncio.run(_second(folder, stage))]


async def _webhooks(folder: Path, stage: Stage) -> list[Figure]:
    settings = from_environment()._replace(
        data_dir=folder / "data",
        port=0,
        forge_port=0,
        github_api=stage.api,
        github_app_id=stage.app_id,
        github_key_file=stage.key_file,
        github_secret_file=stage.secret_file,
    )
    secret = stage.secret_file.read_bytes()
    async with Supervisor(settings) as supervisor, reviewing(supervisor) as on:
        door = f"http://127.0.0.1:{on.port}"
        async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=64)) as client:
            stored = await _latencies(client, f"{door}/github", secret)
            plain = await _latencies(client, f"{door}/nothing", secret)
    return [
        Figure(
            "a webhook at 200/s, stored and answered, p99",
            _p99(stored),
            "ms",
            _p99(plain),
            "the same door, storing nothing",
            limit=MOST_MS,
        )
    ]


async def _latencies(client: httpx2.AsyncClient, url: str, secret: bytes) -> list[float]:
    """Send at a steady rate, whether or not the one before is answered; milliseconds of each."""
    body = b'{"zen": "Keep it logically awesome.", "hook_id": 1}' + b" " * 8_000
    signature = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
    taken: list[float] = []

    async def one(number: int) -> None:
        headers = {
            "x-github-event": "ping",
            "x-github-delivery": f"{number}",
            "x-hub-signature-256": signature,
        }
        begun = time.perf_counter()
        await client.post(url, content=body, headers=headers)
        taken.append((time.perf_counter() - begun) * 1000)

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(A_SECOND * SECONDS):
            tasks.create_task(one(number))
            due = begun + (number + 1) / A_SECOND
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
    return taken


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


async def _second(folder: Path, stage: Stage) -> list[Figure]:
    forge = stage.forge
    many = {f"src/d{n % 500}/f{n}.py": f"value = {n}\n" * 20 for n in range(FILES)}
    forge.import_files(NAME, "main", many)
    forge.commit(NAME, "one", {"src/d0/f0.py": "value = 'one'\n"}, "One", base="main")
    first_pull = forge.open_pull(NAME, "one", title="One")
    clones = Clones(folder / "clones")
    first = await _ready(clones, stage, first_pull.number, first_pull.head_sha)
    head = forge.push(NAME, first_pull.number, {"src/d1/f1.py": "value = 'two'\n"}, "Two")
    second = await _ready(clones, stage, first_pull.number, head)
    return [
        Figure(
            f"a second run's code, {FILES:,} files",
            second,
            "ms",
            first,
            "the first's",
            wanted=MOST_OF_FIRST,
        )
    ]


async def _ready(clones: Clones, stage: Stage, number: int, head: str) -> float:
    token = stage.forge.mint(stage.forge.installation, [], {"contents": "read"}).value
    wanted = WantedCode(
        name=NAME,
        url=f"{stage.forge.url}/{NAME}.git",
        token=token,
        number=number,
        base_ref="main",
        base_sha=stage.forge.sha(NAME, "main"),
        head_sha=head,
    )
    begun = time.perf_counter()
    async with clones.checkout(wanted):
        return (time.perf_counter() - begun) * 1000
