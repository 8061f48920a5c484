"""The operator's API as a program of the person's calls it: with the token, over HTTP, on a session
that asked for files and a connection."""

from typing import Any

import pytest

from tests.doors.conftest import House, until

pytestmark = [pytest.mark.timeout(300)]

ASKS = """
for path in budget openapi.json; do
  curl -s "$GATEHOUSE_URL/v1/$path" -H "Authorization: Bearer $GATEHOUSE_TOKEN"
done
echo a > a.txt; echo b > b.txt; echo c > c.txt
curl -s -m 60 http://example.org/ & curl -s -m 9 http://169.254.169.254/; wait
"""


def test_every_route_of_a_session_answers(house: House) -> None:
    house.up()

    def ok(method: str, path: str, **body: Any) -> Any:
        status, answer = house.http(method, path, body if method != "GET" else None)
        assert status in (200, 201, 204), (path, status, answer)
        return answer

    started = ok(
        "POST", "/api/sessions", workspace=str(house.workspace), command=["sh", "-c", ASKS]
    )
    session = started["id"]
    house.until_told(lambda: len(house.requests()) == 4, "all that is asked")
    cards = {one["title"]: one for one in house.requests()}

    assert ok("GET", "/health") == {"ok": True}
    assert ok("GET", "/api/openapi.json")["openapi"].startswith("3.")
    assert ok("POST", "/api/login-token")["url"].startswith("http://127.0.0.1:")
    assert {one["status"] for one in ok("GET", "/api/requests?status=all")} >= {"pending"}
    assert ok("GET", f"/api/sessions/{session}")["state"] == "running"
    printed = ok("GET", f"/api/sessions/{session}/output?offset=0")["text"]
    assert '{"used_percent":' in printed
    assert '"openapi":"3.' in printed
    for path in ("/api/quiet", "/api/changes", "/api/rules", "/api/audit?limit=5", "/api/security"):
        ok("GET", path)
    assert ok("GET", f"/api/spend?session={session}&span=session") is not None
    preview = "/api/rules/preview?effect=allow&rule=filesystem(a.txt)"
    assert "a.txt" in str(ok("GET", preview))
    assert ok("GET", f"/api/requests/{cards['write a.txt']['id']}/suggestions?effect=allow")

    ok("POST", f"/api/sessions/{session}/held/deny")
    house.until_told(lambda: len(house.requests()) == 3, "the connection's denial")
    network = until(
        lambda: house.http("GET", f"/api/sessions/{session}/network")[1]["exchanges"], "exchanges"
    )
    assert ok("GET", f"/api/sessions/{session}/network/{network[0]['number']}")
    ok("POST", f"/api/sessions/{session}/network/bodies", keep=True)
    assert ok("GET", f"/api/sessions/{session}/network.har")["log"]["version"] == "1.2"

    shown = {cards[name]["id"]: cards[name]["fingerprint"] for name in ("write a.txt",)}
    bulk = {"category": "filesystem", "answer": "approved", "ids": list(shown)}
    assert house.http("POST", "/api/requests/bulk", bulk)[0] >= 400
    ok("POST", "/api/requests/bulk", **bulk, shown=shown)
    until((house.workspace / "a.txt").exists, "what was approved")
    one = cards["write b.txt"]
    path = f"/api/requests/{one['id']}/deny"
    assert house.http("POST", path, {})[0] == 409
    ok("POST", path, fingerprint=one["fingerprint"])
    one = cards["write c.txt"]
    ok("POST", f"/api/requests/{one['id']}/approve", fingerprint=one["fingerprint"])
    until((house.workspace / "c.txt").exists, "what was approved")
    assert ok("GET", f"/api/sessions/{session}/timeline")
    events = ok("GET", f"/api/sessions/{session}/events")["entries"]
    done = next(one for one in events if "write c.txt" in one["titles"])
    assert (done["state"], events[-1]["words"]) == ("done", "started")
    seen = ok("POST", "/api/undo/preview", session=session)
    ok("POST", "/api/undo", session=session, token=seen["token"])
    assert not (house.workspace / "c.txt").exists()
    saved = ok("POST", "/api/rules", effect="deny", rule="filesystem(x/**)", why="", lasts="1h")
    ok("DELETE", f"/api/rules/{saved['id']}")


def test_everything_is_stopped_and_released(house: House) -> None:
    house.up()
    status, told = house.http("POST", "/api/stop-all", {"reason": "enough"})
    assert (status, "enough" in str(told)) == (200, True)
    done = house.run(
        "run", "--workspace", str(house.workspace), "--", "curl", "-sf", "http://example.org/"
    )
    assert done.returncode != 0
    assert "enough" in str(house.http("GET", "/api/status")[1])
    assert house.http("POST", "/api/resume", {})[0] == 200
    assert "enough" not in str(house.http("GET", "/api/status")[1])


def test_who_signs_out_is_out(house: House) -> None:
    house.up()
    assert house.page.get("/api/sessions").status_code == 200
    assert house.page.post("/api/logout").status_code == 200
    assert house.page.get("/api/sessions").status_code == 401
    assert "Not signed in" in house.page.get("/", headers={"Accept": "text/html"}).text
