"""What went over the network as an archive, which a strict reader takes."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from supervisor.core.actions import Network
from supervisor.core.network import har
from supervisor.core.network.exchanges import NO_BODIES, Bodies, CallOfModel, Exchange, KeptBody
from tests.core.har_reader import read_har
from tests.core.network.test_exchanges import connect, exchange, get

NONE: Mapping[int, Bodies] = {}


def archive(
    found: Sequence[Exchange], version: str, bodies: Mapping[int, Bodies] = NONE
) -> dict[str, Any]:
    """Put together as it is sent."""
    made = har.head(version)
    made["log"]["entries"] = [
        har.entry(one, bodies.get(one.number, NO_BODIES)) for one in har.listed(found)
    ]
    return made


ODD = {
    "response_headers": [
        ["Content-Length", "12"],
        ["content-type", "text/html"],
        ["Location", "//x"],
    ],
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
    assert (sent["response"]["status"], sent["time"], sent["timings"]["wait"]) == (
        200,
        250.0,
        250.0,
    )
    assert sent["comment"] == "allow network(a.example.org) no rule"
    assert (refused["response"]["status"], refused["request"]["url"]) == (
        0,
        "https://b.example.org:8443/a?b=1",
    )
    assert refused["comment"] == "deny no rule gone"


@pytest.mark.parametrize(
    "facts", [{}, {"status": 302, "duration_s": 1.5}, {"verdict": "deny"}, ODD]
)
@pytest.mark.parametrize(
    "body", [None, KeptBody(media_type="a/b", text="\u202e</script>", whole_bytes=8, read_bytes=8)]
)
def test_a_strict_reader_takes_the_archive(facts: dict[str, object], body: KeptBody | None) -> None:
    call = CallOfModel(
        model="m",
        input_tokens=1,
        output_tokens=2,
        cache_read_tokens=3,
        cache_write_tokens=4,
        cost_microusd=5,
    )
    found = [
        exchange(get("a.example.org", "/a?b=1&c=%zz"), number=1, call=call, **facts),
        exchange(get("2001:db8::1"), number=2),
    ]  # type: ignore[arg-type]
    read = msgspec.json.decode(
        msgspec.json.encode(archive(found, "1", {1: Bodies(request=body, response=body)}))
    )
    assert len(read_har(read)) == len(found)


def test_the_archive_tells_queries_and_redirects_apart() -> None:
    found = exchange(
        get("a.example.org", "/a?b=1&c=d%20e&b=%zz&f"),
        response_headers=[["X-A", "no"], ["LOCATION", "/there"]],
    )
    (entry,) = archive([found], "1")["log"]["entries"]
    query = [(one["name"], one["value"]) for one in entry["request"]["queryString"]]
    assert query == [("b", "1"), ("c", "d e"), ("b", "%zz"), ("f", "")]
    assert entry["response"]["redirectURL"] == "/there"


def test_the_archive_says_what_a_call_of_a_model_cost_in_a_field_of_our_own() -> None:
    call = CallOfModel(
        model="m",
        input_tokens=1,
        output_tokens=2,
        cache_read_tokens=3,
        cache_write_tokens=4,
        cost_microusd=5,
    )
    one, other = archive(
        [exchange(get("a.example.org"), call=call), exchange(get("a.example.org"))], "1"
    )["log"]["entries"]
    assert one["_modelCall"] == msgspec.to_builtins(call)
    assert "_modelCall" not in other


def test_an_odd_request_is_in_the_archive_too() -> None:
    (entry,) = archive(
        [exchange(Network(operation="request", host="a.example.org", port=80, scheme="http"))], "1"
    )["log"]["entries"]
    assert (entry["request"]["method"], entry["request"]["url"]) == ("", "http://a.example.org/")


def test_the_archive_has_the_bodies_that_were_kept() -> None:
    sent = KeptBody(media_type="application/json", text='{"a": 1}', whole_bytes=8, read_bytes=8)
    came = KeptBody(media_type="text/plain", text="hel", whole_bytes=5, read_bytes=5)
    found = [exchange(get("a.example.org"), number=1), exchange(get("a.example.org"), number=2)]
    first, second = archive(found, "1", {1: Bodies(request=sent, response=came)})["log"]["entries"]
    assert first["request"]["postData"] == {"mimeType": "application/json", "text": '{"a": 1}'}
    assert first["request"]["bodySize"] == 8
    assert first["response"]["content"] == {"size": 5, "mimeType": "text/plain", "text": "hel"}
    assert "postData" not in second["request"]
    assert second["response"]["content"] == {"size": 0, "mimeType": ""}


@pytest.mark.parametrize(
    ("length", "size"), [("12", 12), ("", 0), ("-1", 0), ("9" * 400, 0), ("²", 0), ("1, 1", 0)]
)
def test_of_a_body_that_was_not_kept_the_archive_has_what_its_head_says(
    length: str, size: int
) -> None:
    headers = [["Content-Length", length], ["Content-Type", "text/html"]]
    (entry,) = archive([exchange(get("a.example.org"), response_headers=headers)], "1")["log"][
        "entries"
    ]
    assert entry["response"]["content"] == {"size": size, "mimeType": "text/html"}


def content_of(body: KeptBody, **facts: object) -> dict[str, Any]:
    """The response's body, after a strict reader took all of it."""
    made = archive([exchange(get("a.example.org"), **facts)], "1", {1: Bodies(response=body)})
    (entry,) = read_har(made)
    assert entry["response"]["bodySize"] == body.whole_bytes
    return dict(entry["response"]["content"])


TEXT = KeptBody(media_type="text/plain", text="hello", whole_bytes=5, read_bytes=5)
GZIP = {"response_headers": [["Content-Encoding", "gzip"]]}


@pytest.mark.parametrize(
    ("change", "facts", "said"),
    [
        ({}, {}, {"size": 5, "text": "hello"}),
        (
            {"text": "AAE=", "encoding": "base64"},
            {},
            {"size": 5, "text": "AAE=", "encoding": "base64"},
        ),
        ({"read_bytes": 25}, GZIP, {"size": 25, "compression": 20, "text": "hello"}),
        (
            {"read_bytes": 70_000, "whole_bytes": 90_000, "is_cut": True},
            GZIP,
            {
                "size": 70_000,
                "text": "hello",
                "comment": "cut: it begins so, and 90,000 bytes came",
            },
        ),
        (
            {"whole_bytes": 5_000_000, "is_cut": True},
            {},
            {
                "size": 5_000_000,
                "text": "hello",
                "comment": "cut: it begins so, and 5,000,000 bytes came",
            },
        ),
        ({"text": "", "read_bytes": 0}, GZIP, {"size": 5, "comment": "its content can't be shown"}),
        ({}, {"error": "reset"}, {"size": 5, "text": "hello", "comment": "it broke off"}),
        (
            {},
            {"response_headers": [["content-encoding", "identity"]]},
            {"size": 5, "text": "hello"},
        ),
    ],
)
def test_content_says_its_size_and_whether_it_is_all(
    change: dict[str, object], facts: dict[str, object], said: dict[str, object]
) -> None:
    assert (
        content_of(msgspec.structs.replace(TEXT, **change), **facts)
        == {"mimeType": "text/plain"} | said
    )


def test_a_request_that_is_no_text_says_so() -> None:
    body = msgspec.structs.replace(TEXT, text="AAE=", encoding="base64")
    (entry,) = read_har(archive([exchange(get("a.example.org"))], "1", {1: Bodies(request=body)}))
    assert entry["request"]["postData"] == {
        "mimeType": "text/plain",
        "text": "AAE=",
        "_encoding": "base64",
    }


@pytest.mark.parametrize(
    ("method", "facts", "sizes"),
    [
        ("HEAD", {"status": 200}, (0, 0)),
        ("GET", {"status": 304}, (0, 0)),
        ("GET", {"status": 200}, (500, -1)),
        ("GET", {"status": 200, "error": "it broke off"}, (0, -1)),
    ],
)
def test_no_body_is_said_to_be_there_that_is_not(
    method: str, facts: dict[str, object], sizes: tuple[int, int]
) -> None:
    action = msgspec.structs.replace(get("a.example.org"), method=method)
    (entry,) = read_har(
        archive([exchange(action, response_headers=[["Content-Length", "500"]], **facts)], "1")
    )
    assert (entry["response"]["content"]["size"], entry["response"]["bodySize"]) == sizes


def test_time_that_it_was_held_for_a_person_is_apart() -> None:
    (entry,) = read_har(
        archive([exchange(get("a.example.org"), 5.0, held_s=12.345, duration_s=0.1)], "1")
    )
    assert entry["timings"] == {"blocked": 12345.0, "send": 0, "wait": 100.0, "receive": 0}
    assert (entry["time"], entry["startedDateTime"]) == (12445.0, "1970-01-01T00:00:05+00:00")


def test_a_websocket_is_one() -> None:
    action = Network(
        operation="request",
        host="a.example.org",
        port=80,
        scheme="http",
        method="GET",
        path="/live",
    )
    entry, plain = read_har(
        archive([exchange(action, is_upgrade=True, status=101), exchange(action)], "1")
    )
    assert (entry["request"]["url"], entry["_resourceType"]) == (
        "ws://a.example.org/live",
        "websocket",
    )
    assert plain["request"]["url"] == "http://a.example.org/live"
    assert "_resourceType" not in plain


def test_an_archive_says_what_it_lacks() -> None:
    assert "comment" not in har.head("1")["log"]
    assert har.head("1", 1)["log"]["comment"].startswith("1 older exchange is held no more")
    made = har.head("1", 7)
    assert made["log"]["comment"].startswith("7 older exchanges are held no more")
    assert list(made["log"])[-1] == "entries"
    assert read_har(made) == []
