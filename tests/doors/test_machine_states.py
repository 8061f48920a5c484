"""What a machine may be like: a data folder that isn't ours, files that are broken or newer, a full
disk. Each is one line that says what to do, and none a bug of ours."""

import contextlib
import os
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.doors.conftest import Door, no_bug, one_line
from tests.tables import share

pytestmark = [pytest.mark.timeout(300)]

RUN = ("run", "--workspace", "workspace", "--", "true")


@pytest.fixture(scope="module")
def used_data(gatehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of one session that ran."""
    door = Door(gatehouse, tmp_path_factory.mktemp("used"))
    assert door.run(*RUN).returncode == 0
    return door.data


@pytest.fixture
def used(door: Door, used_data: Path) -> Door:
    shutil.copytree(used_data, door.data)
    return door


def test_a_data_folder_that_can_not_be_ours(door: Door) -> None:
    """As another user's: the mode of this one nobody can change."""
    one_line(door.run(*RUN, GATEHOUSE_DATA="/proc/self"), "can't be made private", "--data-dir")


NAMES = ("lock", "ca/mitmproxy-ca.pem", "gatehouse.db", "audit.log")


@pytest.mark.parametrize("name", share(NAMES, "gatehouse.db"))
def test_what_sudo_once_made_there(used: Door, name: str) -> None:
    shut(used.data / name)
    words = one_line(used.run(*RUN), str(used.data / name))
    assert any(remedy in words for remedy in ("chown", "yours", "your own", "move"))
    for verb in ("approvals", "audit", "undo --all", "sessions"):
        no_bug(used.run(*verb.split()))


def shut(path: Path) -> None:
    """Make it unreadable, to root, too."""
    if os.geteuid():
        path.chmod(0)
    else:
        path.unlink()
        path.mkdir()


def newer(data: Path) -> None:
    with contextlib.closing(sqlite3.connect(data / "gatehouse.db")) as database, database:
        database.execute("update alembic_version set version_num = '9999'")


def garbled(data: Path) -> None:
    (data / "gatehouse.db").write_bytes(b"no database")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [(newer, "was written by a newer Gatehouse"), (garbled, "file is not a database")],
)
def test_a_database_that_can_not_be_used(
    used: Door, spoil: Callable[[Path], None], words: str
) -> None:
    spoil(used.data)
    one_line(used.run(*RUN), words, "--data-dir")
    one_line(used.run("undo", "--all"), words)
    no_bug(used.run("audit", "--verify"))


@pytest.mark.parametrize(
    "line",
    share(
        [b"broken {", b"[1]", b'{"at": "x"}', b"\xff\xfe", b'{"at": 1e99}'],
        b"broken {",
        b'{"at": 1e99}',
    ),
)
def test_a_broken_line_of_the_record_is_shown_as_such(used: Door, line: bytes) -> None:
    log = used.data / "audit.log"
    lines = log.read_bytes().split(b"\n")
    lines[2] = line
    log.write_bytes(b"\n".join(lines))
    done = used.run("audit")
    assert (done.returncode, done.stdout.count("\n")) == (0, len(lines) - 1), no_bug(done)
    assert "no record of ours" in done.stdout.splitlines()[2]
    one_line(used.run("audit", "--verify"), "audit.log:3")
    no_bug(used.run("policy", "learn"))
    no_bug(used.run("policy", "lint"))


@pytest.mark.parametrize(
    "text", [b"", b"[]", b'{"port": null}', b'{"port": 99999999}', b'{"port": 1e999}', b"\xff"]
)
def test_a_broken_contact_is_no_supervisor(used: Door, text: bytes) -> None:
    (used.data / "supervisor.json").write_bytes(text)
    one_line(used.run("url"), "no Gatehouse runs on")


def test_a_contact_that_is_no_file_is_said(used: Door) -> None:
    (used.data / "supervisor.json").mkdir()
    one_line(used.run("url"), "no Gatehouse runs on")
    assert "supervisor.json: Is a directory; move" in no_bug(used.run(*RUN))


@pytest.mark.many
def test_an_app_key_that_can_not_sign_is_one_line(door: Door) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    plain = serialization.NoEncryption()
    of_kind = serialization.PrivateFormat.TraditionalOpenSSL
    pem = key.private_bytes(serialization.Encoding.PEM, of_kind, plain)
    keys = {
        "der": key.private_bytes(serialization.Encoding.DER, of_kind, plain),
        "truncated": pem[: len(pem) // 2],
        "empty": b"",
    }
    secret = door.folder / "secret"
    secret.write_text("a-long-enough-secret")
    for name, data in keys.items():
        (door.folder / name).write_bytes(data)
        app = {
            "GATEHOUSE_GITHUB_APP_ID": "1",
            "GATEHOUSE_GITHUB_KEY_FILE": str(door.folder / name),
            "GATEHOUSE_GITHUB_SECRET_FILE": str(secret),
            "GATEHOUSE_FORGE_PORT": "0",
        }
        done = door.run("up", "--reviews", **app)
        assert done.returncode == 1, no_bug(done)
        assert "holds no private key as PEM" in done.stderr
    assert "FAIL  GitHub App: " in no_bug(door.run("doctor", **app))


def on_a_disk(door: Door, megabytes: int, script: str) -> subprocess.CompletedProcess[str]:
    """The script, with a small disk of its own for the data folder."""
    door.data.mkdir()
    inside = f"mount -t tmpfs -o size={megabytes}m none data && {script}"
    return door.sh(f"unshare --user --map-root-user --mount bash -c {shlex.quote(inside)}")


def test_a_full_disk_is_said_before_anything_is_written(door: Door) -> None:
    gatehouse = shlex.join([str(door.program), *RUN])
    done = on_a_disk(door, 4, f"{gatehouse}; code=$?; ls data; exit $code")
    one_line(done, "the disk of the data folder", "is full", "free 8 MB at least")
    assert done.stdout == "sessions\n"


def test_a_run_that_could_not_be_recorded_is_no_success(door: Door) -> None:
    """The agent ends well, but on a disk that has become full meanwhile."""
    agent = "until [ -e /workspace/lower/full ]; do sleep 0.1; done"
    gatehouse = shlex.join([str(door.program), *RUN[:-1], "sh", "-c", agent])
    filling = (
        "until grep -q session_started data/audit.log; do sleep 0.1; done; "
        "cat /dev/zero > data/fill; touch workspace/full"
    )
    done = on_a_disk(
        door, 40, f"({filling}) 2>/dev/null & {gatehouse} 2> log; code=$?; cat log >&2; exit $code"
    )
    assert done.returncode == 1, no_bug(done)
    assert "its end couldn't be put on record" in done.stderr
