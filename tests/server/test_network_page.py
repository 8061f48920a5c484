"""The Network page's data through the operator's door."""

import httpx
import msgspec

from supervisor.core.actions import Network
from supervisor.core.egress_wire import Answer, Question, Settled
from tests.fakes.parts import SECRET, FakeParts

RLO = "\u202e"


def send(parts: FakeParts, question_id: int, path: str = "/", session: str = "one") -> None:
    action = Network(operation="request", host="a.example.org", port=443, scheme="https", method="GET", path=path)
    question = Question(question_id=question_id, session_id=session, connection_id="c", action=action)
    parts.network_log.answered(question, Answer(question_id=question_id, decision="allow", why="a rule", rule="r"))
    detail: dict[str, str | int | float | None] = {"status": 200, "up_bytes": 5, "down_bytes": 7, "duration_s": 0.1}
    parts.network_log.settled(Settled(question_id=question_id, outcome="done", detail=detail))


async def test_hosts_and_exchanges_of_one_session(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    send(parts, 1)
    send(parts, 2, f"/{RLO}{SECRET}")
    send(parts, 3, session="two")
    found = (await cli.get("/api/sessions/one/network")).json()
    assert [(host["host"], host["requests"], host["down_bytes"]) for host in found["hosts"]] == [
        ("a.example.org", 2, 14)
    ]
    assert len(found["exchanges"]) == 2
    assert SECRET not in str(found)
    assert RLO not in str(found)


async def test_the_archive_is_a_download_oldest_first(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    send(parts, 1, "/first")
    send(parts, 2, "/second")
    answer = await cli.get("/api/sessions/one/network.har")
    assert answer.headers["content-disposition"].startswith('attachment; filename="gatehouse-one-')
    entries = msgspec.json.decode(answer.content)["log"]["entries"]
    assert [one["request"]["url"] for one in entries] == [
        "https://a.example.org/first", "https://a.example.org/second"
    ]  # fmt: skip


async def test_a_session_that_is_none_is_not_found(browser: httpx.AsyncClient) -> None:
    for path in ("/api/sessions/none/network", "/api/sessions/none/network.har", "/network?session=none"):
        assert (await browser.get(path)).status_code == 404, path
    assert (await browser.get("/network")).status_code == 200
