"""An agent's terminal for the CLI that started it, over a WebSocket.

Keys and sizes come in, and the agent's output goes out. It passes the operator's door like every
call, and accepts only the CLI's token: no page types into a terminal. Output comes from the stored
copy, so a stalled terminal delays nobody but itself. When the CLI goes away, the agent has no
terminal any more, and its session is ended.
"""

import asyncio
import contextlib
import os
import struct
from typing import Any

from litestar import WebSocket, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.handlers import WebsocketRouteHandler
from litestar.params import FromPath

from supervisor.core.sessions import Session
from supervisor.errors import NotFoundError
from supervisor.parts import Parts

# First byte of a message from the CLI.
KEYS, SIZE = b"k", b"s"
GONE = "the terminal that the agent had is gone"
# RFC 6455 leaves 4000 and up to applications.
CLOSE_REFUSED, CLOSE_UNKNOWN, CLOSE_TAKEN = 4403, 4404, 4409
# Retry interval for a program that reads no keys.
FULL_PAUSE_S = 0.02


class Terminals:
    """One per operator's app."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._wakes: dict[str, asyncio.Event] = {}
        parts.sessions.on_output(lambda session_id, data: self._wake(session_id))
        parts.sessions.on_change(lambda session: self._wake(session.id))

    def handler(self) -> WebsocketRouteHandler:
        """Return the route."""

        @websocket("/ws/sessions/{session_id:str}/terminal", name="terminal")
        async def terminal(socket: WebSocket[Any, Any, Any], session_id: FromPath[str]) -> None:
            await socket.accept()
            code, why = await self._serve(socket, session_id)
            with contextlib.suppress(Exception):  # it may be gone already, and that is as good
                await socket.close(code, why)

        return terminal

    async def _serve(self, socket: WebSocket[Any, Any, Any], session_id: str) -> tuple[int, str]:
        """Serve until the agent is done or the CLI is gone. Return how to close the connection."""
        if socket.scope["state"]["caller"].via != "cli":
            return CLOSE_REFUSED, "only the CLI can use a terminal"
        try:
            self._parts.sessions.get(session_id)
        except NotFoundError as error:
            return CLOSE_UNKNOWN, error.message
        if session_id in self._wakes:
            return CLOSE_TAKEN, "the session's terminal is taken"
        self._wakes[session_id] = asyncio.Event()
        try:
            is_over = await self._relay(socket, session_id)
        finally:
            del self._wakes[session_id]
        if not is_over:
            await self._parts.sessions.stop(session_id, reason=GONE, by="operator (cli)")
        return 1000, ""

    async def _relay(self, socket: WebSocket[Any, Any, Any], session_id: str) -> bool:
        """Return whether the agent was done first."""
        async with asyncio.TaskGroup() as tasks:
            printing = tasks.create_task(self._print(socket, session_id))
            typing = tasks.create_task(self._type(socket, session_id))
            await asyncio.wait({printing, typing}, return_when=asyncio.FIRST_COMPLETED)
            is_over = printing.done() and not printing.cancelled() and printing.result()
            printing.cancel()
            typing.cancel()
        return is_over

    async def _print(self, socket: WebSocket[Any, Any, Any], session_id: str) -> bool:
        """Send everything that the agent prints, unchanged. Return whether that was all."""
        offset, wake = 0, self._wakes[session_id]
        try:
            while True:
                wake.clear()
                is_last = _is_done(self._parts.sessions.get(session_id))
                data, offset = self._parts.sessions.output(session_id, offset)
                if data:
                    await socket.send_bytes(data)
                elif is_last:
                    return True
                else:
                    await wake.wait()
        except Exception:  # whatever a lost connection raises: each server has its own
            return False

    async def _type(self, socket: WebSocket[Any, Any, Any], session_id: str) -> None:
        """Handle keys and sizes, until the CLI is gone."""
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                message = await socket.receive_data(mode="binary")
                kind, data = message[:1], message[1:]
                if kind == KEYS:
                    await self._write(session_id, data)
                elif kind == SIZE and len(data) == struct.calcsize("!HH"):
                    self._parts.sessions.resize(session_id, *struct.unpack("!HH", data))

    async def _write(self, session_id: str, data: bytes) -> None:
        while data:
            running = self._parts.sessions.running(session_id)
            if running is None or running.master_fd is None:
                return
            try:
                data = data[os.write(running.master_fd, data) :]
            except BlockingIOError:
                await asyncio.sleep(FULL_PAUSE_S)
            except OSError:  # nobody has it open any more
                return

    def _wake(self, session_id: str) -> None:
        wake = self._wakes.get(session_id)
        if wake is not None:
            wake.set()


def _is_done(session: Session) -> bool:
    return session.agent_exited_at is not None or session.ended_at is not None
