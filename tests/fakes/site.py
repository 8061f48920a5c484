"""A local web site that real clients talk to: a page, a Python package index, an npm registry and a
git repository.

The same content over HTTPS (a certificate of the test's own authority) and over plain HTTP. It
is on loopback, keeps to a temporary folder, and reaches nothing.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import ssl
import subprocess
import tarfile
import threading
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import trustme

from tests.fakes.quiet_http import QuietHandler, QuietServer
from tests.fakes.supervised import git, make_repository

PACKAGE, VERSION = "gatehouse-demo", "1.0"
WHEEL = "gatehouse_demo-1.0-py3-none-any.whl"
HELLO = b"hello from outside\n"


@dataclass
class Site:
    """`with Site(folder, authority, names) as site:`; `requests` are the request lines that
    arrived, `connections` the number of connections.

    `locked` are the hosts that want a header, and its value: whoever comes without reads a 401.
    """

    folder: Path
    authority: trustme.CA
    names: tuple[str, ...]
    requests: list[str] = field(default_factory=list)
    connections: int = 0
    locked: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.repository = self.folder / "project.git"
        source = make_repository(self.folder / "source", {"code.py": "print('cloned')\n"})
        git(self.folder, "clone", "-q", "--bare", str(source), str(self.repository))
        git(self.repository, "config", "http.receivepack", "true")
        self._servers = [_Server(("127.0.0.1", 0), _Handler) for _ in range(2)]
        secure = trustme_context(self.authority, *self.names)
        self._servers[0].socket = secure.wrap_socket(self._servers[0].socket, server_side=True)
        for server in self._servers:
            server.site = self
            threading.Thread(
                target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
            ).start()
        self.https_port, self.http_port = (
            int(server.server_address[1]) for server in self._servers
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    @property
    def untouched(self) -> bool:
        """Whether nobody has even connected since the last `forget`."""
        return self.connections == 0 and not self.requests

    def forget(self) -> None:
        self.requests.clear()
        self.connections = 0

    def https(self, name: str, path: str = "/") -> str:
        return f"https://{name}:{self.https_port}{path}"

    def http(self, name: str, path: str = "/") -> str:
        return f"http://{name}:{self.http_port}{path}"

    def page(self, path: str, base: str) -> tuple[str, bytes] | None:
        """Content type and body of a path; None where there is nothing."""
        match path:
            case "/" | "/forbidden/page":
                return "text/plain", HELLO
            case "/simple/gatehouse-demo/":
                digest = hashlib.sha256(_wheel()).hexdigest()
                return "text/html", f'<a href="/files/{WHEEL}#sha256={digest}">{WHEEL}</a>'.encode()
            case "/npm/gatehouse-demo":
                return "application/json", json.dumps(_npm_metadata(base)).encode()
            case "/npm/gatehouse-demo.tgz":
                return "application/octet-stream", _npm_tarball()
        return ("application/zip", _wheel()) if path == f"/files/{WHEEL}" else None


def trustme_context(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    """A server's TLS context with a certificate for these names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


class _Server(QuietServer):
    site: Site

    def get_request(self) -> tuple[Any, Any]:
        self.site.connections += 1
        return super().get_request()


class _Handler(QuietHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        site = self.server.site
        site.requests.append(f"{self.command} {self.path}")
        path = urlsplit(self.path).path
        header, value = site.locked.get(self.headers["host"].partition(":")[0], ("", ""))
        if header and self.headers[header] != value:
            self.body()
            return self.respond(401, "text/plain", b"who are you\n")
        if path.startswith("/project.git/"):
            return self._git(site)
        found = site.page(path, f"https://{self.headers['host']}")
        return (
            self.respond(200, *found)
            if found
            else self.respond(404, "text/plain", b"nothing here\n")
        )

    def _git(self, site: Site) -> None:
        """git's own server program, as a CGI script (git-http-backend(1))."""
        url = urlsplit(self.path)
        body = self.body()
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(site.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": url.path,
            "QUERY_STRING": url.query,
            "CONTENT_TYPE": self.headers.get("content-type") or "",
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding") or "",
            "GIT_PROTOCOL": self.headers.get("git-protocol") or "",
            "REMOTE_USER": "tester",
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=env, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.respond(
            int(fields.pop("Status", "200").split()[0]),
            fields.get("Content-Type", "text/plain"),
            content,
        )


def _wheel() -> bytes:
    """A package without code, as small as pip takes it."""
    info = f"gatehouse_demo-{VERSION}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\n",
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        f"{info}/RECORD": "",
    }
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return data.getvalue()


def _npm_tarball() -> bytes:
    data = io.BytesIO()
    text = json.dumps({"name": PACKAGE, "version": "1.0.0"}).encode()
    with tarfile.open(fileobj=data, mode="w") as archive:
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return gzip.compress(data.getvalue(), mtime=0)


def _npm_metadata(base: str) -> dict[str, Any]:
    digest = base64.b64encode(hashlib.sha512(_npm_tarball()).digest()).decode()
    dist = {"tarball": f"{base}/npm/gatehouse-demo.tgz", "integrity": f"sha512-{digest}"}
    version = {"name": PACKAGE, "version": "1.0.0", "dist": dist}
    return {"name": PACKAGE, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
