"""Addresses that stand for names, and the name server that gives them: whatever is asked,
nothing is looked up and nothing raises."""

import asyncio
import contextlib
import ipaddress
import socket
import sys
from collections.abc import AsyncIterator, Iterator

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.update
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.egress import name_server
from supervisor.egress.admission import names as module
from supervisor.egress.admission.names import V4_RANGE, V6_RANGE, Names, NoneLeftError, is_given
from supervisor.egress.loop.fair_turns import Share
from supervisor.egress.loop.relay import GoneError, HeldEnd
from supervisor.egress.name_server import MOST_QUERY_BYTES, NONE_LEFT, NameServer, serve_stream
from supervisor.egress.name_server import answer as said_to
from tests.fakes.waiting import PATIENCE_S


def never_refused(host: str, why: str) -> None:
    raise AssertionError(f"{host}: {why}")


def answer(query: bytes, names: Names) -> bytes:
    return said_to(query, names, never_refused)


def asked(names: Names, name: str, kind: str, **options: object) -> dns.message.Message:
    query = dns.message.make_query(name, kind, **options)  # type: ignore[arg-type]
    response = dns.message.from_wire(answer(query.to_wire(), names))
    assert query.is_response(response)
    return response


def address(names: Names, name: str, kind: str = "A") -> str:
    (records,) = asked(names, name, kind).answer
    (record,) = records
    return str(record)


@pytest.fixture
def no_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("a name was looked up")

    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "create_connection"):
        monkeypatch.setattr(socket, name, never)


# -- addresses ------------------------------------------------------------------------------------


def test_a_name_keeps_its_addresses_and_they_mean_it() -> None:
    names = Names()
    first, again = names.give("a.test"), names.give("a.test")
    assert first == again
    assert first.v4 in V4_RANGE
    assert first.v6 in V6_RANGE
    assert names.name_of(first.v4) == names.name_of(first.v6) == "a.test"
    assert names.give("b.test").v4 != first.v4


@pytest.mark.parametrize(
    "text",
    ["198.17.255.255", "198.20.0.0", "127.0.0.1", "::1", "fd67:6174:6568:6f76::1", "10.1.2.3"],
)
def test_other_addresses_mean_no_name(text: str) -> None:
    assert not is_given(ipaddress.ip_address(text))
    assert Names().name_of(ipaddress.ip_address(text)) is None


def test_an_address_that_was_not_given_means_nothing() -> None:
    names = Names()
    given_one = names.give("a.test").v4
    assert names.name_of(given_one + 1) is None
    # A number that only the second range has.
    assert names.name_of(V6_RANGE[1 << 40]) is None


def test_two_sessions_share_no_addresses() -> None:
    one, other = Names("one"), Names("other")
    other.give("b.test")
    assert all(other.name_of(given_one) is None for given_one in one.give("a.test"))


def test_what_was_given_before_egress_was_started_again_means_nothing_else_then() -> None:
    """A program may still hold it."""
    given_before: set[ipaddress.IPv4Address] = set()
    for start in range(15):
        names = Names("one", start)
        fresh = {names.give(f"{start}.n{number}.test").v4 for number in range(module.MOST_NAMES)}
        assert not fresh & given_before
        given_before |= fresh


def test_what_was_used_longest_ago_is_forgotten_first_and_its_address_not_given_again_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_NAMES", 3)
    names = Names()
    old, kept = names.give("old.test").v4, names.give("kept.test").v4
    seen = {old, kept}
    for number in range(50):
        fresh = names.give(f"n{number}.test").v4
        assert fresh not in seen
        seen.add(fresh)
        assert names.name_of(kept) == "kept.test"
    assert names.name_of(old) is None


def test_an_address_never_means_a_second_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_END", module._FIRST + 8)
    monkeypatch.setattr(module, "MOST_NAMES", 4)
    names = Names()
    meant = {
        names.give(name).v4: name
        for name in ("kept.test", *(f"n{number}.test" for number in range(7)))
    }
    assert len(meant) == 8
    for name in ("another.test", "n0.test", "kept.test"):  # forgotten ones are new ones
        with pytest.raises(NoneLeftError):
            names.give(name)
    assert names.give("n6.test").v4 in meant
    for one, name in meant.items():
        assert names.name_of(one) in (name, None)
    # Of others nothing changes.
    assert Names().give("another.test").v4 in V4_RANGE


def test_a_name_for_which_there_is_no_address_left_is_a_failure_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_END", module._FIRST + 1)
    names, told = Names(), []
    names.give("a.test")
    query = dns.message.make_query("b.test", "A")
    response = dns.message.from_wire(
        said_to(query.to_wire(), names, lambda *said: told.append(said))
    )
    assert response.rcode() == dns.rcode.SERVFAIL
    assert not response.answer
    assert told == [("b.test", NONE_LEFT)]
    assert address(names, "a.test") in map(str, V4_RANGE)


def test_a_session_asks_so_many_at_once_and_then_so_many_a_second() -> None:
    queries, now = Names().queries, 1000.0
    for _ in range(module.MOST_AT_ONCE):
        assert queries.wait_s(now) == 0
        queries.take()
    wait_s = queries.wait_s(now)
    assert 0 < wait_s <= 1 / module.MOST_A_SECOND
    assert queries.wait_s(now + wait_s + 1e-9) == 0
    taken = 0
    while not queries.wait_s(now + 10):
        queries.take()
        taken += 1
    assert taken == module.MOST_AT_ONCE
    assert queries.wait_s(now) > 0  # a time that goes back gives nothing


# -- queries --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_look_up")
def test_each_name_has_an_address_of_each_family() -> None:
    names = Names()
    v4, v6 = address(names, "Origin.TEST"), address(names, "origin.test", "AAAA")
    assert (
        names.name_of(ipaddress.ip_address(v4))
        == names.name_of(ipaddress.ip_address(v6))
        == "origin.test"
    )
    assert address(names, "origin.test.") == v4
    assert asked(names, "origin.test", "A", use_edns=True).rcode() == dns.rcode.NOERROR


@pytest.mark.usefixtures("no_look_up")
@pytest.mark.parametrize(
    "kind", ["TXT", "HTTPS", "SVCB", "MX", "SRV", "CNAME", "NS", "ANY", "NULL"]
)
def test_there_is_nothing_else_to_be_had(kind: str) -> None:
    names = Names()
    response = asked(names, "c2VjcmV0IGRhdGE.evil.test", kind)
    assert (response.rcode(), response.answer, response.authority, response.additional) == (
        0,
        [],
        [],
        [],
    )
    assert not names._names, "only what can be connected to takes an address"


@pytest.mark.parametrize("name", [".", "a_b.test", "1.2.3.4", "0x7f.1", "-a.test", "a.test-"])
def test_what_no_rule_could_name_does_not_exist(name: str) -> None:
    names = Names()
    response = asked(names, name, "A")
    assert (response.rcode(), response.answer) == (dns.rcode.NXDOMAIN, [])
    assert not names._names


def test_localhost_is_the_sandbox_itself() -> None:
    names = Names()
    assert address(names, "localhost") == address(names, "app.localhost") == "127.0.0.1"
    assert address(names, "localhost", "AAAA") == "::1"
    assert not names._names


def test_other_classes_are_refused() -> None:
    response = asked(Names(), "version.bind", "TXT", rdclass="CH")
    assert response.rcode() == dns.rcode.REFUSED


def test_what_is_no_query_gets_no_answer() -> None:
    names = Names()
    query = dns.message.make_query("a.test", "A")
    whole = query.to_wire()
    response = dns.message.make_response(query).to_wire()
    notification = dns.message.make_query("a.test", "SOA")
    notification.set_opcode(dns.opcode.NOTIFY)
    update = dns.update.UpdateMessage("test").to_wire()
    loop = whole[:12] + b"\xc0\x0c\x00\x01\x00\x01"
    far = whole[:12] + b"\xc3\xff\x00\x01\x00\x01"
    for data in (
        b"",
        whole[:5],
        whole[:12],
        whole[:-1],
        response,
        notification.to_wire(),
        update,
        loop,
        far,
    ):
        assert answer(data, names) == b""
    assert answer(whole + bytes(MOST_QUERY_BYTES), names) == b""
    none = whole[:4] + b"\0\0" + whole[6:]
    two = whole[:4] + b"\0\2" + whole[6:] + b"\x01b\x00\x00\x01\x00\x01"
    for data in (none, two):
        assert (
            dns.message.from_wire(answer(data, names), ignore_trailing=True).rcode()
            == dns.rcode.FORMERR
        )
    assert not names._names


def calls_of(query: bytes) -> int:
    """How many functions are called to answer it."""
    calls = 0

    def count(frame: object, event: str, of: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        answer(query, Names())
    finally:
        sys.setprofile(None)
    return calls


def test_the_work_of_an_answer_grows_no_faster_than_the_message() -> None:
    ordinary = dns.message.make_query("a.test", "A").to_wire()
    calls_of(ordinary)  # what is done once
    ordinary_calls, calls_a_byte = calls_of(ordinary), 15
    of_one, of_many = ordinary[:4] + b"\0\1", ordinary[:4] + b"\3\0"
    no_records, records = bytes(6), b"\3\0" * 3
    long = b"\x01a" * 126 + b"\0"
    kind = b"\0\x01\0\x01"
    ending = {
        "many questions with one long name": long + kind + b"\xc0\x0c\0\x01\0\x01" * 120,
        "many questions of the root": b"\0\0\x01\0\x01" * 200,
        "a name without an end": b"\x01a" * 500,
        "a long name": long + kind,
        "many records": b"\x01a\0" + kind + (b"\xc0\x0c" + kind + bytes(6)) * 80,
        "many options": b"\x01a\0" + kind + b"\0\0\x29\x04\0\0\0\0\0\3\xd8" + b"\0\x0c\0\0" * 240,
    }
    for name, rest in ending.items():
        for head in (of_one, of_many):
            for counts in (no_records, records):
                query = (head + counts + rest)[:MOST_QUERY_BYTES]
                assert calls_of(query) < ordinary_calls + calls_a_byte * len(query), name


@given(data=st.binary(max_size=MOST_QUERY_BYTES + 16))
def test_no_message_raises(data: bytes) -> None:
    answer(data, Names())


@given(data=st.binary(max_size=300), kind=st.sampled_from([1, 28, 16, 65, 255]))
def test_no_question_raises(data: bytes, kind: int) -> None:
    head = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
    said = answer(head + data + b"\0" + kind.to_bytes(2) + b"\0\x01", Names())
    assert said == b"" or said[:2] == b"\x12\x34"


@contextlib.contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The server's socket, and a client's that sends to it and never blocks."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        ours.bind(("127.0.0.1", 0))
        client.setblocking(False)
        client.connect(ours.getsockname())
        yield ours, client


@contextlib.asynccontextmanager
async def answering(ours: socket.socket, names: Names) -> AsyncIterator[NameServer]:
    """A server on this socket, which is closed in the end."""
    server = NameServer(ours, names, Share(), never_refused)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve())
        try:
            yield server
        finally:
            server.close()


async def name_answered(client: socket.socket, names: Names) -> str | None:
    """Of the next answer that comes."""
    response = dns.message.from_wire(await asyncio.get_running_loop().sock_recv(client, 4096))
    return names.name_of(ipaddress.ip_address(str(response.answer[0][0])))


def query_of(name: str) -> bytes:
    return dns.message.make_query(name, "A").to_wire()


async def test_the_server_answers_whoever_asked_and_goes_on_after_rubbish() -> None:
    names = Names()
    with connected() as (ours, client):
        async with answering(ours, names) as server:
            for data in (b"rubbish", b"", bytes(2000)):
                client.send(data)
            client.send(query_of("a.test"))
            assert await name_answered(client, names) == "a.test"
            server.close()
            server.close()


async def test_what_is_asked_at_once_is_all_answered_though_the_kernel_has_no_room_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor is there a turn for it yet: a resolver that got no answer would wait for five seconds,
    and ask as many again."""
    names, count = Names(), 300
    with connected() as (ours, client):
        ours.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, 1
        )  # the least there is, a few datagrams
        monkeypatch.setattr(names.queries, "wait_s", lambda now: 0.0)
        async with answering(ours, names), names.turn:
            for number in range(count):
                client.send(query_of(f"n{number}.test"))
                await asyncio.sleep(0)  # it is read
            names.turn.release()
            try:
                for number in range(count):
                    assert await name_answered(client, names) == f"n{number}.test"
            finally:
                await names.turn.acquire()


async def test_of_who_floods_the_server_no_more_is_read_than_is_remembered_until_that_was_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(name_server, "MOST_WAITING", 3)
    names, loop = Names(), asyncio.get_running_loop()
    with connected() as (ours, client):
        async with answering(ours, names) as server:
            async with names.turn:
                for number in range(20):
                    client.send(query_of(f"n{number}.test"))
                while server._reads or not server._asked.full():
                    await asyncio.sleep(0)
                assert not loop.remove_reader(ours), "the rest waits in the kernel, at no cost"
            for number in range(20):
                assert await name_answered(client, names) == f"n{number}.test"


async def test_who_waits_for_its_turn_when_the_server_is_closed_gets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names, loop = Names(), asyncio.get_running_loop()
    with connected() as (ours, client):
        async with answering(ours, names) as server, names.turn:
            for _ in range(2):
                client.send(query_of("late.test"))
                while not names.turn._waiters:  # type: ignore[attr-defined]
                    await asyncio.sleep(0)
            descriptor = ours.fileno()
            server.close()
            assert not loop.remove_reader(descriptor)
        assert ours.fileno() == -1


@pytest.mark.parametrize("connections", [1, 50])
async def test_who_waits_owes_nothing_however_many_wait_at_once(
    monkeypatch: pytest.MonkeyPatch, connections: int
) -> None:
    """They would all have slept until the same moment, and been answered in that turn of the
    loop."""
    monkeypatch.setattr(module, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(module, "MOST_A_SECOND", 1000.0)
    names, queries = Names(), 100 // connections
    left: list[float] = []
    take = names.queries.take

    def noted() -> None:
        take()
        left.append(names.queries._left)

    monkeypatch.setattr(names.queries, "take", noted)
    query = query_of("a.test")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        serving, theirs = [], []
        for _ in range(connections):
            ours, other = socket.socketpair()
            theirs.append(other)
            _, client = await asyncio.get_running_loop().create_connection(HeldEnd, sock=ours)
            client.data_received((len(query).to_bytes(2) + query) * queries)
            serving.append(tasks.create_task(gone_in_the_end(client, names)))
        while len(left) < connections * queries:
            await asyncio.sleep(0)
        for other in theirs:
            other.close()
    # Timers may be early by their resolution.
    assert min(left) > -1.5


async def gone_in_the_end(client: HeldEnd, names: Names) -> None:
    with pytest.raises(GoneError):
        await serve_stream(client, names, Share(), never_refused)


async def test_between_two_answers_the_other_sessions_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names, turns, at = Names(), 0, []
    monkeypatch.setattr(names.queries, "wait_s", lambda now: 0.0)
    monkeypatch.setattr(name_server, "answer", lambda *asked: at.append(turns) or b"")
    with connected() as (ours, client):
        async with answering(ours, names):
            for number in range(50):
                client.send(query_of(f"n{number}.test"))
            while len(at) < 50:
                turns += 1
                await asyncio.sleep(0)
    assert max(map(at.count, at)) <= 2
