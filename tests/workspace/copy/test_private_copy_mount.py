"""Where the private copy can't be an overlay, and where its mount is: what doesn't fit is told
or copied, and nobody else sees the mount, nor does it outlive its holder."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.errors import SandboxError
from supervisor.sandbox import overlay_mount
from supervisor.sandbox.overlay_mount import make_removable, mount_overlay
from supervisor.workspace.copy import overlay, private_copy
from supervisor.workspace.copy.overlay import why_unfit
from supervisor.workspace.copy.private_copy import make_private_copy
from tests.workspace.copy.test_overlay import made_of, view


async def test_auto_takes_what_fits(
    tmp_path: Path, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = await make_private_copy(host, tmp_path / "small", "auto")
    assert small == (None, ())
    assert sorted(path.name for path in (tmp_path / "small").iterdir()) == [
        "baseline.msgpack",
        "merged",
    ]
    monkeypatch.setattr(private_copy, "MANY_FILES", 3)
    large = await make_private_copy(host, tmp_path / "large", "auto")
    assert large.mount is not None
    large.mount.close()
    monkeypatch.setattr(overlay, "why_unfit", lambda workspace, folder: "of a reason")
    other = await make_private_copy(host, tmp_path / "other", "auto")
    assert other.mount is None
    assert (
        "the private copy is a copy: the workspace can't be an overlay: of a reason" in other.notes
    )
    assert (tmp_path / "other/merged/README.md").exists()
    with pytest.raises(SandboxError, match=r"of a reason; use `--copy=copy`"):
        await make_private_copy(host, tmp_path / "not", "overlay")
    assert list((tmp_path / "not").iterdir()) == []


async def test_no_mount_means_a_copy_and_says_so(
    tmp_path: Path, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_copy, "MANY_FILES", 3)
    broken = tmp_path / "mounter.py"
    broken.write_text(
        "import socket, sys\n"
        "channel = socket.socket(fileno=int(sys.argv[1]))\n"
        "channel.recv(16384)\n"
        'channel.send(b\'{"error": "Operation not permitted", "step": "mount"}\')\n'
    )
    monkeypatch.setattr("supervisor.sandbox.overlay_mount.HELPER", broken)
    made = await make_private_copy(host, tmp_path / "s", "auto")
    assert made.mount is None
    assert "mount: Operation not permitted" in made.notes[0]
    with pytest.raises(SandboxError, match="Operation not permitted"):
        await make_private_copy(host, tmp_path / "t", "overlay")
    broken.write_text("")  # it dies at once
    with pytest.raises(SandboxError, match="can't be mounted"):
        await make_private_copy(host, tmp_path / "u", "overlay")


async def test_where_no_overlay_can_be_refreshed_there_is_a_copy_and_the_reason_is_told(
    tmp_path: Path, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await overlay_mount.check(tmp_path)).ok
    monkeypatch.setattr(private_copy, "MANY_FILES", 3)
    broken = tmp_path / "mounter.py"
    source, head = overlay_mount.HELPER.read_text(), "def remount(place: bytes) -> None:\n"
    assert head in source
    broken.write_text(
        source.replace(head, head + "    raise PermissionError(1, 'Operation not permitted')\n")
    )
    monkeypatch.setattr(overlay_mount, "HELPER", broken)
    why = "the overlay can't be mounted: refresh the overlay: Operation not permitted"
    made = await make_private_copy(host, tmp_path / "s", "auto")
    assert made == (None, (f"the private copy is a copy: {why}",))
    with pytest.raises(SandboxError, match=f"{why}; use `--copy=copy`"):
        await make_private_copy(host, tmp_path / "t", "overlay")
    found = await overlay_mount.check(tmp_path)
    assert (found.ok, found.detail) == (False, f"{why}; every private copy is copied")


async def test_doctor_notices_a_folder_that_stays_the_replaced_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(self: overlay_mount.OverlayMount) -> None:
        pass

    monkeypatch.setattr(overlay_mount.OverlayMount, "refresh", nothing)
    found = await overlay_mount.check(tmp_path)
    assert "doesn't show a folder that was replaced" in found.detail


def test_where_no_user_namespace_may_be_made_the_reason_is_told(tmp_path: Path, host: Path) -> None:
    """In a namespace whose bound is 0, as on a machine whose administrator set it so."""
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "Path('/proc/sys/user/max_user_namespaces').write_text('0')\n"
        "from supervisor.workspace.copy.private_copy import make_private_copy\n"
        "asyncio.run(make_private_copy(Path(sys.argv[1]), Path(sys.argv[2]), 'overlay'))\n"
    )
    argv = [
        "unshare",
        "--user",
        "--map-root-user",
        sys.executable,
        "-c",
        script,
        str(host),
        str(tmp_path / "s"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=200)
    assert (
        "the overlay can't be mounted: make a user namespace: No space left on device; use"
        " `--copy=copy`" in done.stderr
    )


REPLACED = """
import asyncio, os, shutil, sys
from pathlib import Path
from supervisor.workspace.copy.overlay import make_overlay
assert os.geteuid() == 1000
host = Path(sys.argv[1])
async def main():
    made = await make_overlay(host, Path(sys.argv[2]))
    shown = f"/proc/self/fd/{made.mount.merged_fd}"
    print(os.listdir(shown + "/src"))
    shutil.rmtree(host / "src")
    (host / "src").mkdir()
    (host / "src/new.py").touch()
    await made.mount.refresh()
    print(os.listdir(shown + "/src"))
asyncio.run(main())
"""


def test_a_replaced_folder_is_shown_to_an_ordinary_user_as_well(tmp_path: Path, host: Path) -> None:
    """Who isn't root in the namespace that owns the mount loses every right to it with the first
    program that is started."""
    argv = [
        "unshare",
        "--user",
        "--map-user=1000",
        "--map-group=1000",
        sys.executable,
        "-c",
        REPLACED,
    ]
    done = subprocess.run(
        [*argv, str(host), str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['new.py']"


async def test_a_refresh_that_fails_says_why(
    tmp_path: Path, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await made_of(host, tmp_path / "s")
    try:
        monkeypatch.setattr(made.mount, "place", tmp_path / "nowhere")
        with pytest.raises(
            SandboxError, match="the overlay can't be refreshed: No such file or directory; use"
        ):
            await made.mount.refresh()
    finally:
        made.mount.close()


def test_what_an_overlay_can_not_stand_for(tmp_path: Path) -> None:
    (tmp_path / "work/data").mkdir(parents=True)
    assert "the data folder lies in it" in why_unfit(tmp_path / "work", tmp_path / "work/data")
    assert "the session's own folder" in why_unfit(tmp_path / "work/data", tmp_path / "work")
    assert "file system" in why_unfit(Path(f"/proc/{os.getpid()}"), tmp_path)
    (tmp_path / "other").mkdir()
    assert why_unfit(tmp_path / "work", tmp_path / "other") == ""


async def test_a_workspace_that_is_another_by_now_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "s/lower", "s/upper", "s/work", "s/merged"):
        (tmp_path / name).mkdir(parents=True)
    status = (tmp_path / "two").stat()
    monkeypatch.setattr(type(tmp_path), "stat", lambda self, **options: status)
    with pytest.raises(SandboxError, match="another folder is there by now"):
        await mount_overlay(tmp_path / "one", tmp_path / "s")


async def test_the_mount_is_nowhere_but_where_it_is_given(tmp_path: Path, host: Path) -> None:
    made = await made_of(host, tmp_path / "s")
    try:
        assert str(tmp_path / "s") not in Path("/proc/self/mountinfo").read_text()
        assert list((tmp_path / "s/merged").iterdir()) == []
        (view(made) / "own").write_text("x")
        assert not (host / "own").exists()
    finally:
        made.mount.close()
    make_removable(tmp_path / "s")
    assert subprocess.run(["rm", "-rf", str(tmp_path / "s")], check=False).returncode == 0


def test_the_mount_ends_with_the_supervisor(tmp_path: Path, host: Path) -> None:
    """kill -9 of the process that holds it: no process of ours is left, and no mount anywhere."""
    script = (
        "import asyncio, os, sys\nfrom pathlib import Path\nfrom supervisor.workspace.copy.overlay"
        " import make_overlay\nmade = asyncio.run(make_overlay(Path(sys.argv[1]),"
        " Path(sys.argv[2])))\nprint(os.listdir(made.mount.merged_fd) != [],"
        " flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    argv = [sys.executable, "-c", script, str(host), str(tmp_path / "s")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == -9, done.stderr
    assert done.stdout == "True\n"
    mark = str(tmp_path)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            assert mark not in (process / "mountinfo").read_text()
            assert (
                process.name == str(os.getpid())
                or str(tmp_path / "s") not in (process / "cmdline").read_text()
            )
