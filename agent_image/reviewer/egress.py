"""GET through the sandbox's proxy, keeping the proxy's reason when it refuses.

The libraries don't show the body of a refused CONNECT, where egress gives its reason (`{error, why,
remedy, rule, request_id}`). It verifies certificates like any client.
"""

import http.client
import json
import os
import re
import socket
import ssl
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import msgspec

# Longer than egress holds an asked connection open (60 s by default).
_TIMEOUT_S = 90.0
_REFUSAL_BYTES = 64 * 1024
_WRITABLE = re.compile(r"[!-~]+")


class Fetched(msgspec.Struct, frozen=True):
    """A server's answer, or the proxy's refusal if `refusal` isn't None."""

    status: int
    body: bytes
    refusal: dict[str, Any] | None = None


class FetchError(Exception):
    """There was no answer at all. Its text is one line."""


def fetch(url: str, limit_bytes: int, *, method: str = "GET") -> Fetched:
    """Send one request for `url` through the proxy in the environment. Raise `FetchError`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise FetchError(
            f"`{url!r}` is not an address: {error}; give one like https://example.com/"
        ) from error
    # INVARIANT: only printable ASCII without spaces is written into a request line or header.
    if parts.scheme not in ("http", "https") or not host or not _WRITABLE.fullmatch(url):
        raise FetchError(
            f"`{url!r}` is not an http or https address; give one like https://example.com/"
        )
    try:
        return _through_proxy(url, parts.scheme, host, port, method, limit_bytes)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchError(f"`{url}` can't be fetched: {error}") from error


def _through_proxy(
    url: str, scheme: str, host: str, port: int | None, method: str, limit_bytes: int
) -> Fetched:
    port = port or (443 if scheme == "https" else 80)
    proxy = urlsplit(urllib.request.getproxies().get(scheme, ""))
    direct = not proxy.hostname or bool(urllib.request.proxy_bypass(host))
    address = (host, port) if direct else (str(proxy.hostname), proxy.port or 80)
    with socket.create_connection(address, timeout=_TIMEOUT_S) as plain_socket:
        if scheme == "http":
            return _exchange(
                plain_socket, method, _target(url) if direct else url, host, limit_bytes
            )
        if not direct and (refused := _tunnel(plain_socket, host, port)):
            return refused
        with ssl.create_default_context().wrap_socket(plain_socket, server_hostname=host) as secure:
            return _exchange(secure, method, _target(url), host, limit_bytes)


def _tunnel(connection: socket.socket, host: str, port: int) -> Fetched | None:
    connection.sendall(
        f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode("ascii")
    )
    response = http.client.HTTPResponse(connection, method="CONNECT")
    response.begin()
    if response.status == 200:
        return None
    # HTTPResponse reads no body for CONNECT, but a refusal has one.
    length = min(int(response.headers.get("content-length") or 0), _REFUSAL_BYTES)
    body = response.fp.read(length) if length else b""
    return Fetched(
        response.status,
        body,
        _refusal(response.status, body) or {"error": f"the proxy answers {response.status}"},
    )


def _exchange(
    connection: socket.socket, method: str, target: str, host: str, limit_bytes: int
) -> Fetched:
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent:"
        " gatehouse-reviewer\r\nConnection: close\r\n\r\n"
    )
    connection.sendall(head.encode("ascii"))
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    body = response.read(limit_bytes)
    return Fetched(response.status, body, _refusal(response.status, body))


def _refusal(status: int, body: bytes) -> dict[str, Any] | None:
    """Return the refusal of egress, or None where a 403 is the server's own."""
    if status != 403:
        return None
    try:
        known = json.loads(body)
    except ValueError:
        return None
    return known if isinstance(known, dict) and "why" in known and "request_id" in known else None


def _target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def proxy_is_set() -> bool:
    """Return whether the environment names a proxy for HTTPS."""
    return bool(os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"))


def refusal_at(url: str) -> dict[str, Any] | None:
    """Return the proxy's reason if it refuses connections there: libraries drop that. None where it
    doesn't, or there is no proxy."""
    if not proxy_is_set():
        return None
    try:
        return fetch(url, 10_000, method="HEAD").refusal
    except FetchError:
        return None
