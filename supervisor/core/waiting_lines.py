"""The line that tells a person elsewhere what waits, and the targets that it is sent to. Pure.

An agent wrote part of a line. INVARIANT: at no target is any of it markup, a mention or a second
line (law 6). `app.telling` sends it.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from supervisor.core.text.display import visible
from supervisor.errors import UserError

Kind = Literal["desktop", "ntfy", "slack", "discord", "webhook"]
NAMES: dict[Kind, str] = {
    "desktop": "the desktop",
    "ntfy": "ntfy",
    "slack": "Slack",
    "discord": "Discord",
    "webhook": "the webhook",
}
TEST_LINE = "A test line of `gatehouse doctor`: what waits for an answer is told here."
# Of one line's parts, in characters.
MOST_OF_NAME, MOST_OF_TITLE = 60, 160
# Between two lines to one target: what an agent asks meanwhile is one line.
PAUSE_S = 30.0
FIRST_RETRY_S, LAST_RETRY_S = 5.0, 900.0
# Chats and desktops read markup, mentions and links out of these; what looks like them is text.
_LOOK_ALIKES = str.maketrans({"<": "\u2039", ">": "\u203a", "&": "\uff06", "@": "\uff20", "`": "'"})
_JSON = {"Content-Type": "application/json"}
# docs.discord.com, message flags: no preview of an address, so Discord fetches none.
_SUPPRESS_EMBEDS = 1 << 2


class TellTarget(NamedTuple):
    """Where a person is told. `url` is a secret; the desktop has none."""

    kind: Kind
    url: str = ""


class WaitingRequest(NamedTuple):
    """One waiting request as its card shows it, secrets redacted. `asks` are our words, such as
    "wants to push"."""

    id: str
    session: str
    asks: str
    title: str


class Line(NamedTuple):
    """A line for a target; `address` is the page's that it is about."""

    text: str
    address: str
    requests: int
    sessions: int


def targets(text: str, name: str) -> tuple[TellTarget, ...]:
    """Return the targets of a setting, such as `desktop, ntfy=https://ntfy.sh/topic`. INVARIANT:
    the error of a wrong one has nothing of its URL."""
    return tuple(
        _target(part, f"{name}: number {number}")
        for number, one in enumerate(text.split(","), 1)
        if (part := one.strip())
    )


def _target(text: str, where: str) -> TellTarget:
    kind, equals, url = text.partition("=")
    if kind not in NAMES:
        raise UserError(
            f"{where} is of no known kind",
            "write desktop, or ntfy, slack, discord or webhook, followed by =URL",
        )
    if kind == "desktop":
        if equals:
            raise UserError(f"{where} has an address, and the desktop has none", "write desktop")
    elif not _is_address(url):
        raise UserError(f"{where} has no address that can be called", f"write {kind}=https://…")
    return TellTarget(kind, url)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def line(kind: Kind, first: WaitingRequest, sessions: Sequence[str], page: str) -> Line:
    """Return the line about waiting requests as this kind of target shows it: the first of them,
    and the session's id of each. `page` is the address of the pages."""
    name, many = theirs(kind, first.session, MOST_OF_NAME), len(set(sessions))
    if len(sessions) == 1:
        address = f"{page}/requests/{quote(first.id, safe='')}"
        text = f"{name} {first.asks}: {theirs(kind, first.title, MOST_OF_TITLE)}"
    else:
        address = f"{page}/"
        text = f"{len(sessions)} requests wait in {f'{many} sessions' if many > 1 else name}"
    return Line(text, address, len(sessions), many)


def theirs(kind: Kind, text: str, most: int) -> str:
    """Return an agent's text for a line: its first line without control characters, cut to `most`
    characters, and nothing that this target reads as its own syntax."""
    first, *more = text.strip()[: 2 * most].splitlines() or [""]
    shown = visible(first, one_line=True)
    shown = f"{shown[:most]}…" if more or len(shown) > most else shown
    if kind in ("ntfy", "webhook"):  # these show text as it is
        return shown
    shown = shown.translate(_LOOK_ALIKES)
    # As code a chat makes neither links nor emphasis of it.
    return shown if kind == "desktop" else f"`{shown or '…'}`"


def call(kind: Kind, told: Line) -> tuple[dict[str, str], bytes]:
    """Return headers and body of the POST that sends a line."""
    text = f"{told.text} {told.address}".strip()
    match kind:
        case "ntfy":  # docs.ntfy.sh/publish
            click = {"Click": told.address} if told.address else {}
            return {"Title": "Gatehouse", **click}, told.text.encode()
        case "slack":  # docs.slack.dev, incoming webhooks
            body = {"text": text, "unfurl_links": False, "unfurl_media": False}
        case "discord":  # docs.discord.com, execute webhook
            body = {
                "content": text,
                "allowed_mentions": {"parse": []},
                "flags": _SUPPRESS_EMBEDS,
            }
        case _:
            body = {
                "text": told.text,
                "address": told.address,
                "requests": told.requests,
                "sessions": told.sessions,
            }
    return _JSON, msgspec.json.encode(body)


def retry_s(failures: int) -> float:
    """Return how long to wait after so many failures in a row."""
    return min(FIRST_RETRY_S * math.pow(2, min(failures, 16) - 1), LAST_RETRY_S)
