"""What the attempts share: what they are told of the world, the table that they are put into,
and ways to a system call."""

import ctypes
import os
import platform
import signal

WORLD: dict = {}
ATTEMPTS: dict = {}
LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
# Numbers from 424 on are the same everywhere; older ones are x86_64's and aarch64's.
NR = {
    name: pair[0 if X86 else 1]
    for name, pair in {
        "mount": (165, 40),
        "umount2": (166, 39),
        "pivot_root": (155, 41),
        "unshare": (272, 97),
        "setns": (308, 268),
        "clone": (56, 220),
        "ptrace": (101, 117),
        "process_vm_readv": (310, 270),
        "keyctl": (250, 219),
        "add_key": (248, 217),
        "bpf": (321, 280),
        "perf_event_open": (298, 241),
        "userfaultfd": (323, 282),
        "open_by_handle_at": (304, 265),
        "name_to_handle_at": (303, 264),
        "kcmp": (312, 272),
        "reboot": (169, 142),
        "init_module": (175, 105),
        "syslog": (103, 116),
        "kexec_load": (246, 104),
        "swapon": (167, 224),
        "acct": (163, 89),
        "quotactl": (179, 60),
        "settimeofday": (164, 170),
        "fanotify_init": (300, 262),
        "sethostname": (170, 161),
        "chroot": (161, 51),
        "shmget": (29, 194),
        "semget": (64, 190),
        "fallocate": (285, 47),
        "memfd_create": (319, 279),
        "io_setup": (206, 0),
    }.items()
} | {
    "clone3": 435,
    "io_uring_setup": 425,
    "pidfd_getfd": 438,
    "open_tree": 428,
    "fsopen": 430,
    "mount_setattr": 442,
    "move_mount": 429,
    "pidfd_open": 434,
    "process_madvise": 440,
}
CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWNS = 0x10000000, 0x40000000, 0x00020000


def attempt(function):
    ATTEMPTS[function.__name__] = function
    return function


def syscall(name, *arguments):
    number = NR[name] if isinstance(name, str) else name
    result = LIBC.syscall(
        ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    )
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(name))
    return result


def in_child(function):
    """Run in a fork; gives its exit status as os.wait does, so that being killed can be told."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if function() is None else 7
        except BaseException:
            code = 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def stopped_by_sigsys(function):
    status = in_child(function)
    return None if status in (-signal.SIGSYS, 1) else f"status {status}"


def try_all(*actions):
    done = []
    for action in actions:
        try:
            action()
            done.append(str(action))
        except OSError:
            continue
    return str(done) if done else None
