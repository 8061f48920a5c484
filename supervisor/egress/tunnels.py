"""Tunnels: dial an allowed CONNECT, check that it is TLS to its host, and join.

    dial -> 200 -> ClientHello -> its server name -> the origin's first record -> (another
    ClientHello, its server name) -> join

It decides only whether a client's first message is TLS to the host of its CONNECT. INVARIANT: no
byte of the client reaches the origin before that. An origin may ask for a second hello in the
clear, so the client's bytes wait for the origin's answer.
"""

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable

import msgspec

from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import Answer
from supervisor.egress.admission.admission import Admission
from supervisor.egress.admission.egress_sessions import ClientConnection, Kind
from supervisor.egress.admission.portions import BytesOut
from supervisor.egress.early_connect import Likely
from supervisor.egress.loop import refusals
from supervisor.egress.loop.dialler import PIN, PinnedLoop
from supervisor.egress.loop.refusals import RefusalBody, RefusedConnectionError
from supervisor.egress.loop.relay import MOST_WAITING_BYTES, GoneError, HeldEnd, Tunnel, in_s
from supervisor.egress.protocols import checks
from supervisor.egress.protocols.client_hello import (
    RETRY_BYTES,
    HelloError,
    HelloReader,
    asks_again,
)

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
# How long a client may take for its first TLS message once its tunnel is open, and an origin for
# its answer.
HELLO_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 60.0
# Fatal alerts `unrecognized_name` and `decode_error`: RFC 8446 6.2.
_WRONG_NAME = b"\x15\x03\x03\x00\x02\x02\x70"
_NOT_READABLE = b"\x15\x03\x03\x00\x02\x02\x32"
_TLS_HANDSHAKE = 22


class Tunnels:
    """One per process."""

    def __init__(self, admission: Admission, likely: Likely) -> None:
        self._admission = admission
        self._likely = likely

    async def run(
        self,
        client: HeldEnd,
        connection: ClientConnection,
        action: Network,
        allowed: Answer,
        established: bytes,
        *,
        is_raw: bool = False,
    ) -> str:
        """Serve an admitted CONNECT to its end. Return why it ended. Raise `RefusedConnectionError`
        where it never became a tunnel.

        `established` is sent once the tunnel is open. It is empty where the client knows of no
        tunnel, or was told before. `is_raw`: it speaks what it likes, to this machine.
        """
        await self._take(connection, "requests", 1)
        sock = await self._dial(client, connection, action)
        try:
            self._likely.reached(connection.session, action, allowed)
            connection.cut_origin = client.on_gone = functools.partial(_shut_down, sock)
            if client.is_gone:
                raise GoneError
            client.send(established)
            hello = b"" if is_raw else await self._hello(client, connection, action, HelloReader())
            if client.transport.is_closing():
                # cut in this very turn of the loop; its callbacks run in the next
                raise GoneError
            # Sent at once, so that the origin works while the transport is made.
            left = _send_at_once(sock, hello)
        except BaseException:
            sock.close()
            raise
        _, origin = await _loop().hold(HeldEnd, sock)
        connection.cut_origin = client.on_gone = origin.cut
        try:
            if client.is_gone:
                raise GoneError
            origin.send(left)
            # Made while the origin works, so that its answer waits for nothing.
            tunnel = Tunnel(
                client,
                origin,
                BytesOut(self._admission.allowances, connection.session),
                connection.session.each_may_hold(MOST_WAITING_BYTES),
            )
            connection.in_tunnel = tunnel.moved
            if not is_raw:
                await self._greet(client, origin, connection, action)
            try:
                return await tunnel.run()
            finally:
                connection.cut_for = connection.cut_for or tunnel.over
        finally:
            origin.cut()

    async def _dial(
        self, client: HeldEnd, connection: ClientConnection, action: Network
    ) -> socket.socket:
        """Connect to a checked address. Raise `GoneError` where the client's connection ends first;
        dialling then stops."""
        if client.is_gone or client.transport.is_closing():
            raise GoneError

        def waits(give_up: Callable[[], None]) -> None:
            connection.cut_origin = client.on_gone = give_up

        # Only `PinnedLoop.dial` in this task sees it.
        PIN.set(connection.pins.get((action.host, action.port)))
        try:
            return await _loop().dial(action.host, action.port, waits)
        except OSError as error:
            self._admission.unreachable(connection, action.host)
            why = f"`{action.host}` port {action.port} can't be reached: {error.strerror or error}"
            raise RefusedConnectionError(
                RefusalBody(error="unreachable", why=why, remedy="check host and port"), 502
            ) from None
        finally:
            PIN.set(None)

    async def _greet(
        self, client: HeldEnd, origin: HeldEnd, connection: ClientConnection, action: Network
    ) -> None:
        """Wait for the origin's answer to the hello. If it asks for another hello, pass that, and
        nothing else."""
        by = in_s(ANSWER_TIMEOUT_S)
        try:
            while (again := asks_again(bytes(origin.data[:RETRY_BYTES]))) is None:
                await origin.more(by)
        except GoneError:
            if client.is_gone:
                raise
            raise self._refused(
                connection, action, "the origin ended the connection before it answered", b""
            ) from None
        except TimeoutError:
            raise self._refused(
                connection, action, "the origin gave no answer in time", b""
            ) from None
        except HelloError as error:
            raise self._refused(connection, action, str(error), _NOT_READABLE) from None
        if again:
            answer = origin.take()
            connection.down_bytes += len(answer)
            client.send(answer)
            origin.send(await self._hello(client, connection, action, HelloReader(is_second=True)))

    async def _hello(
        self, client: HeldEnd, connection: ClientConnection, action: Network, reader: HelloReader
    ) -> bytes:
        """Return a ClientHello that may be sent on: its server name is checked, and the allowance
        covers it."""
        by = in_s(HELLO_TIMEOUT_S)
        try:
            while (hello := reader.read(client.data)) is None:
                await client.more(by)
        except TimeoutError:
            raise self._refused(
                connection, action, "no TLS came in time; only TLS is tunnelled", b""
            ) from None
        except HelloError as error:
            raise self._not_tls(client, connection, action, str(error)) from None
        why = checks.tunnelled_name(hello.server_name, action.host)
        if why is not None:
            named = msgspec.structs.replace(action, sni=hello.server_name)
            raise self._refused(connection, named, why, _WRONG_NAME)
        await self._take(connection, "bytes_out", hello.length)
        connection.up_bytes += hello.length
        return client.take(hello.length)

    async def _take(self, connection: ClientConnection, kind: Kind, count: int) -> None:
        """Use up this much of the session's allowance. Raise `RefusedConnectionError` where it
        isn't covered."""
        denied = await self._admission.allowances.take(connection.session, kind, count)
        if denied is not None:
            raise RefusedConnectionError(refusals.of_answer(denied))

    def _not_tls(
        self, client: HeldEnd, connection: ClientConnection, action: Network, why: str
    ) -> RefusedConnectionError:
        """Return the refusal for a client that doesn't speak TLS, in its own protocol if that is
        known."""
        if client.data[:1] == bytes([_TLS_HANDSHAKE]):
            return self._refused(connection, action, why, _NOT_READABLE)
        why = f"{why}: only TLS is tunnelled"
        # Text is answered with text: an HTTP client reads it as the response to its request.
        is_text = client.data[:1].isalpha()
        return self._refused(connection, action, why, None if is_text else b"")

    def _refused(
        self, connection: ClientConnection, action: Network, why: str, said: bytes | None
    ) -> RefusedConnectionError:
        self._admission.refused(connection, action, why)
        remedy = f"for HTTP in the clear a rule that looks inside is needed, e.g. `network(* http://{action.host}:{action.port}/**)`"
        return RefusedConnectionError(RefusalBody(why=why, remedy=remedy), said=said)


def _loop() -> PinnedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PinnedLoop)
    return loop


def _send_at_once(sock: socket.socket, data: bytes) -> bytes:
    """Send as much as possible without waiting. Return the rest: all of it where the other side is
    gone."""
    try:
        return data[sock.send(data) :]
    except OSError:
        return data


def _shut_down(sock: socket.socket) -> None:
    """Shut a connection down. The socket's owner still has to close it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
