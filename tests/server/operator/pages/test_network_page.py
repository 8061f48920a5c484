"""The Network tab's data through the operator's door."""

import html
import re
import threading
from typing import Any

import httpx
import msgspec

from supervisor.core.actions import Exec, Network
from supervisor.core.models.model_calls import ModelCall, Tokens
from supervisor.core.models.spend import Charge
from supervisor.core.network.egress_wire import (
    Answer,
    Body,
    EgressRefused,
    Moving,
    Question,
    Reserve,
    Settled,
    Spent,
)
from supervisor.core.secrets.redact import Redactor
from supervisor.network.egress_questions import EgressQuestions
from supervisor.server.operator.pages import network_page
from supervisor.server.operator.pages.network_page import MOST_HOSTS
from tests.fakes.parts import SECRET, FakeParts

RLO = "\u202e"
# The list as the page fetches it while the host is open.
OPENED = "/parts/network?session=one&opened=a.example.org"


def send(
    parts: FakeParts,
    question_id: int,
    path: str = "/",
    session: str = "one",
    host: str = "a.example.org",
    *,
    settle: bool = True,
) -> None:
    action = Network(
        operation="request", host=host, port=443, scheme="https", method="GET", path=path
    )
    question = Question(
        question_id=question_id, session_id=session, connection_id="c", action=action
    )
    parts.network_log.answered(
        question, Answer(question_id=question_id, decision="allow", why="a rule", rule="r")
    )
    if not settle:
        return
    detail: dict[str, str | int | float | None] = {
        "status": 200,
        "up_bytes": 5,
        "down_bytes": 7,
        "duration_s": 0.1,
    }
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


async def test_what_waits_for_an_answer_is_shown_too(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    action = Network(operation="connect", host="held.example.org", port=443, scheme="https")
    request = parts.gate.ask(action, session_id="one", reason="", origin="egress", hold_s=3600)
    parts.gate.ask(
        Exec(command="held.sh", cwd="."), session_id="one", reason="", origin="agent_api"
    )
    page = (await browser.get("/sessions/one/network")).text
    assert "held.example.org:443" in page
    assert "held.sh" not in page
    assert re.search(r'<span class="badge flag warn">.*?</svg>held</span>', page)
    gone = msgspec.structs.replace(action, host="gone.example.org")
    late = parts.gate.ask(gone, session_id="one", reason="", origin="egress", hold_s=0)
    page = (await browser.get("/parts/network?session=one")).text
    assert (
        page.count("held</span>")
        == page.count("the agent stopped waiting, your answer counts at its next try")
        == 1
    )
    parts.gate.resolve(late.id, "denied", by="test")
    assert "held.example.org" not in (await browser.get("/sessions/two/network")).text
    parts.gate.resolve(request.id, "denied", by="test")
    assert "held.example.org" not in (await browser.get("/parts/network?session=one")).text


async def test_the_archive_is_a_download_oldest_first(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    send(parts, 1, "/first")
    send(parts, 2, "/second")
    answer = await cli.get("/api/sessions/one/network.har")
    assert answer.headers["content-disposition"].startswith('attachment; filename="gatehouse-one-')
    entries = msgspec.json.decode(answer.content)["log"]["entries"]
    assert [one["request"]["url"] for one in entries] == [
        "https://a.example.org/first", "https://a.example.org/second"
    ]  # fmt: skip


async def test_values_that_authenticate_are_on_no_page_and_in_no_archive(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    path = "/a?access_token=of-ada&b=1"
    send(parts, 1, path)
    asked = Network(
        operation="request", host="b.example.org", port=443, scheme="https", method="GET", path=path
    )
    parts.gate.ask(asked, session_id="one", reason="", origin="egress", hold_s=60)
    refused = EgressRefused(session_id="one", action=asked, why="two hosts")
    EgressQuestions(parts.gate, 1, {}).refused(refused)
    parts.network_log.refused(refused)
    for address in ("/", "/sessions/one/network", OPENED, "/network/one/1", "/history",
    "/sessions/one", "/api/requests", "/api/quiet",
                    "/api/sessions/one/network", "/api/sessions/one/network/1",
                    "/api/sessions/one/network.har"):  # fmt: skip
        answer = await browser.get(address)
        assert answer.status_code == 200, address
        assert "of-ada" not in answer.text, address
    for address in ("/", OPENED, "/network/one/1", "/history", "/api/sessions/one/network.har"):
        assert "/a?access_token=[hidden]&" in html.unescape((await browser.get(address)).text), (
            address
        )


async def test_only_hosts_that_are_open_bring_their_exchanges(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    for number, host in enumerate(("a.example.org", "b.example.org"), 1):
        send(parts, number, f"/on-{number}", host=host)
    assert "/on-" not in (await browser.get("/sessions/one/network")).text
    part = (await browser.get(OPENED)).text
    assert "/on-1" in part
    assert "/on-2" not in part
    assert "/on-1" in (await browser.get(f"{OPENED}&opened=b.example.org&opened=none")).text


def hosts_in(part: httpx.Response) -> list[str]:
    return re.findall(r'<details class="panel host" data-keep="([^"]*)"', part.text)


async def test_a_long_list_is_cut_and_found_by_words_but_for_what_is_open(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    names = [
        f"h{number}.{'odd' if number % 2 else 'even'}.example.org"
        for number in range(MOST_HOSTS + 20)
    ]
    for number, name in enumerate(names):
        send(parts, number, host=name)
    part = await browser.get("/parts/network?session=one")
    assert hosts_in(part) == names[:19:-1]
    assert "And 20 more hosts" in part.text
    part = await browser.get(f"/parts/network?session=one&opened={names[0]}")
    assert hosts_in(part) == [*names[:19:-1], names[0]]
    assert "And 19 more hosts" in part.text
    assert hosts_in(await browser.get("/parts/network?session=one&find=ODD h11")) == [
        f"h{number}.odd.example.org" for number in (119, 117, 115, 113, 111, 11)
    ]
    assert (
        "No host has these words"
        in (await browser.get("/parts/network?session=one&find=none")).text
    )


async def test_hosts_stay_in_their_place_whatever_is_used_next(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    for number, name in enumerate(("first", "second", "first", "third", "first")):
        send(parts, number, host=name)
    assert hosts_in(await browser.get("/parts/network?session=one")) == ["third", "second", "first"]


class Noting(Redactor):
    """In which threads texts were looked through, as all are before they are shown."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def text(self, value: str) -> str:
        self.threads.add(threading.get_ident())
        return super().text(value)

    def data(self, value: Any) -> Any:
        self.threads.add(threading.get_ident())
        return super().data(value)


async def test_nobody_waits_for_a_page_or_an_archive(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    """The loop gives every verdict: what is long is made in a thread, an archive entry by entry."""
    for number in range(3):
        send(parts, number)
    for path in (OPENED, "/network/one/1", "/api/sessions/one/network",
    "/api/sessions/one/network/1",
                 "/api/sessions/one/network.har"):  # fmt: skip
        parts.redactor = Noting()
        assert (await browser.get(path)).status_code == 200, path
        assert parts.redactor.threads, path
        assert threading.get_ident() not in parts.redactor.threads, path
    pieces = list(
        network_page.archive_pieces(parts.network_log.held("one"), {}, parts.redactor, "1")
    )
    assert len(pieces) == 3 + 2


async def test_a_request_under_way_says_so_and_is_looked_at_again_until_it_ends(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    send(parts, 1, settle=False)
    for address in ("/network/one/1", "/parts/network/one/1"):
        page = (await browser.get(address)).text
        assert "under way" in page
        assert "0 B out" not in page
        assert "gatehouse:network" in page
    parts.network_log.moving(Moving(moved=((1, 3, 2000),)))
    for address in ("/network/one/1", OPENED):
        assert "3 B out, 2.0 kB in so far" in (await browser.get(address)).text, address
    detail: dict[str, str | int | float | None] = {
        "status": 200,
        "up_bytes": 5,
        "duration_s": 5.007,
    }
    parts.network_log.settled(Settled(question_id=1, outcome="done", detail=detail))
    page = (await browser.get("/parts/network/one/1")).text
    assert "under way" not in page
    assert "5 B out" in page
    assert "took 5.0 s" in page
    assert "gatehouse:network" not in page
    assert "No longer kept" in (await browser.get("/parts/network/one/2")).text
    assert (await browser.get("/parts/network/none/1")).status_code == 404


async def test_what_is_held_no_more_is_not_said_to_be_awaited(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    har = "/api/sessions/one/network.har"
    page = (await browser.get("/sessions/one/network")).text
    assert "Nothing yet." in page
    assert har in page
    parts.sessions.change("one", ended_at=parts.clock.now())
    page = (await browser.get("/sessions/one/network")).text
    assert "This session connected to nothing." in page
    assert har not in page
    parts.clock.advance(60)
    parts.network_log.began_at = parts.clock.now()
    page = (await browser.get("/sessions/one/network")).text
    assert "No longer kept: Gatehouse was restarted since." in page
    assert har not in page
    assert "Nothing yet." in (await browser.get("/sessions/two/network")).text


async def test_a_session_that_is_none_is_not_found(browser: httpx.AsyncClient) -> None:
    for path in (
        "/api/sessions/none/network",
        "/api/sessions/none/network.har",
        "/network?session=none",
    ):
        assert (await browser.get(path)).status_code == 404, path
    answer = await browser.get("/network")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sessions/one/network")


async def test_the_page_of_an_exchange_shows_its_bodies_as_text(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    action = Network(
        operation="request",
        host="a.example.org",
        port=443,
        scheme="https",
        method="POST",
        path="/x",
    )
    question = Question(question_id=9, session_id="one", connection_id="c", action=action)
    parts.network_log.answered(question, Answer(question_id=9, decision="allow"))
    hostile = f"<script>alert(1)</script>{RLO}{SECRET}".encode()
    parts.network_log.body(
        Body(question_id=9, of="request", media_type="text/<b>", data=hostile, whole_bytes=99)
    )
    (one,) = parts.network_log.of_session("one")
    page = (await browser.get(f"/network/one/{one.number}")).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "text/&lt;b&gt;" in page
    found = (await browser.get(f"/api/sessions/one/network/{one.number}")).json()
    assert found["bodies"]["request"]["text"].startswith("<script>")
    archive = (await browser.get("/api/sessions/one/network.har")).text
    for text in (page, str(found), archive):
        assert SECRET not in text
    assert RLO not in page + str(found)
    assert "<script>alert" not in page
    for path in ("/network/one/77", "/api/sessions/one/network/77", "/network/none/1"):
        assert (await browser.get(path)).status_code == 404, path


async def test_the_page_of_an_exchange_says_the_whole_target_and_why(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    path = "/" + "x" * 500 + "?end=here"
    action = Network(
        operation="request", host="a.example.org", port=443, scheme="https", method="PUT", path=path
    )
    question = Question(question_id=7, session_id="one", connection_id="c", action=action)
    answer = Answer(
        question_id=7,
        decision="deny",
        why="nobody's business",
        rule="network(* https://a.example.org/**)",
    )
    parts.network_log.answered(question, answer)
    page = html.unescape((await browser.get("/network/one/1")).text)
    assert f"PUT https://a.example.org{path}" in page
    assert "nobody's business <code>network(* https://a.example.org/**)</code>" in page
    assert "nobody's business" in html.unescape((await browser.get(OPENED)).text)


async def test_where_bodies_are_not_kept_the_page_says_how_they_would_be(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    send(parts, 1)
    (one,) = parts.network_log.of_session("one")
    assert "GATEHOUSE_KEEP_BODIES=yes" in (await browser.get(f"/network/one/{one.number}")).text
    parts.sessions.change("one", keep_bodies=True)
    assert "No body is kept" in (await browser.get(f"/network/one/{one.number}")).text


async def test_the_switch_keeps_bodies_of_a_session_that_runs(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    assert "Keep bodies from now on" in (await browser.get("/sessions/one/network")).text
    for keep, button, other in (
        ("yes", "Stop keeping bodies", "yes"),
        ("no", "Keep bodies from now on", "no"),
    ):
        part = await browser.post("/network/one/bodies", data={"keep": keep})
        assert button in part.text
        assert f'value="{other}"' not in part.text
        assert button in (await browser.get("/parts/network/bodies?session=one")).text
    assert parts.sessions.switched == [
        ("one", True, "operator (browser)"),
        ("one", False, "operator (browser)"),
    ]
    parts.sessions.change("one", ended_at=1.0)
    late = await browser.post("/network/one/bodies", data={"keep": "yes"})
    assert (late.status_code, "the session has ended" in late.json()["why"]) == (400, True)
    assert "<button" not in (await browser.get("/parts/network/bodies?session=one")).text
    assert (await browser.post("/network/none/bodies", data={"keep": "yes"})).status_code == 404


async def test_the_switch_as_data(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    assert (await cli.post("/api/sessions/one/network/bodies", json={"keep": True})).json() == {
        "ok": True
    }
    assert (await cli.get("/api/sessions/one")).json()["keep_bodies"] is True
    assert (await cli.post("/api/sessions/one/network/bodies", json={})).status_code == 400
    assert (
        await cli.post("/api/sessions/none/network/bodies", json={"keep": True})
    ).status_code == 404
    parts.sessions.change("one", ended_at=1.0)
    assert (
        await cli.post("/api/sessions/one/network/bodies", json={"keep": True})
    ).status_code == 400


async def test_headers_of_a_response_are_shown_and_archived(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    action = Network(
        operation="request", host="a.example.org", port=443, scheme="https", method="GET", path="/x"
    )
    question = Question(
        question_id=8,
        session_id="one",
        connection_id="c",
        action=action,
        headers=(("Accept", "a/b"),),
    )
    parts.network_log.answered(question, Answer(question_id=8, decision="allow"))
    headers = (("X-Text", f"<i>{RLO}"), ("X-Said", f"it is {SECRET}"))
    parts.network_log.settled(
        Settled(question_id=8, outcome="done", detail={"status": 200}, headers=headers)
    )
    (one,) = parts.network_log.of_session("one")
    page = (await browser.get(f"/network/one/{one.number}")).text
    assert "Headers of the request" in page
    assert "Headers of the response" in page
    assert "X-Text: &lt;i&gt;" in page
    assert "1 header, 2 of the response" in (await browser.get(OPENED)).text
    entries = msgspec.json.decode((await browser.get("/api/sessions/one/network.har")).content)[
        "log"
    ]["entries"]
    assert [one["name"] for one in entries[0]["response"]["headers"]] == ["X-Text", "X-Said"]
    assert SECRET not in page + str(entries)
    assert RLO not in page


async def test_what_a_call_of_a_model_used_is_on_its_row_and_on_its_page(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    send(parts, 1, settle=False)
    call = ModelCall(api="messages", model=f"<i>{RLO}{SECRET}")
    parts.network_log.calling(
        Reserve(question_id=2, session_id="one", host="a.example.org", call=call, of=1)
    )
    charge = Charge(
        tokens=Tokens(input=1200, output=7, cache_read=5),
        cost_picousd=2 * 10**9,
        flags=("estimated",),
    )
    parts.network_log.called(Spent(question_id=2, usage=None), charge)
    words = "1,200 tokens in, 5 from the cache, 7 out, $0.0020; without the provider&#39;s count"
    (one,) = parts.network_log.of_session("one")
    for path in (OPENED, f"/network/one/{one.number}"):
        page = (await browser.get(path)).text
        assert words in page, path
        assert "&lt;i&gt;\\u{202e}" in page
        assert SECRET not in page
    found = (await browser.get("/api/sessions/one/network")).json()
    assert found["exchanges"][0]["call"]["cost_microusd"] == 2000
