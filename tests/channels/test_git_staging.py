"""How the person's own git reaches a remote: over HTTP by a named secret, over ssh by their key;
no sandbox sees either."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.git_server import PASSWORD, GitBackend, GitServer
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import git, make_repository, settings_in, supervised

pytestmark = pytest.mark.xdist_group("afterwards")

WORK = (
    "git checkout -q -b feature && echo new > new.txt && git add new.txt"
    " && git -c user.name=agent -c user.email=agent@example.org commit -q -m 'Add new'"
)
POLICY = "version: 1\nmodes: {exec: contained}\n"
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
# Within a user namespace that knows one user sshd can't become that user.
CAN_SSH = SSHD is not None and Path("/proc/self/uid_map").read_text().split()[2] == "4294967295"


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    made = tmp_path / "served" / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(made)], check=True)
    git(made, "config", "http.receivepack", "true")
    return made


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


@pytest.fixture
def server(remote: Path) -> Iterator[GitServer]:
    with GitServer(("127.0.0.1", 0), GitBackend) as made:
        made.root = remote.parent
        threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
        yield made
        made.shutdown()


async def test_a_named_secret_is_the_login_of_a_push(
    tmp_path: Path, workspace: Path, remote: Path, server: GitServer
) -> None:
    place = f"127.0.0.1:{server.server_address[1]}"
    git(workspace, "remote", "add", "origin", f"http://{place}/remote.git")
    data = tmp_path / "data"
    (data / "secrets").mkdir(parents=True, mode=0o700)
    data.chmod(0o700)
    (data / "secrets" / "forge").write_text(PASSWORD)
    (data / "secrets" / "forge").chmod(0o600)
    (data / "credentials.yaml").write_text(
        f"version: 1\ncredentials:\n  forge: {{preset: gitlab, hosts: ['{place}']}}\n"
    )
    policy = f"{POLICY}allow: [network(127.0.0.1:{server.server_address[1]})]\n"
    async with supervised(settings_in(tmp_path, policy)) as running:
        calls = [
            ("/v1/exec", {"command": WORK}),
            ("/v1/git", {"command": "git push origin feature"}),
            ("/v1/exec", {"command": "env; git config --list --show-origin"}),
        ]
        with running.answering(lambda one: "approved"):
            _, output = await running.run(workspace, *agent_command(*calls))
        assert answers(output)[1]["outcome"]["ok"], output
        assert PASSWORD not in output
        record = (data / "audit.log").read_text()
        assert PASSWORD not in record
    assert git(remote, "log", "-1", "--format=%s", "feature").strip() == "Add new"


@pytest.fixture
def ssh_url(tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An ssh server of this user's own, on loopback, and a key that it takes."""
    assert SSHD is not None
    with contextlib.suppress(OSError):
        Path("/run/sshd").mkdir(exist_ok=True)  # where one that root starts gives its rights away
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "own"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    (folder / "authorized").write_text((folder / "own.pub").read_text())
    (folder / "authorized").chmod(0o600)
    port = _free_port()
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile {folder}/pid\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin yes\n"
    )
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    monkeypatch.setenv(
        "GIT_SSH_COMMAND",
        f"ssh -F none -i {folder}/own -o IdentitiesOnly=yes -o UserKnownHostsFile={folder}/known",
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(folder / "config")], stderr=log, stdout=log
        )
        try:
            _until_listening(port)
            user = pwd.getpwuid(os.getuid()).pw_name
            yield f"ssh://{user}@127.0.0.1:{port}{remote}"
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _until_listening(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("sshd doesn't listen")


@pytest.mark.skipif(not CAN_SSH, reason="there is no sshd that could let this user in")
async def test_a_push_over_ssh_goes_by_the_person_s_key(
    tmp_path: Path, workspace: Path, remote: Path, ssh_url: str
) -> None:
    git(workspace, "remote", "add", "origin", ssh_url)
    port = int(ssh_url.split(":")[2].split("/")[0])
    policy = f"{POLICY}allow: [network(127.0.0.1:{port})]\n"
    async with supervised(settings_in(tmp_path, policy)) as running:
        calls = [
            ("/v1/exec", {"command": WORK}),
            ("/v1/git", {"command": "git push origin feature"}),
        ]
        with running.answering(lambda one: "approved"):
            _, output = await running.run(workspace, *agent_command(*calls))
        assert answers(output)[1]["outcome"]["ok"], output
    assert git(remote, "log", "-1", "--format=%s", "feature").strip() == "Add new"
