"""Asks about every program that a sandbox executes, before it does (seccomp_unotify(2)).

It decides nothing: a `Judge` says yes or no.

It can't see what a program does without executing another (a shell's builtins, a script that an
interpreter reads), nor words that another thread changes between the answer and the kernel's own
reading (see docs/agents.md). So it helps against harmless programs' mistakes; the sandbox's walls
decide what a hostile one can reach.

INVARIANT: a missing answer is a refusal, and so is an unreadable question.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from supervisor.base import log

# linux/seccomp.h: SECCOMP_IOCTL_NOTIF_RECV, _SEND and _ID_VALID, on both of our architectures.
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
# struct seccomp_notif: id, pid, flags, and struct seccomp_data (nr, arch, instruction pointer, six
# arguments); struct seccomp_notif_resp: id, value, error, flags.
_QUESTION, _ANSWER, _ID = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI"), struct.Struct("=Q")
_GO_ON = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_EXECVEAT = frozenset({322, 281})  # x86_64, aarch64
_PAGE = 4096
_POINTER = struct.Struct("=Q")
# Characters read of one program's command line. Rules refuse a line of this length as a whole
# (`core.shell.exec_matching`), so its end makes no difference.
MOST_CHARS = 128 * 1024
# Memory pages read for one program. A line of that length fits in fewer, wherever a program keeps
# its words.
MOST_PAGES = 4096


class StartedProgram(NamedTuple):
    """A program that is about to be executed: `path` as in the call, `words` with the name first,
    and the folder; paths are inside the sandbox."""

    path: str
    words: tuple[str, ...]
    folder: str


# Called in the event loop. It calls the second argument once with yes or no, now or later. A judge
# that raises or forgets it has said no.
type JudgeProgram = Callable[[StartedProgram, Callable[[bool], None]], None]


class ProgramWatch(NamedTuple):
    """`launcher` are the words that start agent_image/exec_notify.py inside. `judge` isn't asked
    about the first program, which is the sandbox's command."""

    launcher: tuple[str, ...]
    judge: JudgeProgram


class ProgramListener:
    """One per sandbox. It waits for the listener on `channel`, and owns both."""

    def __init__(self, channel: socket.socket, judge: JudgeProgram) -> None:
        self._channel: socket.socket | None = channel
        self._judge = judge
        self._descriptor = -1
        self._has_begun = False
        self._loop = asyncio.get_running_loop()
        channel.setblocking(False)
        self._loop.add_reader(channel, self._take_listener)

    def close(self) -> None:
        """Refuse whatever waits, and everything later (ENOSYS)."""
        if self._channel is not None:
            self._loop.remove_reader(self._channel)
            self._channel.close()
            self._channel = None
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _take_listener(self) -> None:
        assert self._channel is not None
        with contextlib.suppress(OSError):
            self._descriptor = next(iter(socket.recv_fds(self._channel, 16, 1)[1]), -1)
        self._loop.remove_reader(self._channel)
        self._channel.close()
        self._channel = None
        if self._descriptor >= 0:
            os.set_inheritable(self._descriptor, False)
            self._loop.add_reader(self._descriptor, self._read)

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if not any(events & select.POLLIN for _, events in poll.poll(0)):
            self.close()  # POLLHUP: nobody is left who could ask
            return
        told = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(self._descriptor, _RECEIVE, told)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINTR):  # ENOENT: killed meanwhile
                self.close()
            return
        mark, pid, _, number, _, _, *arguments = _QUESTION.unpack(told)
        answer = partial(self._answer, mark)
        try:
            found = _read_program(pid, number, arguments)
            # INVARIANT: the memory was read from the asking process, not from a later one with its
            # pid.
            fcntl.ioctl(self._descriptor, _IS_VALID, _ID.pack(mark))
            if self._has_begun:
                self._judge(found, answer)
            else:
                self._has_begun = True
                answer(True)
        except Exception as error:
            if not isinstance(error, OSError | ValueError):
                log.exception("a program wasn't judged")
            answer(False)

    def _answer(self, mark: int, is_allowed: bool) -> None:
        if self._descriptor < 0:
            return
        said = (0, _GO_ON) if is_allowed else (-errno.EACCES, 0)
        with contextlib.suppress(OSError):  # it was killed meanwhile
            fcntl.ioctl(self._descriptor, _SEND, _ANSWER.pack(mark, 0, *said))


def _read_program(pid: int, number: int, arguments: list[int]) -> StartedProgram:
    """Read from a process's memory what it wants to execute. Raise `OSError` or `ValueError` where
    that fails."""
    is_at = number in _EXECVEAT
    path_at, words_at = arguments[1:3] if is_at else arguments[0:2]
    folder = str(Path(f"/proc/{pid}/cwd").readlink())
    memory = _Memory(pid)
    try:
        path = memory.text(path_at)
        words, size = [], 0
        for address in memory.pointers(words_at):
            words.append(memory.text(address))
            size += len(words[-1]) + len("'' ")
            if size > MOST_CHARS:
                break
    finally:
        memory.close()
    if is_at and not path.startswith("/"):
        # `fd` is an int: AT_FDCWD is negative.
        start = arguments[0] & 0xFFFFFFFF
        if start < 1 << 31:
            base = str(Path(f"/proc/{pid}/fd/{start}").readlink())
            path = f"{base}/{path}" if path else base
    return StartedProgram(path, tuple(words) or (path,), folder)


class _Memory:
    """A process's memory. Each page is read once, and their number is bounded."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        self._pages: dict[int, bytes] = {}

    def close(self) -> None:
        os.close(self._descriptor)

    def pointers(self, address: int) -> Iterator[int]:
        """Yield the addresses of a list, up to its null pointer."""
        if address % _POINTER.size:
            raise ValueError("no compiler makes such a list")
        while address:
            page, start = self._at(address)
            address += _PAGE - start
            for (pointer,) in _POINTER.iter_unpack(page[start:]):
                if not pointer:
                    return
                yield pointer

    def text(self, address: int) -> str:
        """Return the text at an address."""
        found = b""
        while len(found) <= MOST_CHARS:
            page, start = self._at(address + len(found))
            end = page.find(0, start)
            found += page[start:] if end < 0 else page[start:end]
            if end >= 0:
                break
        return found.decode(errors="backslashreplace")

    def _at(self, address: int) -> tuple[bytes, int]:
        """Return the page with an address, and its offset there. The next page may not exist."""
        number, start = divmod(address, _PAGE)
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) == MOST_PAGES:
                raise ValueError("its words lie in too many pages")
            page = self._pages[number] = os.pread(self._descriptor, _PAGE, number * _PAGE)
            if len(page) < _PAGE:
                raise ValueError("no end of a word")
        return page, start
