"""The supervisor's end of the control channel: packets and descriptors out.

It decides only when the channel is over: an egress that is gone, doesn't read or sends unreadable
messages is cut off, since a message that it misses is never an allow. It must never block the event
loop.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable

import msgspec

from supervisor.base import log
from supervisor.core.network.egress_wire import (
    MAX_MESSAGE_BYTES,
    FromEgress,
    ToEgress,
    decode_from_egress,
    encode,
)

MOST_QUEUED = 4096
# Packets handled before everything else gets its turn again.
PACKETS_PER_TURN = 64
# How often it is checked whether queued messages were read.
LOOK_S = 0.01


class Channel:
    """One per egress process. `on_pause` is called after the last of the messages that came at
    once. An exception in either callback ends the channel, and is raised again by `read`."""

    def __init__(
        self,
        sock: socket.socket,
        on_message: Callable[[FromEgress], None],
        on_pause: Callable[[], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._on_message = on_message
        self._on_pause = on_pause
        self._queue: deque[tuple[bytes, int | None]] = deque()
        self._buffer = memoryview(bytearray(MAX_MESSAGE_BYTES))
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._is_up = True
        self._is_waiting = False

    def send(self, message: ToEgress, listener: socket.socket | None = None) -> None:
        """Send or queue a message. End a process that doesn't read."""
        if not self._is_up:
            return
        # A copy: the listener may be closed before its turn comes.
        fd = None if listener is None else listener.dup().detach()
        try:
            self._queue.append((encode(message), fd))
        except ValueError:
            _close_fd(fd)
            self._give_up(message)
            return
        if len(self._queue) > MOST_QUEUED:
            self._give_up(message)
        elif len(self._queue) == 1:
            self._flush()

    async def sent(self) -> None:
        """Yield to others, and give egress time to read the queue: otherwise a sender of thousands
        of messages would take egress for one that doesn't read."""
        await asyncio.sleep(0)
        while self._queue and self._is_up:  # noqa: ASYNC110  # nothing else waits for it
            await asyncio.sleep(LOOK_S)

    async def read(self) -> None:
        """Hand over incoming messages, until the end."""
        self._loop.add_reader(self._sock, self._receive)
        try:
            await self._ended
        finally:
            self._loop.remove_reader(self._sock)

    def cut(self) -> None:
        """End the channel, and thereby the process."""
        self._is_up = False
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Send nothing any more."""
        self._is_up = False
        self._loop.remove_writer(self._sock)
        while self._queue:
            _close_fd(self._queue.popleft()[1])
        self._sock.close()

    def _give_up(self, message: ToEgress) -> None:
        log.error("egress does not read", message=type(message).__name__)
        self.cut()

    def _flush(self) -> None:
        try:
            while self._queue:
                packet, fd = self._queue[0]
                if fd is None:
                    self._sock.send(packet)
                else:
                    socket.send_fds(self._sock, [packet], [fd])
                self._queue.popleft()
                _close_fd(fd)
        except BlockingIOError:
            self._is_waiting = True
            self._loop.add_writer(self._sock, self._flush)
            return
        except OSError:
            self.cut()
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._sock)

    def _receive(self) -> None:
        try:
            self._take_in()
            self._on_pause()
        except OSError:
            self._end()
        except msgspec.DecodeError:
            log.error("egress sent a message that can't be read")
            self._end()
        except Exception as error:
            self._end(error)

    def _take_in(self) -> None:
        for _ in range(PACKETS_PER_TURN):
            try:
                length = self._sock.recv_into(self._buffer)
            except BlockingIOError:
                return
            if not length:
                self._end()
                return
            self._on_message(decode_from_egress(self._buffer[:length]))

    def _end(self, error: Exception | None = None) -> None:
        self._loop.remove_reader(self._sock)
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)


def _close_fd(fd: int | None) -> None:
    if fd is not None:
        socket.close(fd)
