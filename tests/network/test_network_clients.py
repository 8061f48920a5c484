"""Real programs through egress, with the rules of a real gate: curl, git and pip against local
HTTPS servers."""

import asyncio
import http.server
import os
import ssl
import subprocess
import threading
import zipfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from supervisor.network.ca import write_bundle
from tests.egress.egress_harness import server_context
from tests.fakes.with_pip import python_with_pip
from tests.network.conftest import Setting, really_started, setting


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server serves: a package index, a git repository, a large file."""
    root = tmp_path_factory.mktemp("served")
    package = root / "simple" / "greeting"
    package.mkdir(parents=True)
    wheel = package / "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("greeting.py", "HELLO = 'hello'\n")
        info = "greeting-1.0.dist-info"
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info}/RECORD", "")
    (package / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    work = root / "work"
    git = partial(subprocess.run, check=True, capture_output=True)
    git(["git", "init", "-q", str(work)])
    (work / "a.txt").write_text("from the origin\n")
    git(["git", "-C", str(work), "add", "."])
    git(["git", "-C", str(work), "commit", "-q", "-m", "one"])
    git(["git", "clone", "-q", "--bare", str(work), str(root / "repo.git")])
    git(["git", "-C", str(root / "repo.git"), "update-server-info"])
    (root / "large").write_bytes(os.urandom(1024) * 30_000)
    return root


@pytest.fixture
def server(files: Path, authority: trustme.CA) -> Iterator[int]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            return

    context: ssl.SSLContext = server_context(authority, "origin.test")
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(files))
    ) as found:
        found.socket = context.wrap_socket(found.socket, server_side=True)
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found.server_port
        found.shutdown()
        thread.join()


@pytest_asyncio.fixture
async def open_place(
    tmp_path: Path, authority: trustme.CA, server: int, command: tuple[str, ...] | None
) -> AsyncIterator[Setting]:
    async with setting(tmp_path, authority, command=command) as place:
        place.office.policy(
            f"allow:\n  - network(127.0.0.1:{server})\n  - network(origin.test:{server})\n"
        )
        yield place


async def run(place: Setting, *command: str, cwd: Path) -> tuple[int, str]:
    """A program with the environment that a sandbox has."""
    bundle = write_bundle(cwd / "bundle.pem", place.ca_file)
    variables = (
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "PIP_CERT",
    )
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), place.url)
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(cwd),
            **proxies,
            **dict.fromkeys(variables, str(bundle)),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_git_clones(open_place: Setting, server: int, tmp_path: Path) -> None:
    code, out = await run(
        open_place, "git", "clone", f"https://origin.test:{server}/repo.git", "copy", cwd=tmp_path
    )
    assert code == 0, out
    assert (tmp_path / "copy" / "a.txt").read_text() == "from the origin\n"


@pytest.mark.skipif(not python_with_pip(), reason="no Python with pip on this machine")
async def test_pip_downloads(open_place: Setting, server: int, tmp_path: Path) -> None:
    index = f"https://origin.test:{server}/simple/"
    command = (
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--disable-pip-version-check",
        "--index-url",
        index,
        "greeting",
    )
    code, out = await run(open_place, python_with_pip(), *command, cwd=tmp_path)
    assert code == 0, out
    assert (tmp_path / "greeting-1.0-py3-none-any.whl").exists()


@really_started
async def test_curl_downloads_a_large_file_and_egress_keeps_none_of_it(
    open_place: Setting, server: int, tmp_path: Path, files: Path
) -> None:
    before = memory_bytes(open_place)
    code, out = await run(
        open_place,
        "curl",
        "--silent",
        "--show-error",
        "-o",
        "large",
        f"https://origin.test:{server}/large",
        cwd=tmp_path,
    )
    assert code == 0, out
    assert (tmp_path / "large").read_bytes() == (files / "large").read_bytes()
    assert memory_bytes(open_place) - before < 20 * 1024 * 1024


def memory_bytes(place: Setting) -> int:
    status = Path(f"/proc/{place.broker.pid}/status").read_text()
    return next(
        int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")
    )


async def test_what_no_rule_names_is_refused_to_each_of_them(
    tmp_path: Path, authority: trustme.CA, server: int
) -> None:
    async with setting(tmp_path, authority) as place:
        place.office.policy("modes: {network: deny}\n")
        url = f"https://origin.test:{server}"
        for command in (
            ("git", "ls-remote", f"{url}/repo.git"),
            ("curl", "--fail", "--silent", "--show-error", url),
        ):
            code, out = await run(place, *command, cwd=tmp_path)
            assert code != 0
            assert "403" in out


async def test_a_program_that_trusts_only_the_system_fails_closed(
    open_place: Setting, server: int, tmp_path: Path
) -> None:
    code, _ = await run(
        open_place, "curl", "--silent", "--cacert", "/etc/ssl/certs/ca-certificates.crt",
        f"https://origin.test:{server}/", cwd=tmp_path
    )  # fmt: skip
    assert code == 60
