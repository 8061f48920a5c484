"""bubblewrap's argument list, pure: what is always there, and the order in which mounts lie over
another."""

from pathlib import Path

import pytest

from supervisor.sandbox.arguments import arguments
from supervisor.sandbox.base import MIB, SandboxLimits, Spec
from supervisor.sandbox.host import HostSystem

HOST = HostSystem(
    etc=Path("/data/etc"),
    links=(("bin", "usr/bin"),),
    directories=("lib64",),
    proc_files=("kcore",),
    proc_directories=("scsi",),
)


def spec(**more: object) -> Spec:
    given = {
        "command": ("true",),
        "workspace_lower": Path("/project"),
        "workspace_merged": Path("/project/data/m"),
        **more,
    }
    return Spec(**given)  # type: ignore[arg-type]


def position(words: list[str], *part: str) -> int:
    found = [at for at in range(len(words)) if tuple(words[at : at + len(part)]) == part]
    assert len(found) == 1, part
    return found[0]


@pytest.mark.parametrize("tty", [False, True])
def test_isolation_is_never_left_out(tty: bool) -> None:
    words = arguments(spec(tty=tty), HOST)
    for name in ("user", "pid", "ipc", "uts", "net", "cgroup"):
        position(words, f"--unshare-{name}")
    position(words, "--cap-drop", "ALL")
    position(words, "--die-with-parent")
    position(words, "--disable-userns")
    position(words, "--clearenv")
    assert ("--new-session" in words) is not tty
    assert not [
        word
        for word in words
        if word.endswith("-try") or word in ("--share-net", "--cap-add", "--dev-bind", "--as-pid-1")
    ]


def test_the_only_writable_bind_is_the_private_copy() -> None:
    trusted = {"ca_bundle": Path("/ca.pem"), "java_store": Path("/ca.p12")}
    words = arguments(spec(readonly_binds=((Path("/tools"), "/opt/tools"),), **trusted), HOST)
    assert [words[at + 1 : at + 3] for at, word in enumerate(words) if word == "--bind"] == [
        ["/project/data/m", "/workspace/merged"]
    ]
    position(words, "--ro-bind", "/project", "/workspace/lower")
    position(words, "--ro-bind", "/tools", "/opt/tools")
    position(words, "--ro-bind", "/ca.pem", "/etc/gatehouse/ca-bundle.pem")
    position(words, "--ro-bind", "/ca.p12", "/etc/gatehouse/ca-bundle.p12")
    position(words, "--ro-bind", "/lib64", "/lib64")
    position(words, "--symlink", "usr/bin", "/bin")


def test_covers_lie_over_all_that_is_shown_and_under_the_copy() -> None:
    covers = (("/workspace/lower/data", True), ("/workspace/lower/.token", False))
    words = arguments(spec(readonly_binds=((Path("/t"), "/opt/t"),)), HOST, covers=covers)
    covered = position(words, "--tmpfs", "/workspace/lower/data")
    assert position(words, "--ro-bind", "/t", "/opt/t") < covered
    assert position(words, "--ro-bind", "/project", "/workspace/lower") < covered
    assert position(words, "--remount-ro", "/workspace/lower/data") > covered
    position(words, "--ro-bind", "/dev/null", "/workspace/lower/.token")
    assert position(words, "--bind", "/project/data/m", "/workspace/merged") > covered
    assert position(words, "--remount-ro", "/") > position(
        words, "--bind", "/project/data/m", "/workspace/merged"
    )


def test_every_writable_tmpfs_has_a_size_and_the_kernels_files_are_closed() -> None:
    words = arguments(spec(limits=SandboxLimits(tmpfs_bytes=7 * MIB)), HOST)
    for place in ("/tmp", "/run", "/var/tmp", "/home/agent", "/dev/shm"):
        position(words, "--size", str(7 * MIB), "--perms", "0700", "--tmpfs", place)
    assert position(words, "--remount-ro", "/proc") > position(words, "--proc", "/proc")
    assert position(words, "--remount-ro", "/dev") > position(words, "--dev", "/dev")
    position(words, "--ro-bind", "/dev/null", "/proc/kcore")
    position(words, "--tmpfs", "/proc/scsi")


def test_the_environment_is_exactly_what_was_given_and_what_every_program_needs() -> None:
    words = arguments(spec(env={"HOME": "/tmp/h", "A": "--bind"}), HOST)
    names = [
        words[at + 1]
        for at, word in enumerate(words)
        if word == "--setenv" and words[at - 1] != "A"
    ]
    assert sorted(names) == ["A", "HOME", "LANG", "PATH", "USER"]
    position(words, "--setenv", "HOME", "/tmp/h")
