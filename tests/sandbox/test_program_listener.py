"""Every program that a real sandbox executes is asked about before it is."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.sandbox.base import HOME, Spec, ToolResult
from supervisor.sandbox.bubblewrap import Bubblewrap
from supervisor.sandbox.program_listener import JudgeProgram, StartedProgram
from supervisor.sessions.session_sandboxes import watched


class Seen:
    """A judge that keeps what it is asked, and says no to `rm`."""

    def __init__(self) -> None:
        self.programs: list[StartedProgram] = []

    def __call__(self, program: StartedProgram, answer: Callable[[bool], None]) -> None:
        self.programs.append(program)
        answer(not program.path.endswith("/rm"))

    @property
    def words(self) -> list[tuple[str, ...]]:
        return [one.words for one in self.programs]


async def run(tmp_path: Path, judge: JudgeProgram, *command: str, **more: object) -> ToolResult:
    lower, merged = tmp_path / "lower", tmp_path / "copies" / "merged"
    lower.mkdir()
    merged.mkdir(parents=True)
    spec = Spec(
        command=command,
        workspace_lower=lower,
        workspace_merged=merged,
        env={"PATH": "/usr/bin:/bin", "HOME": HOME},
        **more,  # type: ignore[arg-type]
    )
    sandbox = Bubblewrap()
    try:
        return await sandbox.run_tool(watched(spec, judge), timeout_s=40)
    finally:
        await sandbox.close()


async def test_each_is_asked_about_and_a_no_is_permission_denied(tmp_path: Path) -> None:
    seen = Seen()
    script = "touch kept; rm kept; mkdir d; cd d; ls -a ..; env ls /nowhere"
    result = await run(tmp_path, seen, "sh", "-c", script)
    assert result.stdout == b".\n..\nd\nkept\n"
    assert b"rm: Permission denied" in result.stderr
    # Its own command isn't asked about, and what it finds by PATH is by its whole path.
    assert seen.programs[0] == StartedProgram(
        "/usr/bin/touch", ("touch", "kept"), "/workspace/merged"
    )
    assert ("ls", "-a", "..") in seen.words
    assert seen.programs[-1] == StartedProgram(
        "/usr/bin/ls", ("ls", "/nowhere"), "/workspace/merged/d"
    )


async def test_it_has_no_descriptor_and_no_filter_of_its_own_left(tmp_path: Path) -> None:
    result = await run(tmp_path, Seen(), "ls", "/proc/self/fd")
    assert result.stdout == b"0\n1\n2\n3\n", "the last is the folder that is listed"


@pytest.mark.parametrize(
    "call",
    [
        "os.execve(os.open('/usr/bin/rm', os.O_RDONLY), ['rm', 'a'], {})",
        "os.posix_spawn('/usr/bin/rm', ['rm', 'a'], {})",
        "os.chdir('/usr/bin'); os.execv('./../bin/rm', ['rm', 'a'])",
        "subprocess.run(['rm', 'a'], cwd='/tmp')",
        "threading.Thread(target=lambda: subprocess.run(['rm', 'a'])).start()",
    ],
)
async def test_every_way_to_execute_is_one(tmp_path: Path, call: str) -> None:
    seen = Seen()
    result = await run(tmp_path, seen, "python3", "-c", f"import os, subprocess, threading\n{call}")
    assert any(one.path.endswith("/rm") and one.words == ("rm", "a") for one in seen.programs)
    assert b"Permission" in result.stderr


async def test_words_of_any_length_and_bytes_are_read(tmp_path: Path) -> None:
    seen = Seen()
    script = (
        "import os, subprocess\n"
        "subprocess.run(['true', 'a' * 100_000, '', 'x\\ny', 'ü'.encode(), b'\\xff'])\n"
        "subprocess.run(['true', *['word'] * 3000])\n"
    )
    result = await run(tmp_path, seen, "python3", "-c", script)
    assert result.exit_code == 0, result.stderr
    assert seen.words == [
        ("true", "a" * 100_000, "", "x\ny", "ü", "\\xff"),
        ("true", *["word"] * 3000),
    ]


@pytest.mark.parametrize(("apart", "is_read"), [(0, True), (16, True), (4096, False)])
async def test_words_that_lie_in_too_many_pages_are_refused_unread(
    tmp_path: Path, apart: int, is_read: bool
) -> None:
    """Each page costs a read by the supervisor: 40,000 empty words needn't be 40,000 reads."""
    seen = Seen()
    script = (
        "import ctypes, mmap, os\n"
        f"count, apart = 40_000, {apart}\n"
        "room = mmap.mmap(-1, count * apart + 4096)\n"
        "at = ctypes.addressof(ctypes.c_char.from_buffer(room))\n"
        "places = [at + apart * one for one in range(count)]\n"
        "words = (ctypes.c_void_p * (count + 1))(*places, None)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "libc.execve(b'/usr/bin/true', words, None)\n"
        "print(ctypes.get_errno())"
    )
    result = await run(tmp_path, seen, "python3", "-c", script)
    assert (result.stdout == b"") == is_read, result
    assert [len(one.words) for one in seen.programs] == ([40_000] if is_read else [])


async def test_a_thousand_at_once_and_one_that_waits_holds_up_no_other(tmp_path: Path) -> None:
    seen: list[StartedProgram] = []
    waiting: list[Callable[[bool], None]] = []

    def judge(program: StartedProgram, answer: Callable[[bool], None]) -> None:
        seen.append(program)
        if program.words[0] == "echo":
            waiting.append(answer)
            return
        answer(True)
        if program.words == ("true", "last"):
            waiting.pop()(True)

    many = "for i in $(seq 1000); do env true $i & done"
    script = f"env echo waited & {many}; wait %2; env true last; wait"
    result = await run(tmp_path, judge, "bash", "-c", script)
    assert result.stdout == b"waited\n"
    assert len([one for one in seen if one.words[0] == "true"]) == 1001


async def test_one_that_is_killed_while_it_waits_leaves_the_others(tmp_path: Path) -> None:
    waiting: list[Callable[[bool], None]] = []

    def judge(program: StartedProgram, answer: Callable[[bool], None]) -> None:
        if program.words == ("rm", "never"):
            waiting.append(answer)
            return
        if program.words == ("true", "then"):
            waiting.pop()(True)  # of a process that is gone
        answer(True)

    script = "rm never & sleep 0.3; kill -KILL %1; wait; env true then; echo went on"
    result = await run(tmp_path, judge, "bash", "-c", script)
    assert result.stdout == b"went on\n"
    assert waiting == []


async def test_a_judge_that_fails_has_said_no(tmp_path: Path) -> None:
    def judge(program: StartedProgram, answer: Callable[[bool], None]) -> None:
        raise TypeError("a bug")

    result = await run(tmp_path, judge, "bash", "-c", "touch x || ls")
    assert (result.exit_code, result.stdout) == (126, b"")


async def test_the_filter_can_not_be_taken_over_or_shed(tmp_path: Path) -> None:
    """A listener of the program's own, which would answer first, is refused (EBUSY)."""
    script = r"""
import ctypes, os
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))
allow = (6).to_bytes(2, "little") + bytes(2) + (0x7FFF0000).to_bytes(4, "little")
call = ctypes.CDLL(None, use_errno=True).syscall
number = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
print(call(number, 1, 1 << 3, ctypes.byref(Program(1, allow))), ctypes.get_errno(), flush=True)
print(call(number, 1, 0, ctypes.byref(Program(1, allow))), flush=True)
os.execv("/usr/bin/rm", ["rm", "x"])
"""
    seen = Seen()
    result = await run(tmp_path, seen, "python3", "-c", script)
    assert result.stdout == b"-1 16\n0\n"
    assert seen.words == [("rm", "x")]
    assert b"PermissionError" in result.stderr


async def test_with_a_terminal_too(tmp_path: Path) -> None:
    seen = Seen()
    result = await run(tmp_path, seen, "sh", "-c", "rm x; tty", tty=True)
    assert b"/dev/" in result.stdout
    assert ("rm", "x") in seen.words


async def test_the_listener_ends_with_its_sandbox(tmp_path: Path) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    await run(tmp_path, Seen(), "sh", "-c", "true; env true")
    for _ in range(50):
        await asyncio.sleep(0.02)
        if len(set(Path("/proc/self/fd").iterdir())) <= len(before) + 1:
            return
    raise AssertionError(set(Path("/proc/self/fd").iterdir()) - before)
