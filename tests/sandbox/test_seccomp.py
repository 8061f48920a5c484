"""The two filters: what is on the lists, and that they are built for this machine and for
others."""

import errno
import platform
import struct

import pytest

from supervisor.errors import SandboxError
from supervisor.sandbox import seccomp

RET_KILL_PROCESS, RET_ERRNO, RET_ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
BPF_RET = 0x06


def returns(program: bytes) -> set[int]:
    """The answers that a program can give (struct sock_filter: code, jt, jf, k)."""
    return {k for code, _, _, k in struct.iter_unpack("HBBI", program) if code & 0x07 == BPF_RET}


def test_no_call_is_on_two_lists() -> None:
    lists = [seccomp.ALLOWED, seccomp.FORBIDDEN, tuple(seccomp.ALLOWED_BY_NUMBER)]
    names = [name for one in lists for name in one]
    assert len(names) == len(set(names))


def test_calls_judged_by_argument_are_not_allowed_as_a_whole() -> None:
    for name in (
        "clone",
        "clone3",
        "personality",
        "socket",
        "socketpair",
        "shmget",
        "ptrace",
        "mount",
        "unshare",
        "setns",
        "bpf",
    ):
        assert name not in seccomp.ALLOWED
    assert "ioctl" in seccomp.ALLOWED  # narrowed by the second program


def test_the_first_program_refuses_by_default_and_kills_other_architectures() -> None:
    allow, narrowed = seccomp.programs()
    assert returns(allow) == {
        RET_KILL_PROCESS,
        RET_ERRNO | errno.ENOSYS,
        RET_ERRNO | errno.EPERM,
        RET_ALLOW,
    }
    assert {RET_KILL_PROCESS, RET_ERRNO | errno.EPERM, RET_ALLOW} <= returns(narrowed)
    # linux/bpf_common.h: BPF_MAXINSNS
    assert max(len(allow), len(narrowed)) // 8 < 4096


def test_an_unknown_processor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    seccomp.programs.cache_clear()
    monkeypatch.setattr(platform, "machine", lambda: "sparc")
    with pytest.raises(SandboxError, match="no system call filter"):
        seccomp.programs()
    seccomp.programs.cache_clear()


def test_a_missing_libseccomp_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    seccomp.programs.cache_clear()
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    with pytest.raises(SandboxError, match="libseccomp can't be used"):
        seccomp.programs()
    seccomp.programs.cache_clear()


@pytest.mark.parametrize("architecture", ["X86_64", "AARCH64"])
def test_every_name_is_known_on_one_of_the_two(architecture: str) -> None:
    import pyseccomp

    known = {
        name
        for name in (*seccomp.ALLOWED, "clone", "socket", "socketpair", "shmget", "personality")
        if 0
        <= int(pyseccomp.resolve_syscall(getattr(pyseccomp.Arch, architecture), name))
        < 1 << 31
    }
    for name in (
        "openat",
        "execve",
        "clone",
        "socket",
        "socketpair",
        "futex",
        "mmap",
        "personality",
        "shmget",
        "epoll_pwait",
        "seccomp",
    ):
        assert name in known
