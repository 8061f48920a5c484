"""Both doors over real parts: in process by httpx's ASGI transport, and on real sockets by
uvicorn."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar

from supervisor.reviews.pages import jobs_page, metrics, reviews_page
from supervisor.server.app import build_agent_app, build_operator_app
from supervisor.server.common.auth import OperatorAuth
from supervisor.server.common.listening import listen
from supervisor.server.common.request_guard import CSRF_HEADER
from supervisor.server.common.serve import Serving, serve_agent, serve_operator
from tests.fakes import handlers_read_once
from tests.fakes.parts import PORT, FakeParts

handlers_read_once.install()

ORIGIN = f"http://127.0.0.1:{PORT}"
# A bound for what should take milliseconds, on a machine that does ten other things.
PATIENCE_S = 90.0


@pytest.fixture
def parts(tmp_path: Path) -> Any:
    made = FakeParts(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
async def running(parts: FakeParts) -> AsyncIterator[FakeParts]:
    """The same parts, with requests being carried out."""
    async with parts.running():
        yield parts


@pytest.fixture
def auth(parts: FakeParts) -> OperatorAuth:
    return parts.new_auth()


@pytest.fixture
def app(parts: FakeParts, auth: OperatorAuth) -> Litestar:
    """The whole app, with the pages: so that their routes are walked too."""
    return build_operator_app(parts, auth, (reviews_page, jobs_page, metrics))


def client_of(app: Litestar, port: int = PORT, **headers: str) -> httpx.AsyncClient:
    """A client that speaks to an app without a socket."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url=f"http://127.0.0.1:{port}", headers=headers
    )


@pytest.fixture
async def nobody(app: Litestar) -> AsyncIterator[httpx.AsyncClient]:
    """A caller without credentials."""
    async with client_of(app) as client:
        yield client


@pytest.fixture
async def cli(app: Litestar, auth: OperatorAuth) -> AsyncIterator[httpx.AsyncClient]:
    """The CLI."""
    async with client_of(app, authorization=f"Bearer {auth.cli_token}") as client:
        yield client


@pytest.fixture
async def browser(app: Litestar, auth: OperatorAuth) -> AsyncIterator[httpx.AsyncClient]:
    """A page of the operator's: signed in, with its origin and its CSRF token."""
    async with client_of(app) as client:
        await sign_in(client, auth)
        yield client


async def sign_in(client: httpx.AsyncClient, auth: OperatorAuth) -> None:
    answer = await client.get("/login", params={"token": auth.new_login_token()})
    assert answer.status_code == 200
    caller = auth.by_cookie(client.cookies[auth.cookie_name])
    assert caller is not None
    client.headers[CSRF_HEADER] = caller.csrf
    client.headers["origin"] = f"http://127.0.0.1:{auth.port}"


@pytest.fixture
async def agent(parts: FakeParts) -> AsyncIterator[httpx.AsyncClient]:
    """The agent of session `one` at its door."""
    async with client_of(
        build_agent_app(parts, "one"), authorization="Bearer token-of-one"
    ) as client:
        yield client


@dataclass
class OnSocket:
    """A door on a real port of the loopback."""

    serving: Serving
    app: Litestar
    auth: OperatorAuth

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.serving.port}"


@pytest.fixture
async def operator_door(running: FakeParts) -> AsyncIterator[OnSocket]:
    sock = listen(0)
    auth = running.new_auth(sock.getsockname()[1])
    app = build_operator_app(running, auth)
    async with on_socket(serve_operator(app, sock)) as serving:
        yield OnSocket(serving, app, auth)


@pytest.fixture
async def agent_door(running: FakeParts) -> AsyncIterator[OnSocket]:
    app = build_agent_app(running, "one")
    async with on_socket(serve_agent(app, listen(0))) as serving:
        yield OnSocket(serving, app, running.new_auth())


@contextlib.asynccontextmanager
async def on_socket(serving: Serving) -> AsyncIterator[Serving]:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serving.run())
        await serving.started.wait()
        yield serving
        await serving.stop()
