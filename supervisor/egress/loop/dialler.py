"""The event loop of egress, which connects to checked addresses only.

The last step before a socket depends on no hook. Without a pin, which only an allowed verdict
makes, every connection attempt of this process fails. The loop never looks a name up, so no second
look-up can answer differently. mitmproxy dials through `asyncio.open_connection`, which uses this
loop's `create_connection`.
"""

import asyncio
import os
import socket
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

import uvloop

from supervisor.egress.loop import addresses
from supervisor.egress.loop.refusals import NOT_DIALLED
from supervisor.egress.loop.relay import GoneError

CONNECT_TIMEOUT_S = 15.0
# Sets of addresses for which the last one to answer is remembered.
MOST_ANSWERED = 1024


@dataclass(frozen=True, slots=True)
class Pin:
    """The addresses that one host and port may be dialled at. `private_ok`: a rule names these
    addresses. `judged_at` is monotonic."""

    host: str
    port: int
    addresses: tuple[str, ...]
    private_ok: bool
    judged_at: float


# The pin of the current task. The addon sets it right before mitmproxy connects in the same task.
PIN: ContextVar[Pin | None] = ContextVar("PIN", default=None)


type Waits = Callable[[Callable[[], None]], None]
"""Given what gives a connection up that is being dialled."""


class PinnedLoop(uvloop.Loop):
    """A uvloop that dials only the current task's pin."""

    forbidden: frozenset[tuple[str, int]] = frozenset()

    def __init__(self) -> None:
        super().__init__()
        self._answered: OrderedDict[tuple[int, tuple[str, ...]], str] = OrderedDict()

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        **options: Any,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connect to the first pinned address that answers. Raise `OSError` where none answers, or
        nothing may be dialled."""
        if options.get("local_addr") or options.get("sock"):
            raise OSError(NOT_DIALLED.why)
        return await self.hold(protocol_factory, await self.dial(host, port))

    async def dial(
        self, host: str, port: int, waits: Waits = lambda give_up: None
    ) -> socket.socket:
        """Return a bare socket to the first pinned address that answers; the caller closes it. The
        address that answered last is tried first. Raise `OSError` as above.

        `waits` is called each time that an address doesn't answer at once. Raise `GoneError` where
        that is given up.
        """
        pin = PIN.get()
        if pin is None or (host, port) != (pin.host, pin.port):
            raise OSError(NOT_DIALLED.why)
        last: OSError = OSError("the name has no address")
        in_order = self._in_order(pin)
        for address in in_order:
            # INVARIANT: the dialled address is the checked one, as a literal.
            why = addresses.refusal(
                address, pin.port, private_ok=pin.private_ok, forbidden=self.forbidden
            )
            if why is not None:
                raise OSError(why)
            try:
                sock = await self._connected(address, pin.port, waits)
            except TimeoutError:
                last = OSError("no answer in time")
            except OSError as error:
                last = error
            else:
                if address != in_order[0]:
                    self._note(pin, address)
                return sock
        raise last

    def _in_order(self, pin: Pin) -> tuple[str, ...]:
        """Return the pin's addresses, the one that answered last first. Each address that doesn't
        answer costs a connection `CONNECT_TIMEOUT_S`."""
        first = self._answered.get((pin.port, pin.addresses))
        return (
            pin.addresses
            if first is None
            else (first, *(one for one in pin.addresses if one != first))
        )

    def _note(self, pin: Pin, address: str) -> None:
        """Remember which address answered after others didn't."""
        self._answered[pin.port, pin.addresses] = address
        if len(self._answered) > MOST_ANSWERED:
            self._answered.popitem(last=False)

    async def hold[One: asyncio.BaseProtocol](
        self, protocol_factory: Callable[[], One], sock: socket.socket
    ) -> tuple[asyncio.BaseTransport, One]:
        """Hand a dialled socket over to a protocol. From here on, only the transport owns it.

        INVARIANT: nobody else keeps the socket. uvloop stores it beside its own handle. When a
        connection is garbage-collected, both would close the descriptor, and by the second time its
        number may belong to another client.
        """
        try:
            held = await super().create_connection(protocol_factory, sock=sock)
        except BaseException:
            sock.close()
            raise
        sock.detach()
        return held  # type: ignore[return-value]

    async def _connected(self, address: str, port: int, waits: Waits) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        socket.inet_pton(family, address)  # `OSError` for anything that `connect` would look up
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            if not _is_connected(sock, address, port):
                await self._until_connected(sock, waits)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _until_connected(self, sock: socket.socket, waits: Waits) -> None:
        connected = self.create_future()

        def give_up() -> None:
            if not connected.done():
                connected.set_exception(GoneError)

        def answered() -> None:
            if not connected.done():
                connected.set_result(None)

        waits(give_up)
        self.add_writer(sock, answered)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await connected
        finally:
            self.remove_writer(sock)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: `resolver` looks a name up once, before the verdict."""
        raise socket.gaierror("no name is looked up here")

    async def create_datagram_endpoint(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: egress speaks no UDP."""
        raise OSError("egress speaks no UDP")

    async def sock_connect(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: only `create_connection` connects."""
        raise OSError(NOT_DIALLED.why)


def _is_connected(sock: socket.socket, address: str, port: int) -> bool:
    """Start to connect, or poll a running attempt. Return whether it is connected. Raise `OSError`
    where it failed."""
    try:
        sock.connect((address, port))
    except BlockingIOError:
        return False
    return True
