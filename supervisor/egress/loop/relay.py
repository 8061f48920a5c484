"""The two ends of a connection, as asyncio protocols: first held, then joined.

`HeldEnd` keeps a bounded number of bytes and passes none on. `Tunnel` passes bytes both ways
without reading them, and upwards only as far as an allowance covers them. It decides only when a
tunnel is over. Any exception in a callback ends both ends (law 3).
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from supervisor.base import log
from supervisor.egress.loop.coarse_timeouts import wait
from supervisor.egress.loop.failures import where

# How much is kept while a connection is examined; a head and a ClientHello together are shorter.
MOST_HELD_BYTES = 192 * 1024
# How much of a refused client's input is read and dropped, and how long it gets to read the
# refusal. Further input waits in the kernel meanwhile.
MOST_DROPPED_BYTES = 1024 * 1024
FAREWELL_S = 2.0
# How much may wait for a slow reader before reading from its counterpart pauses.
MOST_WAITING_BYTES = 256 * 1024
# A tunnel ends when nothing moved for this many ticks.
TICK_S = 60.0
MOST_QUIET_TICKS = 10


class GoneError(Exception):
    """The other side closed the connection."""


def _cuts(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Make a callback fail closed: any exception cuts the connection."""

    @functools.wraps(callback)
    def run(self: "HeldEnd | _Relay", *args: Any) -> Any:
        try:
            return callback(self, *args)
        except Exception as error:
            self.cut()
            log.error("callback failed", callback=callback.__name__, error=where(error))
            return None

    return run


class HeldEnd(asyncio.Protocol):
    """One end while it is examined. `data` holds the bytes that arrived and weren't taken;
    `on_gone` is called when the other side goes away.

    Beyond the bound, bytes wait in the kernel where `can_wait`, until the next owner calls
    `resume_reading`; otherwise the connection is cut.
    """

    can_wait = False

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_gone = False
        self.is_lost = False
        self.on_gone: Callable[[], None] | None = None
        self._transport: asyncio.Transport | None = None
        self._changed: asyncio.Future[None] | None = None
        self._dropped_bytes: int | None = None

    @property
    def transport(self) -> asyncio.Transport:
        """Return the transport, which exists from the first callback on."""
        if self._transport is None:
            raise GoneError
        return self._transport

    @_cuts
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @_cuts
    def data_received(self, data: bytes) -> None:
        if self._dropped_bytes is None:
            self.data += data
            too_much = len(self.data) > MOST_HELD_BYTES
        else:
            self._dropped_bytes += len(data)
            too_much = self._dropped_bytes > MOST_DROPPED_BYTES
        if too_much and self.can_wait:
            self.transport.pause_reading()
        elif too_much:
            self.cut()
        self._wake()

    @_cuts
    def eof_received(self) -> bool:
        self._go()
        return True  # what it is told can still be written

    @_cuts
    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self._go()

    def cut(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    def end(self) -> None:
        """Close once all written data is sent, or after `FAREWELL_S`. Nobody counts this connection
        from here on, so a client that doesn't read must hold nothing."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(FAREWELL_S, self.transport.abort)

    async def more(self, by: float) -> None:
        """Wait until more bytes arrived. Raise `GoneError` where none will, `TimeoutError` where
        none did by this loop time."""
        known_bytes = len(self.data)
        if not self.is_gone:
            self._changed = changed = asyncio.get_running_loop().create_future()
            await wait(changed, by, functools.partial(changed.set_exception, TimeoutError))
        if self.is_gone and len(self.data) == known_bytes:
            raise GoneError

    def take(self, count: int | None = None) -> bytes:
        """Remove the first bytes and return them; all of them by default."""
        taken = bytes(self.data[:count])
        del self.data[: len(taken)]
        return taken

    def send(self, data: bytes) -> None:
        """Write, if the other side may still read."""
        if data and not self.is_lost and not self.transport.is_closing():
            self.transport.write(data)

    async def farewell(self, data: bytes) -> None:
        """Send the last words, and wait until the other side has read them, or `FAREWELL_S`."""
        self.data.clear()
        self.can_wait = True
        self._dropped_bytes = 0  # to hang up on unread bytes would turn what is said into a reset
        self.send(data)
        if self.transport.is_closing():
            return
        self.transport.resume_reading()
        self.transport.write_eof()
        by = in_s(FAREWELL_S)
        with contextlib.suppress(TimeoutError, GoneError):
            while True:
                await self.more(by)

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _go(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            self._wake()
            if self.on_gone is not None:
                self.on_gone()


def in_s(seconds: float) -> float:
    """Return the loop time in this many seconds."""
    return asyncio.get_running_loop().time() + seconds


class ClientEnd(HeldEnd):
    """The end of a client that was just accepted. `serve` begins to examine it."""

    can_wait = True

    def __init__(self, serve: Callable[["ClientEnd"], None]) -> None:
        super().__init__()
        self._serve = serve

    @_cuts
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._serve(self)


class Allowance(Protocol):
    """Covers the bytes that are sent up (`portions.BytesOut`)."""

    def use(self, count: int) -> bool:
        """Use this much up if it is covered. Return whether it was."""

    def draw(self, count: int) -> asyncio.Future[str]:
        """Ask for more. The future's result is why there is none, or empty once there is some."""


class _Relay(asyncio.Protocol):
    """One end of a tunnel: bytes read here are written at `other`. `is_full` while written bytes
    wait for their reader; `holds` while read bytes wait to be covered."""

    def __init__(self, tunnel: "Tunnel", other: asyncio.Transport) -> None:
        self.moved_bytes = 0
        self.is_at_end = False
        self.is_full = False
        self.holds = False
        self._tunnel = tunnel
        self._other = other

    def cut(self) -> None:
        self._tunnel.cut()

    @_cuts
    def data_received(self, data: bytes) -> None:
        self.moved_bytes += len(data)
        self._other.write(data)

    @_cuts
    def eof_received(self) -> bool:
        self.is_at_end = True
        # Deferred, so that ends with data in the same turn come first.
        asyncio.get_running_loop().call_soon(self._pass_end_on)
        return True

    @_cuts
    def _pass_end_on(self) -> None:
        if not self._other.is_closing():
            self._other.write_eof()
        self._tunnel.half_closed()

    @_cuts
    def pause_writing(self) -> None:
        self.is_full = True
        if not self._other.is_closing():
            self._other.pause_reading()

    @_cuts
    def resume_writing(self) -> None:
        self.is_full = False
        self._tunnel.read_on()

    @_cuts
    def connection_lost(self, error: Exception | None) -> None:
        self._tunnel.lost(error)


class _Counted(_Relay):
    """The client's end. INVARIANT: uncovered bytes aren't written. They are held, and reading
    pauses, until they are covered or the tunnel is cut."""

    def __init__(
        self,
        tunnel: "Tunnel",
        client: asyncio.Transport,
        other: asyncio.Transport,
        allowance: Allowance,
    ) -> None:
        super().__init__(tunnel, other)
        self._client = client
        self._allowance = allowance
        self._waiting = b""

    @_cuts
    def data_received(self, data: bytes) -> None:
        if not self.holds and self._allowance.use(len(data)):
            self.moved_bytes += len(data)
            self._other.write(data)
            return
        self._waiting += data
        if not self._client.is_closing():
            self._client.pause_reading()
        if not self.holds:
            self.holds = True
            self._draw()

    @_cuts
    def eof_received(self) -> bool:
        self.is_at_end = True
        return True if self.holds else super().eof_received()

    def _draw(self) -> None:
        self._allowance.draw(len(self._waiting)).add_done_callback(self._drawn)

    @_cuts
    def _drawn(self, found: asyncio.Future[str]) -> None:
        why = found.result()
        if why:
            self._tunnel.cut_over(why)
        elif not self._allowance.use(len(self._waiting)):
            self._draw()  # others were faster
        elif not self._other.is_closing():
            self.holds = False
            self.moved_bytes += len(self._waiting)
            self._other.write(self._waiting)
            self._waiting = b""
            if self.is_at_end:
                super().eof_received()
            self._tunnel.read_on()


class Moved(NamedTuple):
    """Bytes from a client to origins, and from origins to the client."""

    up_bytes: int = 0
    down_bytes: int = 0


class Tunnel:
    """Two joined ends. `over` is why an allowance didn't cover what the client sent, if the tunnel
    was cut for that."""

    def __init__(
        self,
        client: HeldEnd,
        origin: HeldEnd,
        allowance: Allowance,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
    ) -> None:
        self.over = ""
        self._transports = (client.transport, origin.transport)
        self._up = _Counted(self, client.transport, origin.transport, allowance)
        self._down = _Relay(self, client.transport)
        self._ends = ((client, self._up), (origin, self._down))
        self._why = ""
        self._open_ends = 2
        for transport in self._transports:
            transport.set_write_buffer_limits(high=most_waiting_bytes)
        self._is_over = asyncio.get_running_loop().create_future()
        self._moved_bytes = self._quiet_ticks = 0
        self._timer: asyncio.TimerHandle | None = None

    def moved(self) -> Moved:
        """Return how many bytes went over it so far."""
        return Moved(self._up.moved_bytes, self._down.moved_bytes)

    async def run(self) -> str:
        """Join the ends, pass held bytes on first, and wait for the end. Return why it ended. If
        cancelled, cut both ends."""
        try:
            for held, relay in self._ends:
                held.transport.set_protocol(relay)
            for held, relay in self._ends:
                self._begin(held, relay)
            self._tick()
            await self._is_over
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self.cut()
        return self._why

    def _begin(self, held: HeldEnd, relay: _Relay) -> None:
        """Process the bytes, and the close, that came while the end was held."""
        if held.data:
            relay.data_received(bytes(held.data))
        if held.is_lost:
            relay.connection_lost(None)
        elif held.is_gone:
            relay.eof_received()

    def cut(self, why: str = "cut off") -> None:
        """End both ends at once."""
        self._why = self._why or why
        for transport in self._transports:
            transport.abort()
        if not self._is_over.done():
            self._is_over.set_result(None)

    def cut_over(self, why: str) -> None:
        """End it because its allowance doesn't cover what the client sent."""
        self.over = why
        self.cut(why)

    def read_on(self) -> None:
        """Resume reading at each end, unless its counterpart is full or its bytes wait to be
        covered."""
        for transport, here, there in zip(
            self._transports, (self._up, self._down), (self._down, self._up), strict=True
        ):
            if not (here.holds or there.is_full or transport.is_closing()):
                transport.resume_reading()

    def half_closed(self) -> None:
        """End the tunnel once both sides have ended."""
        if self._up.is_at_end and self._down.is_at_end:
            self._close()

    def lost(self, error: Exception | None) -> None:
        """Handle the loss of one end: send what waits for the other, unless the lost end was
        reset."""
        self._open_ends -= 1
        if error is not None:
            self.cut("reset")
        else:
            self._close()
        if not self._open_ends and not self._is_over.done():
            self._is_over.set_result(None)

    def _close(self) -> None:
        self._why = self._why or "closed"
        for transport in self._transports:
            transport.close()

    def _tick(self) -> None:
        """Cut a tunnel in which nothing moved for long, for example because its reader never
        reads."""
        moved_bytes = sum(self.moved())
        self._quiet_ticks = 0 if moved_bytes != self._moved_bytes else self._quiet_ticks + 1
        self._moved_bytes = moved_bytes
        if self._quiet_ticks > MOST_QUIET_TICKS:
            self.cut("idle")
        else:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
