"""Pool of copying processes, or one thread where there are few files.

It drives `copying`. It must never leave a process behind, or take a process's silent end for a
finished copy.
"""

import asyncio
import contextlib
import errno
import json
import os
import socket
import sys
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from supervisor.base.event_loop import to_end
from supervisor.base.process import spawn
from supervisor.settings import for_our_python
from supervisor.workspace.copy import copying
from supervisor.workspace.copy.copying import Copied, Copier, FolderBatch

PROGRAM = Path(copying.__file__)
# A process takes 20 ms to start; a thread copies this many files meanwhile.
FEW_FILES = 1500
MOST_PROCESSES = 4
# Files per request, and requests in flight per process.
PIECE_FILES = 500
UNDER_WAY = 2
LONGEST_LINE_BYTES = 64 << 20


class CopyFolders(NamedTuple):
    """Descriptors of the workspace and the copy's folder, and the (device, inode) pairs that are
    out of bounds."""

    workspace: int
    target: int
    forbidden: tuple[tuple[int, int], ...]


class CopyTask(NamedTuple):
    """Some leaves of some folders of `root` (a resolved path; "": the workspace), and where below
    the copy they go."""

    root: str
    prefix: str
    groups: list[FolderBatch]
    into_baseline: bool

    @property
    def files(self) -> int:
        """Return the number of leaves."""
        return sum(len(leaves) for _, leaves in self.groups)


def pieces(
    groups: Sequence[FolderBatch], root: str = "", prefix: str = "", *, into_baseline: bool
) -> list[CopyTask]:
    """Split into pieces of PIECE_FILES, in order."""
    out: list[CopyTask] = []
    room = 0
    for folder, leaves in groups:
        for at in range(0, len(leaves) or 1, PIECE_FILES):
            part = leaves[at : at + PIECE_FILES]
            if room < len(part) + 1 or not out:
                out.append(CopyTask(root, prefix, [], into_baseline))
                room = PIECE_FILES + 1
            out[-1].groups.append((folder, part))
            room -= len(part) + 1
    return out


async def copy_all(
    work: Sequence[CopyTask],
    place: CopyFolders,
    done: Callable[[CopyTask, Copied], None],
    tell: Callable[[int], object],
) -> None:
    """Copy all pieces. Call `done` with each outcome, `tell` with the bytes copied so far of a
    large one.

    Raise OSError where copying can't go on. Copied files stay, and no process is left running.
    """
    waiting = deque(work)
    number = min(os.process_cpu_count() or 1, MOST_PROCESSES, len(waiting))
    if number < 2 or sum(piece.files for piece in waiting) < FEW_FILES:
        loop = asyncio.get_running_loop()
        copier = Copier(place.workspace, place.target, place.forbidden)
        for piece in waiting:
            done(piece, await to_end(lambda piece=piece: _copy_here(copier, piece, loop, tell)))  # type: ignore[misc]
        return
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(number):
                tasks.create_task(_drive(waiting, place, done, tell))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


def _copy_here(
    copier: Copier, piece: CopyTask, loop: asyncio.AbstractEventLoop, tell: Callable[[int], object]
) -> Copied:
    return copier.copy(
        piece.root, piece.prefix, piece.groups, lambda size: loop.call_soon_threadsafe(tell, size)
    )


async def _drive(
    waiting: deque[CopyTask],
    place: CopyFolders,
    done: Callable[[CopyTask, Copied], None],
    tell: Callable[[int], object],
) -> None:
    """Give pieces to one process until there are none left."""
    ours, theirs = socket.socketpair()
    passed = (theirs.fileno(), place.workspace, place.target)
    try:
        child = await spawn(
            [
                sys.executable,
                "-I",
                "-S",
                PROGRAM,
                *map(str, passed),
                msgspec.json.encode(place.forbidden).decode(),
            ],
            env=for_our_python(),
            pass_fds=passed,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    try:
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=LONGEST_LINE_BYTES)
        under_way: deque[CopyTask] = deque()
        with contextlib.closing(writer):
            while waiting or under_way:
                while waiting and len(under_way) < UNDER_WAY:
                    piece = waiting.popleft()
                    writer.write(_line(piece))
                    under_way.append(piece)
                done(under_way[0], await _answer(reader, tell))
                under_way.popleft()
    finally:
        await child.end()


def _line(piece: CopyTask) -> bytes:
    # By the standard library: names that aren't UTF-8 contain lone surrogates, which msgspec
    # refuses.
    return json.dumps([piece.root, piece.prefix, piece.groups]).encode() + b"\n"


async def _answer(reader: asyncio.StreamReader, tell: Callable[[int], object]) -> Copied:
    while True:
        try:
            line = await reader.readuntil(b"\n")
            answer: dict[str, Any] = json.loads(line)
            if "bytes" in answer:
                tell(answer["bytes"])
                continue
            if "errno" in answer:
                raise OSError(answer["errno"], answer["why"])
            rows = array("q", await reader.readexactly(answer["rows"] * 8))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise OSError(errno.EIO, "a process that copied ended before it was done") from error
        links, folders, skipped, size = answer["copied"]
        return Copied(
            rows,
            links,
            [(path, mode) for path, mode in folders],
            [(p, why) for p, why in skipped],
            size,
        )
