"""A container's runner under attack by what it runs, as a stranger would try it."""

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_image.runner import RUNNER, SCRATCH
from supervisor.sandbox.base import HOME, SandboxLimits, Spec
from supervisor.sandbox.compose import Compose
from tests.fakes import containers

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can make the two users of a container"
)

# Each line that is printed is something that worked.
ATTACK = """
import contextlib, ctypes, os, resource, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
def tries(what, work):
    try:
        if work() is not False:
            print(what)
    except OSError:
        pass
for descriptor in range(3, 1024):
    tries(f"descriptor {descriptor}", lambda: os.fstat(descriptor))
for name in ("mem", "environ", "maps", "auxv", "stack", "syscall"):
    tries(f"read {name}", lambda: open(f"/proc/1/{name}", "rb").read(1))
for name in ("fd", "task/1/fd", "map_files", "root/", "cwd/"):
    tries(f"list {name}", lambda: os.listdir(f"/proc/1/{name}"))
for name in ("oom_score_adj", "comm", "mem", "timerslack_ns", "sched"):
    tries(f"write {name}", lambda: os.write(os.open(f"/proc/1/{name}", os.O_WRONLY), b"0"))
for number in range(1, 65):
    tries(f"signal {number}", lambda: os.kill(1, number))
tries("prlimit", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3)))
tries("priority", lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
tries("affinity", lambda: os.sched_setaffinity(1, {0}))
tries("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(1), signal.SIGKILL))
for call, arguments in ((101, (16, 1, 0, 0)), (310, (1, 0, 0, 0, 0, 0)), (438, (3, 0, 0))):
    tries(f"call {call}", lambda: libc.syscall(call, *arguments) >= 0)
tries("folder", lambda: os.listdir("/opt/gatehouse/private"))
tries("entry", lambda: os.stat("/opt/gatehouse/private/control/runner.sock"))
tries("socket", lambda: socket.socket(socket.AF_UNIX))
tries("user", lambda: os.setuid(RUNNER))
tries("group", lambda: os.setgid(RUNNER))
tries("groups", lambda: os.setgroups([0]))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    tries(name, lambda: int(status[name], 16) != 0)
tries("privileges", lambda: status["NoNewPrivs"].strip() != "1")
print("tried")
"""

# A daemon that outlives its job, a fork bomb around it, and what it leaves for the next one.
PLANT = """
import contextlib, ctypes, os, signal, sys
sys.stderr = open(os.devnull, "w")
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
    signal.signal(number, signal.SIG_IGN)
for folder in FOLDERS:
    try:
        os.makedirs(f"{folder}/x/y/z"); open(f"{folder}/x/y/z/f", "w").close()
        os.mkfifo(f"{folder}/fifo"); os.chmod(f"{folder}/x/y", 0); os.chmod(f"{folder}/x", 0)
    except OSError:
        pass
os.chdir("/tmp")
for _ in range(3000):
    os.mkdir("deep"); os.chdir("deep")
ctypes.CDLL(None).shmget(4711, 4096, 0o1666)
if os.fork() == 0:
    os.setsid()
    for _ in range(200):
        if os.fork() == 0:
            os.setsid()
            os.setpgid(0, 0)
            while True:
                if os.fork():
                    os._exit(0)
                with open("/workspace/merged/seen", "ab") as file:
                    for pid in os.listdir("/proc"):
                        with contextlib.suppress(OSError):
                            text = open(f"/proc/{pid}/environ", "rb").read()
                            if b"gth_next" in text:
                                file.write(text)
print("planted", flush=True)
os._exit(0)
"""

LOOK = """
import os
print([one for one in os.listdir("/proc") if one.isdigit() and int(one) not in (1, os.getpid())])
found = []
for folder in FOLDERS:
    if os.path.isdir(folder):
        found += [f"{folder}/{one}" for one in os.listdir(folder)]
print(sorted(found))
print(len(open("/proc/sysvipc/shm").readlines()) - 1)
"""


class Containers:
    def __init__(self, backend: Compose, base: Path, *, has_disk: bool) -> None:
        self.backend, self.base, self.has_disk = backend, base, has_disk
        self.killed_why = ""

    async def python(self, script: str, **env: str) -> tuple[int, str]:
        spec = Spec(
            command=("python3", "-c", script),
            workspace_lower=self.base / "lower",
            workspace_merged=self.base / "merged",
            env={"PATH": "/usr/bin:/bin", "HOME": HOME, **env},
            limits=SandboxLimits(output_bytes=100_000),
        )
        result = await self.backend.run_tool(spec, timeout_s=60)
        self.killed_why = result.killed_why
        return result.exit_code, (result.stdout + result.stderr).decode()


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Containers]:
    for name in ("control/agent", "control/tools", "lower", "merged"):
        (tmp_path / name).mkdir(parents=True)
    disk = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(tmp_path / "merged")]
    has_disk = subprocess.run(disk, capture_output=True, check=False).returncode == 0
    made = Compose(tmp_path / "control")
    with containers.runner(tmp_path / "control/tools", tmp_path / "lower", tmp_path / "merged"):
        yield Containers(made, tmp_path, has_disk=has_disk)
        await made.close()
    if has_disk:
        subprocess.run(["umount", "-l", str(tmp_path / "merged")], check=True)


async def test_what_runs_in_a_container_cannot_reach_its_runner(inside: Containers) -> None:
    assert await inside.python(f"RUNNER = {RUNNER}\n{ATTACK}") == (0, "tried\n")


async def test_nothing_of_a_command_is_left_when_the_next_one_starts(inside: Containers) -> None:
    folders = f"FOLDERS = {(*SCRATCH, HOME)}\n"
    assert (await inside.python(folders + PLANT))[1] == "planted\n"
    assert await inside.python(folders + LOOK, TOKEN="gth_next") == (0, "[]\n[]\n0\n")
    seen = inside.base / "merged/seen"
    assert not seen.exists() or seen.read_bytes() == b""
    assert (await inside.python("import os; os._exit(42)"))[0] == 42


async def test_a_disk_that_is_filled_ends_the_command_with_the_reason(inside: Containers) -> None:
    if not inside.has_disk:
        pytest.skip("no file system may be mounted here")
    script = (
        "import time\nfile = open('big', 'wb')\n"
        "for _ in range(64): file.write(b'x' * (1 << 20)); file.flush(); time.sleep(0.02)\n"
    )
    assert (await inside.python(script))[0] == 137
    assert inside.killed_why.startswith("the disk of its copy is nearly full: ")
