"""process.py: what starts is a list with an explicit environment, and what ends takes its tree
along."""

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from supervisor.base.process import PIPE, children, descendants, run, spawn
from supervisor.errors import UserError

ENV = {"PATH": "/usr/bin:/bin"}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def gone(pid: int) -> bool:
    for _ in range(6000):
        if not alive(pid):
            return True
        await asyncio.sleep(0.01)
    return False


async def test_output_exit_code_and_stdin_travel() -> None:
    done = await run(
        ["sh", "-c", "cat; echo err >&2; exit 3"], env=ENV, stdin=b"in" * 100_000, timeout_s=60
    )
    assert (done.exit_code, done.stdout, done.stderr, done.ok) == (
        3,
        b"in" * 100_000,
        b"err\n",
        False,
    )


async def test_arguments_are_never_a_shell_line(tmp_path: Path) -> None:
    done = await run(["printf", "%s", f"$(touch {tmp_path}/x); `id` *"], env=ENV, timeout_s=60)
    assert done.stdout == f"$(touch {tmp_path}/x); `id` *".encode()
    assert not (tmp_path / "x").exists()
    with pytest.raises(AssertionError):
        await run("echo hi", env=ENV, timeout_s=1)


async def test_the_environment_is_only_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SUPERVISOR", "1")
    done = await run(["env"], env={**ENV, "A": "b"}, timeout_s=60)
    assert b"SECRET" not in done.stdout
    assert b"A=b" in done.stdout


async def test_descriptors_are_closed_but_for_those_named() -> None:
    read, write = os.pipe()
    os.set_inheritable(read, True)
    os.set_inheritable(write, True)
    try:
        done = await run(["ls", "/proc/self/fd"], env=ENV, timeout_s=60, pass_fds=[read])
        seen = {int(word) for word in done.stdout.split()}
        assert read in seen
        assert write not in seen
    finally:
        os.close(read)
        os.close(write)


async def test_output_beyond_the_limit_is_dropped_and_said() -> None:
    done = await run(
        ["head", "-c", "3000000", "/dev/zero"], env=ENV, timeout_s=60, output_limit_bytes=1000
    )
    assert (len(done.stdout), done.truncated, done.exit_code, done.ok) == (1000, True, 0, False)


async def test_a_timeout_kills_the_tree_also_what_left_the_session() -> None:
    script = "setsid sh -c 'echo $$; sleep 60' & sh -c 'echo $$; sleep 60' & echo $$; sleep 60"
    for timeout_s in (0.5, 4.0, 32.0):  # longer where the machine was too slow to start all three
        done = await run(["sh", "-c", script], env=ENV, timeout_s=timeout_s)
        assert done.timed_out
        assert done.exit_code == 128 + signal.SIGKILL
        pids = [int(word) for word in done.stdout.split()]
        for pid in pids:
            assert await gone(pid)
        if len(pids) == 3:
            return
    raise AssertionError("they never started")


async def test_what_a_finished_program_left_in_its_group_is_killed() -> None:
    done = await run(["sh", "-c", "sleep 60 & echo $!"], env=ENV, timeout_s=60)
    assert done.ok
    assert await gone(int(done.stdout))


async def test_a_cancelled_caller_leaves_nothing() -> None:
    child = await spawn(["sleep", "60"], env=ENV)
    child.close()
    assert await child.wait() == 128 + signal.SIGKILL
    task = asyncio.ensure_future(run(["sleep", "61"], env=ENV, timeout_s=60))
    while not any(
        b"61" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(os.getpid())
    ):
        await asyncio.sleep(0.01)
    pid = next(
        pid for pid in children(os.getpid()) if b"61" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pid not in children(os.getpid())


@pytest.mark.parametrize("turns", range(1, 6))
async def test_nor_does_one_who_goes_while_it_is_started(turns: int) -> None:
    before = set(children(os.getpid()))  # a browser of other tests may be among them
    task = asyncio.ensure_future(run(["sleep", "60"], env=ENV, timeout_s=60))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(children(os.getpid())) <= before


async def test_an_end_is_waited_for_by_whoever_is_cancelled_meanwhile() -> None:
    child = await spawn(["sleep", "60"], env=ENV)
    told: list[int | None] = []

    async def ending() -> None:
        try:
            await child.end()
        finally:
            told.append(child.returncode)

    task = asyncio.ensure_future(ending())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == [128 + signal.SIGKILL]


async def test_a_caller_that_goes_away_at_once_leaves_no_pipe_open(
    recwarn: pytest.WarningsRecorder,
) -> None:
    gc.collect()  # what other tests left behind is said before, not here
    recwarn.clear()
    for turns in range(8):  # one of them for each step of the way
        task = asyncio.ensure_future(run(["sleep", "60"], env=ENV, timeout_s=60))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    gc.collect()
    assert not [str(told.message) for told in recwarn]


async def test_a_missing_program_is_a_users_error() -> None:
    with pytest.raises(UserError, match="can't start `no-such-program`"):
        await run(["no-such-program"], env=ENV, timeout_s=1)
    with pytest.raises(UserError):
        await run(["ls", "a\0b"], env=ENV, timeout_s=1)


async def test_spawn_streams_and_waits_more_than_once() -> None:
    child = await spawn([sys.executable, "-I", "-c", "print('hello')"], env={}, stdout=PIPE)
    try:
        assert child.stdout is not None
        assert await child.stdout.read() == b"hello\n"
        assert [await child.wait(), await child.wait(), child.returncode] == [0, 0, 0]
        child.send_signal(signal.SIGTERM)
    finally:
        child.close()
    assert descendants(child.pid) == []


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """We are in a folder with a program called `git`, which would leave a file."""
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", [":/usr/bin:/bin", ".:/usr/bin:/bin", "bin/..:/usr/bin:/bin"])
async def test_no_program_of_the_current_folder_is_started(planted: Path, path: str) -> None:
    done = await run(["git", "--version"], env={"PATH": path}, cwd=planted, timeout_s=60)
    assert done.stdout.startswith(b"git version")
    # Nor by what it starts.
    done = await run(["sh", "-c", "git --version; pwd"], env={"PATH": path}, timeout_s=60)
    assert done.stdout.splitlines()[-1] == b"/"
    assert not (planted / "ran").exists()


@pytest.mark.parametrize("path", [":", ".", "", "./"])
async def test_a_path_of_relative_folders_alone_finds_nothing(planted: Path, path: str) -> None:
    with pytest.raises(UserError, match="no absolute folder of PATH"):
        await run(["git"], env={"PATH": path}, cwd=planted, timeout_s=60)


@pytest.mark.parametrize("name", ["./git", "x/../git", "../git"])
async def test_a_relative_program_is_refused(planted: Path, name: str) -> None:
    with pytest.raises(UserError, match="can't start"):
        await run([name], env=ENV, cwd=planted, timeout_s=60)
    assert not (planted / "ran").exists()
