"""HTTP Archive (HAR 1.2) of a session, for browsers' developer tools.

Source: http://www.softwareishard.com/blog/har-12-spec/. Pure. The archive is made entry by entry:
with bodies it is long, and sending it must not delay others for longer than one entry takes. It
holds only requests that were inspected: a tunnelled connection has no request to show.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from supervisor.core.network.exchanges import NO_BODIES, Bodies, Exchange, KeptBody, name_of
from supervisor.core.text.numbers import whole_number

_WITHOUT_BODY = (101, 204, 205, 304)


def head(version: str, cut: int = 0) -> dict[str, Any]:
    """Return an archive without its entries, which come last. `cut`: the number of older exchanges
    that are no longer held."""
    log: dict[str, Any] = {"version": "1.2", "creator": {"name": "Gatehouse", "version": version}}
    if cut:
        log["comment"] = (
            f"{cut} older exchange{' is' if cut == 1 else 's are'} held no more; the audit log has"
            " their verdicts"
        )
    return {"log": log | {"entries": []}}


def listed(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """Return the exchanges that have an entry."""
    return [one for one in exchanges if one.action.operation == "request"]


def entry(one: Exchange, bodies: Bodies = NO_BODIES) -> dict[str, Any]:
    """Return one request's entry. A refused request has status 0 and the reason as its comment; a
    held one was blocked for the time it was held."""
    took_ms, held_ms = _ms(one.duration_s or 0.0), _ms(one.held_s)
    comment = " ".join(part for part in (one.verdict, one.rule or "", one.why, one.error) if part)
    scheme = (
        {"http": "ws", "https": "wss"}[one.action.scheme] if one.is_upgrade else one.action.scheme
    )
    return {
        "startedDateTime": datetime.fromtimestamp(one.at, UTC).isoformat(),
        "time": held_ms + took_ms,
        "request": (
            {
                "method": one.action.method or "",
                "url": f"{scheme}://{name_of(one.action)}{one.action.path or '/'}",
                "httpVersion": "unknown",
                "cookies": [],
                "headers": _headers(one.headers),
                "queryString": _query(one.action.path or ""),
                "headersSize": -1,
                "bodySize": -1 if bodies.request is None else bodies.request.whole_bytes,
            }
            | _post_data(bodies.request)
        ),
        "response": {
            "status": one.status or 0,
            "statusText": "",
            "httpVersion": "unknown",
            "cookies": [],
            "headers": _headers(one.response_headers),
            "content": _content(one, bodies.response),
            "redirectURL": _header(one.response_headers, "location"),
            "headersSize": -1,
            "bodySize": _body_size(one, bodies.response),
        },
        "cache": {},
        "timings": (
            ({"blocked": held_ms} if held_ms else {}) | {"send": 0, "wait": took_ms, "receive": 0}
        ),
        "comment": comment,
    } | _our_own(one)


def _our_own(one: Exchange) -> dict[str, Any]:
    """Return fields that the format doesn't have; their first character marks them as extensions.
    The one of a WebSocket is Chromium's."""
    call = {} if one.call is None else {"_modelCall": msgspec.to_builtins(one.call)}
    return call | ({"_resourceType": "websocket"} if one.is_upgrade else {})


def _header(headers: tuple[tuple[str, str], ...], wanted: str) -> str:
    """Return the first value of the header with this name; empty if there is none."""
    return next((value for name, value in headers if name.lower() == wanted), "")


def _headers(headers: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in headers]


def _query(path: str) -> list[dict[str, str]]:
    pairs = parse_qsl(path.partition("?")[2], keep_blank_values=True, errors="backslashreplace")
    return [{"name": name, "value": value} for name, value in pairs]


def _post_data(body: KeptBody | None) -> dict[str, Any]:
    """Return the post data. The format has no base64 for it, so our own field gives its
    encoding."""
    if body is None:
        return {}
    said = {"mimeType": body.media_type, "text": body.text} | _comment(body, is_broken=False)
    return {"postData": said | ({"_encoding": body.encoding} if body.encoding else {})}


def _content(one: Exchange, body: KeptBody | None) -> dict[str, Any]:
    """Return the content; for a body that wasn't kept, only what the response's head says. `size`
    is the encoded size, `compression` the bytes that the coding saved."""
    if body is None:
        size = 0 if _is_without_body(one) or one.error else _length(one)
        return {"size": size, "mimeType": _header(one.response_headers, "content-type")}
    said: dict[str, Any] = {"size": body.whole_bytes, "mimeType": body.media_type}
    if body.read_bytes and _is_coded(one):
        said["size"] = body.read_bytes
        if not body.is_cut:
            said["compression"] = body.read_bytes - body.whole_bytes
    if body.read_bytes:
        said["text"] = body.text
    if body.encoding:
        said["encoding"] = body.encoding
    return said | _comment(body, is_broken=bool(one.error))


def _comment(body: KeptBody, *, is_broken: bool) -> dict[str, Any]:
    """Return a comment on facts about a body that the reader can't see."""
    said = []
    if body.whole_bytes and not body.read_bytes:
        said.append("its content can't be shown")
    elif body.is_cut:
        said.append(f"cut: it begins so, and {body.whole_bytes:,} bytes came")
    if is_broken:
        said.append("it broke off")
    return {"comment": "; ".join(said)} if said else {}


def _body_size(one: Exchange, body: KeptBody | None) -> int:
    """Return the size on the wire; -1 if unknown."""
    if body is not None:
        return body.whole_bytes
    return 0 if _is_without_body(one) else -1


def _is_without_body(one: Exchange) -> bool:
    """Return whether a response has no body (RFC 9110 6.4.1). An upgrade's answer is 101."""
    return one.action.method == "HEAD" or one.status in _WITHOUT_BODY


def _is_coded(one: Exchange) -> bool:
    return _header(one.response_headers, "content-encoding").strip().lower() not in ("", "identity")


def _length(one: Exchange) -> int:
    return whole_number(_header(one.response_headers, "content-length")) or 0


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
