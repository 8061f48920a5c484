"""Asks package registries about packages, through egress like all traffic.

It only reads (GET), without a secret, and decides nothing. If a request fails or takes too long,
its facts are unknown. An index may be hostile: answers come without a content coding, so that none
expands, and each is reduced at once to the facts needed.
"""

import asyncio
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urljoin

import httpcore

from supervisor.channels.install_sandbox import CloseReach, Hosts, OpenReach

AT_ONCE = 4
EACH_S = 10.0
ALL_S = 30.0
MOST_BYTES = 16 * 1024 * 1024
MOST_REDIRECTS = 3
_HEADERS = (
    # PEP 691: the Simple API in JSON. Others give JSON anyhow.
    ("Accept", "application/vnd.pypi.simple.v1+json, application/json;q=0.9, */*;q=0.1"),
    ("Accept-Encoding", "identity"),
    ("User-Agent", "gatehouse"),
)
_TIMES = dict.fromkeys(("connect", "read", "write", "pool"), EACH_S)


class _Door(httpcore.AnyIOBackend):
    """Dials a socket in a folder that only this user may enter, whatever address is asked for."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return await self.connect_unix_socket(self._path, timeout)


class RegistryClient:
    """`ca_bundle` has the certificates that sandboxes trust."""

    def __init__(self, open_reach: OpenReach, close_reach: CloseReach, ca_bundle: Path) -> None:
        self._open_reach = open_reach
        self._close_reach = close_reach
        self._ca_bundle = ca_bundle

    async def fetch[T](
        self,
        session_id: str,
        urls: Iterable[str],
        hosts: Hosts,
        *,
        own: Hosts,
        read: Callable[[str, bytes], T],
    ) -> dict[str, T]:
        """Return what `read` makes of each answer that came, by URL; it is called in a thread, and
        an answer that it finds a `ValueError` in is none. `own` as for a plan."""
        wanted = list(dict.fromkeys(urls))
        if not wanted or not hosts:
            return {}
        with tempfile.TemporaryDirectory(prefix="gatehouse-") as folder:
            door = Path(folder) / "door"
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(door))
                listener.listen(AT_ONCE)
                stand_in = await self._open_reach(session_id, listener, hosts, own)
                try:
                    return await self._fetch_all(wanted, door, read)
                finally:
                    await self._close_reach(stand_in)

    async def _fetch_all[T](
        self, urls: list[str], door: Path, read: Callable[[str, bytes], T]
    ) -> dict[str, T]:
        answers: dict[str, T] = {}
        turns = asyncio.Semaphore(AT_ONCE)
        # One at a time: JSON takes many times its length while it is read.
        reading = asyncio.Lock()
        trusted = ssl.create_default_context(cafile=str(self._ca_bundle))
        async with httpcore.AsyncHTTPProxy(
            "http://egress.invalid", ssl_context=trusted, network_backend=_Door(door)
        ) as proxy:

            async def fetch(url: str) -> None:
                async with turns:
                    body = await _body(proxy, url)
                    if body is None:
                        return
                    async with reading:
                        try:
                            answers[url] = await asyncio.to_thread(read, url, body)
                        except ValueError:
                            return

            try:
                async with asyncio.timeout(ALL_S), asyncio.TaskGroup() as tasks:
                    for url in urls:
                        tasks.create_task(fetch(url))
            except TimeoutError:
                pass
        return answers


async def _body(proxy: httpcore.AsyncConnectionPool, url: str) -> bytes | None:
    """Return what an address answers; None where it fails, is coded or is too long."""
    try:
        for _ in range(MOST_REDIRECTS + 1):
            async with proxy.stream(
                "GET", url, headers=list(_HEADERS), extensions={"timeout": _TIMES}
            ) as answer:
                said = {name.lower(): value for name, value in answer.headers}
                if answer.status in (301, 302, 303, 307, 308):
                    url = urljoin(url, said.get(b"location", b"").decode("ascii"))
                    continue
                if (
                    answer.status != 200
                    or said.get(b"content-encoding", b"identity") != b"identity"
                ):
                    return None
                return await _whole(answer)
    except (httpcore.UnsupportedProtocol, httpcore.NetworkError, httpcore.ProtocolError):
        return None
    except (httpcore.ProxyError, httpcore.TimeoutException, ssl.SSLError, OSError, ValueError):
        return None
    return None


async def _whole(answer: httpcore.Response) -> bytes | None:
    found = bytearray()
    async for part in answer.aiter_stream():
        found += part
        if len(found) > MOST_BYTES:
            return None
    return bytes(found)
