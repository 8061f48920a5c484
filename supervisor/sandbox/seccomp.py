"""Seccomp filters of a sandbox: two BPF programs, as bytes for bubblewrap.

The first is an allow-list: a call that isn't on it doesn't exist (ENOSYS). So calls of newer
kernels are refused until somebody has reviewed them, and libraries fall back to older ones. The
second filter restricts allowed calls by argument, where the right answer is a refusal. The kernel
takes the strictest of all answers, so neither program can undo the other.

It must never allow a call that makes a namespace, mounts, loads code into the kernel, looks into
another process, or takes memory that nobody can count (memfd_create: a descriptor in transit
through a socket shows nowhere) or of which the machine has little (io_setup). Nor may a unix socket
be reached by its path: a read-only bind of a folder doesn't stop `connect` to a socket in it. So
AF_UNIX sockets can't be made here at all (pairs can).
"""

import errno
import functools
import os
import platform
import socket
from typing import Any

from supervisor.errors import SandboxError

SUPPORTED = ("x86_64", "aarch64")

# Grouped by purpose. Names that this machine's libseccomp or architecture doesn't know are left
# out.
FILES = """
access chdir chmod chown chown32 close close_range copy_file_range creat dup dup2 dup3 faccessat
faccessat2 fadvise64 fchdir fchmod fchmodat fchown fchown32 fchownat fcntl fcntl64 fdatasync
fgetxattr flistxattr flock fremovexattr
fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futimesat getcwd
getdents getdents64
getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioctl lchown lchown32
lgetxattr link linkat listxattr
llistxattr lremovexattr lseek lsetxattr lstat lstat64 mkdir mkdirat mknod mknodat newfstatat open
openat pipe pipe2
pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv
removexattr rename renameat
renameat2 rmdir sendfile sendfile64 setxattr splice stat stat64 statfs statfs64 statx symlink
symlinkat sync
sync_file_range syncfs tee truncate truncate64 umask unlink unlinkat utime utimensat utimes
vmsplice write writev
"""
MEMORY = """
brk get_mempolicy madvise mbind membarrier mincore mlock mlock2 mlockall mmap mmap2
mprotect mremap msync
munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect remap_file_pages set_mempolicy shmat
shmctl shmdt
"""
PROCESSES = """
alarm arch_prctl capget capset execve execveat exit exit_group fork futex futex_waitv
get_robust_list get_thread_area
getcpu getegid geteuid getgid getgroups getitimer getpgid getpgrp getpid getppid getpriority
getresgid getresuid getrlimit
getrusage getsid gettid getuid ioprio_get ioprio_set kill landlock_add_rule
landlock_create_ruleset landlock_restrict_self
pause pidfd_open pidfd_send_signal prctl prlimit64 restart_syscall rseq rt_sigaction rt_sigpending
rt_sigprocmask
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min
sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
sched_setaffinity sched_setattr
sched_setparam sched_setscheduler sched_yield seccomp set_robust_list set_thread_area
set_tid_address setfsgid setfsuid
setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit
setsid setuid sigaltstack
sysinfo tgkill time times tkill uname vfork wait4 waitid waitpid
"""
EVENTS = """
clock_getres clock_gettime clock_nanosleep epoll_create epoll_create1 epoll_ctl epoll_pwait
epoll_pwait2 epoll_wait
eventfd eventfd2 gettimeofday getrandom mq_getsetattr mq_notify mq_open mq_timedreceive
mq_timedsend mq_unlink nanosleep poll ppoll pselect6 select
semctl semop
semtimedop signalfd signalfd4 timer_create timer_delete timer_getoverrun timer_gettime
timer_settime timerfd_create
timerfd_gettime timerfd_settime
"""
SOCKETS = """
accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg
recvmsg send sendmmsg sendmsg
sendto setsockopt shutdown
"""
ALLOWED = tuple(" ".join((FILES, MEMORY, PROCESSES, EVENTS, SOCKETS)).split())

# Calls newer than Debian 12's libseccomp 2.5.4. From 424 on a call has the same number on every
# architecture (linux/arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h).
ALLOWED_BY_NUMBER = {
    "cachestat": 451,
    "fchmodat2": 452,
    "map_shadow_stack": 453,
    "futex_wake": 454,
    "futex_wait": 455,
    "futex_requeue": 456,
    "mseal": 462,
    "setxattrat": 463,
    "getxattrat": 464,
    "listxattrat": 465,
    "removexattrat": 466,
}

# Known calls that are refused as forbidden rather than absent, so that the errno shows the reason.
# Calls on neither list get ENOSYS. clone3 and openat2 are left out on purpose: their arguments lie
# in memory, where a filter can't see them, and programs fall back to clone and openat, whose flags
# and modes can be judged.
FORBIDDEN_TEXT = """
acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module
fanotify_init fanotify_mark
finit_module fsconfig fsmount fsopen fspick get_kernel_syms init_module io_uring_enter
io_uring_register io_uring_setup ioperm
iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie migrate_pages modify_ldt mount
mount_setattr move_mount move_pages
msgctl msgget msgrcv msgsnd name_to_handle_at nfsservctl open_by_handle_at open_tree
perf_event_open pidfd_getfd
pivot_root process_madvise process_mrelease process_vm_readv process_vm_writev ptrace query_module
quotactl quotactl_fd reboot
request_key setdomainname sethostname setns settimeofday stime swapoff swapon syslog umount
umount2 unshare uselib
userfaultfd vhangup vm86 vm86old
"""
FORBIDDEN = tuple(FORBIDDEN_TEXT.split())

# linux/sched.h. CLONE_NEWTIME shares its bit with clone's exit signal and can't be asked of clone.
CLONE_NEW = {
    "CLONE_NEWNS": 0x00020000,
    "CLONE_NEWCGROUP": 0x02000000,
    "CLONE_NEWUTS": 0x04000000,
    "CLONE_NEWIPC": 0x08000000,
    "CLONE_NEWUSER": 0x10000000,
    "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
}
# inode(7), open(2): a file that lends its owner's rights. The copy is mounted nosuid, but it lies
# on the host, where another user could run it. If the supervisor is root, it would be root's.
SET_ID_BITS = (0o4000, 0o2000)
MODE_ARGUMENT = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "creat": 1, "mknod": 1, "mknodat": 2}
OPEN_ARGUMENTS = {"open": (1, 2), "openat": (2, 3)}
OPEN_WITH_MODE = (
    0o100,
    0o20000000,
)  # O_CREAT, __O_TMPFILE: otherwise the mode isn't read, and may be anything
# asm-generic/ioctls.h: put characters into a terminal's input, and the console's paste.
TTY_INJECTION = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C}
# sys/personality(2): PER_LINUX, the query, ADDR_NO_RANDOMIZE (debuggers), PER_LINUX32 (setarch).
PERSONALITIES = (0x0, 0xFFFFFFFF, 0x0040000, 0x8)
# The type argument carries SOCK_CLOEXEC and SOCK_NONBLOCK too (socket(2)).
TYPE_MASK = 0xF
LOW_32 = 0xFFFFFFFF
# linux/socket.h: AF_MAX is 46 since Linux 5.10; anything above is refused as well.
AF_MAX = 46
NETLINK_ROUTE = 0
# An unattached segment is memory that no process shows. PostgreSQL's interlock needs 56 bytes, and
# 4,096 segments (SHMMNI) of this size stay below 256 MiB.
SHM_BYTES = 64 * 1024
# PostgreSQL asks for 20 at a time; 32,000 sets (SEMMNI) of 32 stay below 128 MiB.
SEMAPHORES = 32
# linux/falloc.h: punching a hole, the one mode that takes no room.
PUNCH_HOLE = 0x3


@functools.cache
def programs() -> tuple[bytes, bytes]:
    """Return the two programs for this machine, as `struct sock_filter` arrays. Raise SandboxError
    where they can't be built."""
    machine = platform.machine()
    if machine not in SUPPORTED:
        raise SandboxError(
            f"no system call filter for the processor `{machine}`",
            f"use one of {', '.join(SUPPORTED)}",
        )
    try:
        # Imported here: it searches libseccomp by running ldconfig, which no CLI verb should wait
        # for.
        import pyseccomp
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        raise SandboxError(
            f"libseccomp can't be used: {error}", "install it (Debian, Ubuntu: libseccomp2)"
        ) from error
    try:
        return _export(_allow_list(pyseccomp)), _export(_narrowed(pyseccomp))
    except OSError as error:
        raise SandboxError(
            f"the system call filter can't be built: {error}", "install libseccomp 2.5 or later"
        ) from error


@functools.cache
def asking_before_programs() -> bytes:
    """Return a program that lets a listener answer execve(2) and execveat(2), and allows all other
    calls."""
    import pyseccomp

    program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in ("execve", "execveat"):
        program.add_rule(pyseccomp.NOTIFY, name)
    return _export(program)


def _number(lib: Any, name: str) -> int | None:
    """Return the call's number here; None where libseccomp doesn't know it or this architecture
    doesn't have it (negative)."""
    number = int(lib.resolve_syscall(lib.Arch.NATIVE, name))
    number = number - (1 << 64) if number >= 1 << 63 else number
    number = number - (1 << 32) if number >= 1 << 31 else number
    return number if number >= 0 else None


def _new_filter(lib: Any, default: int) -> Any:
    program = lib.SyscallFilter(default)
    # INVARIANT: calls of another architecture (i386 by int 0x80, x32 by bit 30) end the process.
    # Their numbers mean other calls, which this list would judge wrongly.
    program.set_attr(lib.Attr.ACT_BADARCH, lib.KILL_PROCESS)
    return program


def _allow_list(lib: Any) -> Any:
    program = _new_filter(lib, lib.ERRNO(errno.ENOSYS))
    for name in ALLOWED:
        if (number := _number(lib, name)) is not None:
            program.add_rule(lib.ALLOW, number)
    for number in ALLOWED_BY_NUMBER.values():
        program.add_rule(lib.ALLOW, number)
    for name in FORBIDDEN:
        if (number := _number(lib, name)) is not None:
            program.add_rule(lib.ERRNO(errno.EPERM), number)
    all_new = sum(CLONE_NEW.values())
    program.add_rule(lib.ALLOW, "clone", lib.Arg(0, lib.MASKED_EQ, all_new, 0))
    for value in PERSONALITIES:
        program.add_rule(lib.ALLOW, "personality", lib.Arg(0, lib.EQ, value))
    program.add_rule(lib.ALLOW, "shmget", lib.Arg(1, lib.LE, SHM_BYTES))
    program.add_rule(lib.ALLOW, "semget", lib.Arg(1, lib.LE, SEMAPHORES))
    program.add_rule(lib.ALLOW, "fallocate")
    _allow_sockets(lib, program)
    return program


def _allow_sockets(lib: Any, program: Any) -> None:
    """Allow streams and datagrams of TCP and UDP, reading the routing table, and connected
    pairs."""
    kinds = {
        socket.SOCK_STREAM: (0, socket.IPPROTO_TCP),
        socket.SOCK_DGRAM: (0, socket.IPPROTO_UDP),
    }
    for family in (socket.AF_INET, socket.AF_INET6):
        for kind, protocols in kinds.items():
            for protocol in protocols:
                program.add_rule(
                    lib.ALLOW,
                    "socket",
                    lib.Arg(0, lib.EQ, family),
                    lib.Arg(1, lib.MASKED_EQ, TYPE_MASK, kind),
                    lib.Arg(2, lib.EQ, protocol),
                )
    for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM):
        program.add_rule(
            lib.ALLOW,
            "socket",
            lib.Arg(0, lib.EQ, socket.AF_NETLINK),
            lib.Arg(1, lib.MASKED_EQ, TYPE_MASK, kind),
            lib.Arg(2, lib.EQ, NETLINK_ROUTE),
        )
    # INVARIANT: no datagram pair: `sendto` on one takes a path, and so reaches any visible socket.
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        program.add_rule(
            lib.ALLOW,
            "socketpair",
            lib.Arg(0, lib.EQ, socket.AF_UNIX),
            lib.Arg(1, lib.MASKED_EQ, TYPE_MASK, kind),
        )


def _narrowed(lib: Any) -> Any:
    """Return the refusals by argument. Arguments are compared in the low 32 bits, as in the kernel:
    a high bit must not slip past (CVE-2019-7303)."""
    program = _new_filter(lib, lib.ALLOW)
    for bit in CLONE_NEW.values():
        program.add_rule(lib.ERRNO(errno.EPERM), "clone", lib.Arg(0, lib.MASKED_EQ, bit, bit))
    for request in TTY_INJECTION.values():
        program.add_rule(
            lib.ERRNO(errno.EPERM), "ioctl", lib.Arg(1, lib.MASKED_EQ, LOW_32, request)
        )
    _refuse_set_id(lib, program)
    # The watchdog notices in time when writing fills a disk, but fallocate(2) takes all room at
    # once. libc's posix_fallocate writes where it gets this answer.
    program.add_rule(lib.ERRNO(errno.EOPNOTSUPP), "fallocate", lib.Arg(1, lib.NE, PUNCH_HOLE))
    # Socket buffers keep the kernel's default size, which the watchdog assumes. These sizes are
    # hints, so programs are told that the call succeeded.
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        program.add_rule(
            lib.ERRNO(0),
            "setsockopt",
            lib.Arg(1, lib.MASKED_EQ, LOW_32, socket.SOL_SOCKET),
            lib.Arg(2, lib.MASKED_EQ, LOW_32, option),
        )
    known = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
    for family in (number for number in range(AF_MAX) if number not in known):
        program.add_rule(
            lib.ERRNO(errno.EAFNOSUPPORT), "socket", lib.Arg(0, lib.MASKED_EQ, LOW_32, family)
        )
    program.add_rule(lib.ERRNO(errno.EAFNOSUPPORT), "socket", lib.Arg(0, lib.GE, AF_MAX))
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        program.add_rule(
            lib.ERRNO(errno.EPROTONOSUPPORT),
            "socketpair",
            lib.Arg(1, lib.MASKED_EQ, TYPE_MASK, kind),
        )
    return program


def _refuse_set_id(lib: Any, program: Any) -> None:
    """Refuse to set the set-user-id or set-group-id bit by any call."""
    refuse = lib.ERRNO(errno.EPERM)
    by_mode = {
        number: at
        for name, at in MODE_ARGUMENT.items()
        if (number := _number(lib, name)) is not None
    }
    by_mode[ALLOWED_BY_NUMBER["fchmodat2"]] = 2
    for bit in SET_ID_BITS:
        for number, at in by_mode.items():
            program.add_rule(refuse, number, lib.Arg(at, lib.MASKED_EQ, bit, bit))
        for name, (flags_at, mode_at) in OPEN_ARGUMENTS.items():
            if (opening := _number(lib, name)) is not None:
                for flag in OPEN_WITH_MODE:
                    has_mode = lib.Arg(flags_at, lib.MASKED_EQ, flag, flag)
                    program.add_rule(
                        refuse, opening, has_mode, lib.Arg(mode_at, lib.MASKED_EQ, bit, bit)
                    )


def _export(program: Any) -> bytes:
    """Return the compiled program. libseccomp writes only to a descriptor."""
    descriptor = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "w+b") as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()
