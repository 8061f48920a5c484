"""Git LFS where git reaches a remote by Gatehouse: the real git-lfs, with a server of its API."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.git.remote_helper import LFS_AGENT, KnownRemote, sandbox_config
from supervisor.git.repository_view import config_lines
from supervisor.settings import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("git-lfs"), reason="there is no git-lfs here")


class _Server(BaseHTTPRequestHandler):
    """git-lfs's batch.md and basic-transfers.md, with what was uploaded."""

    stored: dict[str, bytes] = {}

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.git-lfs+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/shop.git/info/lfs/objects/batch"):
            self._answer(404, b"{}")
            return
        href = f"http://{self.headers['Host']}/objects/"
        found: list[dict[str, Any]] = [
            {**one, "actions": {asked["operation"]: {"href": href + one["oid"]}}}
            for one in asked["objects"]
        ]
        self._answer(200, json.dumps({"transfer": "basic", "objects": found}).encode())

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.stored[self.path.rpartition("/")[2]] = data
        self._answer(200, b"")

    def do_GET(self) -> None:
        self._answer(200, self.stored[self.path.rpartition("/")[2]])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}/shop.git"
        served.shutdown()


def lfs(url: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run git in a repository whose origin this is, with the sandbox's configuration."""
    person = {"user.name": "A", "user.email": "a@b.example"}
    values = sandbox_config(person, [KnownRemote(".", "origin", url)])
    text = "".join(f"{line}\n" for pair in values for line in config_lines(*pair))
    text = text.replace("/opt/gatehouse/python", sys.executable)
    (folder / "config").write_text(text.replace(LFS_AGENT, str(ROOT / LFS_AGENT[15:])))
    own = {"GIT_CONFIG_SYSTEM": str(folder / "config"), "GIT_TERMINAL_PROMPT": "0"}
    return subprocess.run(
        ["git", *words],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )


def repository(url: str, folder: Path) -> bytes:
    """Make one with a file of LFS's, which is its content."""
    folder.mkdir()
    content = os.urandom(2000)
    for words in (("init", "-q", "-b", "main"), ("remote", "add", "origin", url)):
        assert lfs(url, folder, *words).returncode == 0
    assert lfs(url, folder, "lfs", "install", "--local", "--skip-repo").returncode == 0
    (folder / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    (folder / "a.bin").write_bytes(content)
    assert lfs(url, folder, "add", "a.bin", ".gitattributes").returncode == 0
    assert lfs(url, folder, "commit", "-qm", "large").returncode == 0
    return content


def test_files_go_to_the_server_and_come_from_it(server: str, tmp_path: Path) -> None:
    content = repository(server, tmp_path / "one")
    done = lfs(server, tmp_path / "one", "lfs", "push", "origin", "main")
    assert done.returncode == 0, done.stderr
    assert _Server.stored[hashlib.sha256(content).hexdigest()] == content
    shutil.rmtree(tmp_path / "one/.git/lfs/objects")
    (tmp_path / "one/a.bin").unlink()
    done = lfs(server, tmp_path / "one", "lfs", "fetch", "origin", "main")
    assert done.returncode == 0, done.stderr
    lfs(server, tmp_path / "one", "checkout", "a.bin")
    assert (tmp_path / "one/a.bin").read_bytes() == content


def test_a_server_that_only_ssh_reaches_is_refused_in_words(tmp_path: Path) -> None:
    repository("git@host.example:shop.git", tmp_path / "one")
    done = lfs("git@host.example:shop.git", tmp_path / "one", "lfs", "push", "origin", "main")
    assert done.returncode != 0
    assert "carries Git LFS's files by https alone" in done.stderr
