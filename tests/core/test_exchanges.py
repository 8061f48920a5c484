"""What went over the network, summed by host and as an archive."""

import msgspec
import pytest

from supervisor.core.actions import Network
from supervisor.core.exchanges import Bodies, CallOfModel, Exchange, KeptBody, Verdict, by_host, har, name_of
from tests.core.har_reader import read_har


def connect(host: str, port: int = 443) -> Network:
    return Network(operation="connect", host=host, port=port)


def get(host: str, path: str = "/a?b=1", port: int = 443) -> Network:
    return Network(operation="request", host=host, port=port, scheme="https", method="GET", path=path)


def exchange(action: Network, at: float = 0.0, verdict: Verdict = "allow", **facts: object) -> Exchange:
    plain = {
        "number": 1,
        "session_id": "one",
        "action": msgspec.to_builtins(action),
        "at": at,
        "verdict": verdict,
        "why": "no rule",
    }
    return msgspec.convert(plain | facts, Exchange)


@pytest.mark.parametrize(
    ("action", "name"),
    [
        (connect("a.example.org"), "a.example.org"),
        (connect("a.example.org", 8443), "a.example.org:8443"),
        (connect("2001:db8::1"), "[2001:db8::1]"),
        (connect("2001:db8::1", 80), "[2001:db8::1]:80"),
        (
            Network(operation="request", host="a.example.org", port=80, scheme="http", method="GET", path="/"),
            "a.example.org",
        ),
    ],
)
def test_a_host_is_named_as_a_person_would(action: Network, name: str) -> None:
    assert name_of(action) == name


def test_sums_count_the_bytes_of_a_connection_once() -> None:
    found = [
        exchange(
            connect("a.example.org"), 1.0, rule="network(a.example.org)", up_bytes=30, down_bytes=300, ended_at=4.0
        ),
        exchange(get("a.example.org"), 2.0, rule="network(a.example.org)", up_bytes=10, down_bytes=100, ended_at=3.0),
        exchange(get("a.example.org"), 3.0),
        exchange(connect("b.example.org"), 5.0, "deny", rule="network(b.example.org)", ended_at=5.0),
        exchange(connect("b.example.org"), 6.0, "ask_timeout", ended_at=6.0, why="nobody answered"),
    ]
    b, a = by_host(found)
    assert (a.host, a.connections, a.requests, a.refused, a.open) == ("a.example.org", 1, 2, 0, 1)
    assert (a.up_bytes, a.down_bytes, a.last_at, a.rules, a.whys) == (30, 300, 3.0, ("network(a.example.org)",), ())
    assert (b.host, b.connections, b.refused, b.up_bytes, b.last_at) == ("b.example.org", 0, 2, 0, 6.0)
    assert (b.rules, b.whys) == (("network(b.example.org)",), ("no rule", "nobody answered"))


def test_plain_requests_carry_their_own_bytes() -> None:
    (host,) = by_host(
        [exchange(get("a.example.org"), up_bytes=1, down_bytes=2), exchange(get("a.example.org"), up_bytes=3)]
    )
    assert (host.up_bytes, host.down_bytes) == (4, 2)


def test_bytes_in_the_clear_are_counted_beside_those_of_connections() -> None:
    plain = Network(operation="request", host="a.example.org", port=80, scheme="http", method="GET", path="/")
    found = [exchange(plain, up_bytes=1, down_bytes=2), exchange(connect("a.example.org"), up_bytes=30, down_bytes=40),
             exchange(get("a.example.org"), up_bytes=5, down_bytes=6)]  # fmt: skip
    (host,) = by_host(found)
    assert (host.up_bytes, host.down_bytes) == (31, 42)


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
    log = har(found, "1.2.3")["log"]
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
    read = msgspec.json.decode(msgspec.json.encode(har(found, "1", {1: Bodies(request=body, response=body)})))
    assert len(read_har(read)) == len(found)


def test_the_archive_tells_queries_and_redirects_apart() -> None:
    found = exchange(
        get("a.example.org", "/a?b=1&c=d%20e&b=%zz&f"), response_headers=[["X-A", "no"], ["LOCATION", "/there"]]
    )
    (entry,) = har([found], "1")["log"]["entries"]
    query = [(one["name"], one["value"]) for one in entry["request"]["queryString"]]
    assert query == [("b", "1"), ("c", "d e"), ("b", "%zz"), ("f", "")]
    assert entry["response"]["redirectURL"] == "/there"


def test_the_archive_says_what_a_call_of_a_model_cost_in_a_field_of_our_own() -> None:
    call = CallOfModel(
        model="m", input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4, cost_microusd=5
    )
    one, other = har([exchange(get("a.example.org"), call=call), exchange(get("a.example.org"))], "1")["log"]["entries"]
    assert one["_modelCall"] == msgspec.to_builtins(call)
    assert "_modelCall" not in other


def test_an_odd_request_is_in_the_archive_too() -> None:
    (entry,) = har([exchange(Network(operation="request", host="a.example.org", port=80, scheme="http"))], "1")["log"][
        "entries"
    ]
    assert (entry["request"]["method"], entry["request"]["url"]) == ("", "http://a.example.org/")


def test_the_archive_has_the_bodies_that_were_kept() -> None:
    sent = KeptBody(media_type="application/json", text='{"a": 1}', whole_bytes=8)
    came = KeptBody(media_type="text/plain", text="hel", whole_bytes=5)
    found = [exchange(get("a.example.org"), number=1), exchange(get("a.example.org"), number=2)]
    first, second = har(found, "1", {1: Bodies(request=sent, response=came)})["log"]["entries"]
    assert first["request"]["postData"] == {"mimeType": "application/json", "text": '{"a": 1}'}
    assert first["request"]["bodySize"] == 8
    assert first["response"]["content"] == {"size": 5, "mimeType": "text/plain", "text": "hel"}
    assert "postData" not in second["request"]
    assert second["response"]["content"] == {"size": 0, "mimeType": ""}


@pytest.mark.parametrize(("length", "size"), [("12", 12), ("", 0), ("-1", 0), ("9" * 400, 0), ("²", 0), ("1, 1", 0)])
def test_of_a_body_that_was_not_kept_the_archive_has_what_its_head_says(length: str, size: int) -> None:
    headers = [["Content-Length", length], ["Content-Type", "text/html"]]
    (entry,) = har([exchange(get("a.example.org"), response_headers=headers)], "1")["log"]["entries"]
    assert entry["response"]["content"] == {"size": size, "mimeType": "text/html"}
