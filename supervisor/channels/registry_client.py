"""Asks package registries about packages: a client of ours, through egress like everybody's.

It reads and decides nothing. A question that fails, or takes too long, has no answer: what it would
have told is unknown then.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

import httpx

from supervisor.channels.install_sandbox import CloseReach, Hosts, OpenReach

AT_ONCE = 8
EACH_S = 10.0
ALL_S = 30.0
MOST_BYTES = 20 * 1024 * 1024
# PEP 691: the Simple API in JSON. Others give JSON anyhow.
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/json;q=0.9, */*;q=0.1"


class RegistryClient:
    """`ca_bundle` has the certificates that sandboxes trust."""

    def __init__(self, open_reach: OpenReach, close_reach: CloseReach, ca_bundle: Path) -> None:
        self._open_reach = open_reach
        self._close_reach = close_reach
        self._ca_bundle = ca_bundle

    async def fetch(self, session_id: str, urls: Iterable[str], hosts: Hosts) -> dict[str, bytes]:
        """Return the answers that came, by URL."""
        wanted = list(dict.fromkeys(urls))
        if not wanted or not hosts:
            return {}
        listener = socket.create_server(("127.0.0.1", 0), backlog=AT_ONCE)
        try:
            port = listener.getsockname()[1]
            stand_in = await self._open_reach(session_id, listener, hosts)
            try:
                return await self._fetch_all(wanted, f"http://127.0.0.1:{port}")
            finally:
                await self._close_reach(stand_in)
        finally:
            listener.close()

    async def _fetch_all(self, urls: list[str], proxy: str) -> dict[str, bytes]:
        answers: dict[str, bytes] = {}
        turns = asyncio.Semaphore(AT_ONCE)
        trusted = ssl.create_default_context(cafile=str(self._ca_bundle))
        async with httpx.AsyncClient(
            proxy=proxy,
            verify=trusted,
            timeout=EACH_S,
            follow_redirects=True,
            trust_env=False,
            headers={"Accept": _ACCEPT, "User-Agent": "gatehouse"},
        ) as client:

            async def fetch(url: str) -> None:
                async with turns:
                    body = await _body(client, url)
                    if body is not None:
                        answers[url] = body

            try:
                async with asyncio.timeout(ALL_S), asyncio.TaskGroup() as tasks:
                    for url in urls:
                        tasks.create_task(fetch(url))
            except TimeoutError:
                pass
        return answers


async def _body(client: httpx.AsyncClient, url: str) -> bytes | None:
    """Return what an address answers; None where it fails or is too long."""
    found = bytearray()
    try:
        async with client.stream("GET", url) as answer:
            if answer.status_code != httpx.codes.OK:
                return None
            async for part in answer.aiter_bytes():
                found += part
                if len(found) > MOST_BYTES:
                    return None
    except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError):
        return None
    return bytes(found)
