"""Bitbucket Cloud's webhooks as text.

Pure. Source: support.atlassian.com/bitbucket-cloud, "Event payloads". Hashes in them are short, so
nothing but names and numbers is read.
"""

from collections.abc import Mapping
from typing import Any

from supervisor.core.forge_acts import Forge
from supervisor.errors import UserError
from supervisor.reviews.core.deliveries import (
    EventKind,
    SaidComment,
    Webhook,
    field,
    is_delivery_id,
    is_id,
    text_of,
)
from supervisor.reviews.core.forge_people import person

_PULLS = frozenset({"created", "updated", "fulfilled", "rejected"})
# What `gatehouse bitbucket setup` registers a webhook for.
EVENTS = (
    *(f"pullrequest:{one}" for one in ("created", "updated", "fulfilled", "rejected")),
    *("pullrequest:comment_created", "repo:push"),
)


class BitbucketWebhooks:
    """Implements `deliveries.WebhookReader`."""

    forge: Forge = "bitbucket"
    signature = "x-hub-signature"
    events = frozenset({"pullrequest", "repo"})

    def head(self, headers: Mapping[str, str]) -> Webhook:
        # The same in all attempts to deliver it.
        delivery_id = headers.get("x-request-uuid", "").strip("{}")
        event, colon, action = headers.get("x-event-key", "").partition(":")
        remedy = "send the webhook as Bitbucket does"
        if not is_delivery_id(delivery_id):
            raise UserError("no `X-Request-UUID` that is an id", remedy)
        if not (colon and _is_word(event) and _is_word(action)):
            raise UserError("no `X-Event-Key` that is an event", remedy)
        return Webhook(delivery_id, event, action)

    def kind(self, event: str, action: str) -> EventKind:
        if event == "repo":
            return "push" if action == "push" else ""
        if event != "pullrequest":
            return ""
        return "pull" if action in _PULLS else "comment" if action == "comment_created" else ""

    def action(self, head: Webhook, payload: Mapping[str, Any]) -> str:
        return head.action

    def number(self, payload: Mapping[str, Any]) -> int | None:
        number = field(payload, "pullrequest", "id")
        return number if type(number) is int and 0 < number < 1 << 31 else None

    def comment(self, event: str, payload: Mapping[str, Any]) -> SaidComment | None:
        number = field(payload, "comment", "id")
        if not is_id(number):
            return None
        user = field(payload, "comment", "user")
        author = person(user) if isinstance(user, dict) else ""
        body = text_of(field(payload, "comment", "content", "raw"))
        return SaidComment(number, author, body, bool(field(payload, "comment", "inline")))


def _is_word(text: str) -> bool:
    return 0 < len(text) <= 64 and text.replace("_", "").isascii() and text.islower()
