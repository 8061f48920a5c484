"""The demo forge over HTTP on loopback: its two APIs, its page of a pull request, and git.

Git is served by git's own `git http-backend` (git-http-backend(1)), as a CGI program.
"""

import base64
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from supervisor.reviews.demo import bitbucket_json, bitbucket_routes, pull_page, rest
from supervisor.reviews.demo.api_call import Call, Refusal
from supervisor.reviews.demo.forge import DemoForge
from supervisor.reviews.demo.state import Json

GITHUB_API = "/api"
type Route = tuple[str, str, Callable[..., tuple[int, Any]]]
_APIS: dict[str, tuple[list[Route], Json]] = {
    GITHUB_API: (rest.ROUTES, {"message": "Not Found"}),
    bitbucket_json.API: (
        bitbucket_routes.ROUTES,
        {"type": "error", "error": {"message": "Resource not found"}},
    ),
}
# A pull request for people, and the sheets of that page.
_PAGE = re.compile(r"/([^/]+/[^/]+)/pull(?:-request)?s?/([0-9]{1,9})|/-/([a-z]+\.css)")
_GIT_USERS = {"access": "x-token-auth", "api": "x-bitbucket-api-token-auth"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"
    body: bytes

    def _any(self) -> None:
        forge = self.server.forge
        self.body = self._read()
        where = urlsplit(self.path)
        with forge.lock:
            forge.calls.append((self.command, where.path))
            forge.review_ids.append(self.headers.get("X-Review-Id", ""))
        if forge.is_down:
            self._answer(503, {"message": "No server is currently available"})
            return
        for api, (routes, missing) in _APIS.items():
            if where.path.startswith(f"{api}/"):
                path = where.path.removeprefix(api)
                self._rest(forge, routes, path, where.query, missing)
                return
        if self.command == "GET" and (found := _PAGE.fullmatch(where.path)):
            self._page(forge, found)
        else:
            self._git(forge, where.path, where.query)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _any  # noqa: N815

    def _rest(
        self, forge: DemoForge, routes: list[Route], path: str, query: str, missing: Json
    ) -> None:
        for (method, part), status in list(forge.refuses.items()):
            if method == self.command and part in path:
                self._answer(status, {"message": "refused by the test"})
                return
        for method, pattern, answer in routes:
            found = re.fullmatch(pattern, path)
            if found and method == self.command:
                call = Call(forge, dict(self.headers.items()), self.body, path, query)
                try:
                    status, body = answer(call, *found.groups())
                    for (verb, part), done in list(forge.after.items()):
                        if verb == self.command and part in path:
                            done()
                    self._answer(status, body, call.headers)
                except ConnectionError:  # of an `after`: it is done, and the answer is lost
                    self.close_connection = True
                except Refusal as refusal:
                    self._answer(refusal.status, refusal.body, call.headers | refusal.headers)
                return
        self._answer(404, missing)

    def _page(self, forge: DemoForge, found: re.Match[str]) -> None:
        """Answer with a pull request's page, or a sheet of its."""
        repository = forge.repositories.get(found[1] or "")
        pull = repository and repository.pulls.get(int(found[2]))
        if found[3] in pull_page.SHEETS:
            self._send(200, pull_page.sheet(found[3]), "text/css; charset=utf-8")
        elif repository and pull:
            html = pull_page.pull_page(forge, repository, pull)
            self._send(200, html.encode("utf-8", "replace"), "text/html; charset=utf-8")
        else:
            self._answer(404, {"message": "Not Found"})

    def _git(self, forge: DemoForge, path: str, query: str) -> None:
        name = path.lstrip("/").partition(".git/")[0]
        writes = "git-receive-pack" in path + query
        if not self._may(forge, name, writes=writes):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        headers = {key.lower(): value for key, value in self.headers.items()}
        found = answer(forge.folder, self.command, path, query, headers, self.body)
        if writes and self.command == "POST":
            forge.heads_moved(name)
            for (verb, part), done in list(forge.after.items()):
                if verb == "PUSH" and part in path:
                    done()
        self.send_response(found.status)
        for key, value in found.headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(found.body)))
        self.end_headers()
        self.wfile.write(found.body)

    def _may(self, forge: DemoForge, name: str, *, writes: bool) -> bool:
        """Return whether a program of git's may read a repository, or push to it."""
        repository = forge.repositories.get(name)
        if repository is None or repository.is_gone:
            return False
        if repository.is_public and not writes:
            return True
        scheme, _, given = self.headers.get("authorization", "").partition(" ")
        user, value = "", ""
        if scheme.lower() == "basic":
            with contextlib.suppress(ValueError):
                user, _, value = base64.b64decode(given).decode("latin-1").partition(":")
        token = forge.tokens.get(value)
        if token is None or token.expires_at <= time.time() or not token.reaches(name):
            return False
        if token.kind == "installation":
            wanted = ("write",) if writes else ("read", "write")
            return token.permissions.get("contents") in wanted
        scope = "repository:write" if writes else "repository"
        return user == _GIT_USERS[token.kind] and scope in bitbucket_routes.scopes_of(token)

    def _read(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            found = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return found
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        kind = "application/json; charset=utf-8"
        self._send(status, b"" if status == 204 else data, kind, headers)

    def _send(
        self, status: int, data: bytes, kind: str, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'self'")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, forge: DemoForge, port: int) -> None:
        self.forge = forge
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a caller who went away, as at the end of the demo."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def serving(forge: DemoForge, port: int = 0) -> Iterator[str]:
    """Serve the forge; yield the base of its GitHub API."""
    with _Server(forge, port) as server:
        forge.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        thread.start()
        try:
            yield forge.url + GITHUB_API
        finally:
            forge.stop()
            server.shutdown()
            thread.join()


class CgiAnswer(NamedTuple):
    """The CGI program's response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def answer(
    root: Path, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
) -> CgiAnswer:
    """Return the response to a request about the repository at `path` below `root`."""
    env = {
        "PATH": os.defpath,
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "REMOTE_USER": "",
        "GIT_PROTOCOL": headers.get("git-protocol", ""),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
    }
    done = subprocess.run(
        ["git", "http-backend"], env=env, input=body, capture_output=True, check=False
    )
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    status, found = 200, []
    for line in head.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(": ")
        if name.lower() == "status":
            status = int(value.split()[0])
        elif name:
            found.append((name, value))
    return CgiAnswer(status, found, content)
