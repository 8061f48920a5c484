"""An HTTP/2 origin over TLS that notes every request, every piece of a body and every reset, and
answers by the path.

    /                 200 and a greeting
    /trailers         200, a body, and the trailers of the request sent back with some of its own
    /echo             200 at once, then each piece of the request's body sent back as it comes,
                      until the client ends the stream
    /goaway           200, and GOAWAY: this connection takes no more streams
    /gone             no answer, and GOAWAY with the request's `authorization` as its debug data
    /leaving          GOAWAY once a second request came too, of which it takes those that came so
                      far; their answers are told by `answer_last`
    /enough           413 and a greeting once some of the body came; `refuse_more` resets the stream
                      then, as RFC 9113 8.1 has it
    /no-more          as /enough, and the stream reset in the same breath
    /open             200 and no end, until the client resets the stream
    /lies             as /, but nothing of the body is taken, so that no more of it may come, until
                      `take_up` or `hang_up`

It is h2 without anything on top, so that tests see frames and not what a framework makes of
them. It is on loopback.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import trustme
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame

from tests.fakes.waiting import PATIENCE_S

HELLO = b"hello over h2\n"

type Headers = list[tuple[bytes, bytes]]


@dataclass
class H2Origin:
    """`left` are connections that ended. `requests` are method and path as they arrived;
    `resets` the paths of streams that the client reset. `most_streams` are open at once on a
    connection that begins from now on."""

    port: int = 0
    connections: int = 0
    left: int = 0
    requests: list[str] = field(default_factory=list)
    received: bytearray = field(default_factory=bytearray)
    trailers: list[tuple[str, str]] = field(default_factory=list)
    resets: list[str] = field(default_factory=list)
    most_streams: int = 100
    lying: list[tuple["_Served", int]] = field(default_factory=list)
    leaving: list[tuple["_Served", int]] = field(default_factory=list)
    enough: list[tuple["_Served", int]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def untouched(self) -> bool:
        return self.connections == 0 and not self.requests

    def forget(self) -> None:
        self.connections = 0
        for noted in (self.requests, self.received, self.trailers, self.resets):
            noted.clear()

    def take_up(self) -> None:
        """Take what lies, and what comes from now on."""
        for served, stream_id in self.lying:
            served.take_up(stream_id)
        self.lying.clear()

    def answer_last(self) -> None:
        """Answer what was taken before the origin said that it goes away."""
        for served, stream_id in self.leaving:
            served.answer(stream_id)
        self.leaving.clear()

    async def until_left(self, count: int) -> None:
        await self._until(lambda: self.left == count)

    async def until_it_leaves(self) -> None:
        await self._until(lambda: len(self.leaving) == 2)

    def refuse_more(self) -> None:
        """Read no more of what was answered early."""
        for served, stream_id in self.enough:
            served.refuse_more(stream_id)
        self.enough.clear()

    def hang_up(self) -> None:
        """End the connections of what lies."""
        for served, _ in self.lying:
            served.hang_up()
        self.lying.clear()

    async def until_reset(self, path: str) -> None:
        await self._until(lambda: path in self.resets)

    async def until_one_lies(self) -> None:
        await self._until(lambda: bool(self.lying))

    async def _until(self, found: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(found)


class _Served:
    """One connection."""

    def __init__(
        self, origin: H2Origin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._origin, self._reader, self._writer = origin, reader, writer
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="latin-1"))
        self._paths: dict[int, str] = {}
        self._trailers: dict[int, Headers] = {}
        self._brought = b""
        self._lies = True

    def take_up(self, stream_id: int) -> None:
        self._lies = False
        self._h2.acknowledge_received_data(len(self._origin.received), stream_id)
        self._writer.write(self._h2.data_to_send())

    def hang_up(self) -> None:
        self._writer.transport.abort()

    def answer(self, stream_id: int) -> None:
        self._h2.send_headers(stream_id, [(":status", "200")])
        self._h2.send_data(stream_id, HELLO, end_stream=True)
        self._writer.write(self._h2.data_to_send())

    def refuse_more(self, stream_id: int) -> None:
        self._h2.reset_stream(stream_id, ErrorCodes.NO_ERROR)
        self._writer.write(self._h2.data_to_send())

    async def run(self) -> None:
        self._h2.initiate_connection()
        self._h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: self._origin.most_streams})
        await self._flush()
        while data := await self._reader.read(65536):
            for event in self._h2.receive_data(data):
                self._take(event)
            await self._flush()
            async with self._origin.changed:
                self._origin.changed.notify_all()

    async def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())
        await self._writer.drain()

    def _take(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._begin(event)
            case DataReceived():
                assert event.stream_id is not None
                self._origin.received += event.data or b""
                if not self._lies or self._paths[event.stream_id] != "/lies":
                    self._h2.acknowledge_received_data(
                        event.flow_controlled_length or 0, event.stream_id
                    )
                if self._paths[event.stream_id] == "/echo":
                    self._h2.send_data(event.stream_id, event.data or b"")
                if (path := self._paths[event.stream_id]) in ("/enough", "/no-more"):
                    self._paths[event.stream_id] = "/over"
                    self._h2.send_headers(event.stream_id, [(":status", "413")])
                    self._h2.send_data(event.stream_id, HELLO, end_stream=True)
                    if path == "/no-more":
                        self.refuse_more(event.stream_id)
                    else:
                        self._origin.enough.append((self, event.stream_id))
            case TrailersReceived():
                self._origin.trailers += [
                    (str(name), str(value)) for name, value in event.headers or ()
                ]
            case StreamReset():
                self._origin.resets.append(self._paths.get(event.stream_id or 0, ""))
            case StreamEnded():
                assert event.stream_id is not None
                self._end(event.stream_id)

    def _begin(self, event: RequestReceived) -> None:
        fields = {str(name): str(value) for name, value in event.headers or ()}
        assert event.stream_id is not None
        path = self._paths[event.stream_id] = fields.get(":path", "")
        self._origin.requests.append(f"{fields[':method']} {path}")
        self._brought = fields.get("authorization", "").encode()
        if path == "/lies":
            self._origin.lying.append((self, event.stream_id))
        if path in ("/echo", "/open"):
            self._h2.send_headers(event.stream_id, [(":status", "200")])

    def _end(self, stream_id: int) -> None:
        match self._paths[stream_id]:
            case "/open" | "/over":
                return
            case "/leaving":
                self._origin.leaving.append((self, stream_id))
                if len(self._origin.leaving) == 2:
                    # As it is on the wire: to h2 all would be over.
                    self._writer.write(GoAwayFrame(last_stream_id=stream_id).serialize())
            case "/echo":
                self._h2.end_stream(stream_id)
            case "/gone":
                self._h2.close_connection(additional_data=self._brought)
            case "/elsewhere":  # by a frame for the origin, by one for this stream, and by a header
                self._h2.advertise_alternative_service(b'h3=":443"', origin=b"https://origin.test")
                self._h2.advertise_alternative_service(b'h3=":443"', stream_id=stream_id)
                self._h2.send_headers(
                    stream_id, [(":status", "200"), ("alt-svc", 'h3=":443"'), ("x-kept", "1")]
                )
                self._h2.send_data(stream_id, HELLO, end_stream=True)
            case "/trailers":
                self._h2.send_headers(stream_id, [(":status", "200")])
                self._h2.send_data(stream_id, HELLO)
                self._h2.send_headers(
                    stream_id, [("grpc-status", "0"), *self._origin.trailers], end_stream=True
                )
            case path:
                length = ("content-length", str(len(HELLO)))
                self._h2.send_headers(
                    stream_id, [(":status", "200"), ("content-type", "text/plain"), length]
                )
                self._h2.send_data(stream_id, HELLO, end_stream=True)
                if path == "/goaway":
                    self._h2.close_connection()


@contextlib.asynccontextmanager
async def h2_origin(authority: trustme.CA, *names: str) -> AsyncIterator[H2Origin]:
    """Serves on a port of this machine, and speaks nothing but HTTP/2."""
    origin = H2Origin()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    context.set_alpn_protocols(["h2"])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        origin.connections += 1
        with contextlib.suppress(ConnectionError, ProtocolError):
            await _Served(origin, reader, writer).run()
        writer.close()
        async with origin.changed:
            origin.left += 1
            origin.changed.notify_all()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    origin.port = server.sockets[0].getsockname()[1]
    try:
        yield origin
    finally:
        server.close()
