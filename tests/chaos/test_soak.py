"""The real supervisor and egress under 64 busy clients for SOAK_S seconds: no memory that only
grows, no descriptor that isn't given back.

`make test` plays 10 seconds of it, `make soak` 30 minutes. The clients are in a real sandbox
(`soak_load.py`): connections kept and new, tunnelled and looked into, denied, cut off half-way,
read slowly, and asked, which a person answers by chance or not at all. Every sample is printed,
and kept in SOAK_LOG where that is set.
"""

import json
import os
import random
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from supervisor.cli.common.client import Client, find
from supervisor.errors import GatehouseError
from supervisor.settings import ROOT
from tests.chaos.soak_measure import MIB, Held, growth, held_by, size_of
from tests.scenarios.process import Gatehouse, descendants, until

SOAK_S = float(os.environ.get("SOAK_S", "10"))
LOG = os.environ.get("SOAK_LOG", "")
SAMPLE_S = min(5.0, SOAK_S / 20)
# The network log and other bounded memories fill up first.
WARM_UP = 0.3
# What the line through the samples may rise while it is measured. A connection in which 100 bytes
# are forgotten makes 50 MiB in 30 minutes. In a short run 64 clients still fill their buffers for
# the first time (40 MiB), so only what is grossly wrong shows in its memory.
MOST_GROWTH_BYTES = (16 if SOAK_S >= 300 else 64) * MIB
# What may be open at rest that wasn't before: a connection of the database's pool, a look-up
# thread's.
MOST_MORE_DESCRIPTORS = 4
pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.timeout(240 + 2 * SOAK_S)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is part of what is played."""


class _Handler(BaseHTTPRequestHandler):
    """GET /.../N gives N bytes, at most a megabyte."""

    protocol_version = "HTTP/1.1"
    timeout = 90
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Quiet."""

    def do_GET(self) -> None:
        last = self.path.rsplit("/", 1)[1]
        body = b"x" * min(int(last) if last.isdigit() else 10, MIB)
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[tuple[int, ...]]:
    """Three origins: one that is tunnelled, one that is looked into, one that is denied."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "upstream.pem"))
    servers = []
    for _ in range(3):
        server = _Server(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        # The handshake is each connection's own thread's, so that one that never comes holds up
        # nobody.
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
    yield tuple(int(server.server_address[1]) for server in servers)
    for server in servers:
        server.shutdown()
        server.server_close()


def policy(tunnelled: int, inside: int, denied: int) -> str:
    return f"""
version: 1
modes: {{filesystem: deny}}
allow:
  - network(127.0.0.1:{tunnelled})
  - network(127.0.0.1:{inside})
ask:
  - network(GET https://127.0.0.1:{inside}/asked/**)
deny:
  - network(* https://127.0.0.1:{inside}/denied/**)
  - network(127.0.0.1:{denied})
"""


class Answering(threading.Thread):
    """A person who approves, denies, or lets what is asked wait, by chance."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._chance = random.Random(2)
        self._over = threading.Event()
        self.answers = 0

    def run(self) -> None:
        left_waiting: set[str] = set()
        while not self._over.wait(0.5):
            for request in self._client.get("/api/requests"):
                if request["id"] in left_waiting:
                    continue
                if self._chance.random() < 0.3:
                    left_waiting.add(request["id"])
                    continue
                answer = self._chance.choice(["approve", "deny"])
                try:
                    self._client.post(
                        f"/api/requests/{request['id']}/{answer}",
                        fingerprint=request["fingerprint"],
                    )
                except GatehouseError:
                    continue  # its client went away meanwhile
                self.answers += 1

    def end(self) -> None:
        self._over.set()
        self.join(30)


class Samples:
    """What both processes held, over time."""

    def __init__(self, pids: dict[str, int], data: Path) -> None:
        self._pids = pids
        self._data = data
        self._began = time.monotonic()
        self.taken: list[tuple[float, dict[str, Held]]] = []

    def take(self) -> dict[str, Held]:
        now = time.monotonic() - self._began
        held = {name: held_by(pid) for name, pid in self._pids.items()}
        self.taken.append((now, held))
        facts = " ".join(
            f"{name}: {one.memory_bytes / MIB:.1f} MiB {one.descriptors} fd {one.threads} threads;"
            for name, one in held.items()
        )
        line = f"soak {now:7.1f} s {facts} data: {size_of(self._data) / MIB:.1f} MiB"
        print(line, flush=True)
        if LOG:
            with Path(LOG).open("a") as file:
                file.write(line + "\n")
        return held

    def growth(self, name: str) -> float:
        """Of the memory of a process, after the warm-up."""
        warm_s = self.taken[-1][0] * WARM_UP
        return growth([(at, held[name].memory_bytes) for at, held in self.taken if at >= warm_s])


def test_memory_and_descriptors_stay_flat(
    gatehouse: Path, tmp_path: Path, ports: tuple[int, ...]
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "soak_load.py").write_bytes(Path(__file__).with_name("soak_load.py").read_bytes())
    product = Gatehouse(gatehouse, tmp_path, policy(*ports))
    log = tmp_path / "run.log"
    command = (str(ROOT / ".venv/bin/python"), "soak_load.py", "3128", *map(str, ports))
    more = {
        "GATEHOUSE_UPSTREAM_CA": str(tmp_path / "upstream.pem"),
        "GATEHOUSE_HOLD": "5s",
        "MAX_UPTIME": "12h",
    }
    person: Answering | None = None
    try:
        process = product.launch(
            "run", "--workspace", str(workspace), "--", *command, log=log, **more
        )
        client = until(lambda: find(product.data), "the supervisor to answer")
        person = Answering(client)
        person.start()
        said_in(log, "WARM")
        pids = {"supervisor": process.pid, "egress": egress_of(process.pid)}
        samples = Samples(pids, product.data)
        at_rest = rest(samples)
        played_before = log.read_text().count("PLAYED")
        (workspace / "go").touch()
        soak(samples)
        until(lambda: log.read_text().count("PLAYED") > played_before, "every kind to be played")
        until(lambda: person.answers, "a person's answer")
        (workspace / "stop").touch()
        counts = json.loads(said_in(log, "COUNTED").split(maxsplit=1)[1])
        person.end()
        print(f"soak {counts} {person.answers} answers", flush=True)
        assert egress_of(process.pid) == pids["egress"], "egress is the same process still"
        assert not counts.pop("wrong", 0), log.read_text()[-3000:]
        assert len(counts) == 9, "every kind was played"
        assert person.answers
        until(
            lambda: is_at_rest(pids, at_rest),
            f"descriptors to come back to {at_rest}, last {samples.take()}",
        )
        for name in pids:
            assert samples.growth(name) < MOST_GROWTH_BYTES, (
                f"{name} grew by {samples.growth(name) / MIB:.1f} MiB"
            )
    finally:
        if person is not None:
            # before the product, or what failed is hidden behind a person who finds nobody to
            # answer
            person.end()
        product.end()
        print(log.read_text()[-3000:] if log.exists() else "it never said anything")


def soak(samples: Samples) -> None:
    ends_at = time.monotonic() + SOAK_S
    while time.monotonic() < ends_at:
        time.sleep(SAMPLE_S)
        samples.take()


def said_in(log: Path, word: str) -> str:
    """The line of the agent's output that begins so, once it is there."""

    def found() -> str | None:
        lines = log.read_text(errors="replace").splitlines()
        return next((line[line.index(word) :] for line in lines if word in line), None)

    line: str = until(found, f"`{word}`")
    return line


def egress_of(pid: int) -> int:
    """The egress process of a supervisor."""
    for child in descendants(pid):
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        if b"supervisor.egress" in words:
            return child
    raise AssertionError("no egress")


def rest(samples: Samples) -> dict[str, Held]:
    """What is held when all connections of the warm-up are over: once it doesn't get less any
    more."""
    before = samples.take()
    while True:
        time.sleep(1.0)
        now = samples.take()
        if all(now[name].descriptors >= before[name].descriptors for name in now):
            return now
        before = now


def is_at_rest(pids: dict[str, int], at_rest: dict[str, Held]) -> bool:
    return all(
        held_by(pid).descriptors <= at_rest[name].descriptors + MOST_MORE_DESCRIPTORS
        for name, pid in pids.items()
    )


def test_growth_is_that_of_the_line_and_not_of_two_samples() -> None:
    flat = [(float(at), 100.0) for at in range(100)]
    assert growth(flat) == 0
    assert growth([(0.0, 0.0), *flat[1:-1], (99.0, 200.0)]) < 20, "two outliers are not a leak"
    assert growth([(at, 100.0 + at) for at, _ in flat]) == pytest.approx(99)
    assert growth([(1.0, 5.0)]) == 0
