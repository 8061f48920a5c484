"""Intake of webhooks: bounded, verified, stored, answered. Nothing is believed or done here.

The door is an ASGI app of its own: a signature covers the raw bytes, so nothing else may read them
first. INVARIANT: a webhook answered with 202 is in the database (law 7).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import zstandard
from sqlalchemy import Engine

from supervisor.base import log
from supervisor.base.clock import Clock
from supervisor.core.text.numbers import whole_number
from supervisor.errors import GatehouseError, UserError
from supervisor.reviews.core import deliveries
from supervisor.reviews.store import queries

IGNORED = "ignored"
# How long a whole webhook may take to arrive.
BODY_S = 20.0
# How many webhooks may be arriving at once, and how many bytes of them may be held. Their senders
# aren't authenticated yet.
MOST_BODIES = 64
MOST_HELD_BYTES = 32 * 1024 * 1024


class WebhookAnswer(NamedTuple):
    """The answer to a webhook: HTTP's status, and the outcome in a word."""

    status: int
    outcome: str


type TakeWebhook = Callable[[dict[str, str], bytes], WebhookAnswer]


class WebhookDoor(NamedTuple):
    """What takes the webhooks of one path: `signature` is the header that has it, `receive` takes
    headers (in lower case) and the raw body."""

    signature: str
    receive: TakeWebhook


class Intake:
    """Receives one forge's webhooks for one supervisor. `wake` is called once there is something to
    handle."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        reader: deliveries.WebhookReader,
        secret: bytes,
        wake: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._reader = reader
        self._secret = secret
        self._wake = wake
        self._pack = zstandard.ZstdCompressor(level=3)

    @property
    def door(self) -> WebhookDoor:
        """Return the door of this forge's webhooks."""
        return WebhookDoor(self._reader.signature, self.receive)

    def receive(self, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Take one delivery of the forge; `headers` by their names in lower case. Raise `UserError`
        for anything else."""
        signature = headers.get(self._reader.signature, "")
        if not deliveries.is_signed(self._secret, body, signature):
            return WebhookAnswer(401, deliveries.UNSIGNED)
        return self.take(self._reader.head(headers), body)

    def take(self, head: deliveries.Webhook, body: bytes) -> WebhookAnswer:
        """Take an event whose sender is known. Raise `UserError` if it is none."""
        payload = deliveries.read_body(body)
        is_known = head.event in self._reader.events
        now = self._clock.now()
        facts = {
            "forge": self._reader.forge,
            "delivery_id": head.delivery_id,
            "event": head.event,
            "action": self._reader.action(head, payload),
            "repository": deliveries.repository_name(payload),
            "number": self._reader.number(payload),
            "received_at": now,
            # An ignored delivery is recorded, but nobody reads its body.
            "payload": self._pack.compress(body) if is_known else b"",
            "handled_at": None if is_known else now,
            "outcome": "" if is_known else IGNORED,
        }
        with self._engine.begin() as connection:
            is_wanted = queries.add_delivery(connection, **facts)
        if not is_known:
            return WebhookAnswer(202, IGNORED)
        if not is_wanted:
            return WebhookAnswer(202, "duplicate")
        self._wake()
        return WebhookAnswer(202, "stored")


class WebhookApp:
    """Serves `POST /FORGE` for each forge of `doors`."""

    def __init__(self, doors: Mapping[str, WebhookDoor]) -> None:
        self._doors = {f"/{name}": one for name, one in doors.items()}
        self._arriving: dict[asyncio.Timeout, bytearray] = {}
        self.state: dict[str, Any] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/health" and scope["method"] == "GET":
            await _answer(send, 200, "ok")
        elif scope["path"] not in self._doors:
            places = ", ".join(self._doors)
            await _answer(send, 404, f"nothing is here: webhooks go to {places}")
        elif scope["method"] != "POST":
            await _answer(send, 405, "webhooks are posted")
        else:
            await self._webhook(self._doors[scope["path"]], scope, receive, send)

    async def _webhook(self, door: WebhookDoor, scope: Any, receive: Any, send: Any) -> None:
        named = scope["headers"]
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in named}
        if not deliveries.is_signature(headers.get(door.signature, "")):
            await _answer(send, 401, deliveries.UNSIGNED)
            return
        try:
            async with asyncio.timeout(BODY_S) as patience:
                body = await self._body(headers, receive, patience)
        except TimeoutError:
            await _answer(send, 408, "the webhook took too long to arrive")
            return
        if body is None:
            await _answer(send, 413, f"a webhook has {deliveries.MOST_BYTES >> 20} MB at most")
            return
        try:
            answer = door.receive(headers, body)
        except GatehouseError as error:
            await _answer(send, error.http_status, str(error))
            return
        except Exception:
            log.exception("a webhook failed")
            await _answer(send, 500, "it could not be taken: send it again")
            return
        await _answer(send, answer.status, answer.outcome)

    async def _body(
        self, headers: dict[str, str], receive: Any, patience: asyncio.Timeout
    ) -> bytes | None:
        """Return the body; None if it is too long."""
        length = whole_number(headers.get("content-length", "0"))
        if length is None or length > deliveries.MOST_BYTES:
            return None
        found = self._arriving[patience] = bytearray()
        try:
            while True:
                self._make_room()
                message = await receive()
                found += message.get("body", b"")
                if len(found) > deliveries.MOST_BYTES:
                    return None
                if not message.get("more_body"):
                    return bytes(found)
        finally:
            self._arriving.pop(patience, None)

    def _make_room(self) -> None:
        """Drop the requests that have been arriving for the longest time, while there are too many
        or they take too much memory together: a forge sends a webhook at once."""
        while (
            len(self._arriving) > MOST_BODIES
            or sum(map(len, self._arriving.values())) > MOST_HELD_BYTES
        ):
            oldest = next(iter(self._arriving))
            self._arriving.pop(oldest).clear()
            if not oldest.expired():
                oldest.reschedule(0)


async def _answer(send: Any, status: int, outcome: str) -> None:
    body = msgspec.json.encode({"outcome": outcome})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def payload_of(delivery: queries.Delivery) -> bytes:
    """Return a delivery's body as it arrived."""
    if not delivery.payload:
        raise UserError("the delivery's body is gone", "have it sent again")
    return zstandard.ZstdDecompressor().decompress(delivery.payload, deliveries.MOST_BYTES)
