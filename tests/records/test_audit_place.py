"""Where the audit log lies: a regular file that is ours alone, on a disk that has room. Anything
else allows nothing."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.cli import cli
from supervisor.core.secrets.redact import Redactor
from supervisor.errors import StorageError
from supervisor.records.audit import Audit
from supervisor.records.audit_chain import newest_first
from supervisor.records.audit_check import verify
from tests.fakes.clock import FakeClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data/audit.log"


@pytest.fixture
def audit(path: Path) -> Iterator[Audit]:
    audit = opened(path)
    audit.record("supervisor_started")
    yield audit
    audit.close()


def opened(path: Path) -> Audit:
    return Audit(path, FakeClock(), Redactor())


def link(path: Path) -> None:
    path.with_name("target").write_bytes(b"")
    path.with_name("target").chmod(0o600)
    path.symlink_to("target")


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def hard_link(path: Path) -> None:
    path.with_name("other").touch(0o600)
    path.hardlink_to(path.with_name("other"))


def of_another_user(path: Path) -> None:
    path.touch(0o600)
    os.chown(path, 12345, -1)


IN_ITS_PLACE: dict[str, tuple[Callable[[Path], object], str]] = {
    "symlink": (link, "it is a symlink"),
    "dangling symlink": (dangling, "it is a symlink"),
    "folder": (lambda path: path.mkdir(), "Is a directory"),
    "fifo": (
        lambda path: os.mkfifo(path, 0o600),
        "No such device or address|it is no regular file",
    ),
    "device": (lambda path: path.symlink_to("/dev/full"), "it is a symlink"),
    "hard link": (hard_link, "it has other names"),
    "readable by others": (lambda path: path.touch(0o644), "others can read or change it"),
    "of another user": (of_another_user, "others can read or change it"),
}


@pytest.mark.parametrize("kind", IN_ITS_PLACE)
def test_what_is_no_regular_file_of_ours_is_refused_at_the_start(path: Path, kind: str) -> None:
    make, why = IN_ITS_PLACE[kind]
    if kind == "of another user" and os.geteuid():
        pytest.skip("only root can give a file away")
    make(path)
    with pytest.raises(StorageError, match=why):
        opened(path)
    assert not path.with_name("nowhere").exists()


def test_a_device_is_refused() -> None:
    with pytest.raises(StorageError, match="it is no regular file"):
        opened(Path("/dev/full"))


def swap_for_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def swap_for_file(path: Path) -> None:
    path.with_name("other").write_bytes(path.read_bytes())
    path.with_name("other").chmod(0o600)
    path.with_name("other").replace(path)


def swap_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.symlink_to("moved")
    path.rename(path.with_name("kept"))
    path.write_bytes(path.with_name("kept").read_bytes())


WHILE_RUNNING: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link to it": (swap_for_link, "something else lies in its place"),
    "another file": (swap_for_file, "something else lies in its place"),
    "another folder": (swap_folder, "something else lies in its place"),
    "nothing": (lambda path: path.unlink(), "it was deleted"),
    "its beginning": (lambda path: os.truncate(path, 10), "somebody else changed it"),
    "an empty file": (lambda path: os.truncate(path, 0), "somebody else changed it"),
    "a line more": (
        lambda path: path.write_bytes(path.read_bytes() + b"{}\n"),
        "somebody else changed it",
    ),
    "what others can write": (lambda path: path.chmod(0o666), "others can read or change it"),
}


@pytest.mark.parametrize("kind", WHILE_RUNNING)
def test_what_is_put_in_its_place_while_running_is_refused(
    audit: Audit, path: Path, kind: str
) -> None:
    put, why = WHILE_RUNNING[kind]
    put(path)
    before = path.read_bytes() if path.exists() else b""
    with pytest.raises(StorageError, match=why):
        audit.record("verdict_given")
    assert why in (audit.failure or "")
    assert (path.read_bytes() if path.exists() else b"") == before  # and nothing of it is touched


def test_it_is_noticed_while_nothing_is_recorded_too_and_heals(audit: Audit, path: Path) -> None:
    moved = path.rename(path.with_name("moved"))
    audit.look()
    assert "it was deleted" in (audit.failure or "")
    moved.rename(path)
    audit.look()
    assert audit.failure is None
    assert newest_first(path, 1)[0]["event"] == "audit_failed"


def test_a_change_in_its_middle_is_noticed_while_it_runs(audit: Audit, path: Path) -> None:
    audit.record("verdict_given", verdict="deny")
    assert audit.look()  # a start looks at all of it once
    assert audit.examine() is None
    audit.record("verdict_given", verdict="deny")
    assert not audit.look()  # our own lines are no change
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.write(whole.replace(b"deny", b"DENY"))
    audit.record("verdict_given", verdict="deny")
    assert audit.look()
    assert "the chain is broken here" in (audit.examine() or "")
    assert "the chain is broken here" in (audit.broken or "")
    with path.open("r+b") as file:
        file.write(whole)
    assert audit.look()
    assert audit.examine() is None
    assert audit.broken is None


def test_reading_follows_no_link_either(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened(path).close()
    swap_for_link(path)
    with pytest.raises(StorageError, match=r"audit\.log"):
        verify(path)
    for asked in ([], ["--verify"], ["--json"]):
        assert cli.main(["audit", *asked, "--data-dir", str(path.parent)]) != 0
        assert "audit.log" in capsys.readouterr().err


# -- a full disk ----------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of our own, in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    with (place / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return place / "filler"


def test_a_full_disk_is_noticed_before_anything_is_lost_and_a_freed_one_heals(disk: Path) -> None:
    audit = opened(disk / "audit.log")
    audit.record("supervisor_started")
    audit.look()
    assert audit.failure is None
    filler = fill(disk)
    audit.look()
    assert "its disk is full" in (audit.failure or "")
    with pytest.raises(StorageError, match=r"can't be written: [Nn]o space left"):
        audit.record(
            "verdict_given", padding="x" * 5000
        )  # more than what the file's last block has left
    assert verify(disk / "audit.log").last.seq == 1
    filler.unlink()
    audit.look()
    assert audit.failure is None
    newest = newest_first(disk / "audit.log", 1)[0]
    assert (newest["event"], newest["missed"]) == ("audit_failed", 1)
    audit.close()
    verify(disk / "audit.log")
