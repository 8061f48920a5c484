"""The webhook door: bytes are bounded, handed to the intake, and answered.

An ASGI app by itself: a signature is of the raw bytes, so nothing may read them first.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from supervisor.base import log
from supervisor.core.text.numbers import whole_number
from supervisor.errors import GatehouseError
from supervisor.reviews.core.deliveries import MOST_BYTES, UNSIGNED, is_signature
from supervisor.reviews.intake import WebhookAnswer

# How long the whole of a webhook may take to arrive.
BODY_S = 20.0
# So many may be arriving at once, and so much of them may be here. Nobody has shown who they are
# yet.
MOST_BODIES = 64
MOST_HELD_BYTES = 32 * 1024 * 1024

type TakeWebhook = Callable[[dict[str, str], bytes], WebhookAnswer]


class WebhookApp:
    """Serves `POST /github`; `receive` takes headers (in lower case) and the raw body."""

    def __init__(self, receive: TakeWebhook) -> None:
        self._receive = receive
        self._arriving: dict[asyncio.Timeout, bytearray] = {}
        self.state: dict[str, Any] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/health" and scope["method"] == "GET":
            await _answer(send, 200, "ok")
        elif scope["path"] != "/github":
            await _answer(send, 404, "nothing is here: webhooks go to /github")
        elif scope["method"] != "POST":
            await _answer(send, 405, "webhooks are posted")
        else:
            await self._webhook(scope, receive, send)

    async def _webhook(self, scope: Any, receive: Any, send: Any) -> None:
        named = scope["headers"]
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in named}
        if not is_signature(headers.get("x-hub-signature-256", "")):
            await _answer(send, 401, UNSIGNED)
            return
        try:
            async with asyncio.timeout(BODY_S) as patience:
                body = await self._body(headers, receive, patience)
        except TimeoutError:
            await _answer(send, 408, "the webhook took too long to arrive")
            return
        if body is None:
            await _answer(send, 413, f"a webhook has {MOST_BYTES >> 20} MB at most")
            return
        try:
            answer = self._receive(headers, body)
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
        """Return the body, None where it is too long."""
        length = whole_number(headers.get("content-length", "0"))
        if length is None or length > MOST_BYTES:
            return None
        found = self._arriving[patience] = bytearray()
        try:
            while True:
                self._make_room()
                message = await receive()
                found += message.get("body", b"")
                if len(found) > MOST_BYTES:
                    return None
                if not message.get("more_body"):
                    return bytes(found)
        finally:
            self._arriving.pop(patience, None)

    def _make_room(self) -> None:
        """Give up what has been arriving for longest, where all of it is too much: a forge sends
        a webhook in one go."""
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
