"""Helper that works inside a sandbox's namespaces from outside, run as a script.

Run as `python -I -S port_opener.py FD`. Entering a user namespace can't be undone and is refused to
a process with threads, so the supervisor can't do it, nor fork to do it. This process has one
thread and imports little. It forks once per request; the fork enters, does its one task, answers
and exits. It never runs anything, and ends when the supervisor's end of the channel closes.

A request is one packet of JSON with two descriptors, the owning user namespace and the one to work
in:
- `{"ports": [..], "door": null, "names": null}` with a network namespace: listen on 127.0.0.1 at
  `ports`, at every address at `door`, and for datagrams on 127.0.0.1 at `names`. The answer carries
  one descriptor per port, in order.
- `{"redirect": [..]}` with a network namespace, and the listening socket of its door as third
  descriptor: set up what `redirect.steps` says, and check that it leads to the door.
- `{"read_only": [..], "own": [..], "closed": [..], "links": [..]}` with a mount namespace:
  make these mounts read-only, and cover these paths below the home with empty files and folders:
  `own` with new ones, then `closed` with what nobody can change.
The answer is one packet, JSON `{"error": null}` or `{"error": "..."}`.
"""

import ctypes
import errno
import json
import os
import select
import socket
import stat
import struct
import sys
from typing import Any

HOME = "/home/agent"
# New files and folders that cover others.
OWN = "/run/home"
EMPTY_FILE, EMPTY_FOLDER = "/etc/gatehouse/empty", "/etc/gatehouse/empty.d"
BACKLOG = 512
REQUEST_BYTES = 16384
ANSWER_BYTES = 65536
WAIT_S = 2.0
# linux/in.h; the socket module has no name for it.
IP_FREEBIND = 15
# The same number on every architecture; linux/mount.h; linux/fcntl.h.
MOUNT_SETATTR = 442
MOUNT_ATTR_RDONLY = 1
OPEN_TREE = 428
OPEN_TREE_CLONE = 1
MOVE_MOUNT = 429
# Both ends are descriptors: MOVE_MOUNT_F_EMPTY_PATH and MOVE_MOUNT_T_EMPTY_PATH.
BOTH_EMPTY_PATH = 0x44
AT_FDCWD = -100
# linux/netlink.h
NLMSG_ERROR = 2
# Nothing listens there in any sandbox, so only the door can answer.
PROBED_PORT = 9


def enter(user_fd: int, other_fd: int, kind: int) -> None:
    """Enter both namespaces."""
    os.setns(user_fd, os.CLONE_NEWUSER)
    os.setns(other_fd, kind)


def listening(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # The loopback interface may not be up yet: bubblewrap sets it up while this runs.
    listener.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    return listener


def door(port: int) -> socket.socket:
    """Return a socket that listens at every address, of both families where there are two."""
    if not socket.has_dualstack_ipv6():
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    else:
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("", port))
    listener.listen(BACKLOG)
    return listener


def datagrams(port: int) -> socket.socket:
    """Return a socket for datagrams on 127.0.0.1."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    sock.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
    sock.bind(("127.0.0.1", port))
    return sock


def redirect(steps: list[list[Any]], door_fd: int) -> None:
    """Set up each step, and check that its probe leads to the door. Raise OSError where it
    doesn't."""
    with socket.socket(fileno=door_fd) as listener:
        for packets, probe, needed in steps:
            try:
                for protocol, data, acks in packets:
                    tell_kernel(protocol, bytes.fromhex(data), acks)
            except OSError:
                if needed:
                    raise
                continue
            if probe is not None:
                with socket.create_connection((probe, PROBED_PORT), WAIT_S):
                    if not select.select([listener], [], [], WAIT_S)[0]:
                        raise OSError(f"a connection to {probe} isn't redirected")
                    listener.accept()[0].close()


def tell_kernel(protocol: int, messages: bytes, acks: int) -> None:
    """Send messages and wait until each was acknowledged."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol) as sock:
        sock.settimeout(WAIT_S)
        sock.sendto(messages, (0, 0))
        while acks > 0:
            answers, at = sock.recv(ANSWER_BYTES), 0
            while at < len(answers):
                length, kind = struct.unpack_from("=IH", answers, at)
                if kind == NLMSG_ERROR:
                    (error,) = struct.unpack_from("=i", answers, at + 16)
                    if error:
                        raise OSError(-error, os.strerror(-error))
                    acks -= 1
                at += length + -length % 4


LIBC = ctypes.CDLL(None, use_errno=True)


def called(path: str, *words: Any) -> int:
    """Return what a system call returns. Raise OSError."""
    found: int = LIBC.syscall(*words)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return found


def close_mounts(paths: list[str]) -> None:
    """Make each of these mounts read-only, keeping its other flags (mount_setattr(2))."""
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)
    given = (ctypes.byref(attributes), ctypes.sizeof(attributes))
    for path in paths:
        called(path, MOUNT_SETATTR, AT_FDCWD, path.encode(), 0, *given)


def cover(own: list[str], closed: list[str], links: list[tuple[str, str]]) -> None:
    """Cover these paths below the home (open_tree(2), move_mount(2)). One with a folder in it lies
    in one of `own`; a folder's ends with a slash. `links` are made in folders of `own`.

    INVARIANT: by descriptors that follow no link: others may write to the home meanwhile.
    """
    home = os.open(HOME, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    for path in (*own, *closed):
        if "/" in path:
            make(f"{OWN}/{path}", is_folder=path.endswith("/"))
        name = path.rstrip("/")
        place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=home)
        mode = os.fstat(place).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.ENOTDIR, "neither a file nor a folder", path)
        source = EMPTY_FOLDER if stat.S_ISDIR(mode) else EMPTY_FILE
        if path in own:
            source = f"{OWN}/{name}"
            make(source, is_folder=stat.S_ISDIR(mode))
        clone = OPEN_TREE_CLONE | os.O_CLOEXEC
        tree = called(source, OPEN_TREE, AT_FDCWD, source.encode(), clone)
        called(path, MOVE_MOUNT, tree, b"", place, b"", BOTH_EMPTY_PATH)
        os.close(tree)
        os.close(place)
    for path, target in links:
        os.symlink(target, f"{OWN}/{path}")  # noqa: PTH211 (it imports little)


def make(path: str, *, is_folder: bool) -> None:
    """Make an empty file or folder."""
    folder = path if is_folder else path.rpartition("/")[0]
    os.makedirs(folder, 0o700, exist_ok=True)  # noqa: PTH103 (it imports little)
    if not is_folder:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def answer(channel: socket.socket, request: bytes, descriptors: list[int]) -> None:
    """Handle one request, in the fork. Any error becomes the answer."""
    try:
        user_fd, other_fd, *more = descriptors
        wanted = json.loads(request)
        listeners = []
        if "read_only" in wanted:
            enter(user_fd, other_fd, os.CLONE_NEWNS)
            close_mounts(wanted["read_only"])
            if wanted["own"] or wanted["closed"]:
                cover(wanted["own"], wanted["closed"], wanted["links"])
        else:
            enter(user_fd, other_fd, os.CLONE_NEWNET)
            if "redirect" in wanted:
                redirect(wanted["redirect"], *more)
            else:
                listeners = [listening(port) for port in wanted["ports"]]
                listeners += [door(wanted["door"])] if wanted["door"] else []
                listeners += [datagrams(wanted["names"])] if wanted["names"] else []
    except Exception as error:  # it is all told to the one who asked, and this process ends
        channel.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        return
    socket.send_fds(channel, [b'{"error": null}'], [listener.fileno() for listener in listeners])


def main() -> None:
    """Serve requests until the channel closes."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES, 3)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            try:
                answer(channel, request, descriptors)
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
