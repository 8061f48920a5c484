"""Gets a URL with one of Python's HTTP clients: prints the body, ends with 0 where the status is
200."""

import asyncio
import sys


def with_requests(url: str) -> tuple[int, str]:
    import requests

    answer = requests.get(url, timeout=60)
    return answer.status_code, answer.text


def with_httpx(url: str) -> tuple[int, str]:
    import httpx

    answer = httpx.get(url, timeout=60)
    return answer.status_code, answer.text


def with_httpx_h2(url: str) -> tuple[int, str]:
    import httpx

    with httpx.Client(http2=True, timeout=60) as client:
        answer = client.get(url)
    # It names HTTP/1.1 first, and is taken at its word where it is looked into.
    return answer.status_code, f"{answer.text} by {answer.http_version}"


def with_aiohttp(url: str) -> tuple[int, str]:
    import aiohttp

    async def get() -> tuple[int, str]:
        async with aiohttp.ClientSession(trust_env=True) as session, session.get(url) as answer:
            return answer.status, await answer.text()

    return asyncio.run(get())


def with_urllib(url: str) -> tuple[int, str]:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def with_websockets(url: str) -> tuple[int, str]:
    # Not `websockets.sync`: one thread of it reads while another writes, and Python lets both into
    # one TLS connection, where a session ticket that comes just then ends the process
    # (https://github.com/python/cpython/issues/143756).
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidStatus

    async def talk() -> tuple[int, str]:
        try:
            async with connect(url, open_timeout=60) as socket:
                await socket.send("hello" * 100)
                async with asyncio.timeout(60):
                    return 200, f"{await socket.recv()!s} by {socket.protocol.extensions}"
        except InvalidStatus as error:
            return error.response.status_code, error.response.body.decode()

    return asyncio.run(talk())


status, text = globals()[f"with_{sys.argv[1]}"](sys.argv[2])
print(status, text)
raise SystemExit(0 if status == 200 else 1)
