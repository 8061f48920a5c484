"""Run commands for the supervisor in a container of its own, `agent` or `tools`.

The container has no network and only one way to the supervisor: a socket on a volume that the two
share. The runner connects to it, waits for a job, and hands over the descriptors of the job's
output and listening sockets. So the supervisor serves them as in a sandbox of its own.

    job    <- {"start": {command, env, cwd, tty, split, ports, files, home}} with `files` open, then
              the filters of system calls that the command runs under
           -> {"ready": ports} with the descriptors: output (and error, where they are split), then
              the listening sockets
           <- {"go": true}, {"signal": number}
           -> {"exit": code}

One connection is one job; another connection waits for the next. INVARIANT: a job ends with its
connection, so that a supervisor's death leaves no agent running.

INVARIANT: a job can't reach the runner. The job runs as another user (the supervisor's, who owns
the copy) without a capability. The runner is the user RUNNER, which alone may enter the folder of
the socket, and keeps what it needs to become the job's user and to end its processes. Nothing of
one job is left when the next one starts: no process, no file except the copy's, no shared memory.

    python3 runner.py DIR          run jobs that come by DIR/runner.sock
    python3 runner.py DIR --check  exit 0 where a supervisor is there
"""

import array
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import pty
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import termios
import time
from pathlib import Path

MOST_BYTES = 200_000
MOST_DESCRIPTORS = 16
RETRY_S = 0.2
# Owner of the socket's folder in agent_image/Dockerfile. One of the numbers that Debian keeps free.
RUNNER = 65333
# linux/prctl.h, linux/seccomp.h
PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER = 4, 8, 22, 36
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 24, 38, 2
# linux/capability.h: the version with two words, and KILL, SETGID, SETUID.
CAPABILITIES = 0x20080522
KEPT = 1 << 5 | 1 << 6 | 1 << 7
INSTRUCTION_BYTES = 8
# Process numbers that the runner may have in its container: an engine's own init may come first.
FIRST = (1, 2)
# Folders besides the copy that a job may write to; emptied before the next one.
SCRATCH = ["/tmp", "/var/tmp", "/run", "/home/agent", "/etc/gatehouse", "/dev/shm", "/dev/mqueue"]
# The command would inherit Python's ignored signals.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)
LIBRARY = ctypes.CDLL(None, use_errno=True)


def connect(folder):
    """Return a connection to the supervisor. Raise OSError where there is none."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        made.connect(f"{folder}/runner.sock")
    except OSError:
        made.close()
        raise
    return made


def serve(folder):
    """Wait for jobs, one connection each, for as long as the container runs."""
    ended, told = socket.socketpair()
    for one in (ended, told):
        one.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    said = ""
    while True:
        try:
            with connect(folder) as made:
                _end_all()
                made.send(b'{"hello": 1}')
                wanted, files = _next(made, ended)[0]
                if wanted is not None:
                    _run(made, ended, wanted["start"], files)
        except (OSError, ValueError, KeyError) as error:
            if said != (said := f"runner: {type(error).__name__}: {error}"):  # each once
                print(said, file=sys.stderr, flush=True)
            time.sleep(RETRY_S)


def _next(connection, ended, job=0):
    """Return the next message, or the exit code of a job that ended first. Reap children
    meanwhile."""
    while True:
        ready, _, _ = select.select([connection, ended], [], [])
        if ended in ready:
            with contextlib.suppress(BlockingIOError):
                ended.recv(4096)
            if (code := _reap(job)) is not None:
                return None, code
        if connection in ready:
            return _receive(connection), None


def _reap(job):
    """Reap ended children. Return the job's exit code if it is among them."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == job:
                code = os.waitstatus_to_exitcode(ended[1])
    return code


def _signal_all(number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, number)


def _end_all():
    """Kill all but the container's first processes, and wait until none is left.

    One call of kill(2) misses nothing that forks meanwhile. Orphans become children of this
    process, so no child left means that nothing is left.
    """
    _signal_all(signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _run(connection, ended, job, files):
    """Run one job to its end, and report how it ended."""
    go, start = os.pipe()
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        os.close(start)
        _become(connection, job, files, go)
    for one in (go, *files):
        os.close(one)
    try:
        code = _attend(connection, ended, child, start)
    finally:
        os.close(start)
        _end_all()
    with contextlib.suppress(OSError):
        connection.send(json.dumps({"exit": 128 - code if code < 0 else code}).encode())


def _attend(connection, ended, child, start):
    """Follow the supervisor's messages until the command has ended. Return its exit code."""
    while True:
        message, code = _next(connection, ended, child)
        if code is not None:
            return code
        said, files = message
        for one in files:
            os.close(one)
        if said is None:  # the supervisor is gone
            return -signal.SIGKILL
        if said.get("go"):
            with contextlib.suppress(BrokenPipeError):
                os.write(start, b"\n")
        elif number := said.get("signal"):
            _signal_all(number)


def _become(connection, job, files, go):
    """Become the command, as the supervisor's user, once the supervisor says so."""
    try:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        _become_user(*_peer(connection))
        for folder in SCRATCH:
            _empty(folder)
        _remove_shared_memory()
        _write_files(job, files)
        filters = [_whole(one) for one in files[len(job["files"]) :]]
        handed, theirs = _outputs(job)
        listeners = [_listen(port) for port in job["ports"]]
        handed += [one.fileno() for one in listeners]
        socket.send_fds(connection, [json.dumps({"ready": job["ports"]}).encode()], handed)
    except BaseException as error:
        with contextlib.suppress(OSError):
            connection.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        os._exit(127)
    try:
        _execute(job, theirs, filters, go)
    except OSError as error:
        os.write(2, f"gatehouse: {job['command'][0]}: {error.strerror}\n".encode())
    os._exit(127)


def _peer(connection):
    """Return the supervisor's user and group (struct ucred of unix(7)), in this container's
    numbers."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, group = struct.unpack("3i", found)
    if user == RUNNER:
        raise ValueError(f"user {RUNNER} is the runner's own; use another for the supervisor")
    return user, group


def _become_runner():
    """Stop being root. Keep what it takes to become a job's user and to end its processes, and let
    no executed program gain more."""
    for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
        _prctl(PR_CAPBSET_DROP, capability)
    os.setgroups([])
    _prctl(PR_SET_KEEPCAPS, 1)
    os.setresgid(RUNNER, RUNNER, RUNNER)
    os.setresuid(RUNNER, RUNNER, RUNNER)
    _keep(KEPT)
    # A process that isn't dumpable shows as root's in /proc, and a job may be root without
    # capabilities.
    _prctl(PR_SET_DUMPABLE, 1)


def _become_user(user, group):
    """Become that user permanently, without a capability or a way to one."""
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    _keep(0)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


class _Header(ctypes.Structure):  # struct __user_cap_header_struct of linux/capability.h
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _keep(capabilities):
    """Give up every capability but these. Raise OSError where one of them is missing."""
    low, high = (capabilities, capabilities, 0), (0, 0, 0)  # effective, permitted, inheritable
    words = (ctypes.c_uint32 * 6)(*low, *high)
    if LIBRARY.capset(ctypes.byref(_Header(CAPABILITIES, 0)), words) != 0:
        raise OSError(ctypes.get_errno(), "the capabilities can't be set")


def _prctl(option, *values):
    if LIBRARY.prctl(option, *(*values, 0, 0, 0, 0)[:4]) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


def _empty(folder):
    """Remove what belongs to this user. Deep entries are moved up first, so that no path gets
    long."""
    mounted = set()
    while True:
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
            entries = [
                one
                for one in found
                if one.stat(follow_symlinks=False).st_uid == os.getuid() and one.path not in mounted
            ]
        if not Path(folder).is_dir() or not entries:
            return
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    _bring_up(entry.path, folder)
                    os.rmdir(entry.path)  # noqa: PTH106
                else:
                    os.unlink(entry.path)  # noqa: PTH108
            except OSError as error:
                if error.errno != errno.EBUSY:  # the engine's: no job can mount anything
                    raise
                mounted.add(entry.path)


def _bring_up(path, folder):
    os.chmod(path, 0o700)  # noqa: PTH101
    with os.scandir(path) as found:
        entries = list(found)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)  # noqa: PTH101
            os.rename(entry.path, f"{folder}/{os.urandom(16).hex()}")  # noqa: PTH104
        else:
            os.unlink(entry.path)  # noqa: PTH108


def _remove_shared_memory():
    """Remove this user's System V segments and semaphores (proc_sysvipc(5))."""
    for kind, remove in (("shm", LIBRARY.shmctl), ("sem", LIBRARY.semctl)):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]:
                remove(int(line.split()[1]), 0, 0)  # IPC_RMID is 0


def _write_files(job, files):
    """Store what the supervisor handed over: trusted authorities, and files of the home."""
    for path, descriptor in zip(job["files"], files, strict=False):
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(_whole(descriptor))
    for path, text in job["home"].items():
        place = Path(job["env"]["HOME"], path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def _outputs(job):
    """Return the descriptors that the supervisor reads, and those that the command writes to."""
    if job["tty"]:
        master, slave = pty.openpty()
        return [master], (slave, slave)
    out, out_inside = os.pipe()
    if not job["split"]:
        return [out], (out_inside, out_inside)
    err, err_inside = os.pipe()
    return [out, err], (out_inside, err_inside)


def _execute(job, outputs, filters, go):
    """Become the command, under its system call filters."""
    os.setsid()
    if job["tty"]:
        fcntl.ioctl(outputs[0], termios.TIOCSCTTY, 0)
    stdin = outputs[0] if job["tty"] else os.open("/dev/null", os.O_RDONLY)
    for target, source in enumerate((stdin, *outputs)):
        os.dup2(source, target)
    if os.read(go, 1) != b"\n":
        os._exit(137)
    os.closerange(3, 65536)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(job["cwd"])
    path = job["env"].get("PATH", os.defpath)
    program = shutil.which(job["command"][0], path=path) or job["command"][0]
    for one in filters:
        _load(one)
    os.execve(program, job["command"], job["env"])


class _Program(ctypes.Structure):  # struct sock_fprog of linux/filter.h
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _load(text):
    """Put this process under a seccomp program. Raise OSError where that fails."""
    program = _Program(len(text) // INSTRUCTION_BYTES, text)
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program))


def _whole(descriptor):
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def _listen(port):
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen(128)
    return made


def _receive(connection):
    """Return one message and its descriptors, or None where the other side is gone."""
    size = array.array("i").itemsize * MOST_DESCRIPTORS
    data, ancillary, _, _ = connection.recvmsg(MOST_BYTES, socket.CMSG_SPACE(size))
    found = array.array("i")
    for level, kind, packed in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(packed[: len(packed) - len(packed) % found.itemsize])
    return (json.loads(data) if data else None), list(found)


def main():
    """See the module's text."""
    folder, is_check = sys.argv[1], sys.argv[2:] == ["--check"]
    if not is_check and os.getpid() not in FIRST:
        sys.exit("runner: it ends all processes around it: run it as a container's first")
    try:
        _become_runner()
        if not is_check:
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        sys.exit(
            f"runner: {error.strerror}: it starts as root with the capabilities that"
            " compose.yaml gives it"
        )
    if not is_check:
        serve(folder)
    try:
        connect(folder).close()
    except OSError as error:
        sys.exit(f"no supervisor is at {folder}: {error.strerror}")


if __name__ == "__main__":
    main()
