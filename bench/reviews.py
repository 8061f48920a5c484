"""What a review waits for: the answer to its webhook at 200 a second, and the code of a second run
of a repository of 50,000 files, over that of the first.

And what it takes: the supervisor's own CPU for a review, beside that of a reader's start; and how
long pages take once 100,000 turns of 5,000 reviews are kept.

The forge is the demo's, on loopback; nothing of ours is left out.
"""

import asyncio
import hashlib
import hmac
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import msgspec

from bench import Figure
from supervisor.app.app import Supervisor
from supervisor.core.forge_acts import Act, InlineComment
from supervisor.reviews.app.reviewing import reviewing
from supervisor.reviews.clones import Clones, WantedCode
from supervisor.reviews.demo.stage import NAME, Stage, staged
from supervisor.reviews.service import ReviewService
from supervisor.reviews.store import queries
from supervisor.settings import from_environment

A_SECOND, SECONDS = 200, 10
MOST_MS = 50.0
FILES = 50_000
# Reviews whose CPU is counted, after one that warms up.
REVIEWS = 5
PULLS, RUNS, TURNS, ACTS = 500, 5_000, 20, 1_500
MOST_PAGE_MS = 300.0
MOST_OF_FIRST = 0.25


def main() -> list[Figure]:
    """See the module's text."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with staged(folder) as stage:
            return [
                *asyncio.run(_webhooks(folder, stage)),
                *_cpu(folder, stage),
                *asyncio.run(_pages(folder, stage)),
                *asyncio.run(_second(folder, stage)),
            ]


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
    async with Supervisor(settings) as supervisor, reviewing(supervisor.parts) as on:
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


def _cpu(folder: Path, stage: Stage) -> list[Figure]:
    """Have pushes reviewed by a supervisor in a process of its own, and read its books."""
    data, policy = folder / "cpu", folder / "acts.yaml"
    policy.write_text("version: 1\nallow: [review(* */*)]\n")
    environment = {
        **os.environ,
        "GATEHOUSE_DATA": str(data),
        "GATEHOUSE_POLICY": str(policy),
        "GATEHOUSE_PORT": "0",
        "GATEHOUSE_FORGE_PORT": str(_free_port()),
        "GATEHOUSE_GITHUB_API": stage.api,
        "GATEHOUSE_GITHUB_APP_ID": stage.app_id,
        "GATEHOUSE_GITHUB_KEY_FILE": str(stage.key_file),
        "GATEHOUSE_GITHUB_SECRET_FILE": str(stage.secret_file),
        "GATEHOUSE_REVIEW_DEBOUNCE": "1s/1s",
        "ANTHROPIC_API_KEY": "",
    }
    program = Path(sys.executable).parent / "gatehouse"
    log = folder / "cpu.log"
    with log.open("wb") as file:
        words = [str(program), "up", "--reviews"]
        process = subprocess.Popen(words, stdout=file, stderr=file, env=environment)
    try:
        _until(lambda: "webhooks come in" in log.read_text())
        pull = stage.open_pull(f"http://127.0.0.1:{environment['GATEHOUSE_FORGE_PORT']}")
        _until(lambda: _is_checked(stage, pull.head_sha))
        before = _cpu_ms(process.pid)
        for number in range(REVIEWS):
            text = f"def more_{number}(items):\n    return total(items) / len(items)\n"
            head = stage.forge.push(NAME, pull.number, {f"shop/more{number}.py": text}, "More")
            _until(lambda sha=head: _is_checked(stage, sha))
        own = (_cpu_ms(process.pid) - before) / REVIEWS
    finally:
        stage.forge.hook = None
        process.terminate()
        process.wait(90)
    start = _child_cpu_ms()
    for _ in range(REVIEWS):
        subprocess.run([sys.executable, "-c", "import anthropic"], check=True)
    alone = (_child_cpu_ms() - start) / REVIEWS
    against = "CPU of Python that imports the model's SDK, as each reader does first"
    return [Figure("the supervisor's own CPU for a review", own, "ms", alone, against)]


def _is_checked(stage: Stage, head: str) -> bool:
    return any(one["head_sha"] == head for one in stage.forge.repositories[NAME].checks)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a review took too long")
        time.sleep(0.05)


def _cpu_ms(pid: int) -> float:
    """Return the CPU that a process used (proc_pid_stat(5)), without its children's."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def _child_cpu_ms() -> float:
    """Return the CPU of all children that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


async def _pages(folder: Path, stage: Stage) -> list[Figure]:
    settings = from_environment()._replace(
        data_dir=folder / "pages",
        port=0,
        forge_port=0,
        github_api=stage.api,
        github_app_id=stage.app_id,
        github_key_file=stage.key_file,
        github_secret_file=stage.secret_file,
        review_poll_s=36_000.0,
    )
    async with Supervisor(settings) as supervisor, reviewing(supervisor.parts) as on:
        await on.service.reconcile.repositories()
        newest = _fill(supervisor, on.service)
        token = (settings.data_dir / "operator.token").read_text()
        found = []
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{supervisor.port}",
            headers={"authorization": f"Bearer {token}"},
        ) as client:
            health = await _page_ms(client, "/health")
            for path in (
                "/reviews",
                f"/reviews/{newest}",
                "/api/reviews",
                "/api/repos",
                f"/api/reviews/{newest}/trace",
                "/metrics",
            ):
                name = path.replace(newest, "ID")
                took = await _page_ms(client, path)
                found.append(
                    Figure(
                        f"{name} with {RUNS * TURNS:,} turns",
                        took,
                        "ms",
                        health,
                        "/health",
                        limit=MOST_PAGE_MS,
                    )
                )
    return found


async def _page_ms(client: httpx2.AsyncClient, path: str) -> float:
    taken = []
    for _ in range(7):
        begun = time.perf_counter()
        answer = await client.get(path)
        taken.append((time.perf_counter() - begun) * 1000)
        assert answer.status_code == 200, (path, answer.text[:500])
    return statistics.median(taken)


def _fill(supervisor: Supervisor, service: ReviewService) -> str:
    """Keep 5,000 reviews of 500 pull requests, with findings, acts, receipts and 20 turns each;
    return the newest one's id."""
    parts, now = supervisor.parts, supervisor.parts.clock.now()
    turn = {
        "said": "I look at the change. " * 20,
        "calls": [{"tool": "read_file", "input": '{"path": "a.py"}', "result": "x = 1\n" * 400}],
        "input_tokens": 12_345,
        "output_tokens": 678,
        "seconds": 4.5,
    }
    report = msgspec.json.encode({"turns": [turn] * TURNS})
    finding = {
        "skill": "bug-detection",
        "severity": "medium",
        "path": "shop/cart.py",
        "line": 5,
        "title": "It divides by zero",
        "body": "An empty cart has no average. " * 10,
        "quote": "return total(items) / len(items)",
        "confidence": "high",
    }
    said = {
        "verdict": "comment",
        "summary": "Something was found.",
        "findings": [
            {"id": f"{n:016x}", "start_line": 5, "line": 5, "finding": finding}
            | {"code": [[line, "x = 1", line == 5] for line in range(2, 9)]}
            for n in range(8)
        ],
    }
    repository = service.repository_named(NAME)
    with service.engine.begin() as connection:
        pull_ids = [
            queries.put_pull(connection, repository.id, n, title="T", author="ada", head_sha="")
            for n in range(1, PULLS + 1)
        ]
        for n in range(RUNS):
            run_id, head, at = f"{n:016x}", f"{n:040x}", now - RUNS + n
            pull_id = pull_ids[n % PULLS]
            queries.put_run(
                connection,
                run_id,
                pull_id=pull_id,
                kind="review",
                head_sha=head,
                attempt=1,
                full=False,
                claimed_attempt=1,
                wanted_at=at,
                claimed_at=at,
                ended_at=at,
                outcome="found",
                session_id=run_id,
                model="m",
                review=said,
                files=["shop/cart.py"],
            )
            queries.add_receipt(
                connection,
                pull_id=pull_id,
                head_sha=head,
                run_id=run_id,
                outcome="found",
                body="{}" * 200,
                signature="",
                at=at,
            )
    sessions = parts.settings.sessions_dir
    for n in range(RUNS):
        kept = sessions / f"{n:016x}"
        kept.mkdir(parents=True)
        (kept / "review.json").write_bytes(report)
    for n in range(RUNS - ACTS, RUNS):
        act = Act(
            operation="post",
            forge="github",
            repository=NAME,
            number=n % PULLS + 1,
            head=f"{n:040x}",
            body="Findings: 8 medium. " * 20,
            comments=tuple(
                InlineComment(
                    finding=f"{m}", path="shop/cart.py", line=5, body="A. " * 99, severity="medium"
                )
                for m in range(8)
            ),
        )
        parts.gate.ask(act, session_id=repository.session_id, reason="x", origin="reviews")
    return f"{RUNS - 1:016x}"


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
