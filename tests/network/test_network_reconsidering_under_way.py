"""A request that goes on for long lasts as long as the rules of a real gate allow it; what
becomes of it is told, and kept by nobody."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
import trustme

from tests.egress.egress_harness import Proxy, server_context, status_of
from tests.egress.h2_client import H2Client, h2_client
from tests.fakes.h2_origin import H2Origin, h2_origin
from tests.fakes.waiting import PATIENCE_S
from tests.network.conftest import Setting

SAID = b"first"


@dataclass
class Slow:
    """An origin whose answers don't end, and that notes what comes of bodies: `whole` that one
    was."""

    scheme: str
    port: int = 0
    received: bytearray = field(default_factory=bytearray)
    whole: bool = False
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                while size := int(await reader.readuntil(b"\r\n"), 16):
                    self.received += (await reader.readexactly(size + 2))[:-2]
                self.whole = True
            elif b"/short" in head:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            else:
                # Without a length: it ends with its connection.
                framing = b"" if b"/unframed" in head else b"Transfer-Encoding: chunked\r\n"
                writer.write(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n")
                writer.write(SAID if not framing else b"%x\r\n%s\r\n" % (len(SAID), SAID))
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.left.set()
            writer.close()

    def rule(self, path: str) -> str:
        return f"network(* {self.scheme}://origin.test:{self.port}{path})"


@pytest_asyncio.fixture(params=["http", "https"])
async def slow(request: pytest.FixtureRequest, authority: trustme.CA) -> AsyncIterator[Slow]:
    """In the clear, by the proxy; and inside of a CONNECT."""
    found = Slow(request.param)
    context = server_context(authority, "origin.test") if found.scheme == "https" else None
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=context)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()


@pytest_asyncio.fixture
async def h2(authority: trustme.CA) -> AsyncIterator[H2Origin]:
    async with h2_origin(authority, "origin.test") as origin:
        yield origin


def proxy(place: Setting) -> Proxy:
    return Proxy(None, place.session_id, place.port)  # type: ignore[arg-type]


@dataclass
class Exchange:
    """A request under way."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def is_cut(self) -> None:
        """Its client can tell: the end of an answer without a length would be that of its
        connection."""
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ConnectionError):
                await self.reader.read()


@contextlib.asynccontextmanager
async def going(
    place: Setting, slow: Slow, path: str, method: str = "GET"
) -> AsyncIterator[Exchange]:
    """A request of which something went through already, down or up."""
    at = f"origin.test:{slow.port}"
    if slow.scheme == "https":
        reader, writer = await proxy(place).tunnel(at, trust=place.ca_file)
        target = path
    else:
        reader, writer = await proxy(place).open()
        target = f"http://{at}{path}"
    try:
        more = "Transfer-Encoding: chunked\r\n" if method == "POST" else ""
        writer.write(f"{method} {target} HTTP/1.1\r\nHost: {at}\r\n{more}\r\n".encode())
        if method == "POST":
            writer.write(b"5\r\nfirst\r\n")
            await until(lambda: slow.received == SAID)
        else:
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
            await reader.readuntil(SAID)
        yield Exchange(reader, writer)
    finally:
        writer.close()


async def until(found: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not found():
            await asyncio.sleep(0.01)


def policy(slow: Slow, *more: str, allowed: str = "/go/**", mode: str = "ask") -> str:
    lines = ["allow:", f"  - network(127.0.0.1:{slow.port})", f"  - {slow.rule(allowed)}", *more]
    return "\n".join([*lines, f"modes: {{network: {mode}}}", ""])


def change(place: Setting, text: str) -> None:
    place.office.policy(text)
    place.broker.reconsider()


def kept(place: Setting) -> list[object]:
    """Everything that the supervisor still knows of requests and connections of this egress."""
    run = place.broker._run
    assert run is not None
    questions = run.questions
    tables = (
        questions._under_way,
        questions._grants,
        questions._approved,
        questions._of_addresses,
        run.asking,
    )
    return [one for table in tables for one in table]


def on_record(place: Setting) -> str:
    """What is on record of ends: that of a grant, or the verdict that ended what had none."""
    lines = [*place.office.audited("effect_settled"), *place.office.audited("verdict_given")]
    return "\n".join(line for line in lines if "allowed no longer" in line)


CHANGES = {
    "the rule is gone": lambda slow: policy(slow, allowed="/other"),
    "and nothing is asked": lambda slow: policy(slow, allowed="/other", mode="deny"),
    "the rule for the address is gone": lambda slow: f"allow:\n  - {slow.rule('/go/**')}\n",
    "a deny rule came": lambda slow: policy(slow, "deny:", f"  - {slow.rule('/go/*')}"),
    "an ask rule came": lambda slow: policy(slow, "ask:", f"  - {slow.rule('/go/*')}"),
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("to", CHANGES.values(), ids=CHANGES)
async def test_a_request_under_way_ends_when_the_rules_allow_it_no_longer(
    place: Setting, slow: Slow, method: str, to: Callable[[Slow], str]
) -> None:
    place.office.policy(policy(slow))
    async with going(place, slow, "/go/on", method) as exchange:
        place.broker.reconsider()
        change(place, policy(slow, "deny:", f"  - {slow.rule('/unrelated')}"))
        assert not on_record(place), "a rule for something else ends nothing"
        change(place, to(slow))
        await exchange.is_cut()
        await slow.left.wait()
        assert not slow.whole, "the origin doesn't take what it has for all of it"
    await until(lambda: not kept(place))
    await until(lambda: on_record(place))
    said, *_ = [
        one
        for one in place.office.network_log.of_session(place.session_id)
        if one.action.path == "/go/on"
    ]
    assert said.error.startswith("allowed no longer")
    assert len(on_record(place).splitlines()) == 1


async def test_a_client_cant_take_what_it_has_for_a_whole_answer(
    place: Setting, slow: Slow
) -> None:
    place.office.policy(policy(slow))
    async with going(place, slow, "/go/unframed") as exchange:
        change(place, policy(slow, allowed="/other"))
        await exchange.is_cut()


async def test_what_a_person_approved_only_a_denial_ends(place: Setting, slow: Slow) -> None:
    place.office.policy(policy(slow, allowed="/other"))

    async def approve() -> None:
        place.office.gate.resolve((await place.office.asked()).id, "approved", by="tester")

    approving = asyncio.create_task(approve())
    async with going(place, slow, "/go/on", "POST") as exchange:
        await approving
        change(place, policy(slow, "ask:", f"  - {slow.rule('/go/*')}", allowed="/other"))
        exchange.writer.write(b"6\r\nsecond\r\n")
        await until(lambda: slow.received == b"firstsecond")
        change(place, policy(slow, "deny:", f"  - {slow.rule('/go/*')}", allowed="/other"))
        await exchange.is_cut()
    await until(lambda: not kept(place))
    assert "allowed no longer" in on_record(place)


async def test_the_approval_of_a_connection_covers_what_is_under_way_in_it(
    place: Setting, authority: trustme.CA
) -> None:
    slow = Slow("https")
    server = await asyncio.start_server(
        slow.serve, "127.0.0.1", 0, ssl=server_context(authority, "origin.test")
    )
    slow.port = server.sockets[0].getsockname()[1]
    address = f"allow:\n  - network(127.0.0.1:{slow.port})\n"
    looks_inside = f"deny:\n  - {slow.rule('/never')}\n"
    place.office.policy(address + looks_inside)

    async def approve() -> None:
        place.office.gate.resolve((await place.office.asked()).id, "approved", by="tester")

    approving = asyncio.create_task(approve())
    async with going(place, slow, "/go/on", "POST") as exchange:
        await approving
        # By a rule of its own from now on, and then by none again: the person's answer to the
        # connection speaks for it all the time.
        change(place, f"{address}  - {slow.rule('/go/*')}\n{looks_inside}")
        change(place, address + looks_inside)
        exchange.writer.write(b"6\r\nsecond\r\n")
        await until(lambda: slow.received == b"firstsecond")
        change(place, f"{address}deny:\n  - {slow.rule('/go/*')}\n")
        await exchange.is_cut()
    server.close()
    await until(lambda: not kept(place))


async def test_of_several_streams_only_the_one_ends_that_is_allowed_no_longer(
    place: Setting, h2: H2Origin
) -> None:
    def rules(*paths: str) -> str:
        lines = [f"  - network(* https://origin.test:{h2.port}{path})" for path in paths]
        return "\n".join(
            ["allow:", f"  - network(127.0.0.1:{h2.port})", *lines, "modes: {network: deny}", ""]
        )

    async def echoes(client: H2Client) -> None:
        number, stream = echoing
        client.send(number, b".")
        known = len(stream.body)
        await client.until(lambda: len(stream.body) > known)

    place.office.policy(rules("/open", "/echo", "/lies"))
    async with h2_client(proxy(place), f"origin.test:{h2.port}", place.ca_file) as client:
        echoing = client.ask("/echo", method="POST", end=False)
        _, down = client.ask("/open")
        number, up = client.ask("/lies", method="POST", end=False)
        client.send(number, SAID)
        await client.until(lambda: down.status == 200)
        await until(lambda: SAID in h2.received)
        place.broker.reconsider()
        await echoes(client)
        assert not up.over
        assert not down.over

        change(place, rules("/echo", "/lies"))
        await client.until(lambda: down.over)
        await h2.until_reset("/open")
        await echoes(client)
        assert not up.over
        change(place, rules("/echo"))
        await client.until(lambda: up.over)
        await h2.until_reset("/lies")
        await echoes(client)
        await until(lambda: len(kept(place)) == 2)  # the connection, and what goes on in it
    await until(lambda: not kept(place))
    found = {
        one.action.path: one.error for one in place.office.network_log.of_session(place.session_id)
    }
    assert found["/open"].startswith("allowed no longer")
    assert found["/lies"].startswith("allowed no longer")
    assert "no longer" not in found["/echo"]
    assert len(on_record(place).splitlines()) == 2


async def test_nothing_is_kept_of_requests_that_are_over(
    place: Setting, slow: Slow, h2: H2Origin
) -> None:
    """However they ended: whole, refused, given up, reset, with their connection."""
    h2_rule = f"  - network(* https://origin.test:{h2.port}/**)"
    place.office.policy(policy(slow, h2_rule, f"  - network(127.0.0.1:{h2.port})", mode="deny"))

    async def some(path: str) -> None:
        async with going(place, slow, path):
            pass

    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(some("/go/on"))
    for path, status in [("/go/short", 200), ("/no", 403)] * 10:
        with contextlib.suppress(asyncio.IncompleteReadError):
            at = f"origin.test:{slow.port}"
            if slow.scheme == "https":
                reader, writer = await proxy(place).tunnel(at, trust=place.ca_file)
            else:
                reader, writer = await proxy(place).open()
            writer.write(
                f"GET {'' if slow.scheme == 'https' else 'http://' + at}{path} HTTP/1.1\r\nHost:"
                f" {at}\r\n\r\n".encode()
            )
            assert status_of(await reader.read()) == status
            writer.close()
    async with h2_client(proxy(place), f"origin.test:{h2.port}", place.ca_file) as client:
        for _ in range(50):
            assert (await client.answered("/")).status == 200
        for _ in range(20):
            number, stream = client.ask("/open")
            await client.until(lambda stream=stream: stream.status == 200)  # type: ignore[misc]
            client.reset(number)
        for _ in range(5):
            client.ask("/open")
    await until(lambda: not kept(place))
