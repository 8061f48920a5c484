"""How the person's own git reaches a remote: over HTTP by a named secret, over ssh by their key;
no sandbox sees either."""

import contextlib
import hashlib
import os
import pwd
import shutil
import socket
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from supervisor.channels.git_staging import Staging
from supervisor.errors import RefusedError, UserError
from supervisor.git.host_repository import repository_at
from supervisor.git.repository_view import writable_ref
from tests.fakes.git_server import PASSWORD, GitBackend, GitServer
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import git, make_repository, settings_in, supervised

WORK = (
    "git checkout -q -b feature && echo new > new.txt && git add new.txt"
    " && git -c user.name=agent -c user.email=agent@example.org commit -q -m 'Add new'"
)
POLICY = "version: 1\nmodes: {exec: contained}\n"
LONG = "x" * 200
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


class Told(NamedTuple):
    """A workspace with a remote of its own, and the person's own `~/.gitconfig`."""

    workspace: Path
    remote: Path
    config: Path
    folder: Path

    async def staging(self, cwd: str = ".") -> Staging:
        host = await repository_at(self.workspace, cwd)
        assert not isinstance(host, str), host
        made = Staging(self.folder / "staging.git", host, self.workspace, lambda url: None)
        await made.open()
        return made


@pytest.fixture
def told(tmp_path: Path, workspace: Path, remote: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    git(workspace, "remote", "add", "origin", str(remote))
    config = tmp_path / "person.gitconfig"
    config.write_text("")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    return Told(workspace, remote, config, tmp_path)


async def refs_of(told: Told, name: str = "origin") -> dict[str, str]:
    staging = await told.staging()
    return dict((await staging.refs_at(await staging.remote(name, is_push=False))).ids)


async def test_the_person_s_own_rewriting_of_addresses_counts_once(told: Told) -> None:
    git(told.workspace, "push", "-q", "origin", "HEAD:main")
    git(told.workspace, "remote", "set-url", "origin", "short:remote.git")
    git(told.workspace, "config", "url./nowhere/.insteadOf", "short:")
    # Written so that a second round would lead elsewhere.
    told.config.write_text(
        f'[url "{told.remote.parent}/"]\n\tinsteadOf = short:\n'
        f'[url "/elsewhere/"]\n\tinsteadOf = {told.remote.parent}/\n'
    )
    staging = await told.staging()
    found = await staging.remote(None, is_push=True)
    assert found.url == str(told.remote)
    assert "refs/heads/main" in (await staging.refs_at(found)).ids


async def test_a_repository_s_own_helpers_are_not_the_person_s(told: Told) -> None:
    ran = told.folder / "ran"
    git(told.workspace, "config", "core.sshCommand", f"touch {ran}; false")
    git(told.workspace, "remote", "set-url", "origin", "ssh://127.0.0.1:1/x")
    with pytest.raises(RefusedError, match="can't be read"):
        await refs_of(told)
    assert not ran.exists()
    told.config.write_text(
        f'[includeIf "hasconfig:remote.*.url:ssh://127.0.0.1:1/**"]\n\tpath = {told.config}.of\n'
    )
    Path(f"{told.config}.of").write_text(f'[core]\n\tsshCommand = "touch {ran}; false"\n')
    with pytest.raises(RefusedError, match="can't be read"):
        await refs_of(told)
    assert ran.exists()


@pytest.mark.parametrize(
    "url",
    [
        "{workspace}/fixtures/x",
        "./fixtures/x",
        "file://{workspace}/.git",
        "file://{workspace}/f%69xtures/x",
        "file://~/x",
    ],
)
async def test_a_folder_of_the_workspace_is_no_remote(told: Told, url: str) -> None:
    bare = told.workspace / "fixtures" / "x"
    subprocess.run(["git", "clone", "-q", "--bare", str(told.remote), str(bare)], check=True)
    git(told.workspace, "remote", "set-url", "origin", url.format(workspace=told.workspace))
    with pytest.raises(RefusedError, match="is a folder of the workspace"):
        await refs_of(told)


@pytest.mark.parametrize(
    ("url", "why"), [("ext::sh -c true", "names a program"), ("fd::0", "names a program"),
                     ("ftp://127.0.0.1/x", "no scheme")]
)  # fmt: skip
async def test_an_address_that_names_a_program_is_not_spoken_to(
    told: Told, url: str, why: str
) -> None:
    git(told.workspace, "remote", "set-url", "origin", url)
    told.config.write_text("[protocol]\n\tallow = always\n")
    with pytest.raises(RefusedError, match=why):
        await refs_of(told)
    # Nor by way of what the person's configuration makes of an address.
    git(told.workspace, "remote", "set-url", "origin", "short:x")
    told.config.write_text(f'[url "{url}"]\n\tinsteadOf = short:\n')
    with pytest.raises(RefusedError, match=why):
        await refs_of(told)


async def test_an_address_that_isn_t_spoken_stands_in_no_other_s_way(told: Told) -> None:
    git(told.workspace, "remote", "add", "aaa", "codecommit::x")
    assert await refs_of(told) == await refs_of(told, str(told.remote)) == {}


async def test_a_relative_address_is_of_the_repository(told: Told) -> None:
    git(told.workspace, "remote", "set-url", "origin", "../served/remote.git")
    staging = await told.staging()
    assert (await staging.remote("origin", is_push=True)).url == str(told.remote)


async def test_a_repository_in_the_workspace_is_not_the_workspace_s(told: Told) -> None:
    """An embedded one's addresses and helpers aren't read, wherever an agent asks from."""
    bare = told.workspace / "fixtures" / "x"
    subprocess.run(["git", "clone", "-q", "--bare", str(told.remote), str(bare)], check=True)
    git(bare, "config", "remote.origin.url", "https://elsewhere.example/x")
    staging = await told.staging("fixtures/x")
    assert (await staging.remote("origin", is_push=True)).url == str(told.remote)
    inner = make_repository(told.workspace / "inner")
    git(inner, "remote", "add", "origin", "https://elsewhere.example/x")
    assert "no registered submodule" in str(await repository_at(told.workspace, "inner/src"))


async def test_a_remote_is_read_where_it_is_pushed_to(told: Told) -> None:
    git(told.workspace, "push", "-q", "origin", "HEAD:main")
    git(told.workspace, "remote", "set-url", "origin", "http://127.0.0.1:1/remote.git")
    rewriting = f'[url "{told.remote.parent}/"]\n\tpushInsteadOf = http://127.0.0.1:1/\n'
    told.config.write_text(rewriting)
    staging = await told.staging()
    found = await staging.remote(None, is_push=True)
    assert found.url == str(told.remote)
    assert "refs/heads/main" in (await staging.refs_at(found)).ids
    told.config.write_text(f'{rewriting}[url "/elsewhere/"]\n\tinsteadOf = {told.remote.parent}/\n')
    with pytest.raises(RefusedError, match="pushed to where it isn't read"):
        await staging.remote(None, is_push=True)


async def test_a_repository_s_summary_of_its_commits_is_not_believed(told: Told) -> None:
    ids = []
    for number in range(3):
        me = ("-c", "user.name=a", "-c", "user.email=a@x")
        git(told.workspace, *me, "commit", "-q", "--allow-empty", "-m", str(number))
        ids.append(git(told.workspace, "rev-parse", "HEAD").strip())
    git(told.workspace, "commit-graph", "write", "--reachable")
    _forge_parent(told.workspace / ".git/objects/info/commit-graph", ids[2], ids[0])
    assert git(told.workspace, "rev-list", "--count", ids[2], "--not", ids[0]).strip() == "1"
    staging = await told.staging()
    assert await staging.count_commits(ids[2], [ids[0]]) == 2
    assert await staging.is_ancestor(ids[1], ids[2])


def _forge_parent(graph: Path, commit: str, parent: str) -> None:
    """Have a commit-graph say another parent (gitformat-commit-graph(5))."""
    data = bytearray(graph.read_bytes())
    chunks = {}
    for at in range(8, 8 + 12 * data[6], 12):
        chunks[bytes(data[at : at + 4])] = int.from_bytes(data[at + 4 : at + 12])
    count = int.from_bytes(data[chunks[b"OIDF"] + 1020 : chunks[b"OIDF"] + 1024])
    first = chunks[b"OIDL"]
    ids = [data[at : at + 20].hex() for at in range(first, first + 20 * count, 20)]
    place = chunks[b"CDAT"] + 36 * ids.index(commit) + 20
    data[place : place + 4] = ids.index(parent).to_bytes(4)
    graph.chmod(0o644)
    graph.write_bytes(data)


async def test_a_small_pack_doesn_t_fill_the_memory(told: Told) -> None:
    """One object of 3 GB, as its header says: git would make room for all of it."""
    size, kind = 3_000_000_000, 1  # a commit (gitformat-pack(5))
    header = [(kind << 4) | (size & 15)]
    size >>= 4
    while size:
        header[-1] |= 0x80
        header.append(size & 0x7F)
        size >>= 7
    body = b"PACK" + (2).to_bytes(4) + (1).to_bytes(4) + bytes(header) + zlib.compress(bytes(1000))
    pack = body + hashlib.sha1(body, usedforsecurity=False).digest()
    staging = await told.staging()
    with pytest.raises(RefusedError, match=r"(?i)out of memory"):
        await staging.take_in(pack, ["a" * 40], [])


async def test_a_tree_of_more_paths_than_any_memory_holds_is_refused(told: Told) -> None:
    where = told.workspace
    blob = git(where, "rev-parse", "HEAD:README.md").strip()
    lines = "".join(f"100644 blob {blob}\t{one}\n" for one in range(10))
    for _ in range(9):
        made = subprocess.run(
            ["git", "-C", where, "mktree"], input=lines, text=True, check=True, capture_output=True
        )
        lines = "".join(f"040000 tree {made.stdout.strip()}\t{one}{LONG}\n" for one in range(10))
    staging = await told.staging()
    head = git(where, "rev-parse", "HEAD").strip()
    with pytest.raises(RefusedError, match=r"(?i)out of memory"):
        await staging.changes(head, made.stdout.strip())


async def test_what_a_partial_clone_lacks_is_said_with_how_to_get_it(told: Told) -> None:
    for number in range(3):
        (told.workspace / "src/app.py").write_text(f"{number}\n")
        git(told.workspace, "add", ".")
        git(told.workspace, "-c", "user.name=a", "-c", "user.email=a@x", "commit", "-qm", "x")
    git(told.workspace, "push", "-q", "origin", "HEAD:main")
    git(told.remote, "config", "uploadpack.allowFilter", "true")
    clone = told.folder / "clone"
    git(told.folder, "clone", "-q", "--filter=tree:0", f"file://{told.remote}", str(clone))
    staging = await told._replace(workspace=clone).staging()
    base, head = (git(clone, "rev-parse", one).strip() for one in ("HEAD~2", "HEAD"))
    with pytest.raises(RefusedError) as found:
        await staging.changes(base, head)
    assert "`git fetch --refetch --no-filter` gets what is missing" in found.value.remedy
    git(clone, "fetch", "-q", "--refetch", "--no-filter")
    assert [one.path for one in await staging.changes(base, head)] == ["src/app.py"]


async def test_refs_in_a_format_that_isn_t_written_are_refused_with_what_to_do(told: Told) -> None:
    host = await repository_at(told.workspace, ".")
    assert not isinstance(host, str)
    git(told.workspace, "config", "core.repositoryFormatVersion", "1")
    git(told.workspace, "config", "extensions.refStorage", "reftable")
    with pytest.raises(UserError) as found:
        async with writable_ref(host, "refs/heads/x"):
            pass
    assert "git refs migrate --ref-format=files" in found.value.remedy


async def test_names_with_ends_of_lines_to_python_are_whole(
    tmp_path: Path, workspace: Path
) -> None:
    """Git allows them; a branch `main` would be another's end."""
    names = [f"old{one}main" for one in "\u2028\u2029\x85"]
    for name in names:
        git(workspace, "branch", name)
    git(workspace, "tag", "v1\u2028refs/heads/other")
    host = await repository_at(workspace, ".")
    assert not isinstance(host, str)
    staging = Staging(tmp_path / "staging.git", host, workspace, lambda url: None)
    await staging.open()
    assert set(await staging.host_branches()) == {"main", *names}
    assert (await staging.names_in_use()).may_have("other", is_there=False)
