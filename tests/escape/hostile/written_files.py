"""What may only be read: the host's workspace, programs and settings, and the kernel's own
files."""

import ctypes
import os
from pathlib import Path

from kit import WORLD, attempt, syscall, try_all

# --- what is read-only


@attempt
def write_lower():
    lower, file = Path(WORLD["lower_inside"]), Path(WORLD["lower_inside"], "file")
    return try_all(
        lambda: file.write_text("x"),
        lambda: file.open("r+").close(),
        lambda: os.truncate(file, 0),
        lambda: (lower / "new").touch(),
        lambda: file.chmod(0o777),
        lambda: file.unlink(),
        lambda: file.rename(lower / "other"),
        lambda: (lower / "d").mkdir(),
        lambda: file.rename("/workspace/merged/moved"),
        lambda: os.utime(file),
        lambda: os.setxattr(file, "user.x", b"1"),
        lambda: os.chown(file, 1000, 1000),
        lambda: os.mkfifo(lower / "p"),
        lambda: os.symlink("/", lower / "s"),
    )


@attempt
def write_lower_through_proc():
    file = Path(WORLD["lower_inside"], "file")
    descriptor = os.open(file, os.O_RDONLY)
    return try_all(
        lambda: os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR),
        lambda: os.fchmod(descriptor, 0o777),
        lambda: os.ftruncate(descriptor, 0),
        lambda: Path("/proc/1/root" + str(file)).write_text("x"),
    )


@attempt
def hardlink_lower_into_merged():
    os.link(Path(WORLD["lower_inside"], "file"), "/workspace/merged/hard")
    return "linked"


@attempt
def remount_lower_writable():
    syscall("mount", None, WORLD["lower_inside"].encode(), None, 0x20 | 0x1000, None)
    return "remounted"


@attempt
def bind_lower_elsewhere():
    syscall("mount", WORLD["lower_inside"].encode(), b"/tmp", None, 0x1000, None)
    return "bound"


@attempt
def write_programs_and_settings():
    return try_all(
        *(
            lambda name=name: Path(name).touch()
            for name in (
                "/usr/x",
                "/etc/x",
                "/x",
                "/dev/x",
                "/usr/bin/x",
                "/workspace/x",
                "/home/x",
                "/var/x",
            )
        ),
        lambda: Path("/etc/passwd").open("a").close(),
        lambda: Path("/etc/gatehouse/ca-bundle.pem").open("a").close(),
    )


# --- the kernel's files


@attempt
def write_sysctl():
    return try_all(
        lambda: Path("/proc/sys/kernel/core_pattern").write_text("|/tmp/x"),
        lambda: Path("/proc/sys/vm/drop_caches").write_text("1"),
        lambda: Path("/proc/sys/kernel/hostname").write_text("x"),
        lambda: Path("/proc/sys/net/ipv4/ip_forward").write_text("1"),
        lambda: Path("/proc/sys/user/max_user_namespaces").write_text("9"),
        lambda: Path("/proc/sys/kernel/modprobe").write_text("/tmp/x"),
    )


@attempt
def write_sysrq():
    Path("/proc/sysrq-trigger").write_text("h")
    # A masked file is /dev/null: writing to it does nothing.
    return None if os.stat("/proc/sysrq-trigger").st_rdev == os.makedev(1, 3) else "written"


@attempt
def read_kernel_secrets():
    found = []
    for name in (
        "kcore",
        "keys",
        "key-users",
        "kallsyms",
        "kmsg",
        "timer_list",
        "slabinfo",
        "vmallocinfo",
        "kpageflags",
        "sched_debug",
    ):
        try:
            with open(f"/proc/{name}", "rb") as file:
                if file.read(16):
                    found.append(name)
        except OSError:
            continue
    return str(found) if found else None


@attempt
def see_sys():
    return str(os.listdir("/sys")) or None


@attempt
def change_own_bounds():
    import resource

    done = []
    for kind in (
        resource.RLIMIT_NOFILE,
        resource.RLIMIT_NPROC,
        resource.RLIMIT_DATA,
        resource.RLIMIT_CORE,
    ):
        _, hard = resource.getrlimit(kind)
        try:
            resource.setrlimit(kind, (hard + 1, hard + 1))
            done.append(kind)
        except (OSError, ValueError):
            continue
    return str(done) if done else None


@attempt
def take_room_on_the_disk_at_once():
    """fallocate(2) takes gigabytes in no time. Only a mode that gives room back passes."""
    made = os.open("/workspace/merged/room", os.O_RDWR | os.O_CREAT, 0o600)
    return try_all(
        *(
            lambda mode=mode: syscall("fallocate", made, mode, 0, 1 << 20)
            for mode in (0, 1, 0x10, 0x11, 0x20, 0x40, 1 << 32 | 3)
        )
    )


@attempt
def take_memory_that_is_counted_nowhere():
    return try_all(lambda: syscall("memfd_create", b"x", 0))


@attempt
def take_what_the_machine_has_little_of():
    context = ctypes.c_ulong(0)
    return try_all(
        lambda: syscall("io_setup", 1000, ctypes.byref(context)),
        lambda: syscall("semget", 0, 32000, 0o1600),
    )
