"""The event loop of egress, which connects to nothing but addresses that were checked.

It is separate from the addon so that the last step before a socket depends on no hook having run: without a pin, which only
an allowed verdict makes, every connection attempt of this process fails, and no name is ever looked up by it (so there is no
second look-up that could answer differently). mitmproxy dials through `asyncio.open_connection`, which is this loop's
`create_connection`.
"""

import asyncio
import socket
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

import uvloop

from supervisor.egress import addresses

CONNECT_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Pin:
    """What one host and port may be dialled at. `private_ok`: a rule names these addresses. `judged_at` is monotonic."""

    host: str
    port: int
    addresses: tuple[str, ...]
    private_ok: bool
    judged_at: float


# What the current task may dial; set by the addon right before mitmproxy connects, in the same task.
PIN: ContextVar[Pin | None] = ContextVar("PIN", default=None)


class PinnedLoop(uvloop.Loop):
    """uvloop that dials only the current task's pin."""

    forbidden: frozenset[tuple[str, int]] = frozenset()

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: Any = None, port: Any = None, **options: Any
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connect to the first pinned address that answers. `OSError` where there is none, or nothing may be dialled."""
        pin = PIN.get()
        if pin is None or (host, port) != (pin.host, pin.port) or options.get("local_addr") or options.get("sock"):
            raise OSError("nothing was allowed to be dialled here")
        last: OSError = OSError("the name has no address")
        for address in pin.addresses:
            # INVARIANT: the address that is dialled is the one that is checked here, as the literal that it is.
            why = addresses.refusal(address, pin.port, private_ok=pin.private_ok, forbidden=self.forbidden)
            if why is not None:
                raise OSError(why)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await super().create_connection(protocol_factory, address, pin.port)  # type: ignore[return-value]
            except TimeoutError:
                last = OSError("no answer in time")
            except OSError as error:
                last = error
        raise last

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Nothing is looked up by the loop: `resolver` does it once, before the verdict."""
        raise socket.gaierror("no name is looked up here")

    async def create_datagram_endpoint(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Egress speaks no UDP."""
        raise OSError("egress speaks no UDP")

    async def sock_connect(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Nothing connects but by `create_connection`."""
        raise OSError("nothing was allowed to be dialled here")
