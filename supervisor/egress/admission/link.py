"""The egress end of the control channel: packets and descriptors in, packets out.

It decides only two things. The channel ends with the supervisor: `on_end` is called once, then
nothing is sent. And a supervisor that doesn't read is asked no more questions.

INVARIANT: reports of outgoing traffic (`always`) are never dropped while there is a supervisor.
They are bounded all the same: while the queue is full, `questions` lets nothing new through, so
only running traffic is reported. The channel must never block the event loop.
"""

import array
import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable

import msgspec

from supervisor.core.network.egress_wire import (
    MAX_MESSAGE_BYTES,
    FromEgress,
    ToEgress,
    decode_to_egress,
    encode,
)

MOST_QUEUED = 4096
MOST_FDS = 4
# Packets handled before connections get their turn again.
PACKETS_PER_TURN = 64
# As plain numbers: arithmetic on the flag enums takes as long as handling the packet.
_CUT_OFF = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_FDS_BYTES = socket.CMSG_SPACE(MOST_FDS * array.array("i").itemsize)


class LinkDownError(Exception):
    """The supervisor is gone or doesn't read: everything is denied."""


class Link:
    """The channel, from construction until `on_end`. Every method runs in the event loop."""

    def __init__(
        self,
        sock: socket.socket,
        on_message: Callable[[ToEgress, list[int]], None],
        on_end: Callable[[], None],
    ) -> None:
        self._sock = sock
        self._on_message = on_message
        self._on_end = on_end
        self._queue: deque[bytes] = deque()
        self._buffer = memoryview(bytearray(MAX_MESSAGE_BYTES))
        self._loop = asyncio.get_running_loop()
        self._up = True
        sock.setblocking(False)
        self._loop.add_reader(sock, self._receive)

    @property
    def is_full(self) -> bool:
        """Return whether the supervisor reads too slowly, so that the queue is full."""
        return len(self._queue) >= MOST_QUEUED

    def send(self, message: FromEgress, *, always: bool = False) -> None:
        """Send or queue a message. Raise `LinkDownError` where the supervisor is gone, or where its
        queue is full and the message isn't `always` to be sent."""
        if not self._up:
            raise LinkDownError
        packet = encode(message)
        if not self._queue:
            try:
                self._sock.send(packet)
            except BlockingIOError:
                self._loop.add_writer(self._sock, self._flush)
            except OSError:
                self._end()
                raise LinkDownError from None
            else:
                return
        if self.is_full and not always:
            raise LinkDownError
        self._queue.append(packet)

    def _flush(self) -> None:
        try:
            while self._queue:
                self._sock.send(self._queue[0])
                self._queue.popleft()
        except BlockingIOError:
            return
        except OSError:
            self._end()
            return
        self._loop.remove_writer(self._sock)

    def _receive(self) -> None:
        for _ in range(PACKETS_PER_TURN):
            try:
                packet, fds = self._read()
            except BlockingIOError:
                return
            except OSError:
                self._end()
                return
            if not packet:
                self._end()
                return
            try:
                self._on_message(decode_to_egress(packet), fds)
            except msgspec.DecodeError:
                self._end()
            finally:
                for fd in fds:  # `_on_message` duplicates what it keeps
                    os.close(fd)
            if not self._up:
                return

    def _read(self) -> tuple[memoryview, list[int]]:
        length, ancillary, flags, _ = self._sock.recvmsg_into(
            [self._buffer], _FDS_BYTES, _CLOSE_ON_EXEC
        )
        if not ancillary and not flags & _CUT_OFF:
            return self._buffer[:length], []
        fds = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        if flags & _CUT_OFF:
            for fd in fds:
                os.close(fd)
            raise OSError("a message was cut off")
        return self._buffer[:length], list(fds)

    def _end(self) -> None:
        if not self._up:
            return
        self._up = False
        self._queue.clear()
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        self._on_end()
