"""Measure the time from the page's answer to the answer to the held client's CONNECT.

It passes through all of ours: the operator's door, the gate with database and audit, the channel,
egress and its dial. The baseline is what a rule answers at once. Meanwhile a page is signed in and
listens, as a person's does.
"""

import asyncio
import json
import statistics
import time
from urllib.parse import urlencode

from bench import Figure
from bench._egress_ours import HOST, Ours
from bench.server import page_of

ANSWERS = 120


class _Operator:
    """A kept connection to the operator's door."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ours: Ours
    ) -> None:
        self._reader, self._writer = reader, writer
        self._head = f"Host: {HOST}:{ours.operator_port}\r\nAuthorization: Bearer {ours.token}\r\n"

    async def get(self, path: str) -> bytes:
        return await self._call("GET", path, "", b"")

    async def post(self, path: str, **fields: str) -> None:
        """Post a form as htmx does."""
        kind = "Content-Type: application/x-www-form-urlencoded\r\nHX-Request: true\r\n"
        await self._call("POST", path, kind, urlencode(fields).encode())

    async def _call(self, method: str, path: str, more: str, body: bytes) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\n{self._head}{more}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        said = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        found = await self._reader.readexactly(
            int(said.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        )
        assert b" 200 " in said[:13], found
        return found

    def close(self) -> None:
        self._writer.close()


async def answer_figures(ours: Ours, asked: int, unread: int) -> list[Figure]:
    """`asked` and `unread` are the ports of the origins of these sessions."""
    operator = _Operator(*await asyncio.open_connection(HOST, ours.operator_port), ours)
    held, by_rule = [], []
    try:
        async with page_of(ours.operator_port, ours.token) as page, asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(_listen(page))
            for _ in range(ANSWERS):
                by_rule.append(await _connect(ours.ports["unread"], unread, None))
                held.append(await _connect(ours.ports["asked"], asked, operator))
            listening.cancel()
    finally:
        operator.close()
    p95_ms, rule_ms = (statistics.quantiles(taken, n=20)[18] * 1000 for taken in (held, by_rule))
    return [
        Figure(
            "an answer on the page to the held client, p95",
            p95_ms,
            "ms",
            rule_ms,
            "a rule's, p95",
            limit=50,
        )
    ]


async def _listen(page: object) -> None:
    async for _ in page:  # type: ignore[attr-defined]
        pass


async def _connect(port: int, origin: int, operator: _Operator | None) -> float:
    """Return the seconds until a CONNECT is answered with 200: by a rule, or counted from the
    operator's approval."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        began = time.perf_counter()
        writer.write(f"CONNECT {HOST}:{origin} HTTP/1.1\r\nHost: {HOST}:{origin}\r\n\r\n".encode())
        answered = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
        posted = None
        if operator is not None:
            async with asyncio.timeout(20):
                while not (waiting := json.loads(await operator.get("/api/requests"))):
                    assert not answered.done(), await answered
                    await asyncio.sleep(0.002)
            [request] = waiting
            began = time.perf_counter()
            path = f"/requests/{request['id']}/approved"
            posted = asyncio.ensure_future(operator.post(path, fingerprint=request["fingerprint"]))
        head = await answered
        took_s = time.perf_counter() - began
        assert b" 200 " in head, head
        if posted is not None:
            await posted
        return took_s
    finally:
        writer.close()
