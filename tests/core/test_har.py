"""What went over the network as an archive, which a strict reader takes."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from supervisor.core import har
from supervisor.core.actions import Network
from supervisor.core.exchanges import NO_BODIES, Bodies, CallOfModel, Exchange, KeptBody
from tests.core.har_reader import read_har
from tests.core.test_exchanges import connect, exchange, get

NONE: Mapping[int, Bodies] = {}


def archive(found: Sequence[Exchange], version: str, bodies: Mapping[int, Bodies] = NONE) -> dict[str, Any]:
    """Put together as it is sent."""
    made = har.head(version)
    made["log"]["entries"] = [har.entry(one, bodies.get(one.number, NO_BODIES)) for one in har.listed(found)]
    return made


ODD = {
    "response_headers": [["Content-Length", "12"], ["content-type", "text/html"], ["Location", "//x"]],
    "headers": [["a", ""], ["a", "\\u{202e}"]],
    "rule": "network(*)",
    "error": "gone",
    "status": 599,
    "duration_s": 0.0004,
}


def test_the_archive_has_what_was_looked_into() -> None:
    found = [
        exchange(connect("a.example.org")),
        exchange(
            get("a.example.org"),
            0.5,
            status=200,
            duration_s=0.25,
            headers=[["accept", "*/*"]],
            rule="network(a.example.org)",
        ),
        exchange(get("b.example.org", port=8443), 1.0, "deny", error="gone"),
    ]
    log = archive(found, "1.2.3")["log"]
    assert (log["version"], log["creator"]) == ("1.2", {"name": "Gatehouse", "version": "1.2.3"})
    sent, refused = log["entries"]
    assert sent["startedDateTime"] == "1970-01-01T00:00:00.500000+00:00"
    assert sent["request"]["url"] == "https://a.example.org/a?b=1"
    assert sent["request"]["headers"] == [{"name": "accept", "value": "*/*"}]
    assert (sent["response"]["status"], sent["time"], sent["timings"]["wait"]) == (200, 250.0, 250.0)
    assert sent["comment"] == "allow network(a.example.org) no rule"
    assert (refused["response"]["status"], refused["request"]["url"]) == (0, "https://b.example.org:8443/a?b=1")
    assert refused["comment"] == "deny no rule gone"


@pytest.mark.parametrize("facts", [{}, {"status": 302, "duration_s": 1.5}, {"verdict": "deny"}, ODD])
@pytest.mark.parametrize("body", [None, KeptBody(media_type="a/b", text="\u202e</script>", whole_bytes=8)])
def test_a_strict_reader_takes_the_archive(facts: dict[str, object], body: KeptBody | None) -> None:
    call = CallOfModel(
        model="m", input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4, cost_microusd=5
    )
    found = [
        exchange(get("a.example.org", "/a?b=1&c=%zz"), number=1, call=call, **facts),
        exchange(get("2001:db8::1"), number=2),
    ]  # type: ignore[arg-type]
    read = msgspec.json.decode(msgspec.json.encode(archive(found, "1", {1: Bodies(request=body, response=body)})))
    assert len(read_har(read)) == len(found)


def test_the_archive_tells_queries_and_redirects_apart() -> None:
    found = exchange(
        get("a.example.org", "/a?b=1&c=d%20e&b=%zz&f"), response_headers=[["X-A", "no"], ["LOCATION", "/there"]]
    )
    (entry,) = archive([found], "1")["log"]["entries"]
    query = [(one["name"], one["value"]) for one in entry["request"]["queryString"]]
    assert query == [("b", "1"), ("c", "d e"), ("b", "%zz"), ("f", "")]
    assert entry["response"]["redirectURL"] == "/there"


def test_the_archive_says_what_a_call_of_a_model_cost_in_a_field_of_our_own() -> None:
    call = CallOfModel(
        model="m", input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4, cost_microusd=5
    )
    one, other = archive([exchange(get("a.example.org"), call=call), exchange(get("a.example.org"))], "1")["log"][
        "entries"
    ]
    assert one["_modelCall"] == msgspec.to_builtins(call)
    assert "_modelCall" not in other


def test_an_odd_request_is_in_the_archive_too() -> None:
    (entry,) = archive([exchange(Network(operation="request", host="a.example.org", port=80, scheme="http"))], "1")[
        "log"
    ]["entries"]
    assert (entry["request"]["method"], entry["request"]["url"]) == ("", "http://a.example.org/")


def test_the_archive_has_the_bodies_that_were_kept() -> None:
    sent = KeptBody(media_type="application/json", text='{"a": 1}', whole_bytes=8)
    came = KeptBody(media_type="text/plain", text="hel", whole_bytes=5)
    found = [exchange(get("a.example.org"), number=1), exchange(get("a.example.org"), number=2)]
    first, second = archive(found, "1", {1: Bodies(request=sent, response=came)})["log"]["entries"]
    assert first["request"]["postData"] == {"mimeType": "application/json", "text": '{"a": 1}'}
    assert first["request"]["bodySize"] == 8
    assert first["response"]["content"] == {"size": 5, "mimeType": "text/plain", "text": "hel"}
    assert "postData" not in second["request"]
    assert second["response"]["content"] == {"size": 0, "mimeType": ""}


@pytest.mark.parametrize(("length", "size"), [("12", 12), ("", 0), ("-1", 0), ("9" * 400, 0), ("²", 0), ("1, 1", 0)])
def test_of_a_body_that_was_not_kept_the_archive_has_what_its_head_says(length: str, size: int) -> None:
    headers = [["Content-Length", length], ["Content-Type", "text/html"]]
    (entry,) = archive([exchange(get("a.example.org"), response_headers=headers)], "1")["log"]["entries"]
    assert entry["response"]["content"] == {"size": size, "mimeType": "text/html"}
