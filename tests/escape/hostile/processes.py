"""Other processes: seen, signalled, traced, or robbed of their memory, environment and
descriptors."""

import errno
import os
import signal
import subprocess
import time
from pathlib import Path

from kit import WORLD, attempt, syscall


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
        # `child.kill` takes one that is stopped by its tracer for one that has ended.
        os.kill(child.pid, signal.SIGKILL)
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
