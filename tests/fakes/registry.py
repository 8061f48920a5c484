"""Package registries on loopback, for npm, pip, cargo and go: real HTTP, packages made here."""

import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry:
    """Serves what was added to it. `asked` are the paths of requests that read, in order, `seen`
    the method, path and headers of all."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.url = f"http://{host}:{port}"
        self.host = host
        self.port = port
        self.asked: list[str] = []
        self.seen: list[tuple[str, str, str]] = []
        self._turn: tuple[str, int, Callable[[], None]] | None = None
        self._bodies: dict[str, tuple[str, bytes]] = {}
        self._npm: dict[str, dict[str, Any]] = {}
        self._simple: dict[str, list[dict[str, Any]]] = {}
        self._crates: dict[str, list[dict[str, Any]]] = {}
        self._modules: dict[str, list[str]] = {}
        config = {"dl": f"{self.url}/dl/{{crate}}-{{version}}.crate", "api": self.url}
        self._put("/index/config.json", json.dumps(config).encode())

    def _put(self, path: str, body: bytes, kind: str = "application/json") -> None:
        self._bodies[path] = (kind, body)

    def add_npm(
        self,
        name: str,
        version: str,
        published: str = "2020-01-02T03:04:05.000Z",
        code: str = "1\n",
        **package: Any,
    ) -> None:
        """A package of npm; `package` are further entries of its package.json."""
        data = {"name": name, "version": version, "license": "MIT", **package}
        body = _tgz({"package/package.json": json.dumps(data), "package/index.js": code})
        path = f"/{name}/-/{version}.tgz"
        self._put(path, body, "application/octet-stream")
        document = self._npm.setdefault(
            name, {"name": name, "dist-tags": {}, "versions": {}, "time": {}}
        )
        document["dist-tags"]["latest"] = version
        document["time"][version] = published
        document["versions"][version] = data | {
            "dist": {
                "tarball": f"{self.url}{path}",
                "shasum": hashlib.sha1(body).hexdigest(),
                "integrity": f"sha512-{base64.b64encode(hashlib.sha512(body).digest()).decode()}",
                "unpackedSize": 120,
            },
            **({"hasInstallScript": True} if "scripts" in package else {}),
        }
        self._put(f"/{name}", json.dumps(document).encode())

    def add_wheel(
        self,
        name: str,
        version: str,
        published: str = "2020-01-02T03:04:05Z",
        yanked: str | bool = False,
        code: str = "",
        program: str = "",
    ) -> None:
        """A package of pip, as a wheel. `program`: what the program of its name runs."""
        stem = f"{name.replace('-', '_')}-{version}"
        metadata = (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense: MIT\n"
            f"Project-URL: Changelog, https://example.org/{name}/changes\n"
        )
        wheel = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        folder = f"{stem}.dist-info"
        files = {
            f"{name.replace('-', '_')}.py": f"VERSION = '{version}'\n{code}",
            f"{folder}/METADATA": metadata,
            f"{folder}/WHEEL": wheel,
        }
        if program:
            script = f"[console_scripts]\n{name} = {program}\n"
            files[f"{folder}/entry_points.txt"] = script
        record = "".join(f"{path},,\n" for path in (*files, f"{folder}/RECORD"))
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for path, text in (files | {f"{folder}/RECORD": record}).items():
                archive.writestr(path, text)
        file = f"{stem}-py3-none-any.whl"
        body = made.getvalue()
        self._put(f"/files/{file}", body, "application/octet-stream")
        self._simple.setdefault(name, []).append(
            {
                "filename": file,
                "url": f"{self.url}/files/{file}",
                "hashes": {"sha256": hashlib.sha256(body).hexdigest()},
                "upload-time": published,
                "size": len(body),
                "yanked": yanked,
            }
        )
        page = {"meta": {"api-version": "1.1"}, "name": name, "files": self._simple[name]}
        page["versions"] = sorted({one["filename"].split("-")[1] for one in page["files"]})
        self._put(
            f"/simple/{name}/", json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json"
        )

    def add_crate(self, name: str, version: str, published: str = "2020-01-02T03:04:05Z") -> None:
        """A package of cargo, in a sparse index."""
        manifest = f'[package]\nname = "{name}"\nversion = "{version}"\nedition = "2021"\n'
        stem = f"{name}-{version}"
        body = _tgz({f"{stem}/Cargo.toml": manifest, f"{stem}/src/lib.rs": ""})
        self._put(f"/dl/{stem}.crate", body, "application/octet-stream")
        entry = {"name": name, "vers": version, "deps": [], "features": {}, "yanked": False}
        entry["cksum"] = hashlib.sha256(body).hexdigest()
        self._crates.setdefault(name, []).append(entry)
        lines = "\n".join(json.dumps(one) for one in self._crates[name])
        self._put(f"/index/{name[:2]}/{name[2:4]}/{name}", lines.encode(), "text/plain")
        said = {"created_at": published, "crate_size": len(body), "license": "MIT"}
        self._put(
            f"/api/v1/crates/{name}/{version}",
            json.dumps({"version": said | {"yanked": False}}).encode(),
        )

    def add_go(
        self, name: str, version: str, code: str, needs: str = "", published: str = ""
    ) -> None:
        """A module of go, by the protocol of its proxies; `needs` are lines of its go.mod."""
        manifest = f"module {name}\n\ngo 1.17\n{needs}"
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for path, text in (("go.mod", manifest), ("code.go", code)):
                archive.writestr(f"{name}@{version}/{path}", text)
        told = {"Version": version, "Time": published or "2020-01-02T03:04:05Z"}
        told |= {"Origin": {"VCS": "git", "URL": f"https://{name}"}}
        info = json.dumps(told).encode()
        self._modules.setdefault(name, []).append(version)
        self._put(f"/{name}/@v/list", "\n".join(self._modules[name]).encode(), "text/plain")
        for path, body in (("@latest", info), (f"@v/{version}.info", info)):
            self._put(f"/{name}/{path}", body)
        self._put(f"/{name}/@v/{version}.mod", manifest.encode(), "text/plain")
        self._put(f"/{name}/@v/{version}.zip", made.getvalue(), "application/zip")

    def integrity(self, name: str, version: str) -> str:
        """The hash of a package of npm."""
        return str(self._npm[name]["versions"][version]["dist"]["integrity"])

    def wheel(self, stem: str) -> tuple[str, str]:
        """The address and the SHA-256 of a wheel."""
        file = f"{stem}-py3-none-any.whl"
        path = f"/files/{file}"
        return f"{self.url}{path}", hashlib.sha256(self._bodies[path][1]).hexdigest()

    def turn(self, path: str, *, after: int, what: Callable[[], None]) -> None:
        """Do something once a path was asked for so often from now on."""
        self._turn = (path, self.asked.count(path) + after, what)

    def answer(self, path: str) -> tuple[str, bytes] | None:
        """What stands at a path; None where nothing does."""
        self.asked.append(path)
        if self._turn is not None and self.asked.count(self._turn[0]) >= self._turn[1]:
            (_, _, what), self._turn = self._turn, None
            what()
        return self._bodies.get(path.replace("%2f", "/").replace("%2F", "/"))


def _tgz(files: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text.encode()), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


@contextmanager
def serving(host: str = "127.0.0.1", *, name: str = "") -> Iterator[Registry]:
    """A registry that serves while the block lasts. `name`: what its clients call its host."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            registry.seen.append((self.command, self.path, str(self.headers)))
            found = registry.answer(self.path)
            kind, body = found or ("text/plain", b"not found")
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the library's name

        def do_PUT(self) -> None:
            registry.seen.append((self.command, self.path, str(self.headers)))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_DELETE = do_PATCH = do_PUT  # noqa: N815 - the library's names

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer((host, 0), Handler) as server:
        registry = Registry(server.server_port, name or host)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
