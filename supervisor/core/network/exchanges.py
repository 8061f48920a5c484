"""Exchanges for the Network tab: one per judged connection or request.

Pure: the known facts of each, and sums by host; `har` makes an archive of them. Texts come from
agents and origins: the caller escapes them; secrets were removed before.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from supervisor.core.actions import Network

Verdict = Literal["allow", "deny", "ask_timeout"]


class CallOfModel(msgspec.Struct, frozen=True, kw_only=True):
    """Usage and cost of a settled model call. Each token counts in one kind only; the cost is
    rounded up. `flags` say why the figures aren't simply the provider's (`core.models.spend`)."""

    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_microusd: int
    flags: tuple[str, ...] = ()


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A connection or request. `at` is when it was asked about, in seconds since the epoch;
    `held_s` is how long it was then held for a person; `duration_s` is the time from then on.
    `is_upgrade`: it continues as a WebSocket. Bytes are those of its client connection so far.

    `ended_at` is None while it continues; a denied exchange ends at once. `status` is that of the
    response, `error` why there was none. `headers` are the request's and `response_headers` the
    response's, without values that authenticate. `request_id` is the request that a person was
    asked, if any.
    """

    number: int
    session_id: str
    action: Network
    at: float
    verdict: Verdict
    why: str
    rule: str | None = None
    request_id: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    response_headers: tuple[tuple[str, str], ...] = ()
    ended_at: float | None = None
    status: int | None = None
    error: str = ""
    up_bytes: int = 0
    down_bytes: int = 0
    duration_s: float | None = None
    held_s: float = 0.0
    is_upgrade: bool = False
    call: CallOfModel | None = None


class KeptBody(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a body: `text`, in base64 if it is binary. The whole body had `whole_bytes`,
    of which `read_bytes` were decoded and read: none if decoding failed. `is_cut`: there is more.
    """

    media_type: str
    text: str
    whole_bytes: int
    read_bytes: int
    encoding: Literal["", "base64"] = ""
    is_cut: bool = False


class Bodies(msgspec.Struct, frozen=True, kw_only=True):
    """The bodies of one exchange, as far as they were kept."""

    request: KeptBody | None = None
    response: KeptBody | None = None


NO_BODIES = Bodies()


class HostTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic with one host. `connections` counts opened connections, `requests` inspected
    requests; `rules` allowed or denied them."""

    host: str
    connections: int
    requests: int
    refused: int
    open: int
    up_bytes: int
    down_bytes: int
    last_at: float
    rules: tuple[str, ...]
    whys: tuple[str, ...]


def by_host(exchanges: Iterable[Exchange]) -> list[HostTraffic]:
    """Return sums by host and port, the most recently used first."""
    groups: dict[str, list[Exchange]] = {}
    for one in exchanges:
        groups.setdefault(name_of(one.action), []).append(one)
    return sorted(
        (_sum(host, found) for host, found in groups.items()), key=lambda host: -host.last_at
    )


def name_of(action: Network) -> str:
    """Return the host as a person names it: with its port unless it is the usual one."""
    host = f"[{action.host}]" if ":" in action.host else action.host
    usual = 80 if action.scheme == "http" else 443
    return host if action.port == usual else f"{host}:{action.port}"


def _sum(host: str, found: list[Exchange]) -> HostTraffic:
    allowed = [one for one in found if one.verdict == "allow"]
    # Bytes are counted by client connection: requests inside of a CONNECT repeat those of the
    # connection.
    connected = {one.action.port for one in allowed if one.action.operation == "connect"}
    carrying = [
        one
        for one in allowed
        if one.action.operation == "connect" or one.action.port not in connected
    ]
    return HostTraffic(
        host=host,
        connections=sum(one.action.operation == "connect" for one in allowed),
        requests=sum(one.action.operation == "request" for one in allowed),
        refused=len(found) - len(allowed),
        open=sum(one.ended_at is None for one in found),
        up_bytes=sum(one.up_bytes for one in carrying),
        down_bytes=sum(one.down_bytes for one in carrying),
        last_at=max(one.at for one in found),
        rules=tuple(dict.fromkeys(one.rule for one in found if one.rule)),
        whys=tuple(dict.fromkeys(one.why for one in found if one.verdict != "allow")),
    )
