"""A strict reader of HTTP Archives, HAR 1.2 (http://www.softwareishard.com/blog/har-12-spec/):
what the format asks for is there, of its type, and nothing else is but what its first character
marks as somebody's own."""

from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

NAMED = {"name": str, "value": str}
SAYS = {"?comment": str}
BODY_ENDS = {"headersSize": int, "bodySize": int}
LOG = {"version": str, "creator": dict, "entries": list, "?browser": dict, "?pages": list} | SAYS
CREATOR = {"name": str, "version": str} | SAYS
ENTRY = {
    "startedDateTime": str, "time": float, "request": dict, "response": dict, "cache": dict,
    "timings": dict,
    "?pageref": str, "?serverIPAddress": str, "?connection": str,
} | SAYS  # fmt: skip
REQUEST = (
    {
        "method": str,
        "url": str,
        "httpVersion": str,
        "cookies": list,
        "headers": list,
        "queryString": list,
        "?postData": dict,
    }
    | BODY_ENDS
    | SAYS
)
RESPONSE = (
    {
        "status": int,
        "statusText": str,
        "httpVersion": str,
        "cookies": list,
        "headers": list,
        "content": dict,
        "redirectURL": str,
    }
    | BODY_ENDS
    | SAYS
)
POSTED = {"mimeType": str, "?params": list, "?text": str} | SAYS
CONTENT = {"size": int, "mimeType": str, "?compression": int, "?text": str, "?encoding": str} | SAYS
TIMINGS = {
    "send": float,
    "wait": float,
    "receive": float,
    "?blocked": float,
    "?dns": float,
    "?connect": float,
    "?ssl": float,
} | SAYS


def read_har(archive: dict[str, Any]) -> list[dict[str, Any]]:
    """Its entries; AssertionError where a reader that follows the format to the letter would
    refuse it."""
    assert set(archive) == {"log"}
    log = archive["log"]
    _has(log, LOG)
    _has(log["creator"], CREATOR)
    assert log["version"] == "1.2"
    for entry in log["entries"]:
        _entry(entry)
    return list(log["entries"])


def _entry(entry: dict[str, Any]) -> None:
    _has(entry, ENTRY)
    request, response = entry["request"], entry["response"]
    _has(request, REQUEST)
    _has(response, RESPONSE)
    _has(response["content"], CONTENT)
    _has(entry["timings"], TIMINGS)
    assert datetime.fromisoformat(entry["startedDateTime"]).tzinfo is not None
    # A part of the time that doesn't apply is -1, and all others together are all of it.
    assert entry["time"] == sum(
        value for name, value in entry["timings"].items() if name != "comment" and value != -1
    )
    url = urlsplit(request["url"])
    assert url.scheme
    assert url.hostname
    assert not url.fragment
    assert response["content"]["size"] >= 0
    assert (
        min(
            request["bodySize"],
            request["headersSize"],
            response["bodySize"],
            response["headersSize"],
        )
        >= -1
    )
    for named in (*request["headers"], *request["queryString"], *response["headers"]):
        _has(named, NAMED | SAYS)
    if "postData" in request:
        _has(request["postData"], POSTED)
        assert not {"params", "text"} <= set(request["postData"]), "one of them excludes the other"


def _has(found: dict[str, Any], wanted: dict[str, type]) -> None:
    """Each part that is wanted, of its type; a `?` marks what may be missing."""
    for name, kind in wanted.items():
        if not name.startswith("?"):
            assert name in found, name
        if name.lstrip("?") in found:
            value = found[name.lstrip("?")]
            assert isinstance(value, (int, float) if kind is float else kind), (name, value)
            assert not isinstance(value, bool), name
    known = {name.lstrip("?") for name in wanted}
    assert not [name for name in found if name not in known and not name.startswith("_")]
