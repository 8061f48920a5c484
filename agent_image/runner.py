"""Runs commands for the supervisor in a container of its own, `agent` or `tools`.

The container has no network and no way to the supervisor but one socket, which lies on a volume
that the two share. This connects to it, waits for a job, and hands the descriptors of the job's
output and of its listening sockets over, so that the supervisor serves them as it does in a
sandbox of its own.

    job    <- {"start": {command, env, cwd, tty, split, ports, files, home}} with `files` open, then
              the filters of system calls that the command runs under
           -> {"ready": ports} with the descriptors: output (and error, where they are split), then
              the listening sockets
           <- {"go": true}, {"signal": number}
           -> {"exit": code}

One connection is one job; another one waits for the next. INVARIANT: what runs here ends with its
connection: a supervisor that died must not leave an agent that goes on.

    python3 runner.py DIR          run jobs that come by DIR/runner.sock
    python3 runner.py DIR --check  exit 0 where a supervisor is there
"""

import array
import contextlib
import ctypes
import json
import os
import pty
import resource
import select
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

MOST_BYTES = 200_000
MOST_DESCRIPTORS = 16
RETRY_S = 0.2
# linux/prctl.h, linux/seccomp.h
PR_SET_CHILD_SUBREAPER, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 36, 22, 2
INSTRUCTION_BYTES = 8
# The numbers that this may have in its container: an engine's own init may be before it.
FIRST = (1, 2)
JOBS = set()
# Emptied before a session's agent starts: nothing of the one before is left to it.
SCRATCH = ("/tmp", "/run/scratch")


def connect(folder):
    """Return a connection to the supervisor; OSError where there is none."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        made.connect(f"{folder}/runner.sock")
    except OSError:
        made.close()
        raise
    return made


def serve(folder):
    """Wait for jobs, one connection each, for as long as the container runs."""
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        try:
            with connect(folder) as made:
                made.send(b'{"hello": 1}')
                wanted, files = _receive(made)
                if wanted is None:
                    continue
                JOBS.clear()  # the one before has said that it is over
                _end_others()
                if (job := os.fork()) == 0:
                    _run_to_end(made, wanted["start"], files)
                JOBS.add(job)
                for one in files:
                    os.close(one)
        except (OSError, ValueError, KeyError):
            time.sleep(RETRY_S)


def _reap(*_):
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            if pid in JOBS and os.WIFSIGNALED(status):  # what it ran is nobody's now
                _end_others()
            JOBS.discard(pid)


def _end_others():
    """Kill all in this container but its first processes: there is one job at a time."""
    if os.getpid() in FIRST:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)


def _run_to_end(connection, job, files):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = 0
    try:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        code = _run(connection, job, files)
    except BaseException as error:
        with contextlib.suppress(OSError):
            connection.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
    finally:
        _end_all()
        os._exit(code)


def _run(connection, job, files):
    """Run one job to its end."""
    count = len(job["files"])
    for path, descriptor in zip(job["files"], files[:count], strict=True):
        _write(path, descriptor)
    filters = [_whole(one) for one in files[count:]]
    _write_home(job)
    if job["tty"]:
        master, slave = pty.openpty()
        ours, theirs = [master], (slave, slave)
    else:
        out, out_inside = os.pipe()
        err, err_inside = os.pipe() if job["split"] else (None, out_inside)
        ours, theirs = [one for one in (out, err) if one is not None], (out_inside, err_inside)
    listeners = [_listen(port) for port in job["ports"]]
    go, start = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(start)
        _become(job, theirs, go, filters)
    os.close(go)
    for one in set(theirs):
        os.close(one)
    handed = [*ours, *(one.fileno() for one in listeners)]
    socket.send_fds(connection, [json.dumps({"ready": job["ports"]}).encode()], handed)
    for one in ours:
        os.close(one)
    for one in listeners:
        one.close()
    code = _attend(connection, child, start)
    _end_all()
    with contextlib.suppress(OSError):
        connection.send(json.dumps({"exit": code}).encode())
    return 0


def _attend(connection, child, start):
    """Do what the supervisor says until the command has ended; return its exit code."""
    ended = os.pidfd_open(child)
    while True:
        ready, _, _ = select.select([connection, ended], [], [])
        if ended in ready:
            _, status = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        said, _ = _receive(connection)
        if said is None:  # the supervisor is gone
            os.kill(child, signal.SIGKILL)
            return 137
        if said.get("go"):
            os.write(start, b"\n")
        elif number := said.get("signal"):
            for pid in _descendants(os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)


def _become(job, outputs, go, filters):
    """Become the command, once the supervisor has said so, under its filters of system calls."""
    try:
        # What is ignored here would be ignored there.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        if job["tty"]:
            import fcntl
            import termios

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
    except OSError as error:
        os.write(2, f"gatehouse: {job['command'][0]}: {error.strerror}\n".encode())
    os._exit(127)


class _Program(ctypes.Structure):  # struct sock_fprog of linux/filter.h
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _load(text):
    """Put this process under a seccomp program; OSError where that fails."""
    program = _Program(len(text) // INSTRUCTION_BYTES, text)
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no filter of system calls")


def _whole(descriptor):
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def _listen(port):
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen(128)
    return made


def _write(path, descriptor):
    """Keep a file that the supervisor handed over: the authorities to trust, mostly."""
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(descriptor, "rb") as file:
        fresh = place.with_name(f"{place.name}.{os.getpid()}")
        fresh.write_bytes(file.read())
        fresh.replace(place)


def _write_home(job):
    if not job["is_agent"]:
        return
    home = Path(job["env"]["HOME"])
    for folder in (home, *map(Path, SCRATCH)):
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
    for path, text in job["home"].items():
        place = home / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def _receive(connection):
    """Return one message and its descriptors; None where the other side is gone."""
    size = array.array("i").itemsize * MOST_DESCRIPTORS
    data, ancillary, _, _ = connection.recvmsg(MOST_BYTES, socket.CMSG_SPACE(size))
    found = array.array("i")
    for level, kind, packed in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(packed[: len(packed) - len(packed) % found.itemsize])
    return (json.loads(data) if data else None), list(found)


def _descendants(root):
    """Return every process below one, by its number."""
    parents = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names, and many of them
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                stat = Path(f"/proc/{entry}/stat").read_text(errors="replace")
                parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    found, new = set(), {root}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found


def _end_all():
    """Kill whatever this job left, also what it made meanwhile."""
    while left := _descendants(os.getpid()):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def main():
    """See the module's text."""
    folder = sys.argv[1]
    if sys.argv[2:] == ["--check"]:
        try:
            connect(folder).close()
        except OSError as error:
            sys.exit(f"no supervisor is at {folder}: {error.strerror}")
        return
    serve(folder)


if __name__ == "__main__":
    main()
