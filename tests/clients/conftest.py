"""Two whole supervisors with real sandboxes and egress, one that waits long for answers and one
that doesn't, and the origins."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
import trustme
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from tests.clients.table import CHAT, Origin, build_programs
from tests.fakes.h2_origin import h2_origin
from tests.fakes.messages_server import MessagesServer, text
from tests.fakes.site import Site, trustme_context
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised

WAYS = ("tunnelled", "looked-into")
NAMES = [f"{verdict}.{way}.test" for way in WAYS for verdict in ("allowed", "denied", "asked")]
WHY = "this host is nobody's friend"


class Noting(Protocol):
    """An origin: what arrived there since it was told to forget."""

    @property
    def port(self) -> int: ...
    @property
    def untouched(self) -> bool: ...
    def forget(self) -> None: ...


@dataclass
class SiteOrigin:
    """The web site: a page, a package index, a registry, a git repository."""

    site: Site

    @property
    def port(self) -> int:
        return self.site.https_port

    @property
    def untouched(self) -> bool:
        return self.site.untouched

    def forget(self) -> None:
        self.site.forget()


@dataclass
class ModelOrigin:
    """A server that speaks the Messages API."""

    server: MessagesServer

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def untouched(self) -> bool:
        return self.server.connections == 0 and not self.server.requests

    def forget(self) -> None:
        self.server.connections = 0
        self.server.requests.clear()


@dataclass
class WebSocketOrigin:
    """Sends each message back. Who asks for `/greeting` is told something, and hung up on: curl
    of old has no way to say anything."""

    port: int = 0
    connections: int = 0
    requests: list[str] = field(default_factory=list)

    @property
    def untouched(self) -> bool:
        return self.connections == 0 and not self.requests

    def forget(self) -> None:
        self.connections = 0
        self.requests.clear()

    def connected(self, *arguments: Any, **options: Any) -> ServerConnection:
        """Somebody connected; nothing is read of it yet, nor of its TLS."""
        self.connections += 1
        return ServerConnection(*arguments, **options)

    async def talk(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        if connection.request.path == "/greeting":
            await connection.send(CHAT)
            connection.transport.close()
        async for message in connection:
            await connection.send(message)

    def note(self, connection: ServerConnection, request: Request) -> Response | None:
        self.requests.append(request.path)
        return None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def origins(
    authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Mapping[Origin, Noting]]:
    chat = WebSocketOrigin()
    context = trustme_context(authority, *NAMES)
    async with contextlib.AsyncExitStack() as stack:
        site = stack.enter_context(Site(tmp_path_factory.mktemp("site"), authority, tuple(NAMES)))
        model = stack.enter_context(
            MessagesServer(
                [text("hello from the model")] * 1000, follow="conversation", tls=context
            )
        )
        h2 = await stack.enter_async_context(h2_origin(authority, *NAMES))
        server = await stack.enter_async_context(
            serve(
                chat.talk,
                "127.0.0.1",
                0,
                ssl=context,
                process_request=chat.note,
                create_connection=chat.connected,
            )  # type: ignore[arg-type]
        )
        chat.port = next(iter(server.sockets)).getsockname()[1]
        yield {"site": SiteOrigin(site), "h2": h2, "websocket": chat, "model": ModelOrigin(model)}


def policy(ports: list[int]) -> str:
    """For each origin: a host of each verdict that only a host rule speaks of, and one with
    rules about what is inside."""
    allow, deny = [], []
    for port in ports:
        allow += [f"network(127.0.0.1:{port})", f"network(allowed.tunnelled.test:{port})"]
        allow.append(f"network(* https://allowed.looked-into.test:{port}/**)")
        # So that the CONNECT is allowed, and it is the request inside that is denied or asked.
        allow += [
            f"network(GET https://{verdict}.looked-into.test:{port}/open)"
            for verdict in ("asked", "denied")
        ]
        deny += [
            f"network(denied.tunnelled.test:{port})",
            f"network(* https://denied.looked-into.test:{port}/**)",
        ]
    lines = [
        "version: 1",
        "modes: {filesystem: deny}",
        "allow:",
        *(f"  - {rule}" for rule in allow),
        "deny:",
    ]
    return "\n".join([*lines, *(f"  - rule: {rule}\n    why: {WHY}" for rule in deny)])


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_repository(tmp_path_factory.mktemp("workspace") / "project")
    build_programs(folder / "programs")
    return folder


@contextlib.asynccontextmanager
async def running_with(
    origins: Mapping[Origin, Noting], upstream_ca: Path, folder: Path, hold_s: float
) -> AsyncIterator[Supervised]:
    rules = policy([origin.port for origin in origins.values()])
    settings = settings_in(folder, rules, upstream_ca=upstream_ca, hold_s=hold_s)
    async with supervised(settings, names=dict.fromkeys(NAMES, ("127.0.0.1",))) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient(
    origins: Mapping[Origin, Noting], upstream_ca: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Supervised]:
    async with running_with(
        origins, upstream_ca, tmp_path_factory.mktemp("patient"), 60.0
    ) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def impatient(
    origins: Mapping[Origin, Noting], upstream_ca: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Supervised]:
    """Holds what is asked for half a second."""
    async with running_with(
        origins, upstream_ca, tmp_path_factory.mktemp("impatient"), 0.5
    ) as running:
        yield running
