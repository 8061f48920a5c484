"""Webhooks as they come in: verified, stored, answered. Nothing is believed and nothing is done
here.

INVARIANT: what was answered with 202 is in the database (law 7).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import zstandard
from sqlalchemy import Engine

from supervisor.base.clock import Clock
from supervisor.errors import UserError
from supervisor.reviews.core import deliveries
from supervisor.reviews.store import queries

IGNORED = "ignored"
HANDLED_EVENTS = frozenset(
    {"pull_request", "ping", *deliveries.COMMENT_EVENTS, *deliveries.INSTALLATION_EVENTS}
)


class WebhookAnswer(NamedTuple):
    """The answer to a webhook: HTTP's status, and a word of what became of it."""

    status: int
    outcome: str


class Intake:
    """One per supervisor. `wake` is called once something is to be handled."""

    def __init__(
        self, engine: Engine, clock: Clock, secret: bytes, wake: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._secret = secret
        self._wake = wake
        self._pack = zstandard.ZstdCompressor(level=3)

    def receive(self, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Take one delivery of GitHub's; `headers` by their names in lower case. `UserError` for
        what is none."""
        if not deliveries.is_signed(self._secret, body, headers.get("x-hub-signature-256", "")):
            return WebhookAnswer(401, deliveries.UNSIGNED)
        head = deliveries.read_head(headers)
        payload = deliveries.read_body(body)
        is_known = head.event in HANDLED_EVENTS
        now = self._clock.now()
        facts = {
            "forge": "github",
            "delivery_id": head.delivery_id,
            "event": head.event,
            "action": deliveries.action_name(payload),
            "repository": deliveries.repository_name(payload),
            "number": deliveries.pull_number(payload),
            "received_at": now,
            # What comes to nothing is on record; nobody reads what it said.
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


def payload_of(delivery: queries.Delivery) -> bytes:
    """Return a delivery's body as it came."""
    if not delivery.payload:
        raise UserError("the delivery's body is gone", "have it sent again")
    return zstandard.ZstdDecompressor().decompress(delivery.payload, deliveries.MOST_BYTES)
