"""What every backend of the `Sandbox` protocol keeps, for bubblewrap and compose alike."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from supervisor.errors import SandboxError
from supervisor.sandbox.base import CA_BUNDLE, HOME, Sandbox, SandboxLimits, Spec
from supervisor.sandbox.bubblewrap import Bubblewrap
from supervisor.sandbox.compose import Compose
from supervisor.sandbox.running import Capture
from tests.fakes import containers

ENV = {"PATH": "/usr/bin:/bin", "HOME": HOME, "LANG": "C.UTF-8"}


class Place:
    def __init__(self, base: Path) -> None:
        self.lower, self.merged = base / "lower", base / "copies" / "merged"
        self.lower.mkdir()
        self.merged.mkdir(parents=True)

    def spec(self, *command: str, **more: object) -> Spec:
        return Spec(
            command=command,
            workspace_lower=self.lower,
            workspace_merged=self.merged,
            **{"env": ENV} | more,  # type: ignore[arg-type]
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(params=["bubblewrap", "compose"])
async def sandbox(
    request: pytest.FixtureRequest, place: Place, tmp_path: Path
) -> AsyncIterator[Sandbox]:
    if request.param == "bubblewrap":
        made: Sandbox = Bubblewrap()
        yield made
        await made.close()
        return
    if os.geteuid():
        pytest.skip("only root can make the two users of a container")
    control = tmp_path / "control"
    for side in ("agent", "tools"):
        (control / side).mkdir(parents=True)
    made = Compose(control)
    with (
        containers.runner(control / "agent", place.lower, place.merged),
        containers.runner(control / "tools", place.lower, place.merged),
    ):
        yield made
        await made.close()


async def test_output_errors_and_exit_code_come_back(sandbox: Sandbox, place: Place) -> None:
    script = "echo out; echo err >&2; exit 3"
    result = await sandbox.run_tool(place.spec("sh", "-c", script), timeout_s=30)
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
    assert not result.timed_out


async def test_of_a_flood_the_end_alone_is_kept(sandbox: Sandbox, place: Place) -> None:
    script = "yes | head -c 20000000; echo done; yes | head -c 20000000 >&2"
    spec = place.spec("sh", "-c", script)
    result = await sandbox.run_tool(spec, timeout_s=60, last_bytes=1000)
    assert 1000 <= len(result.stdout) <= 2000
    assert 1000 <= len(result.stderr) <= 2000
    assert result.stdout.endswith(b"y\ndone\n")


async def test_the_workspace_is_read_only_and_the_copy_is_writable(
    sandbox: Sandbox, place: Place
) -> None:
    (place.lower / "f").write_text("theirs")
    script = "cat ../lower/f; echo x > ../lower/g || echo refused; echo mine > made; pwd"
    result = await sandbox.run_tool(place.spec("sh", "-c", script), timeout_s=30)
    assert result.stdout == b"theirsrefused\n/workspace/merged\n"
    assert (place.merged / "made").read_text() == "mine\n"
    assert not (place.lower / "g").exists()


async def test_it_has_the_given_environment_and_files_and_no_network(
    sandbox: Sandbox, place: Place, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("authorities")
    script = (
        f"cat {CA_BUNDLE}; echo; env | sort | cut -d= -f1 | tr '\\n' ' ';"
        " tail -n +3 /proc/net/dev | cut -d: -f1; cat /proc/net/route | wc -l"
    )
    spec = place.spec("sh", "-c", script, ca_bundle=bundle, env=ENV | {"GIVEN": "yes"})
    result = await sandbox.run_tool(spec, timeout_s=30)
    said = result.stdout.decode()
    assert said.startswith("authorities\n"), said
    assert {"GIVEN", "HOME", "PATH", "LANG"} <= set(said.split())
    assert "GATEHOUSE_TOKEN" not in said
    assert said.split()[-2:] == ["lo", "1"], "loopback alone, and no route"


async def test_a_file_of_the_home_is_there_and_can_be_changed(
    sandbox: Sandbox, place: Place
) -> None:
    out = Capture()
    script = "cat ~/.config/x/y; echo more >> ~/.config/x/y && cat ~/.config/x/y"
    spec = place.spec("sh", "-c", script, home_files={".config/x/y": "text\n"})
    running = await sandbox.start(spec, on_output=out)
    assert await running.wait() == 0
    assert bytes(out.data) == b"text\ntext\nmore\n"


async def test_what_listens_inside_is_served_from_outside(sandbox: Sandbox, place: Place) -> None:
    asked = b""

    async def serve(listeners: Mapping[int, socket.socket]) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            asked = await reader.readline()
            writer.write(b"answered\n")
            writer.close()

        await asyncio.start_server(answer, sock=listeners[3128].dup())

    script = "exec 3<>/dev/tcp/127.0.0.1/3128; echo asked >&3; cat <&3"
    spec = place.spec("bash", "-c", script, ports=(3128,))
    result = await sandbox.run_tool(spec, timeout_s=30, on_listeners=serve)
    assert result.stdout == b"answered\n", result
    assert asked == b"asked\n"


async def test_a_terminal_is_one(sandbox: Sandbox, place: Place) -> None:
    out = Capture()
    script = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && stty size"
    running = await sandbox.start(place.spec("sh", "-c", script, tty=True), on_output=out)
    assert running.master_fd is not None
    assert await running.wait() == 0
    assert bytes(out.data) == b"0 0\r\n"


async def test_at_its_time_a_command_is_killed_with_all_that_it_started(
    sandbox: Sandbox, place: Place
) -> None:
    script = "setsid sh -c 'sleep 1; echo late > late' & sleep 60"
    result = await sandbox.run_tool(place.spec("sh", "-c", script), timeout_s=0.3)
    assert result.timed_out
    assert result.killed_why == "it took more than 0.3 s"
    await asyncio.sleep(1.2)
    assert not (place.merged / "late").exists()


async def test_what_a_command_leaves_behind_ends_with_it(sandbox: Sandbox, place: Place) -> None:
    script = "setsid sh -c 'sleep 0.6; echo late > late' > /dev/null 2>&1 & echo done"
    result = await sandbox.run_tool(place.spec("sh", "-c", script), timeout_s=30)
    assert result.stdout == b"done\n"
    await asyncio.sleep(0.9)
    assert not (place.merged / "late").exists()


async def test_an_agent_is_told_to_end_and_killed(sandbox: Sandbox, place: Place) -> None:
    out = Capture()
    running = await sandbox.start(
        place.spec(
            "sh", "-c", "trap 'echo told; exit 7' TERM; echo up; while :; do sleep 0.05; done"
        ),
        on_output=out,
    )
    while b"up" not in out.data:
        await asyncio.sleep(0.01)
    running.terminate()
    assert await running.wait() == 7
    assert b"told" in out.data
    running = await sandbox.start(place.spec("sleep", "60"), on_output=out)
    running.kill("enough")
    assert await running.wait() == 137
    assert running.killed_why == "enough"


async def test_paused_it_stands_still(sandbox: Sandbox, place: Place) -> None:
    out = Capture()
    script = "while :; do echo tick; sleep 0.02; done"
    running = await sandbox.start(place.spec("sh", "-c", script), on_output=out)
    while not out.data:
        await asyncio.sleep(0.01)
    assert sandbox.pause(place.merged)
    await asyncio.sleep(0.2)
    seen = len(out.data)
    await asyncio.sleep(0.3)
    assert len(out.data) == seen
    sandbox.unpause(place.merged)
    while len(out.data) == seen:
        await asyncio.sleep(0.01)
    running.kill()
    await running.wait()


async def test_output_beyond_its_bound_is_dropped_and_said(sandbox: Sandbox, place: Place) -> None:
    spec = place.spec("sh", "-c", "yes | head -c 100000", limits=SandboxLimits(output_bytes=1000))
    result = await sandbox.run_tool(spec, timeout_s=30)
    assert result.truncated
    assert len(result.stdout) < 1200


async def test_a_program_that_is_not_there_is_a_clear_end(sandbox: Sandbox, place: Place) -> None:
    try:
        result = await sandbox.run_tool(place.spec("/no/such/program"), timeout_s=30)
    except SandboxError as error:
        assert "/no/such/program" in str(error)  # noqa: PT017 - either is fine
    else:
        assert result.exit_code == 127
        assert b"/no/such/program" in result.stderr


async def test_a_socket_that_lies_in_the_workspace_reaches_nobody(
    sandbox: Sandbox, place: Place
) -> None:
    """A read-only mount keeps nobody from connecting to a socket on it."""
    script = (
        "import socket; made = socket.socket(socket.AF_UNIX);"
        " made.connect('/workspace/lower/agent.sock')"
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place.lower / "agent.sock"))
        server.listen()
        server.setblocking(False)
        result = await sandbox.run_tool(place.spec("python3", "-c", script), timeout_s=30)
        assert result.exit_code == 1
        with pytest.raises(BlockingIOError):
            server.accept()


async def test_an_agent_cannot_kill_what_started_it(sandbox: Sandbox, place: Place) -> None:
    script = (
        "trap '' TERM; setsid sh -c 'sleep 1.5; echo late > late' & kill -9 $PPID; kill -STOP 1;"
        " sleep 0.1; echo later > later; exit 5"
    )
    running = await sandbox.start(place.spec("sh", "-c", script), on_output=Capture())
    assert await running.wait() == 5
    await asyncio.sleep(1.8)
    assert {path.name for path in place.merged.iterdir()} == {"later"}
    result = await sandbox.run_tool(place.spec("echo", "again"), timeout_s=30)
    assert result.stdout == b"again\n"
    again = await sandbox.start(place.spec("true"), on_output=Capture())
    assert await again.wait() == 0
