"""WebSockets by the rules of a real gate, with a real client and server: judged by path, both
ways, ended when no longer allowed."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
import trustme
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidProxyStatus, InvalidStatus
from websockets.http11 import Request

from tests.egress.egress_harness import server_context
from tests.fakes.waiting import PATIENCE_S
from tests.network.conftest import Setting


@dataclass
class Chat:
    """A server that sends each message back; `paths` of the upgrades that arrived, and all that
    was said."""

    port: int = 0
    paths: list[str] = field(default_factory=list)
    heard: list[str | bytes] = field(default_factory=list)
    extensions: list[str] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def talk(self, connection: ServerConnection) -> None:
        self.extensions += [extension.name for extension in connection.protocol.extensions]
        try:
            async for message in connection:
                self.heard.append(message)
                await connection.send(message)
        finally:
            self.ended.set()

    def note(self, connection: ServerConnection, request: Request) -> None:
        self.paths.append(request.path)


@pytest_asyncio.fixture
async def chat(authority: trustme.CA) -> AsyncIterator[Chat]:
    found = Chat()
    context = server_context(authority, "origin.test", "127.0.0.1")
    async with serve(found.talk, "127.0.0.1", 0, ssl=context, process_request=found.note) as server:
        found.port = next(iter(server.sockets)).getsockname()[1]
        yield found


@contextlib.asynccontextmanager
async def chatting(
    place: Setting, chat: Chat, path: str = "/chat"
) -> AsyncIterator[ClientConnection]:
    trust = ssl.create_default_context(cafile=str(place.ca_file))
    async with connect(
        f"wss://origin.test:{chat.port}{path}", ssl=trust, proxy=place.url
    ) as socket:
        yield socket


def tunnelled(chat: Chat) -> str:
    return f"allow:\n  - network(origin.test:{chat.port})\n  - network(127.0.0.1:{chat.port})\n"


def looked_into(chat: Chat, *more: str) -> str:
    rules = (
        f"network(GET https://origin.test:{chat.port}/chat)",
        f"network(127.0.0.1:{chat.port})",
    )
    return "\n".join(["allow:", *(f"  - {rule}" for rule in rules), *more, ""])


WAYS = {"tunnelled": tunnelled, "looked into": looked_into}
WAY = pytest.mark.parametrize("rules", WAYS.values(), ids=WAYS)


@WAY
async def test_frames_of_every_kind_pass_both_ways(place: Setting, chat: Chat, rules) -> None:  # type: ignore[no-untyped-def]
    place.office.policy(rules(chat))
    said = ["hello" * 1000, b"\x00\xff", os.urandom(300_000), "", "é\u200b"]
    async with chatting(place, chat) as socket:
        for message in said:
            await socket.send(message)
            assert await socket.recv() == message
        await socket.send(["in ", "pieces"])
        assert await socket.recv() == "in pieces"
        assert await (await socket.ping()) > 0
    assert chat.heard == [*said, "in pieces"]
    assert chat.paths == ["/chat"]
    assert chat.extensions == ["permessage-deflate"]
    await chat.ended.wait()


async def test_an_upgrade_is_judged_by_its_path(place: Setting, chat: Chat) -> None:
    place.office.policy(looked_into(chat, "modes: {network: deny}"))
    with pytest.raises(InvalidStatus) as refused:
        async with chatting(place, chat, "/admin"):
            pass
    assert refused.value.response.status_code == 403
    assert chat.paths == []
    assert chat.heard == []


async def test_a_tunnel_that_is_denied_carries_nothing(place: Setting, chat: Chat) -> None:
    place.office.policy(f"deny:\n  - network(origin.test:{chat.port})\n")
    with pytest.raises(InvalidProxyStatus, match="403"):
        async with chatting(place, chat):
            pass
    assert chat.paths == []


async def test_an_upgrade_that_is_asked_waits_for_the_answer(place: Setting, chat: Chat) -> None:
    place.office.policy(looked_into(chat))

    async def approve() -> None:
        request = await place.office.asked()
        assert request.action.path == "/other"  # type: ignore[union-attr]
        assert chat.paths == [], "nothing is sent before the answer"
        place.office.gate.resolve(request.id, "approved", by="tester")

    approving = asyncio.create_task(approve())
    async with chatting(place, chat, "/other") as socket:
        await socket.send("hello")
        assert await socket.recv() == "hello"
        place.broker.reconsider()
        await socket.send("an approval isn't taken back by a rule that would only have asked")
        assert (await socket.recv()).startswith("an approval")  # type: ignore[arg-type]
    await approving
    assert chat.paths == ["/other"]


CHANGES = {
    "the rule is gone": lambda chat: f"allow:\n  - network(127.0.0.1:{chat.port})\n",
    "a deny rule came": lambda chat: looked_into(
        chat, "deny:", f"  - network(* https://origin.test:{chat.port}/chat)"
    ),
    "an ask rule came": lambda chat: looked_into(
        chat, "ask:", f"  - network(* https://origin.test:{chat.port}/chat)"
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@WAY
async def test_it_ends_when_the_rules_allow_it_no_longer(
    place: Setting, chat: Chat, rules, change
) -> None:  # type: ignore[no-untyped-def]
    place.office.policy(rules(chat))
    async with chatting(place, chat) as socket:
        await socket.send("before")
        assert await socket.recv() == "before"
        place.broker.reconsider()
        await socket.send("still")
        assert await socket.recv() == "still"
        place.office.policy(change(chat))
        place.broker.reconsider()
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ConnectionClosed):
                await socket.recv()
            await chat.ended.wait()
    assert chat.heard == ["before", "still"]


async def test_what_it_was_is_on_record_once_it_ended(place: Setting, chat: Chat) -> None:
    place.office.policy(looked_into(chat))
    async with chatting(place, chat) as socket:
        await socket.send("hello" * 1000)
        await socket.recv()
        (open_one,) = [
            one
            for one in place.office.network_log.of_session(place.session_id)
            if one.action.path == "/chat"
        ]
        assert open_one.ended_at is None, "it goes on"
    async with asyncio.timeout(PATIENCE_S):
        while (ended := place.office.network_log.of_session(place.session_id)[0]).ended_at is None:
            await asyncio.sleep(0.01)
    assert ended.status == 101
    assert ended.up_bytes > 0
