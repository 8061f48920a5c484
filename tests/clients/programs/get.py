"""Gets a URL with one of Python's HTTP clients: prints the body, ends with 0 where the status is 200."""

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
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    try:
        with connect(url, open_timeout=60) as socket:
            socket.send("hello" * 100)
            return 200, f"{socket.recv(timeout=60)} by {socket.protocol.extensions}"
    except InvalidStatus as error:
        return error.response.status_code, error.response.body.decode()


status, text = globals()[f"with_{sys.argv[1]}"](sys.argv[2])
print(status, text)
raise SystemExit(0 if status == 200 else 1)
