# ruff: noqa: PTH101, PTH110, PTH115, PTH116, PTH120, PTH123, PTH208, PTH211, SIM115
"""What a hostile agent would try. Runs inside a real sandbox, and outside it for the attempts that must be able to succeed.

    python3 hostile.py WORLD.json [NAME...]      standard library only; prints one JSON list of [name, escaped, detail]

Each attempt returns text when it got what it wanted, and returns None or raises when it was stopped.
"""

import array
import ctypes
import errno
import json
import os
import platform
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

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
    result = LIBC.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
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


# --- files of the host


@attempt
def read_shadow():
    return Path("/etc/shadow").read_text()[:20]


@attempt
def read_machine_id():
    return Path("/etc/machine-id").read_text()[:20]


@attempt
def list_root_home():
    return str(os.listdir("/root"))


@attempt
def read_ssh_keys():
    return str(os.listdir("/root/.ssh"))


@attempt
def list_host_home():
    return str(os.listdir(WORLD["home"]))


@attempt
def read_host_canary():
    return Path(WORLD["canary_file"]).read_text()


@attempt
def read_canary_through_proc_1_root():
    return Path(f"/proc/1/root{WORLD['canary_file']}").read_text()


@attempt
def read_canary_through_proc_self_root():
    return Path(f"/proc/self/root{WORLD['canary_file']}").read_text()


@attempt
def read_canary_through_every_proc_root():
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        for link in ("root", "cwd"):
            for climb in ("", "/../../../../../.."):
                try:
                    return Path(f"/proc/{pid}/{link}{climb}{WORLD['canary_file']}").read_text()
                except OSError:
                    continue
    return None


@attempt
def read_canary_through_descriptors():
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            try:
                return Path(f"/proc/{pid}/fd/{name}/../..{WORLD['canary_file']}").read_text()
            except OSError:
                continue
    return None


@attempt
def inherited_descriptor():
    extra = [
        n
        for n in os.listdir("/proc/self/fd")
        if int(n) > 2 and not os.readlink(f"/proc/self/fd/{n}").endswith("/fd") and os.path.exists(f"/proc/self/fd/{n}")
    ]
    return str(extra) if extra else None


@attempt
def read_data_directory():
    return Path(WORLD["data_secret_inside"]).read_text()


@attempt
def list_data_directory():
    return (
        str(os.listdir(os.path.dirname(WORLD["data_secret_inside"])))
        if os.listdir(os.path.dirname(WORLD["data_secret_inside"]))
        else None
    )


@attempt
def uncover_data_directory():
    syscall("umount2", os.path.dirname(WORLD["data_secret_inside"]).encode(), 2)
    return "unmounted"


@attempt
def climb_out_by_dot_dot():
    return Path("/workspace/merged/" + "../" * 20 + WORLD["canary_file"].lstrip("/")).read_text()


@attempt
def climb_out_by_symlink():
    link = Path("/workspace/merged/link-out")
    link.unlink(missing_ok=True)
    link.symlink_to(WORLD["canary_file"])
    try:
        return link.read_text()
    finally:
        link.unlink()


@attempt
def open_by_handle():
    # The Docker "shocker": file handles are good for a whole file system.
    handle = ctypes.create_string_buffer(struct.pack("IiQ", 8, 1, 2) + b"\0" * 120)
    descriptor = os.open("/workspace/merged", os.O_RDONLY)
    return f"fd {syscall('open_by_handle_at', descriptor, handle, 0)}"


@attempt
def read_block_device():
    for name in ("/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg"):
        try:
            return f"{name}: {os.open(name, os.O_RDONLY)}"
        except OSError:
            continue
    return None


@attempt
def make_block_device():
    for folder in ("/tmp", "/workspace/merged", "/dev"):
        try:
            os.mknod(f"{folder}/disk", 0o600 | 0o060000, os.makedev(254, 0))
            return folder
        except OSError:
            continue
    return None


@attempt
def run_loader_on_a_host_file():
    loader = next(Path("/lib64").glob("ld-linux*"), None) or next(Path("/lib").glob("ld-linux*"))
    done = subprocess.run([loader, "/bin/cat", WORLD["canary_file"]], capture_output=True, text=True, check=False)
    return done.stdout or None


@attempt
def run_copied_binary_on_a_host_file():
    Path("/tmp/cat").write_bytes(Path("/bin/cat").read_bytes())
    os.chmod("/tmp/cat", 0o755)
    return (
        subprocess.run(["/tmp/cat", WORLD["canary_file"]], capture_output=True, text=True, check=False).stdout or None
    )


@attempt
def run_from_memory_on_a_host_file():
    descriptor = os.memfd_create("x")
    os.write(descriptor, Path("/bin/cat").read_bytes())
    argv = [f"/proc/self/fd/{descriptor}", WORLD["canary_file"]]
    return subprocess.run(argv, capture_output=True, text=True, check=False, pass_fds=[descriptor]).stdout or None


# --- what is read-only


def _try_all(*actions):
    done = []
    for action in actions:
        try:
            action()
            done.append(str(action))
        except OSError:
            continue
    return str(done) if done else None


@attempt
def write_lower():
    lower, file = Path(WORLD["lower_inside"]), Path(WORLD["lower_inside"], "file")
    return _try_all(
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
    return _try_all(
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
    return _try_all(
        *(
            lambda name=name: Path(name).touch()
            for name in ("/usr/x", "/etc/x", "/x", "/dev/x", "/usr/bin/x", "/workspace/x", "/home/x", "/var/x")
        ),
        lambda: Path("/etc/passwd").open("a").close(),
        lambda: Path("/etc/gatehouse/ca-bundle.pem").open("a").close(),
    )


# --- the kernel's files


@attempt
def write_sysctl():
    return _try_all(
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
    for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_DATA, resource.RLIMIT_CORE):
        _, hard = resource.getrlimit(kind)
        try:
            resource.setrlimit(kind, (hard + 1, hard + 1))
            done.append(kind)
        except (OSError, ValueError):
            continue
    return str(done) if done else None


# --- processes


@attempt
def see_host_processes():
    seen = []
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if WORLD["process_mark"].encode() in line.replace(b"\0", b" "):
            seen.append(pid)
    return str(seen) if seen else None


@attempt
def read_environment_of_others():
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            if WORLD["environment_mark"].encode() in Path(f"/proc/{pid}/environ").read_bytes():
                return pid
        except OSError:
            continue
    return None


@attempt
def signal_the_supervisor():
    os.kill(WORLD["supervisor_pid"], 0)
    mine = Path(f"/proc/{WORLD['supervisor_pid']}/cmdline").read_bytes()
    return "signalled" if WORLD["process_mark"].encode() in mine else None


@attempt
def kill_init():
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGSEGV):
        os.kill(1, number)
    time.sleep(0.05)
    state = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[0]
    return None if state in "SR" else state


@attempt
def trace_init():
    syscall("ptrace", 16, 1, 0, 0)
    return "attached"


@attempt
def trace_own_child():
    child = subprocess.Popen(["sleep", "5"])
    try:
        syscall("ptrace", 16, child.pid, 0, 0)
        return "attached"
    finally:
        child.kill()
        child.wait()


@attempt
def read_memory_of_init():
    for action in (
        lambda: open("/proc/1/mem", "rb").read(1),
        lambda: syscall("process_vm_readv", 1, None, 0, None, 0, 0),
    ):
        try:
            action()
            return "read"
        except OSError as error:
            if error.errno == errno.EIO:  # opened; address 0 isn't mapped
                maps = Path("/proc/1/maps").read_text().splitlines()
                with open("/proc/1/mem", "rb") as memory:
                    memory.seek(int(maps[0].split("-")[0], 16))
                    if memory.read(4) == b"\x7fELF":
                        return (
                            None if WORLD.get("inside") else "read"
                        )  # bubblewrap's own code: public, and holds no secret
    return None


@attempt
def take_descriptor_of_init():
    pidfd = syscall("pidfd_open", 1, 0)
    return f"fd {syscall('pidfd_getfd', pidfd, 0, 0)}"


# --- privileges


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
    for program in ("/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/newgrp", "/usr/bin/sudo"):
        if os.path.exists(program):
            done = subprocess.run([program, "--version"], capture_output=True, check=False, stdin=subprocess.DEVNULL)
            del done
    status = Path("/proc/self/status").read_text()
    return None if "NoNewPrivs:\t1" in status else "no_new_privs is off"


@attempt
def gain_by_own_setuid_copy():
    target = Path("/workspace/merged/idcopy")
    target.write_bytes(Path("/usr/bin/id").read_bytes())
    target.chmod(0o6755)
    try:
        out = subprocess.run([target, "-u"], capture_output=True, text=True, check=False).stdout.strip()
        return None if out in ("1000", "") else out
    finally:
        target.unlink()


@attempt
def change_the_hosts_device_files():
    """To what they are already, so that nothing is lost where it works."""
    now = os.stat("/dev/null")
    return _try_all(
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
        return _try_all(
            lambda: os.chmod(file, 0o4755),
            lambda: os.chmod(file, 0o2755),
            lambda: os.chmod(file, 0o6755, dir_fd=os.open("/workspace/merged", os.O_RDONLY)),
            lambda: os.fchmod(os.open(file, os.O_RDWR), 0o4755),
            lambda: opened(os.O_CREAT | os.O_WRONLY, "/workspace/merged/setid2"),
            lambda: os.mknod("/workspace/merged/setid3", 0o104755),
            lambda: syscall(452, -100, str(file).encode(), 0o4755, 0),
            lambda: syscall(
                437, -100, str(file).encode(), (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0), 24
            ),
        )
    finally:
        for name in ("setid", "setid2", "setid3"):
            Path("/workspace/merged", name).unlink(missing_ok=True)


@attempt
def has_capabilities():
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Cap")]
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
    return _try_all(
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
    return _try_all(
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
    return _try_all(lambda: syscall("keyctl", 0, -3, 1), lambda: syscall("add_key", b"user", b"x", b"y", 1, -3))


def _forbidden(name, *arguments):
    """Refused by the filter (EPERM, ENOSYS), not merely for its arguments."""
    try:
        syscall(name, *arguments)
    except OSError as error:
        return None if error.errno in (errno.EPERM, errno.ENOSYS) else f"{name} reached the kernel: {error}"
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
        for n in ("kcmp", "fanotify_init", "process_madvise", "move_mount", "mount_setattr", "name_to_handle_at")
    ]
    return str([one for one in found if one]) if any(found) else None


@attempt
def call_by_x32_numbers():
    """Bit 30 chooses the x32 table, whose numbers a filter by number would misjudge."""
    if not X86:
        return None
    status = in_child(lambda: syscall(0x40000000 | NR["mount"], b"none", b"/tmp", b"tmpfs", 0, None))
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
        return str(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())

    status = in_child(run)
    return None if status < 0 else f"status {status}"  # SIGSYS from the filter, SIGSEGV where the kernel has no i386


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


# --- sockets


def _connect(family, kind, address):
    with socket.socket(family, kind) as client:
        client.settimeout(2)
        client.connect(address)
        if kind == socket.SOCK_STREAM:
            return client.recv(64).decode() or None
        client.send(b"hello")
        return client.recv(64).decode()


@attempt
def unix_socket_in_workspace():
    return _connect(socket.AF_UNIX, socket.SOCK_STREAM, WORLD["unix_in_workspace"])


@attempt
def unix_socket_in_tmp():
    return _connect(socket.AF_UNIX, socket.SOCK_STREAM, WORLD["unix_in_tmp"])


@attempt
def unix_socket_abstract():
    return _connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + WORLD["unix_abstract"])


@attempt
def unix_datagram_in_workspace():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(b"hello", WORLD["unix_datagram"])
    return "sent"


@attempt
def unix_datagram_from_a_pair():
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"hello", WORLD["unix_datagram"])
    return "sent"


@attempt
def unix_datagram_from_a_raw_pair():
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW | socket.SOCK_CLOEXEC)
    one.sendto(b"hello", WORLD["unix_datagram"])
    return "sent"


@attempt
def unix_path_from_a_stream_pair():
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        one, two = socket.socketpair(socket.AF_UNIX, kind)
        two.close()
        for action in (
            lambda one=one: one.connect(WORLD["unix_in_workspace"]),
            lambda one=one: one.sendto(b"x", WORLD["unix_datagram"]),
        ):
            try:
                action()
                return str(kind)
            except OSError:
                continue
    return None


@attempt
def tcp_to_host_loopback():
    return _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", WORLD["tcp_port"]))


@attempt
def tcp_to_host_loopback_v6():
    return _connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", WORLD["tcp6_port"]))


@attempt
def tcp_to_host_address():
    return _connect(socket.AF_INET, socket.SOCK_STREAM, (WORLD["address"], WORLD["tcp_any_port"]))


@attempt
def operators_port():
    return _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 3700))


@attempt
def udp_to_host_loopback():
    return _connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", WORLD["udp_port"]))


@attempt
def dns_direct():
    query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06canary\x07example\x03org\x00\x00\x01\x00\x01"
    for server in ("192.0.2.53", WORLD["address"]):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            try:
                client.sendto(query, (server, 53))
                return f"sent to {server}"
            except OSError:
                continue
    return None


@attempt
def dns_by_resolver():
    return socket.getaddrinfo("canary.example.org", 80)[0][4][0]


@attempt
def connect_outside():
    with socket.socket() as client:
        client.settimeout(1)
        client.connect(("192.0.2.1", 443))
    return "connected"


@attempt
def raw_sockets():
    made = []
    for family, kind, protocol in (
        (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        (socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
        (socket.AF_PACKET, socket.SOCK_RAW, 3),
        (40, socket.SOCK_STREAM, 0),
        (38, socket.SOCK_SEQPACKET, 0),
        (socket.AF_NETLINK, socket.SOCK_RAW, 9),
        (socket.AF_NETLINK, socket.SOCK_RAW, 12),
        (socket.AF_INET, socket.SOCK_STREAM, 132),
        (44, socket.SOCK_RAW, 0),
        (16 << 3, 1, 0),
        (1 << 20, 1, 0),
    ):
        try:
            socket.socket(family, kind, protocol).close()
            made.append((int(family), int(kind), protocol))
        except OSError:
            continue
    return str(made) if made else None


@attempt
def add_a_network_interface():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        body = (
            struct.pack("=BxHiII", 0, 0, 0, 1, 1)
            + struct.pack("=HH8s", 12, 3, b"dummy0\0\0")
            + struct.pack("=HHHH6s2x", 20, 18, 9, 1, b"dummy\0")
        )
        link.send(struct.pack("=IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
        code = struct.unpack("=i", link.recv(4096)[16:20])[0]
    return None if code < 0 else "added"


@attempt
def another_interface_is_there():
    names = [
        name
        for _, name in socket.if_nameindex()
        if name != "lo"
        and not name.startswith(("sit", "tunl", "ip6tnl", "gre", "erspan", "ip_vti", "ip6_vti", "ip6gre"))
    ]
    return str(names) if names else None


def main():
    WORLD.update(json.loads(Path(sys.argv[1]).read_text()))
    results = []
    for name in sys.argv[2:] or ATTEMPTS:
        try:
            got = ATTEMPTS[name]()
            results.append([name, got is not None, str(got) if got is not None else "nothing to be had"])
        except Exception as error:
            results.append([name, False, f"{type(error).__name__}: {error}"])
    print(json.dumps(results))


if __name__ == "__main__":
    assert array
    main()
