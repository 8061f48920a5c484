"""Give this terminal to an agent whose supervisor is another process.

Keys go there, and the agent's output comes here. The terminal is restored in any case.
"""

import asyncio
import contextlib
import os
import signal
import struct
import sys
import termios
import tty
from collections.abc import Iterator

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidHandshake

from supervisor.cli.common.client import Client
from supervisor.errors import UserError

# As `server.terminals` reads them.
_KEYS, _SIZE = b"k", b"s"
_READ_BYTES = 2048
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def give_to(client: Client, session_id: str) -> None:
    """Give the terminal away until the agent is done, or the supervisor is gone, which the next
    call reports. Raise `KeyboardInterrupt` where a signal ended it."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        with asyncio.Runner() as runner:
            runner.run(_relay(client, session_id))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _relay(client: Client, session_id: str) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    try:
        # No ping: a terminal that pauses for a while is no lost connection.
        async with connect(
            f"ws://127.0.0.1:{client.port}/ws/sessions/{session_id}/terminal",
            additional_headers=client.authorization,
            compression=None,
            max_size=None,
            ping_interval=None,
            proxy=None,
        ) as connection:
            with _raw(sys.stdin.fileno()):
                await _until_over(connection, stopped)
    except (OSError, InvalidHandshake) as error:
        raise UserError(
            f"the supervisor on port {client.port} can't take this terminal",
            "run it with its output to a pipe: `| cat`",
        ) from error
    if stopped.is_set():
        raise KeyboardInterrupt


async def _until_over(connection: ClientConnection, stopped: asyncio.Event) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            printing, stopping = (
                tasks.create_task(_print(connection)),
                tasks.create_task(stopped.wait()),
            )
            typing = tasks.create_task(_send_typed(connection))
            # Typing ends only with the connection, and the printing task notices its end.
            await asyncio.wait({printing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (printing, stopping, typing):
                task.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _print(connection: ClientConnection) -> None:
    try:
        while True:
            data = await connection.recv(decode=False)
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    except ConnectionClosedOK:
        return
    except ConnectionClosed as closed:
        if closed.rcvd is not None and closed.rcvd.code >= 4000:
            raise UserError(closed.rcvd.reason, "see `gatehouse sessions`") from closed


async def _send_typed(connection: ClientConnection) -> None:
    """Send keys and sizes, in order."""
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()
    waiting: asyncio.Queue[bytes] = asyncio.Queue()

    def resized() -> None:
        with contextlib.suppress(OSError):  # a terminal that hung up
            size = os.get_terminal_size(stdin)  # not shutil's, which believes COLUMNS
            waiting.put_nowait(_SIZE + struct.pack("!HH", size.lines, size.columns))

    def typed() -> None:
        try:
            data = os.read(stdin, _READ_BYTES)
        except OSError:
            data = b""
        if data:
            waiting.put_nowait(_KEYS + data)
        else:
            loop.remove_reader(stdin)  # a terminal that hung up; the signal that says so comes, too

    loop.add_reader(stdin, typed)
    loop.add_signal_handler(signal.SIGWINCH, resized)
    try:
        resized()
        with contextlib.suppress(ConnectionClosed):
            while True:
                await connection.send(await waiting.get())
    finally:
        loop.remove_reader(stdin)
        loop.remove_signal_handler(signal.SIGWINCH)


@contextlib.contextmanager
def _raw(stdin: int) -> Iterator[None]:
    before = termios.tcgetattr(stdin)
    tty.setraw(stdin, termios.TCSADRAIN)  # what was typed ahead is kept
    try:
        yield
    finally:
        with contextlib.suppress(termios.error, OSError):  # a terminal that hung up
            termios.tcsetattr(stdin, termios.TCSADRAIN, before)
