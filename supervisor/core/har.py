"""The HTTP Archive of a session (HAR 1.2, http://www.softwareishard.com/blog/har-12-spec/), which browsers' developer tools open.

Pure, and made piece by piece: with bodies an archive is long, and whoever sends it keeps others waiting for no more than one entry. What was
looked into is in it, and nothing else: of a connection that was passed on unread there is no request to show.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from supervisor.core.exchanges import NO_BODIES, Bodies, CallOfModel, Exchange, KeptBody, name_of

# Of a length that every reader of JSON takes.
_MOST_DIGITS = 16


def head(version: str, cut: int = 0) -> dict[str, Any]:
    """An archive without its entries, which come last. `cut`: so many older exchanges are held no more."""
    log: dict[str, Any] = {"version": "1.2", "creator": {"name": "Gatehouse", "version": version}}
    if cut:
        log["comment"] = (
            f"{cut} older exchange{' is' if cut == 1 else 's are'} held no more; the audit log has their verdicts"
        )
    return {"log": log | {"entries": []}}


def listed(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """Those that have an entry."""
    return [one for one in exchanges if one.action.operation == "request"]


def entry(one: Exchange, bodies: Bodies = NO_BODIES) -> dict[str, Any]:
    """What is in it of one request. What was refused has status 0 and the reason as its comment."""
    took_ms = round((one.duration_s or 0.0) * 1000, 3)
    comment = " ".join(part for part in (one.verdict, one.rule or "", one.why, one.error) if part)
    return {
        "startedDateTime": datetime.fromtimestamp(one.at, UTC).isoformat(),
        "time": took_ms,
        "request": {
            "method": one.action.method or "",
            "url": f"{one.action.scheme}://{name_of(one.action)}{one.action.path or '/'}",
            "httpVersion": "unknown",
            "cookies": [],
            "headers": _headers(one.headers),
            "queryString": _query(one.action.path or ""),
            "headersSize": -1,
            "bodySize": -1 if bodies.request is None else bodies.request.whole_bytes,
        }
        | _post_data(bodies.request),
        "response": {
            "status": one.status or 0,
            "statusText": "",
            "httpVersion": "unknown",
            "cookies": [],
            "headers": _headers(one.response_headers),
            "content": _content(one, bodies.response),
            "redirectURL": _header(one.response_headers, "location"),
            "headersSize": -1,
            "bodySize": -1,
        },
        "cache": {},
        "timings": {"send": 0, "wait": took_ms, "receive": 0},
        "comment": comment,
    } | _model_call(one.call)


def _model_call(call: CallOfModel | None) -> dict[str, Any]:
    """A field of our own, which the format marks by its first character."""
    return {} if call is None else {"_modelCall": msgspec.to_builtins(call)}


def _header(headers: tuple[tuple[str, str], ...], wanted: str) -> str:
    """The first value of this name; empty where there is none."""
    return next((value for name, value in headers if name.lower() == wanted), "")


def _headers(headers: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in headers]


def _query(path: str) -> list[dict[str, str]]:
    pairs = parse_qsl(path.partition("?")[2], keep_blank_values=True, errors="backslashreplace")
    return [{"name": name, "value": value} for name, value in pairs]


def _post_data(body: KeptBody | None) -> dict[str, Any]:
    return {} if body is None else {"postData": {"mimeType": body.media_type, "text": body.text}}


def _content(one: Exchange, body: KeptBody | None) -> dict[str, Any]:
    """Of a body that wasn't kept what the response's head says of it."""
    if body is None:
        length = _header(one.response_headers, "content-length")
        is_length = length.isascii() and length.isdigit() and len(length) < _MOST_DIGITS
        return {"size": int(length) if is_length else 0, "mimeType": _header(one.response_headers, "content-type")}
    return {"size": body.whole_bytes, "mimeType": body.media_type, "text": body.text}
