"""A session's exchanges for the Network page: lists, one exchange, and the archive, at one moment.

It decides only which of it is shown, and in which words. It is apart from `network_page` because
a list may be long: everything here works on a snapshot and may run in a thread, while the
supervisor gives verdicts. So nothing here reads the supervisor's parts. Texts are an agent's and
its origins': they pass the redactor and `visible`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from supervisor.core.actions import title
from supervisor.core.approvals import Request
from supervisor.core.money import MICROUSD, dollars
from supervisor.core.network import har
from supervisor.core.network.exchanges import (
    NO_BODIES,
    Bodies,
    CallOfModel,
    Exchange,
    HostTraffic,
    by_host,
    name_of,
)
from supervisor.core.secrets.redact import Redactor
from supervisor.core.text.display import visible
from supervisor.network.network_log import SessionLog
from supervisor.server.common.spend_views import CALL_WORDS
from supervisor.server.common.views import clock_text, duration_text

# A person finds one of more than these by its name.
MOST_HOSTS = 100
# Of one host, the newest exchanges; the archive has all that is held.
MOST_SHOWN = 50
# So many tables are filled at a time.
MOST_OPENED = 20
_CLASS = {"allow": "good", "deny": "bad", "ask_timeout": "warn"}
_WORD = {"allow": "allowed", "deny": "denied", "ask_timeout": "not answered in time"}
# The archive's end: an empty list of entries, and what it is in.
_NO_ENTRIES = b"]}}"


class NetworkList(NamedTuple):
    """A session's list at one moment. `lost`: why a session that is over has none, where it may
    have had one. `waiting` are its requests for the network that nobody answered yet, in the
    order of their cards. `find` are words that a host's name must have, and `opened` the hosts
    whose exchanges are shown, too."""

    session_id: str
    held: SessionLog
    waiting: list[Request]
    now: float
    redactor: Redactor
    has_ended: bool
    lost: str = ""
    find: str = ""
    opened: tuple[str, ...] = ()


def hosts(shown: NetworkList) -> dict[str, Any]:
    """For `parts/network.html`: each host in its place, those that came last first, so that news
    move nothing but from above."""
    places = shown.held.places
    words = shown.find.lower().split()
    every = sorted(by_host(shown.held.exchanges), key=lambda host: -places[host.host])
    found = [one for one in every if all(word in one.host.lower() for word in words)]
    opened = set(shown.opened[:MOST_OPENED])
    listed = [one for at, one in enumerate(found) if at < MOST_HOSTS or one.host in opened]
    of_opened: dict[str, list[Exchange]] = {name: [] for name in opened}
    for one in shown.held.exchanges if opened else ():
        of_opened.get(name_of(one.action), []).append(one)
    return {
        "session_id": shown.session_id,
        "waiting": [_waiting(shown, one) for one in shown.waiting],
        "hosts": [_host(shown.redactor, one, of_opened.get(one.host, [])) for one in listed],
        "more": len(found) - len(listed),
        "is_found": bool(found) or not every,
        "cut": shown.held.cut if shown.held.exchanges else 0,
        "held": len(shown.held.exchanges),
        "has_ended": shown.has_ended,
        "lost": shown.lost,
    }


def exchange(redactor: Redactor, one: Exchange) -> dict[str, Any]:
    """One of them in words."""
    return {
        "view": one,
        "title": redactor.text(visible(title(one.action), one_line=True)),
        "at_text": clock_text(one.at),
        "is_open": one.ended_at is None,
        "held": duration_text(one.held_s) if one.held_s else "",
        "took": duration_text(one.duration_s) if one.duration_s is not None else "",
        "up": size_text(one.up_bytes),
        "down": size_text(one.down_bytes),
        "badge_class": _CLASS[one.verdict],
        "verdict": _WORD[one.verdict],
        "call": call_words(one.call) if one.call is not None else "",
    }


def archive(
    held: SessionLog, bodies: Mapping[int, Bodies], redactor: Redactor, version: str
) -> Iterator[bytes]:
    """The HTTP Archive, oldest first: its head, entry by entry, its end."""
    yield msgspec.json.encode(har.head(version, held.cut)).removesuffix(_NO_ENTRIES)
    comma = b""
    for one in reversed(har.listed(held.exchanges)):
        entry = har.entry(one, bodies.get(one.number, NO_BODIES))
        yield comma + msgspec.json.encode(redactor.data(entry))
        comma = b","
    yield _NO_ENTRIES


def _waiting(shown: NetworkList, one: Request) -> tuple[str, float, str, bool]:
    """As words, since when, the same as a clock shows it, and whether a program is held for it
    still."""
    words = shown.redactor.text(visible(title(one.action), one_line=True))
    return words, one.asked_at, clock_text(one.asked_at), (one.hold_until or 0) > shown.now


def _host(redactor: Redactor, host: HostTraffic, found: list[Exchange]) -> dict[str, Any]:
    return {
        "host": host,
        "up": size_text(host.up_bytes),
        "down": size_text(host.down_bytes),
        "last_text": clock_text(host.last_at),
        "exchanges": [exchange(redactor, one) for one in found[:MOST_SHOWN]],
        "more": max(0, len(found) - MOST_SHOWN),
    }


def call_words(call: CallOfModel) -> str:
    """Return what a call of a model used and cost, in words."""
    cached = [
        f"{count:,} {words}"
        for count, words in (
            (call.cache_read_tokens, "from the cache"),
            (call.cache_write_tokens, "into the cache"),
        )
        if count
    ]
    tokens = ", ".join([f"{call.input_tokens:,} tokens in", *cached, f"{call.output_tokens:,} out"])
    remarks = "".join(f"; {CALL_WORDS.get(flag, flag)}" for flag in call.flags)
    model = visible(call.model, one_line=True) or "no model named"
    return f"{model}: {tokens}, {dollars(call.cost_microusd * MICROUSD)}{remarks}"


def size_text(size_bytes: int) -> str:
    """Bytes as people read them."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:,.1f} {unit}"
    return f"{size_bytes} B"
