"""The network log: bounded, redacted, and never mixing one question up with another."""

import base64
from typing import Literal

import msgspec
import pytest

from supervisor.core.actions import Network
from supervisor.core.models.model_calls import Api, ModelCall, Tokens
from supervisor.core.models.spend import Charge
from supervisor.core.models.usage import Usage
from supervisor.core.network.egress_wire import (
    Answer,
    Body,
    Decision,
    EgressRefused,
    Question,
    Reserve,
    Settled,
    Spent,
)
from supervisor.core.network.exchanges import CallOfModel, KeptBody, name_of
from supervisor.core.secrets.redact import Redactor
from supervisor.network import network_log
from supervisor.network.network_log import (
    MOST_BODY_CHARS,
    MOST_EXCHANGES,
    MOST_SESSIONS,
    NetworkLog,
)
from tests.fakes.clock import FakeClock

SECRET = "hunter2-hunter2"
ACTION = Network(
    operation="request", host="a.example.org", port=443, scheme="https", method="GET", path="/"
)


class Desk:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.log = NetworkLog(self.clock, Redactor([SECRET]))
        self.changed: list[str] = []
        self.log.on_change = self.changed.append

    def ask(
        self, question_id: int, decision: Decision = "allow", session: str = "one", **more: object
    ) -> Question:
        question = Question(
            question_id=question_id, session_id=session, connection_id="c", action=ACTION
        )
        question = msgspec.structs.replace(question, **more)
        self.log.answered(
            question,
            Answer(question_id=question_id, decision=decision, why=f"why {SECRET}", rule="r"),
        )
        return question

    def settle(self, question_id: int, **detail: str | int | float | None) -> None:
        self.log.settled(Settled(question_id=question_id, outcome="done", detail=detail))


def test_an_exchange_from_question_to_end() -> None:
    desk = Desk()
    desk.ask(1)
    (one,) = desk.log.of_session("one")
    assert (one.verdict, one.rule, one.ended_at, one.status) == ("allow", "r", None, None)
    desk.clock.advance(3)
    desk.settle(1, status=200, up_bytes=5, down_bytes=7, duration_s=2.5)
    (one,) = desk.log.of_session("one")
    assert (one.status, one.up_bytes, one.down_bytes, one.duration_s) == (200, 5, 7, 2.5)
    assert one.ended_at == desk.clock.now()
    assert desk.changed == ["one", "one"]


def test_denied_and_refused_end_at_once() -> None:
    desk = Desk()
    desk.ask(1, "deny")
    desk.ask(2, "ask_timeout")
    desk.log.refused(EgressRefused(session_id="one", action=ACTION, why="two hosts"))
    found = desk.log.of_session("one")
    assert [(one.verdict, one.ended_at is not None) for one in found] == [
        ("deny", True), ("ask_timeout", True), ("deny", True)
    ]  # fmt: skip
    assert found[0].why == "two hosts"
    desk.settle(1, status=200)
    assert desk.log.of_session("one")[-1].status is None


def test_addresses_that_are_denied_are_the_end_of_their_exchange() -> None:
    desk = Desk()
    desk.ask(1)
    desk.ask(2, "allow", after=1)
    desk.ask(3, "deny", after=1)
    desk.settle(1, error="no address")
    (one,) = desk.log.of_session("one")
    assert (one.verdict, one.error, one.ended_at is not None) == ("deny", "no address", True)


def test_a_new_egress_counts_anew() -> None:
    desk = Desk()
    desk.ask(1)
    desk.log.egress_ended()
    desk.ask(1)
    desk.settle(1, status=204)
    second, first = desk.log.of_session("one")
    assert (first.error, first.status, first.ended_at is not None) == ("egress ended", None, True)
    assert (second.error, second.status) == ("", 204)


def test_no_secret_is_kept() -> None:
    desk = Desk()
    action = msgspec.structs.replace(ACTION, path=f"/?key={SECRET}")
    desk.ask(1, action=action, headers=(("x-note", SECRET), ("accept", "*/*")))
    desk.settle(1, error=f"failed with {SECRET}")
    assert SECRET not in repr(desk.log.of_session("one"))
    assert desk.log.of_session("one")[0].headers[1] == ("accept", "*/*")


def test_no_value_that_authenticates_in_an_address_is_kept() -> None:
    desk = Desk()
    action = msgspec.structs.replace(ACTION, path="/?access_token=of-ada")
    desk.ask(1, action=action, headers=(("Referer", "https://b.example.org/?sig=of-ada"),))
    desk.log.settled(
        Settled(
            question_id=1,
            outcome="done",
            detail={},
            headers=(("Location", "/#access_token=of-ada"),),
        )
    )
    desk.log.refused(EgressRefused(session_id="one", action=action, why="two hosts"))
    found = desk.log.of_session("one")
    assert {one.action.path for one in found} == {"/?access_token=[hidden]"}
    assert found[1].headers == (("Referer", "https://b.example.org/?sig=[hidden]"),)
    assert "of-ada" not in repr(found)


def test_it_is_bounded() -> None:
    desk = Desk()
    for number in range(MOST_EXCHANGES + 10):
        desk.ask(number, headers=tuple((f"h{n}", "") for n in range(100)) if number == 5000 else ())
    found = desk.log.of_session("one")
    assert (len(found), found[-1].number) == (MOST_EXCHANGES, 11)
    assert (desk.log.held("one").cut, desk.log.held("two").cut) == (10, 0)
    desk.settle(0, status=200)  # the oldest is gone: nothing else is changed for it
    assert not any(one.status for one in desk.log.of_session("one"))
    for number in range(MOST_SESSIONS):
        desk.ask(10_000 + number, session=f"s{number}")
    assert desk.log.of_session("one") == []
    desk.ask(20_000, headers=tuple((f"h{n}", "") for n in range(100)), session="last")
    assert len(desk.log.of_session("last")[0].headers) == network_log.MOST_HEADERS


def test_a_host_keeps_its_place_as_long_as_it_is_known() -> None:
    desk = Desk()
    quiet, busy = (
        msgspec.structs.replace(ACTION, host=name)
        for name in ("quiet.example.org", "busy.example.org")
    )
    desk.ask(1, action=quiet)
    desk.ask(2, action=busy)
    desk.ask(3, action=quiet)
    for number in range(MOST_EXCHANGES):
        desk.ask(10 + number, action=busy)
    desk.ask(5000, action=quiet)
    held = desk.log.held("one")
    assert (len(held.exchanges), held.cut) == (MOST_EXCHANGES, 4)
    assert held.places == {"quiet.example.org": 1, "busy.example.org": 2}
    for number in range(MOST_EXCHANGES):
        desk.ask(
            6000 + number, action=msgspec.structs.replace(ACTION, host=f"h{number}.example.org")
        )
    assert len(held.places) == 2  # what was held then
    assert len(desk.log.held("one").places) == MOST_EXCHANGES
    assert {name_of(one.action) for one in desk.log.of_session("one")} <= set(
        desk.log.held("one").places
    )
    for number in range(MOST_SESSIONS):
        desk.ask(20_000 + number, session=f"s{number}")
    assert desk.log.held("one").places == {}


def body(
    question_id: int,
    data: bytes,
    of: Literal["request", "response"] = "response",
    media_type: str = "text/plain",
) -> Body:
    return Body(
        question_id=question_id, of=of, media_type=media_type, data=data, whole_bytes=len(data)
    )


def test_secrets_are_taken_out_of_a_body_before_it_is_read_however_it_is_written() -> None:
    desk = Desk()
    desk.ask(1)
    token = "ghp_" + "a" * 36
    for charset in ("utf-8", "utf-16-le", "utf-16-be", "latin-1"):
        text = f"é {SECRET} and {token} é"
        data = text.encode(charset)
        label = charset.replace("latin-1", "iso-8859-1").replace("utf-16-", "utf-16")
        desk.log.body(body(1, data, media_type=f"text/plain; charset={label}"))
        found = kept_response(desk)
        assert (found.text, found.encoding) == ("é [redacted] and [redacted] é", ""), charset
        assert (found.read_bytes, found.whole_bytes, found.is_cut) == (len(data), len(data), False)
    desk.log.body(
        body(1, b"\0\xff" + SECRET.encode() + b"\xff" + token.encode() + b"\xff", media_type="a/b")
    )
    found = kept_response(desk)
    assert found.encoding == "base64"
    assert base64.b64decode(found.text) == b"\0\xff[redacted]\xff[redacted]\xff"
    # Who says that it is written in another way than it is hides nothing by it.
    desk.log.body(body(1, SECRET.encode() + b"abcd", media_type="text/plain; charset=utf-16"))
    assert SECRET.encode() not in kept_response(desk).text.encode("utf-16-le")


def kept_response(desk: Desk) -> KeptBody:
    (kept,) = desk.log.bodies("one").values()
    assert kept.response is not None
    return kept.response


def test_a_body_that_came_longer_than_is_kept_says_so() -> None:
    desk = Desk()
    desk.ask(1)
    desk.log.body(
        Body(question_id=1, of="response", media_type="", data=b"x" * 70_000, whole_bytes=5_000_000)
    )
    found = kept_response(desk)
    assert (len(found.text), found.is_cut, found.whole_bytes) == (MOST_BODY_CHARS, True, 5_000_000)


def test_time_that_a_person_took_is_apart_and_it_began_when_it_was_asked() -> None:
    desk = Desk()
    question = Question(
        question_id=1, session_id="one", connection_id="c", action=ACTION, is_upgrade=True
    )
    desk.log.answered(question, Answer(question_id=1, decision="allow"), 12.5)
    (one,) = desk.log.of_session("one")
    assert (one.held_s, one.at, one.is_upgrade) == (12.5, desk.clock.now() - 12.5, True)


def test_bodies_are_redacted_then_cut_and_only_text_is_shown() -> None:
    desk = Desk()
    desk.ask(1)
    at_the_end = b"x" * (MOST_BODY_CHARS - 4) + SECRET.encode() + b"tail"
    desk.log.body(body(1, at_the_end))
    desk.log.body(body(1, b"\0\1\2", "request"))
    (kept,) = desk.log.bodies("one").values()
    assert kept.response is not None
    assert kept.response.text == "x" * (MOST_BODY_CHARS - 4) + "[red"
    assert kept.request is not None
    assert (kept.request.text, kept.request.encoding, kept.request.whole_bytes) == (
        "AAEC",
        "base64",
        3,
    )
    assert (kept.response.is_cut, kept.request.is_cut) == (True, False)
    assert desk.log.bodies("two") == {}


def test_a_body_of_nothing_that_is_open_is_dropped() -> None:
    desk = Desk()
    desk.log.body(body(7, b"text"))
    desk.ask(1)
    desk.settle(1)
    desk.log.body(body(1, b"text"))
    assert desk.log.bodies("one") == {}


def test_of_too_many_bodies_the_oldest_go() -> None:
    desk = Desk()
    fit = network_log.MOST_BODIES_CHARS // MOST_BODY_CHARS
    for number in range(1, fit + 4):
        desk.ask(number)
        desk.log.body(body(number, b"y" * MOST_BODY_CHARS))
    assert list(desk.log.bodies("one")) == list(range(4, fit + 4))


def test_bodies_go_with_their_exchanges_also_those_that_nothing_can_be_shown_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a session that sends what is no text would fill the memory, a little with each request."""
    monkeypatch.setattr(network_log, "MOST_EXCHANGES", 20)
    monkeypatch.setattr(network_log, "MOST_SESSIONS", 2)
    desk = Desk()
    for number in range(1, 61):
        desk.ask(number)
        desk.log.body(body(number, b"\0" if number % 2 else b"text"))
    assert list(desk.log.bodies("one")) == list(range(41, 61))
    desk.log.body(body(1, b"late"))
    for number in (101, 102):
        desk.ask(number, session=f"s{number}")
        desk.log.body(body(number, b"text"))
    assert set(desk.log._bodies) == {("s101", 61), ("s102", 62)}
    assert desk.log._bodies_chars == len("text") * 2


def test_what_is_only_noted_keeps_its_time_and_its_place_and_is_bounded() -> None:
    desk = Desk()
    began = desk.clock.now()
    for number in range(network_log.MOST_NOTED * 2 + 1):
        desk.ask(number)
        assert len(desk.log._noted) < network_log.MOST_NOTED
    desk.clock.advance(60)
    desk.log.refused(EgressRefused(session_id="one", action=ACTION, why="later"))
    later, *noted = desk.log.of_session("one")
    assert later.why == "later"
    assert [one.number for one in noted] == list(range(network_log.MOST_NOTED * 2 + 1, 0, -1))
    assert {one.at for one in noted} == {began}
    assert len(desk.changed) == network_log.MOST_NOTED * 2 + 2


def test_the_addresses_of_what_was_only_noted_are_denied_with_it() -> None:
    desk = Desk()
    desk.ask(1)
    desk.ask(2, "deny", after=1)
    (one,) = desk.log.of_session("one")
    assert one.verdict == "deny"
    assert SECRET not in one.why


def reserve(question_id: int, of: int, model: str = "model-1", api: Api = "messages") -> Reserve:
    call = ModelCall(api=api, model=model)
    return Reserve(
        question_id=question_id, session_id="one", host="a.example.org", call=call, of=of
    )


COUNTED = Charge(
    tokens=Tokens(input=11, output=7, cache_read=5, cache_write=2, cache_write_long=3),
    cost_picousd=1_000_001,
)


def test_what_a_call_of_a_model_cost_belongs_to_its_request_whichever_end_is_told_first() -> None:
    desk = Desk()
    for question_id in (1, 2, 3):
        desk.ask(question_id)
        desk.log.calling(reserve(question_id + 10, question_id))
    desk.settle(1, status=200)
    desk.log.called(Spent(question_id=11, usage=Usage(model=f"served {SECRET}")), COUNTED)
    desk.log.called(
        Spent(question_id=12, usage=None), msgspec.structs.replace(COUNTED, flags=("lost",))
    )
    desk.settle(2, status=200)
    third, second, first = desk.log.of_session("one")
    assert first.call == CallOfModel(
        model="served [redacted]",
        input_tokens=11,
        output_tokens=7,
        cache_read_tokens=5,
        cache_write_tokens=5,
        cost_microusd=2,
    )
    assert second.call is not None
    assert (second.call.model, second.call.flags, second.status) == ("model-1", ("lost",), 200)
    assert third.call is None


def test_no_other_call_is_given_a_cost() -> None:
    desk = Desk()
    desk.ask(1)
    desk.log.calling(reserve(11, of=99))
    desk.log.calling(reserve(12, of=1, api="unmetered"))
    desk.log.calling(reserve(13, of=1))
    for question_id in (11, 12, 77):
        desk.log.called(Spent(question_id=question_id, usage=None), COUNTED)
    desk.log.called(Spent(question_id=13, usage=None), None)
    desk.log.called(Spent(question_id=13, usage=None), COUNTED)
    # A new egress counts its questions anew.
    desk.log.calling(reserve(14, of=1))
    desk.log.egress_ended()
    desk.log.called(Spent(question_id=14, usage=None), COUNTED)
    assert [one.call for one in desk.log.of_session("one")] == [None]
