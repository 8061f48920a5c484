"""Response times of page, kill switch and MAX_UPTIME while an agent floods its door.

The flood consists of the slowest input to every route; the baseline is the same supervisor with an
idle agent. A person who sees an agent run wild opens the page and stops it: that must not wait for
the agent. Everything is a process of its own, as for a user. All share the machine's processors
with the flood: on two cores, a large part of the measured time is the wait for one.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx

from bench import Figure
from tests.fakes.flooding_agent import FLOOD
from tests.scenarios.process import Gatehouse, until

ROOT = Path(__file__).resolve().parents[1]
PAGES = 40
UPTIME_S = 30
LIMIT_MS = 250.0
IDLE = "import time; print('FLOODING', flush=True); time.sleep(600)"


def main() -> list[Figure]:
    """Return the slowest tenth of the pages, one stop of everything, and one session's end by its
    time."""
    idle, flooded = _measured(IDLE), _measured(FLOOD)
    names = ("the page, the slowest tenth of its answers", "stop everything", "MAX_UPTIME's end")
    limits = (LIMIT_MS, LIMIT_MS, None)
    return [
        Figure(f"hostile: {name}", ours, "ms", base, "an idle agent", limit=limit)
        for name, ours, base, limit in zip(names, flooded, idle, limits, strict=True)
    ]


def _measured(program: str) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as folder:
        product = Gatehouse(ROOT / ".venv/bin/gatehouse", Path(folder), "version: 1\n")
        try:
            return _with(product, Path(folder), program)
        finally:
            product.end()


def _with(product: Gatehouse, folder: Path, program: str) -> tuple[float, float, float]:
    workspace = folder / "workspace"
    workspace.mkdir()
    up = folder / "up.log"
    product.launch("up", log=up)
    until(lambda: "open http://127.0.0.1:" in up.read_text(), "the page's URL")
    url = product.ok("url").split()[-1]
    origin = url.split("/login")[0]
    agent = ("--workspace", str(workspace), "--max-uptime", f"{UPTIME_S}s", "--")
    product.launch("run", *agent, sys.executable, "-c", program, log=folder / "run.log")
    until(lambda: "FLOODING" in (folder / "run.log").read_text(), "the agent's first calls")
    with httpx.Client(base_url=origin, headers={"Origin": origin}, timeout=120) as page:
        page.get(url)
        token = page.get("/").text.partition('X-Gatehouse-CSRF": "')[2].partition('"')[0]
        page.headers["X-Gatehouse-CSRF"] = token
        answers = sorted(_ms(page, "GET", "/") for _ in range(PAGES))
        stop_ms = _ms(page, "POST", "/api/stop-all")
    product.until_event("session_ended")
    began, ended = (product.events(f"session_{one}")[0]["at"] for one in ("started", "ended"))
    late_s = float(ended) - float(began) - UPTIME_S
    return statistics.median(answers[-(PAGES // 10) :]), stop_ms, late_s * 1000


def _ms(page: httpx.Client, method: str, path: str) -> float:
    start = time.perf_counter()
    body = {"reason": "enough"} if method == "POST" else None
    page.request(method, path, json=body).raise_for_status()
    return (time.perf_counter() - start) * 1000
