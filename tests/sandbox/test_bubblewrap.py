"""The bubblewrap backend: what it starts, what runs in it, what it says when it can't, and that
nothing is left behind."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from supervisor.base.process import children
from supervisor.errors import SandboxError
from supervisor.sandbox import bubblewrap, seccomp
from supervisor.sandbox.base import CA_BUNDLE, MIB, SandboxLimits, Spec
from supervisor.sandbox.bubblewrap import Bubblewrap
from supervisor.sandbox.running import Capture

LIMITS = SandboxLimits(processes=256, memory_bytes=1024 * MIB, tmpfs_bytes=64 * MIB)


class Place:
    def __init__(self, base: Path) -> None:
        self.lower, self.merged = base / "lower", base / "copies" / "merged"
        self.lower.mkdir()
        self.merged.mkdir(parents=True)

    def spec(self, *command: str, **more: object) -> Spec:
        arguments = {"limits": LIMITS, **more}
        return Spec(
            command=command, workspace_lower=self.lower, workspace_merged=self.merged, **arguments
        )  # type: ignore[arg-type]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
async def sandbox() -> AsyncIterator[Bubblewrap]:
    made = Bubblewrap()
    yield made
    await made.close()


def descriptors() -> set[str]:
    return {
        f"{path.name}:{link}" for path in Path("/proc/self/fd").iterdir() if (link := link_of(path))
    }


def link_of(path: Path) -> str:
    with contextlib.suppress(OSError):
        return str(path.readlink()) if path.exists() or "[" in str(path.readlink()) else ""
    return ""


async def tool(
    sandbox: Bubblewrap, place: Place, *command: str, **more: object
) -> tuple[int, str, str]:
    result = await sandbox.run_tool(place.spec(*command, **more), timeout_s=60)
    assert result.killed_why == ""
    return result.exit_code, result.stdout.decode(), result.stderr.decode()


async def test_the_command_sees_its_place_and_nothing_of_the_hosts_environment(
    sandbox: Bubblewrap, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SUPERVISOR", "x")
    (place.lower / "f").write_text("lower")
    code, out, _ = await tool(
        sandbox,
        place,
        "sh",
        "-c",
        "pwd; id -un; hostname; cat /workspace/lower/f; echo made > made; env",
        env={"TOKEN": "t=1 \n'"},
    )
    assert code == 0
    assert out.startswith("/workspace/merged\nagent\ngatehouse\nlower")
    assert "TOKEN=t=1 \n'\n" in out
    assert "SECRET" not in out
    assert (place.merged / "made").read_text() == "made\n"
    assert (place.merged / "made").stat().st_uid == os.getuid()


async def test_exit_codes_and_streams_travel(sandbox: Bubblewrap, place: Place) -> None:
    assert await tool(sandbox, place, "sh", "-c", "echo o; echo e >&2; exit 7") == (7, "o\n", "e\n")
    assert (await tool(sandbox, place, "sh", "-c", "kill -9 $$"))[0] == 137
    code, _, err = await tool(sandbox, place, "no-such-program")
    assert code == 127
    assert "not found" in err
    both = Capture()
    running = await sandbox.start(
        place.spec("sh", "-c", "echo 1; echo 2 >&2; echo 3"), on_output=both
    )
    assert await asyncio.gather(running.wait(), running.wait()) == [0, 0]
    assert bytes(both.data) == b"1\n2\n3\n"
    assert running.stats().processes == 0


async def test_arguments_of_the_command_are_never_interpreted(
    sandbox: Bubblewrap, place: Place
) -> None:
    words = ("$(id)", "`id`", "a b", "*", "'", '"', "--", "", "\n", "é")
    _, out, _ = await tool(sandbox, place, "printf", "<%s>", *words)
    assert out == "".join(f"<{word}>" for word in words)


async def test_the_environment_is_on_no_command_line(sandbox: Bubblewrap, place: Place) -> None:
    running = await sandbox.start(
        place.spec("sleep", "30", env={"GATEHOUSE_TOKEN": "very-secret"}), on_output=Capture()
    )
    for pid in (running.pid, *children(os.getpid())):
        with contextlib.suppress(OSError):
            assert b"very-secret" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    running.kill()
    assert await running.wait() == 137


@pytest.fixture
def unheard_ports() -> Iterator[tuple[int, int]]:
    """Two ports of the host that nobody listens at, nor can during the test: they are bound, and
    no more."""
    with socket.socket() as one, socket.socket() as two:
        for held in (one, two):
            held.bind(("127.0.0.1", 0))
        yield one.getsockname()[1], two.getsockname()[1]


async def test_listening_sockets_are_inside_and_held_before_the_command_starts(
    sandbox: Bubblewrap, place: Place, unheard_ports: tuple[int, int]
) -> None:
    given: dict[int, socket.socket] = {}

    async def take(listeners: Mapping[int, socket.socket]) -> None:
        await asyncio.sleep(0.05)
        given.update(listeners)

    script = (
        f"import socket\nfor p in {unheard_ports}:\n s=socket.create_connection(('127.0.0.1',p));"
        " s.send(b'%d' % p); s.recv(1)"
    )
    running = await sandbox.start(
        place.spec("python3", "-c", script, ports=unheard_ports),
        on_output=Capture(),
        on_listeners=take,
    )
    assert set(given) == set(unheard_ports)
    loop = asyncio.get_running_loop()
    for port, listener in given.items():
        client, _ = await loop.sock_accept(listener)
        assert await loop.sock_recv(client, 10) == str(port).encode()
        await loop.sock_sendall(client, b"x")
        client.close()
        # It isn't on the host, though it says the same address.
        with pytest.raises(ConnectionRefusedError), socket.socket() as host:
            host.connect(("127.0.0.1", port))
    assert await running.wait() == 0
    for listener in given.values():
        listener.close()


async def test_two_sandboxes_have_networks_of_their_own(sandbox: Bubblewrap, place: Place) -> None:
    one = await sandbox.start(place.spec("sleep", "30", ports=(3128,)), on_output=Capture())
    two = await sandbox.start(place.spec("sleep", "30", ports=(3128,)), on_output=Capture())
    assert one.listeners[3128].getsockname() == two.listeners[3128].getsockname()
    nets = {link_of(Path("/proc", str(pid), "ns/net")) for pid in (one.pid, two.pid, os.getpid())}
    assert len(nets) == 3
    for running in (one, two):
        running.kill()
        await running.wait()
        running.listeners[3128].close()


async def test_nothing_is_left_of_a_run(sandbox: Bubblewrap, place: Place) -> None:
    await tool(sandbox, place, "true", ports=(3128,))
    before, helpers = descriptors(), set(children(os.getpid()))
    for _ in range(5):
        await tool(sandbox, place, "true", ports=(3128,))
    assert descriptors() == before
    assert set(children(os.getpid())) == helpers
    assert list(Path("/sys/fs/cgroup").glob(f"**/gatehouse-{os.getpid()}-*")) == []


async def test_a_start_that_fails_says_why_and_leaves_nothing(
    sandbox: Bubblewrap, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tool(sandbox, place, "true", ports=(3128,))
    before, helpers = descriptors(), set(children(os.getpid()))

    async def refuse(_: object) -> None:
        raise SandboxError("egress is away", "start it")

    with pytest.raises(SandboxError, match="egress is away"):
        await sandbox.start(
            place.spec("touch", "ran", ports=(3128,)), on_output=Capture(), on_listeners=refuse
        )
    with pytest.raises(SandboxError, match="no listening socket inside"):
        await sandbox.start(
            place.spec("touch", "ran", ports=(3128, 1)), on_output=Capture(), on_listeners=_occupied
        )
    monkeypatch.setattr(bubblewrap, "GATE", "exit 3")
    with pytest.raises(SandboxError, match="gave up"):
        await sandbox.start(place.spec("touch", "ran"), on_output=Capture())
    monkeypatch.undo()
    # A program that bubblewrap refuses to filter must not run unfiltered.
    monkeypatch.setattr(seccomp, "programs", lambda: (b"not a program", b""))
    with pytest.raises(SandboxError, match="gave up"):
        await sandbox.start(place.spec("touch", "ran"), on_output=Capture())
    monkeypatch.undo()
    # So must a mount that can't be made.
    with pytest.raises(SandboxError, match="gave up"):
        await sandbox.start(place.spec("touch", "ran", cwd="/nowhere"), on_output=Capture())
    monkeypatch.setattr(bubblewrap, "apply_rlimits", _raise_os_error)
    with pytest.raises(SandboxError, match="can't be started"):
        await sandbox.start(place.spec("touch", "ran"), on_output=Capture())
    assert not (place.merged / "ran").exists()
    assert descriptors() == before
    assert set(children(os.getpid())) == helpers


async def _occupied(_: object) -> None:
    raise SandboxError("no listening socket inside: stand-in", "")


def _raise_os_error(*_: object) -> None:
    raise PermissionError(1, "not permitted")


async def test_a_missing_or_broken_bubblewrap_is_named(place: Place, tmp_path: Path) -> None:
    for text, message in (
        ("#!/bin/sh\nexit 1\n", "gave up"),
        ("#!/bin/sh\necho 'bwrap: No permissions' >&2; exit 1\n", "No permissions"),
    ):
        fake = tmp_path / "bwrap"
        fake.write_text(text)
        fake.chmod(0o755)
        backend = Bubblewrap(bwrap=str(fake))
        with pytest.raises(SandboxError, match=message):
            await backend.start(place.spec("true"), on_output=Capture())
        await backend.close()
    backend = Bubblewrap()
    backend.program = None
    with pytest.raises(SandboxError, match="isn't installed"):
        await backend.start(place.spec("true"), on_output=Capture())
    await backend.close()


async def test_the_socket_helper_is_started_again_when_it_died(
    sandbox: Bubblewrap, place: Place
) -> None:
    await tool(sandbox, place, "true", ports=(3128,))
    child = sandbox._opener._child
    assert child is not None
    child.close()
    await child.wait()
    assert (await tool(sandbox, place, "true", ports=(3128,)))[0] == 0


async def test_terminate_reaches_the_command_and_its_children(
    sandbox: Bubblewrap, place: Place
) -> None:
    out = Capture()
    ready = asyncio.Event()

    def heard(block: bytes) -> None:
        out(block)
        if b"ready" in out.data:
            ready.set()

    script = (
        "trap 'echo outer; exit 5' TERM; sh -c 'trap \"echo inner; exit\" TERM; echo ready; while"
        " :; do sleep 0.1; done' & while :; do sleep 0.1; done"
    )
    running = await sandbox.start(place.spec("sh", "-c", script), on_output=heard)
    await ready.wait()
    assert running.stats().processes >= 3
    running.terminate()
    assert await running.wait() == 5
    assert b"outer" in out.data
    running.terminate()
    running.kill()


async def test_a_terminal(sandbox: Bubblewrap, place: Place) -> None:
    out = Capture()
    changed = asyncio.Event()

    def heard(block: bytes) -> None:
        out(block)
        if b"asked" in out.data:
            changed.set()

    script = (
        "test -t 0 && test -t 1 && test -t 2 && echo term; trap 'stty size; exit 4' WINCH; stty"
        " size; echo asked; read x; echo $x; stty -a < /dev/tty | head -1"
    )
    running = await sandbox.start(place.spec("bash", "-c", script, tty=True), on_output=heard)
    assert running.master_fd is not None
    await changed.wait()
    running.resize(40, 120)
    os.write(running.master_fd, b"typed\n")
    assert await running.wait() in (0, 4)
    assert b"term" in out.data
    assert b"40 120" in out.data
    assert running.master_fd is None
    running.resize(1, 1)


async def test_masked_paths_show_nowhere(sandbox: Bubblewrap, place: Place, tmp_path: Path) -> None:
    data = place.lower / "deep" / "data"
    (data / "sessions" / "merged").mkdir(parents=True)
    (data / "secret").write_text("s")
    (place.lower / "token").write_text("t")
    (tmp_path / "shared").symlink_to(place.lower)
    spec = Spec(
        command=(
            "sh",
            "-c",
            (
                "cat /workspace/lower/deep/data/secret /opt/w/deep/data/secret"
                " /workspace/lower/token; ls -A /opt/w/deep/data; touch mine"
            ),
        ),
        workspace_lower=tmp_path / "shared",
        workspace_merged=data / "sessions" / "merged",
        masked=(tmp_path / "shared" / "deep" / "data", place.lower / "token"),
        readonly_binds=((place.lower, "/opt/w"),),
        limits=LIMITS,
    )
    result = await sandbox.run_tool(spec, timeout_s=60)
    assert result.stdout == b""
    assert result.stderr.count(b"No such file") == 2
    assert (data / "sessions" / "merged" / "mine").exists()


async def test_the_ca_bundle_is_where_programs_look(
    sandbox: Bubblewrap, place: Place, tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("-----our bundle-----")
    script = (
        f"for f in {CA_BUNDLE} /etc/ssl/certs/ca-certificates.crt /etc/ssl/cert.pem"
        " /etc/pki/tls/certs/ca-bundle.crt; do cat $f; echo; done"
    )
    _, out, _ = await tool(sandbox, place, "sh", "-c", script, ca_bundle=bundle)
    assert out == "-----our bundle-----\n" * 4


PROGRAMS = {
    "python": ("python3", "-c",
    "import ssl, sqlite3, ctypes, threading, subprocess; print(subprocess.run(['echo', 'ok'], capture_output=True).stdout)"),  # noqa: E501
    "pool": (
        "python3",
        "-c",
        "import multiprocessing as m\ndef f(x): return x*x\nif __name__=='__main__':\n  with m.Pool(2) as p: print('ok', p.map(f, range(3)))",  # noqa: E501
    ),
    "socketpair": ("python3", "-c",
    "import socket; a,b=socket.socketpair(); a.send(b'ok'); print(b.recv(2))"),
    "interfaces": ("python3", "-c",
    "import socket; print('ok', socket.if_nameindex(), socket.getaddrinfo('localhost', 80)[0])"),
    "node": ("node", "-e",
    "const c=require('child_process'); c.exec('echo ok', (e,o)=>console.log(e,o)); require('os').networkInterfaces(); new (require('worker_threads').Worker)('1', {eval: true})"),  # noqa: E501
    "node server": (
        "node",
        "-e",
        "const h=require('http'); const s=h.createServer((q,r)=>r.end('ok')).listen(0,'127.0.0.1',()=>h.get({port:s.address().port},r=>{r.on('data',d=>{console.log(''+d);process.exit()})}))",  # noqa: E501
    ),
    "npm": ("sh", "-c", "npm --version && npm init -y >/dev/null && npm ls && echo ok"),
    "git": ("sh", "-c",
    "git init -q . && git config user.email a@example.org && git config user.name a && echo x > x && git add x && git commit -qm x && git log --oneline && git gc -q && echo ok"),  # noqa: E501
    "curl": ("sh", "-c",
    "curl --version >/dev/null; python3 -m http.server 8123 >/dev/null 2>&1 & pid=$!; for i in 1 2 3 4 5 6 7 8 9; do curl -sf http://127.0.0.1:8123/ >/dev/null && echo ok && break; sleep 0.3; done; kill $pid"),  # noqa: E501
    "ripgrep": ("sh", "-c", "echo needle > f; rg --no-messages needle . && echo ok"),
    "threads": ("python3", "-c",
    "import threading,time\nt=[threading.Thread(target=time.sleep,args=(.05,)) for _ in range(50)]\n[x.start() for x in t];[x.join() for x in t];print('ok')"),  # noqa: E501
    "shared memory": ("python3", "-c",
    "from multiprocessing import shared_memory as s, Lock; m=s.SharedMemory(create=True,size=9); Lock(); m.unlink(); print('ok')"),  # noqa: E501
    "room for a file": ("python3", "-c",
    "import os, socket; f=os.open('f',66); os.posix_fallocate(f,0,1<<20); print(os.fstat(f).st_blocks>=2048 and 'ok')"),  # noqa: E501
    "sizes of sockets": ("python3", "-c",
    "import socket; s=socket.socket(); a=s.getsockopt(1,7); s.setsockopt(1,7,1<<22); s.setsockopt(1,8,1<<22); print('ok' if s.getsockopt(1,7)==a else 'grew')"),  # noqa: E501
    "perl": ("perl", "-e", "use POSIX; print 'ok'"),
    "dates": ("sh", "-c", "TZ=Europe/Berlin date && whoami && getent passwd 1000 && echo ok"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
async def test_programs_that_agents_use_work(sandbox: Bubblewrap, place: Place, name: str) -> None:
    if shutil.which(PROGRAMS[name][0], path=bubblewrap.PATH) is None:
        pytest.skip(f"{PROGRAMS[name][0]} isn't installed")
    code, out, err = await tool(
        sandbox, place, *PROGRAMS[name], env={"npm_config_update_notifier": "false"}
    )
    assert code == 0, err
    assert "ok" in out, (out, err)


LOOK_UPS = """
import socket, time
count, began = 20, time.monotonic()
for number in range(count):
    try:
        raise SystemExit(socket.getaddrinfo(f"n{number}.example.org", 80))
    except socket.gaierror:
        pass
print((time.monotonic() - began) / count)
"""


async def test_where_there_is_no_name_server_a_look_up_waits_for_none(
    sandbox: Bubblewrap, place: Place
) -> None:
    resolver_waits_s = 5  # resolv.conf(5): `timeout`; for an answer that doesn't come, twice
    result = await sandbox.run_tool(place.spec("/usr/bin/python3", "-c", LOOK_UPS), timeout_s=300)
    assert float(result.stdout) < resolver_waits_s, result.stderr


async def test_many_at_once(sandbox: Bubblewrap, place: Place) -> None:
    results = await asyncio.gather(
        *(tool(sandbox, place, "sh", "-c", f"echo {n}", ports=(3128,)) for n in range(16))
    )
    assert [out for _, out, _ in results] == [f"{n}\n" for n in range(16)]


async def test_a_cancelled_tool_leaves_no_process(sandbox: Bubblewrap, place: Place) -> None:
    await tool(sandbox, place, "true", ports=(3128,))
    before = set(children(os.getpid()))
    task = asyncio.ensure_future(sandbox.run_tool(place.spec("sleep", "60"), timeout_s=60))
    while not set(children(os.getpid())) - before:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await sandbox.close()
    assert set(children(os.getpid())) <= before


def test_it_runs_on_uvloop_too(place: Place) -> None:
    import uvloop

    async def go() -> bytes:
        backend = Bubblewrap()
        result = await backend.run_tool(place.spec("echo", "ok", ports=(3128,)), timeout_s=60)
        await backend.close()
        return result.stdout

    assert uvloop.run(go()) == b"ok\n"


async def test_a_disk_that_is_filled_ends_the_sandbox_with_the_reason(
    sandbox: Bubblewrap, tmp_path: Path
) -> None:
    """The host and the record need the disk too. A small file system of its own stands in for
    it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        fill = (
            "head -c 20000000 /dev/zero > few; sleep 1; echo fine; head -c 200000000 /dev/zero >"
            " many; sleep 60"
        )
        result = await sandbox.run_tool(Place(disk).spec("sh", "-c", fill), timeout_s=50)
        assert result.stdout == b"fine\n"
        assert result.killed_why.startswith("the disk of its copy is nearly full: ")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
