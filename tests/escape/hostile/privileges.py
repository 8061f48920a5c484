"""Rights that a sandbox has none of: other users, capabilities, namespaces, mounts, and calls
that the filter refuses."""

import ctypes
import errno
import os
import signal
import subprocess
from pathlib import Path

from kit import (
    CLONE_NEWNET,
    CLONE_NEWUSER,
    LIBC,
    NR,
    X86,
    attempt,
    in_child,
    stopped_by_sigsys,
    syscall,
    try_all,
)


@attempt
def become_root():
    for action in (
        lambda: os.setuid(0),
        lambda: os.setresuid(0, 0, 0),
        lambda: os.setgroups([0]),
        lambda: os.setgid(0),
    ):
        try:
            action()
            return "became"
        except OSError:
            continue
    return None


@attempt
def gain_by_setuid_program():
    for program in (
        "/usr/bin/su",
        "/usr/bin/mount",
        "/usr/bin/passwd",
        "/usr/bin/newgrp",
        "/usr/bin/sudo",
    ):
        if os.path.exists(program):
            done = subprocess.run(
                [program, "--version"], capture_output=True, check=False, stdin=subprocess.DEVNULL
            )
            del done
    status = Path("/proc/self/status").read_text()
    return None if "NoNewPrivs:\t1" in status else "no_new_privs is off"


@attempt
def gain_by_own_setuid_copy():
    target = Path("/workspace/merged/idcopy")
    target.write_bytes(Path("/usr/bin/id").read_bytes())
    target.chmod(0o6755)
    try:
        out = subprocess.run(
            [target, "-u"], capture_output=True, text=True, check=False
        ).stdout.strip()
        return None if out in ("1000", "") else out
    finally:
        target.unlink()


@attempt
def change_the_hosts_device_files():
    """To what they are already, so that nothing is lost where it works."""
    now = os.stat("/dev/null")
    return try_all(
        lambda: os.chmod("/dev/null", now.st_mode & 0o777),
        lambda: os.chown("/dev/zero", os.getuid(), -1),
        lambda: os.chmod("/dev/full", os.stat("/dev/full").st_mode & 0o777),
    )


@attempt
def make_setuid_files():
    file = Path("/workspace/merged/setid")
    file.touch()

    def opened(flags, name):
        os.close(os.open(name, flags, 0o4755))
        if not os.stat("/workspace/merged/setid2").st_mode & 0o4000:
            raise OSError

    try:
        return try_all(
            lambda: os.chmod(file, 0o4755),
            lambda: os.chmod(file, 0o2755),
            lambda: os.chmod(file, 0o6755, dir_fd=os.open("/workspace/merged", os.O_RDONLY)),
            lambda: os.fchmod(os.open(file, os.O_RDWR), 0o4755),
            lambda: opened(os.O_CREAT | os.O_WRONLY, "/workspace/merged/setid2"),
            lambda: os.mknod("/workspace/merged/setid3", 0o104755),
            lambda: syscall(452, -100, str(file).encode(), 0o4755, 0),
            lambda: syscall(
                437,
                -100,
                str(file).encode(),
                (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0),
                24,
            ),
        )
    finally:
        for name in ("setid", "setid2", "setid3"):
            Path("/workspace/merged", name).unlink(missing_ok=True)


@attempt
def has_capabilities():
    lines = [
        line.split()
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("Cap")
    ]
    held = [name for name, value in lines if int(value, 16)]
    return str(held) if held else None


@attempt
def make_user_namespace():
    syscall("unshare", CLONE_NEWUSER)
    return "unshared"


@attempt
def make_network_namespace():
    syscall("unshare", CLONE_NEWNET)
    return "unshared"


@attempt
def clone_user_namespace():
    pid = syscall("clone", CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "cloned"


@attempt
def clone_user_namespace_with_high_bits():
    pid = syscall("clone", (1 << 40) | CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "cloned"


@attempt
def clone3_user_namespace():
    arguments = (ctypes.c_uint64 * 11)(CLONE_NEWUSER, 0, 0, 0, signal.SIGCHLD)
    pid = syscall("clone3", ctypes.byref(arguments), 88)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "cloned"


@attempt
def enter_namespaces_of_init():
    for name in ("user", "net", "mnt", "pid"):
        try:
            descriptor = os.open(f"/proc/1/ns/{name}", os.O_RDONLY)
            syscall("setns", descriptor, 0)
            return name
        except OSError:
            continue
    return None


@attempt
def mount_things():
    return try_all(
        lambda: syscall("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        lambda: syscall("mount", b"proc", b"/tmp", b"proc", 0, None),
        lambda: syscall("pivot_root", b"/tmp", b"/tmp"),
        lambda: syscall("chroot", b"/tmp"),
        lambda: syscall("open_tree", -100, b"/", 1),
        lambda: syscall("fsopen", b"tmpfs", 0),
        lambda: syscall("umount2", b"/proc", 2),
        lambda: syscall("umount2", b"/tmp", 2),
    )


@attempt
def change_the_machine():
    return try_all(
        lambda: syscall("reboot", 0xFEE1DEAD, 672274793, 0, None),
        lambda: syscall("init_module", None, 0, b""),
        lambda: syscall("kexec_load", 0, 0, None, 0),
        lambda: syscall("swapon", b"/tmp/x", 0),
        lambda: syscall("acct", None),
        lambda: syscall("settimeofday", None, None),
        lambda: syscall("sethostname", b"x", 1),
        lambda: syscall("syslog", 3, ctypes.create_string_buffer(64), 64),
        lambda: syscall("quotactl", 0, None, 0, None),
    )


@attempt
def use_kernel_keyring():
    return try_all(
        lambda: syscall("keyctl", 0, -3, 1), lambda: syscall("add_key", b"user", b"x", b"y", 1, -3)
    )


def _forbidden(name, *arguments):
    """Refused by the filter (EPERM, ENOSYS), not merely for its arguments."""
    try:
        syscall(name, *arguments)
    except OSError as error:
        return (
            None
            if error.errno in (errno.EPERM, errno.ENOSYS)
            else f"{name} reached the kernel: {error}"
        )
    return f"{name} worked"


@attempt
def reach_kernel_by_bpf():
    return _forbidden("bpf", 0, None, 0)


@attempt
def reach_kernel_by_perf():
    return _forbidden("perf_event_open", None, 0, -1, -1, 0)


@attempt
def reach_kernel_by_io_uring():
    return _forbidden("io_uring_setup", 1, None)


@attempt
def reach_kernel_by_userfaultfd():
    return _forbidden("userfaultfd", 0)


@attempt
def reach_kernel_by_other_calls():
    found = [
        _forbidden(n, 0, 0, 0, 0, 0)
        for n in (
            "kcmp",
            "fanotify_init",
            "process_madvise",
            "move_mount",
            "mount_setattr",
            "name_to_handle_at",
        )
    ]
    return str([one for one in found if one]) if any(found) else None


@attempt
def call_by_x32_numbers():
    """Bit 30 chooses the x32 table, whose numbers a filter by number would misjudge."""
    if not X86:
        return None
    status = in_child(
        lambda: syscall(0x40000000 | NR["mount"], b"none", b"/tmp", b"tmpfs", 0, None)
    )
    return None if status == -signal.SIGSYS else f"status {status}"


@attempt
def call_by_x32_getpid():
    return stopped_by_sigsys(lambda: str(syscall(0x40000000 | 39))) if X86 else None


@attempt
def call_by_i386_numbers():
    """int 0x80 takes i386 numbers: 20 is getpid there."""
    if not X86:
        return None
    import mmap

    def run():
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
        return str(
            ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        )

    status = in_child(run)
    return (
        None if status < 0 else f"status {status}"
    )  # SIGSYS from the filter, SIGSEGV where the kernel has no i386


@attempt
def type_into_terminal():
    master, slave = os.openpty()
    LIBC.ioctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p)
    for request in (0x5412, 0x5412 | 1 << 32, 0x541C):
        for descriptor in (slave, master):
            if LIBC.ioctl(descriptor, request, b"x") == 0:
                return hex(request)
            if ctypes.get_errno() != errno.EPERM:
                return f"{request:#x} reached the kernel: {os.strerror(ctypes.get_errno())}"
    return None


@attempt
def open_the_supervisors_terminal():
    return str(os.open("/dev/tty", os.O_RDWR))


@attempt
def hide_memory_in_shared_segments():
    return f"id {syscall('shmget', 0, 1 << 30, 0o1600)}"
