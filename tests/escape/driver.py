"""Makes a small world with canaries, runs something hostile in a real sandbox, and prints what
became of it as JSON.

    python driver.py probe | control | CASE

It is a program of its own so that the same can be run as root and as an ordinary user (`users.py`).
"""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from supervisor.sandbox.base import LOWER, MIB, SandboxLimits, Spec, ToolResult
from supervisor.sandbox.bubblewrap import Bubblewrap

HOSTILE = Path(__file__).with_name("hostile")
INSIDE = "/opt/escape"
MARK = "mark-of-a-host-process"
SECRET = "canary: this is the host's"
# What must succeed outside, so that its failure inside means something.
CONTROLS = (
    "read_host_canary", "read_data_directory", "list_data_directory", "climb_out_by_symlink",
    "write_lower",
    "run_loader_on_a_host_file", "run_copied_binary_on_a_host_file",
    "run_from_memory_on_a_host_file", "see_host_processes",
    "read_environment_of_others", "signal_the_supervisor", "unix_socket_in_workspace",
    "unix_socket_in_tmp",
    "unix_socket_abstract", "unix_datagram_in_workspace", "unix_datagram_from_a_pair",
    "unix_datagram_from_a_raw_pair",
    "tcp_to_host_loopback", "tcp_to_host_address", "udp_to_host_loopback", "trace_own_child",
    "list_host_home", "make_setuid_files",
)  # fmt: skip


class World:
    """Canaries on the host: files, a data directory inside the workspace, and servers that
    answer whoever reaches them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.lower, self.data = base / "project", base / "project" / "data"
        self.merged = self.data / "sessions" / "s1" / "merged"
        self.merged.mkdir(parents=True)
        self.hits: list[str] = []
        self._sockets: list[socket.socket] = []
        (self.lower / "file").write_text("of the host")
        (self.data / "operator.token").write_text(SECRET)
        (base / "canary").write_text(SECRET)
        self.facts: dict[str, Any] = {
            "canary_file": str(base / "canary"),
            "home": str(Path.home()),
            "process_mark": MARK,
            "environment_mark": f"CANARY={MARK}",
            "supervisor_pid": os.getpid(),
            "unix_abstract": f"gatehouse-{os.getpid()}",
            "address": _address(),
        }
        self._serve()

    def _serve(self) -> None:
        unix = [
            str(self.lower / "agent.sock"),
            str(self.base / "tmp.sock"),
            f"\0{self.facts['unix_abstract']}",
        ]
        for place in unix:
            self._listen(socket.AF_UNIX, place)
        datagram = self._keep(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        datagram.bind(str(self.lower / "datagram.sock"))
        self._thread(self._datagrams, datagram)
        udp = self._keep(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        self._thread(self._datagrams, udp)
        self.facts |= {
            "tcp_port": self._listen(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1],
            "tcp6_port": (
                self._listen(socket.AF_INET6, ("::1", 0)).getsockname()[1] if _has_v6() else 1
            ),
            "tcp_any_port": self._listen(socket.AF_INET, ("0.0.0.0", 0)).getsockname()[1],
            "udp_port": udp.getsockname()[1],
            "unix_in_tmp": unix[1],
        }
        with contextlib.suppress(OSError):
            self._listen(socket.AF_INET, ("127.0.0.1", 3700))

    def _listen(self, family: int, address: Any) -> socket.socket:
        server = self._keep(socket.socket(family))
        server.bind(address)
        server.listen()
        self._thread(self._streams, server)
        return server

    def _keep(self, one: socket.socket) -> socket.socket:
        self._sockets.append(one)
        return one

    def _thread(self, target: Any, one: socket.socket) -> None:
        threading.Thread(target=target, args=(one,), daemon=True).start()

    def _streams(self, server: socket.socket) -> None:
        while True:
            client, _ = server.accept()
            self.hits.append(str(server.getsockname()))
            client.sendall(SECRET.encode())
            client.close()

    def _datagrams(self, server: socket.socket) -> None:
        while True:
            _, sender = server.recvfrom(64)
            self.hits.append(str(server.getsockname()))
            with contextlib.suppress(OSError, TypeError):
                server.sendto(SECRET.encode(), sender)

    def write_facts(self, *, inside: bool) -> Path:
        """What the hostile script is told: where the canaries are, as seen from where it runs."""
        lower = LOWER if inside else str(self.lower)
        more = {
            "inside": inside,
            "lower_inside": lower,
            "data_secret_inside": f"{lower}/data/operator.token",
            "unix_in_workspace": f"{lower}/agent.sock",
            "unix_datagram": f"{lower}/datagram.sock",
        }
        place = self.base / ("in" if inside else "out")
        place.mkdir(exist_ok=True)
        (place / "world.json").write_text(json.dumps(self.facts | more))
        return place / "world.json"

    def spec(self, *command: str, **more: Any) -> Spec:
        """A sandbox over this world, with bounds that spare the machine."""
        limits = more.pop(
            "limits",
            SandboxLimits(
                processes=64,
                memory_bytes=256 * MIB,
                tmpfs_bytes=32 * MIB,
                output_bytes=MIB,
                cpu_s=60,
            ),
        )
        binds = (
            (HOSTILE, f"{INSIDE}/hostile"),
            (self.write_facts(inside=True), f"{INSIDE}/world.json"),
        )
        return Spec(
            command=command,
            workspace_lower=self.lower,
            workspace_merged=self.merged,
            masked=(self.data,),
            readonly_binds=binds,
            limits=limits,
            **more,
        )


def _address() -> str:
    """An address of this machine's other than loopback, or loopback where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _has_v6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


@contextlib.contextmanager
def world() -> Iterator[World]:
    """A world of its own below /tmp, with a marked process to be seen."""
    with tempfile.TemporaryDirectory(prefix="escape-", ignore_cleanup_errors=True) as folder:
        made = World(Path(folder))
        marked = subprocess.Popen(["sleep", "300"], env={"CANARY": MARK})
        named = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(300)", MARK])
        made.facts["supervisor_pid"] = named.pid
        try:
            yield made
        finally:
            for process in (marked, named):
                process.kill()
                process.wait()


async def probe() -> object:
    """Every attempt, inside."""
    with world() as made:
        sandbox = Bubblewrap()
        result = await sandbox.run_tool(
            made.spec("python3", f"{INSIDE}/hostile", f"{INSIDE}/world.json"), timeout_s=40
        )
        await sandbox.close()
        facts = {
            "hits": made.hits,
            "lower": (made.lower / "file").read_text(),
            "names": sorted(p.name for p in made.lower.iterdir()),
        }
        return {
            "attempts": json.loads(result.stdout or b"[]"),
            "stderr": result.stderr.decode(),
            "world": facts,
            "result": _told(result),
        }


async def control() -> object:
    """Those that must be able to succeed, outside."""
    with world() as made:
        scripts = made.base / "hostile"
        scripts.mkdir()
        for script in HOSTILE.glob("*.py"):
            text = script.read_text().replace("/workspace/merged", str(made.merged))
            (scripts / script.name).write_text(text.replace("/tmp/cat", str(made.base / "cat")))
        argv = ["/usr/bin/python3", str(scripts), str(made.write_facts(inside=False)), *CONTROLS]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        return {
            "attempts": json.loads(done.stdout or "[]"),
            "stderr": done.stderr,
            "hits": made.hits,
        }


def _told(result: ToolResult) -> dict[str, Any]:
    return {
        "code": result.exit_code, "why": result.killed_why, "timed_out": result.timed_out,
        "truncated": result.truncated,
        "stdout": result.stdout[-2000:].decode(errors="replace"),
        "stderr": result.stderr[-2000:].decode(errors="replace"),
        "bytes": len(result.stdout) + len(result.stderr),
    }  # fmt: skip


async def _tool(
    script: str,
    *,
    timeout_s: float = 20,
    limits: SandboxLimits | None = None,
    program: tuple[str, ...] = ("python3", "-c"),
) -> object:
    with world() as made:
        sandbox = Bubblewrap()
        more = {} if limits is None else {"limits": limits}
        began = time.monotonic()
        try:
            result = await sandbox.run_tool(
                made.spec(*program, script, **more), timeout_s=timeout_s
            )
        finally:
            await sandbox.close()
        return _told(result) | {
            "s": time.monotonic() - began,
            "left": _left(made),
            "children": _children(),
        }


def _left(made: World) -> list[str]:
    """Processes anywhere on this machine that still have this world mounted."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if made.base.name in (process / "mountinfo").read_text():
                    found.append(process.name)
    return found


def _children(but: int = 2) -> list[str]:
    """Children of this program, but for the world's own two."""
    names = (Path("/proc/self/task") / str(os.getpid()) / "children").read_text().split()
    return [
        name
        for name in names
        if "Z" not in Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
    ][but:]


SMALL = SandboxLimits(
    processes=48, memory_bytes=128 * MIB, tmpfs_bytes=16 * MIB, output_bytes=MIB, cpu_s=30
)
FORK_BOMB = """
import os, time, signal
end = time.monotonic() + 2
made = 0
while time.monotonic() < end:
    try:
        if os.fork() == 0:
            while time.monotonic() < end: time.sleep(0.05)
            os._exit(0)
        made += 1
        if made > 400: break     # the host's sake, should no bound hold
    except OSError:
        print("refused at", made, flush=True); time.sleep(0.2)
time.sleep(max(0, end - time.monotonic())); print("survived with", made)
"""
MEMORY_BOMB = """
import time
blocks = []
for _ in range(40):              # 640 MiB at most
    blocks.append(b"x" * (16 << 20)); time.sleep(0.02)
time.sleep(2); print("survived")
"""
SHARED_BOMB = """
import os, time
files = []
for folder in ("/tmp", "/run", "/var/tmp", "/home/agent", "/dev/shm"):
    for _ in range(3):
        f = os.open(folder, os.O_TMPFILE | os.O_RDWR); os.write(f, b"x" * (16 << 20))
        files.append(f); time.sleep(0.02)
time.sleep(2); print("survived")
"""
SOCKET_BOMB = """
import socket, time
kept = []
for _ in range(800):
    carrier, far = socket.socketpair()
    for _ in range(3):
        near, other = socket.socketpair(); near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        try:
            while True: near.send(bytes(1 << 16))
        except BlockingIOError: pass
        socket.send_fds(carrier, [b"x"], [other.fileno()])
        near.close(); other.close()       # nothing but a message holds it
    kept.append((carrier, far)); time.sleep(0.002)
time.sleep(2); print("survived")
"""
PAGE_TABLE_BOMB = """
import mmap, time
kept = []
for _ in range(16):                     # 4 kB of tables for each 2 MiB, 32 MB for each of these
    m = mmap.mmap(-1, 16 << 30, flags=mmap.MAP_PRIVATE | 0x4000, prot=mmap.PROT_READ)
    m.madvise(15)
    for at in range(0, 16 << 30, 2 << 20): m[at]
    kept.append(m); time.sleep(0.02)
time.sleep(2); print("survived")
"""
FILES_BOMB = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        for _ in range(4000): os.eventfd(0)
        time.sleep(20)
time.sleep(5); print("survived")
"""
TMPFS_BOMB = """
import os
total = 0
for folder in ("/tmp", "/run", "/var/tmp", "/home/agent", "/dev/shm"):
    try:
        with open(folder + "/bomb", "wb", buffering=0) as f:
            for _ in range(64): total += f.write(b"x" * (1 << 20))
    except OSError as e: print(folder, e.errno)
print("wrote", total >> 20)
"""
FILE_BOMB = (
    "f = open('/workspace/merged/big', 'wb')\nimport signal; signal.signal(signal.SIGXFSZ,"
    " signal.SIG_IGN)\nf.truncate(1 << 40)"
)
FLOOD = "import os\nfor _ in range(400): os.write(1, b'x' * 65536)\nprint('done')"
BURN = "while True: pass"
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(0)
        time.sleep(120)
    os._exit(0)
os.wait(); print("left a daemon")
"""
CASES = {
    "fork_bomb": lambda: _tool(FORK_BOMB, limits=SMALL),
    "memory_bomb": lambda: _tool(MEMORY_BOMB, limits=SMALL),
    "shared_bomb": lambda: _tool(
        SHARED_BOMB,
        limits=SandboxLimits(processes=48, memory_bytes=128 * MIB, tmpfs_bytes=64 * MIB),
    ),
    "socket_bomb": lambda: _tool(SOCKET_BOMB, limits=SMALL),
    "page_table_bomb": lambda: _tool(PAGE_TABLE_BOMB, limits=SMALL),
    "files_bomb": lambda: _tool(
        FILES_BOMB, limits=SandboxLimits(processes=48, memory_bytes=1024 * MIB)
    ),
    "tmpfs_bomb": lambda: _tool(
        TMPFS_BOMB, limits=SandboxLimits(processes=48, memory_bytes=256 * MIB, tmpfs_bytes=16 * MIB)
    ),
    "file_bomb": lambda: _tool(FILE_BOMB, limits=SMALL),
    "output_flood": lambda: _tool(FLOOD, limits=SMALL),
    "cpu_burn": lambda: _tool(
        BURN, limits=SandboxLimits(processes=48, memory_bytes=128 * MIB, cpu_s=1)
    ),
    "cpu_burn_by_many": lambda: _tool(
        "import os\nos.fork()\nwhile True: pass",
        limits=SandboxLimits(processes=48, memory_bytes=128 * MIB, cpu_s=1),
    ),
    "timeout": lambda: _tool("import time; time.sleep(60)", timeout_s=1),
    "daemon": lambda: _tool(DAEMON, limits=SMALL),
    "probe": probe,
    "control": control,
}


async def supervisor_for_kill(when: str) -> None:
    """Start a sandbox with grandchildren, say its pids, and wait to be killed: `running`, or
    `starting` (before the gate opens)."""
    with tempfile.TemporaryDirectory(prefix="escape-") as folder:
        made = World(Path(folder))
        ready = asyncio.Event()

        async def hold(_: object) -> None:
            print(json.dumps({"merged": str(made.merged)}), flush=True)
            await asyncio.sleep(60)

        def heard(block: bytes) -> None:
            if b"ready" in block:
                ready.set()

        script = (
            "touch ran; (setsid sh -c 'touch grand; sleep 61; :' &); while ! test -e grand; do"
            " sleep 0.02; done; sleep 62 & echo ready; sleep 63; :"
        )
        sandbox = Bubblewrap()
        await sandbox.start(
            made.spec("sh", "-c", script, ports=(3128,)),
            on_output=heard,
            on_listeners=hold if when == "starting" else None,
        )
        await ready.wait()
        print(json.dumps({"merged": str(made.merged)}), flush=True)
        await asyncio.sleep(60)


if __name__ == "__main__":
    if sys.argv[1] == "supervise":
        asyncio.run(supervisor_for_kill(sys.argv[2]))
    else:
        print(json.dumps(asyncio.run(CASES[sys.argv[1]]())))
