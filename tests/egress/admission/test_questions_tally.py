"""What egress refuses by itself is told as numbers that add up: however often, whatever it is,
and whether the channel takes it or not."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.actions import Network
from supervisor.core.network.egress_wire import CloseSession, EgressRefused, Used
from supervisor.egress.admission import questions as module
from supervisor.egress.admission.questions import Tally
from tests.egress.egress_harness import Origin, Proxy, answer_of, body_of, status_of
from tests.fakes.waiting import PATIENCE_S

FRONTED = "TLS names `{}`, but the connection goes to `{}`"


def connect(host: str) -> Network:
    return Network(operation="connect", host=host, port=443)


class Told:
    """The other end of the channel. `takes` is how many messages it takes still."""

    def __init__(self) -> None:
        self.refused: list[EgressRefused] = []
        self.takes = 10**9
        self.asked = 0

    def __call__(self, refused: EgressRefused) -> bool:
        self.asked += 1
        if self.takes <= 0:
            return False
        self.takes -= 1
        self.refused.append(refused)
        return True

    def sums(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for one in self.refused:
            found[one.session_id] += one.count
        return found


async def test_the_first_is_told_at_once_and_those_like_it_as_a_number() -> None:
    told = Told()
    tally = Tally(told)
    for number in range(1000):
        tally.refused("s", connect("a.test"), FRONTED.format(f"evil{number}.test", "a.test"))
    assert [one.count for one in told.refused] == [1]
    tally.refused("s", connect("b.test"), FRONTED.format("evil.test", "b.test"))
    tally.refused("s", connect("a.test"), "this is not TLS")
    tally.refused("other", connect("a.test"), FRONTED.format("evil.test", "a.test"))
    assert [one.count for one in told.refused] == [1, 1, 1, 1]
    tally._tell_all()
    assert [one.count for one in told.refused[4:]] == [999]
    assert "evil999.test" in told.refused[4].why
    # One that goes on is a number again and again; one that ended begins anew.
    tally.refused("s", connect("a.test"), FRONTED.format("again.test", "a.test"))
    tally.refused("s", connect("a.test"), "this is not TLS")
    assert [one.count for one in told.refused[5:]] == [1]
    tally._tell_all()
    assert [one.count for one in told.refused[6:]] == [1]
    for _ in range(2):
        tally._tell_all()
    assert not tally._untold
    assert not tally._per_session
    assert tally._timer is None


async def test_what_a_full_channel_does_not_take_is_told_later() -> None:
    told = Told()
    told.takes = 1
    tally = Tally(told)
    for _ in range(3):
        for host in ("a.test", "b.test"):
            tally.refused("s", connect(host), "this is not TLS")
    tally._tell_all()
    assert told.sums() == {"s": 1}
    told.takes = 100
    tally.close("other")
    assert told.sums() == {"s": 1}
    tally.close("s")
    assert told.sums() == {"s": 6}


async def test_a_session_that_names_ever_new_hosts_and_kinds_has_a_bounded_number_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told()
    tally = Tally(told)
    for number in range(5000):
        tally.refused("s", connect(f"h{number}.test"), "this is not TLS")
        tally.refused("s", connect(f"h{number}.test"), "kind " + "x" * number)
    assert len(tally._untold) <= module.MOST_KINDS + 1
    assert len(told.refused) <= module.MOST_KINDS + 1
    tally.refused("other", connect("h.test"), "this is not TLS")
    assert told.refused[-1].session_id == "other"
    tally._tell_all()
    assert told.sums() == {"s": 10_000, "other": 1}


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from("st"), st.sampled_from(["a.test", "b.test"]),
            st.sampled_from(["x", "port 1", "port 2"])),
            st.sampled_from(["tick", "close s", "full", "free"]),
        )
    )
)  # fmt: skip
def test_whatever_happens_the_numbers_add_up(steps: list[tuple[str, str, str] | str]) -> None:
    async def run() -> None:
        told, refused = Told(), Counter[str]()
        tally = Tally(told)
        for step in steps:
            match step:
                case "tick":
                    tally._tell_all()
                case "close s":
                    tally.close("s")
                case "full" | "free":
                    told.takes = 0 if step == "full" else 10**9
                case (session_id, host, why):
                    refused[session_id] += 1
                    tally.refused(session_id, connect(host), why)
        told.takes = 10**9
        tally._tell_all()
        assert told.sums() == refused

    asyncio.run(run())


async def test_the_timer_tells_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.0)
    told = Told()
    tally = Tally(told)
    for _ in range(3):
        tally.refused("s", connect("a.test"), "x")
    async with asyncio.timeout(PATIENCE_S):
        while tally._timer is not None:
            await asyncio.sleep(0)
    assert [one.count for one in told.refused] == [1, 2]


async def test_what_the_channel_did_not_take_is_told_again_without_another_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.0)
    told = Told()
    told.takes = 0
    Tally(told).refused("s", connect("a.test"), "x")
    async with asyncio.timeout(PATIENCE_S):
        while told.asked < 3:
            await asyncio.sleep(0)
        told.takes = 1
        while not told.refused:
            await asyncio.sleep(0)
    assert told.sums() == {"s": 1}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_flood_at_the_door_is_two_lines(proxy: Proxy) -> None:
    for number in range(50):
        head = f"CONNECT origin.test:443 HTTP/1.1\r\nHost: evil{number}.test\r\n\r\n"
        assert status_of(await proxy.send(head.encode())) == 403
    proxy.supervisor.send(CloseSession(session_id=proxy.session_id))
    await proxy.supervisor.until(EgressRefused, 2)
    told = [
        one for one in proxy.supervisor.of_type(EgressRefused) if one.session_id == proxy.session_id
    ]
    assert [one.count for one in told] == [1, 49]
    # A supervisor that stops cuts the channel when it hears the last of a session's traffic.
    await proxy.supervisor.until_one(lambda one: isinstance(one, Used) and one.is_last)
    messages = [one for one in proxy.supervisor.messages if isinstance(one, EgressRefused | Used)]
    said = [type(one) for one in messages if one.session_id == proxy.session_id]
    assert said[-1] is Used


NAMELESS = [
    b"\x00\x01\x02 not a protocol of ours \xff\xfe",
    b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
    b"GET /nonsense HTTP/1.1\r\nHost: a.test\r\n\r\n",
    b"GET http://a.test/ HTTP/2.0\r\nHost: a.test\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET http://user:s3cret@a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
    b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: x\r\n\r\n",
    b"CONNECT nowhere HTTP/1.1\r\nHost: nowhere\r\n\r\n",
    b"CONNECT a..test:443 HTTP/1.1\r\nHost: a..test:443\r\n\r\n",
    b"hello?",
]


@pytest.mark.asyncio(loop_scope="module")
async def test_what_names_no_host_is_on_record_as_a_number(proxy: Proxy) -> None:
    for data in NAMELESS * 2:
        answer = await proxy.send(data, eof=data == NAMELESS[-1])
        assert status_of(answer) in (0, 400, 403, 505)
        assert b"s3cret" not in answer
        assert not answer.startswith(b"HTTP") or body_of(answer)["why"]
    assert await proxy.send(b"", eof=True) == b"", "who says nothing at all is nobody's business"
    proxy.supervisor.send(CloseSession(session_id=proxy.session_id))
    await proxy.supervisor.until_one(
        lambda one: isinstance(one, Used) and one.is_last and one.session_id == proxy.session_id
    )
    told = [
        one for one in proxy.supervisor.of_type(EgressRefused) if one.session_id == proxy.session_id
    ]
    assert {(one.action.host, one.why) for one in told} == {
        ("(no host)", "what can't be read, or names no host, can't be judged, so it is refused")
    }
    assert [one.count for one in told] == [1, 2 * len(NAMELESS) - 1]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_malformed_head_behind_another_request_is_on_record_as_a_number(
    proxy: Proxy, http: Origin
) -> None:
    head = f"GET http://origin.test:{http.port}/ HTTP/1.1\r\nHost: origin.test:{http.port}\r\n"
    reader, writer = await proxy.open()
    for more, status in (("", 200), ("X-A : 1\r\n", 400)):
        writer.write(f"{head}{more}\r\n".encode())
        assert status_of(await answer_of(reader)) == status
    writer.close()
    refused = await proxy.supervisor.until(EgressRefused)
    assert (refused.action.host, refused.count) == ("(no host)", 1)
