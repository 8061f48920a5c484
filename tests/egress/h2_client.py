"""An HTTP/2 client through the proxy that shows streams as they are: several at once, pieces as
they come, trailers, resets."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    AlternativeServiceAvailable,
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes

from tests.egress.egress_harness import PATIENCE_S, Proxy


@dataclass
class Stream:
    """What came of one request so far. `over`: it ended or was reset, by these codes."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)
    over: bool = False
    resets: list[int] = field(default_factory=list)


class H2Client:
    """One connection inside of CONNECT. `lost`: the other side ended the connection. `elsewhere`
    is how often it was sent to another service. What comes of a stream in `lies` isn't taken."""

    def __init__(
        self, authority: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._authority, self._reader, self._writer = authority, reader, writer
        config = H2Configuration(validate_outbound_headers=False, header_encoding="latin-1")
        self._h2 = H2Connection(config)
        self._h2.initiate_connection()
        self._streams: defaultdict[int, Stream] = defaultdict(Stream)
        self._changed = asyncio.Condition()
        self.lost = False
        self.elsewhere = 0
        self.lies: set[int] = set()
        self._flush()

    def take_up(self, number: int) -> None:
        """Take what lies of a stream, and what comes of it."""
        self.lies.discard(number)
        self._h2.acknowledge_received_data(len(self._streams[number].body), number)
        self._flush()

    def take_at_once(self, count: int) -> None:
        """So much of each stream may lie from now on, of those that there are already, too."""
        self._h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: count})
        self._flush()

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        end: bool = True,
        more: Iterable[tuple[str, str]] = (),
    ) -> tuple[int, Stream]:
        """Begin a request: its number and what will come of it."""
        number = self._h2.get_next_available_stream_id()
        pseudo = [
            (":method", method),
            (":scheme", "https"),
            (":authority", self._authority),
            (":path", path),
        ]
        self._h2.send_headers(number, [*pseudo, *more], end_stream=end)
        self._flush()
        return number, self._streams[number]

    def ask_and_reset(self, path: str) -> None:
        """A whole request and its reset, in one piece of what is sent."""
        number = self._h2.get_next_available_stream_id()
        fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", self._authority),
            (":path", path),
        ]
        self._h2.send_headers(number, fields, end_stream=True)
        self._h2.reset_stream(number)
        self._flush()

    def send(self, number: int, data: bytes, *, end: bool = False) -> None:
        self._h2.send_data(number, data, end_stream=end)
        self._flush()

    async def push(self, number: int, most_bytes: int, *, patience_s: float = 1.0) -> int:
        """Send zeros until nothing more is taken for so long, or so many were: how many were."""
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < most_bytes:
                async with asyncio.timeout(patience_s), self._changed:
                    await self._changed.wait_for(lambda: self.room(number) > 0)
                count = min(self.room(number), self._h2.max_outbound_frame_size)
                self.send(number, bytes(count))
                sent += count
                await self._writer.drain()
        return sent

    def send_trailers(self, number: int, trailers: list[tuple[str, str]]) -> None:
        self._h2.send_headers(number, trailers, end_stream=True)
        self._flush()

    def reset(self, number: int) -> None:
        self._h2.reset_stream(number)
        self._flush()

    def room(self, number: int) -> int:
        """How much of a body the other side takes for now."""
        return self._h2.local_flow_control_window(number)

    async def until(self, found: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: found() or self.lost)
        assert found(), "the connection was lost first"

    async def answered(self, path: str, **options: str) -> Stream:
        """A whole GET."""
        _, stream = self.ask(path, **options)
        await self.until(lambda: stream.over)
        return stream

    async def read(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(65536):
                for event in self._h2.receive_data(data):
                    self._take(event)
                self._flush()
                async with self._changed:
                    self._changed.notify_all()
        self.lost = True
        async with self._changed:
            self._changed.notify_all()

    def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())

    def _take(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            self.lost = True
            return
        if isinstance(event, AlternativeServiceAvailable):
            self.elsewhere += 1
            return
        stream = self._streams[getattr(event, "stream_id", 0) or 0]
        match event:
            case ResponseReceived():
                stream.headers = {str(name): str(value) for name, value in event.headers or ()}
                stream.status = int(stream.headers.get(":status", 0))
            case DataReceived():
                stream.body += event.data or b""
                if event.stream_id not in self.lies:
                    self._h2.acknowledge_received_data(
                        event.flow_controlled_length or 0, event.stream_id or 0
                    )
            case TrailersReceived():
                stream.trailers |= {str(name): str(value) for name, value in event.headers or ()}
            case StreamEnded():
                stream.over = True
            case StreamReset():
                stream.over = True
                stream.resets.append(int(event.error_code or 0))


@contextlib.asynccontextmanager
async def h2_client(proxy: Proxy, target: str, trust: Path) -> AsyncIterator[H2Client]:
    """`target` is host:port."""
    reader, writer = await proxy.tunnel(target, trust=trust, alpn=["h2"])
    client = H2Client(target, reader, writer)
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(client.read())
        try:
            yield client
        finally:
            reading.cancel()
            writer.close()
