"""The helper that works inside a sandbox's namespaces from outside. Runs as `python -I -S port_opener.py FD`.

Entering a user namespace can't be undone and is refused to a process with threads, so the supervisor can't do it, nor
fork to do it. This process has one thread and imports little; it forks once per request, and the fork enters, does the
one thing, answers and is gone. It never runs anything, and ends when the supervisor's end of the channel closes.

A request is one packet of JSON with two descriptors, the owning user namespace and the one to work in:
- `{"ports": [..]}` with a network namespace: listen on 127.0.0.1. The answer carries one descriptor per port, in order.
- `{"read_only": [..]}` with a mount namespace: close these mounts for writing to what they hold.
The answer is one packet, JSON `{"error": null}` or `{"error": "..."}`.
"""

import ctypes
import json
import os
import socket
import sys

BACKLOG = 512
REQUEST_BYTES = 4096
# linux/in.h; the socket module has no name for it.
IP_FREEBIND = 15
# The same number on every architecture; linux/mount.h; linux/fcntl.h.
MOUNT_SETATTR = 442
MOUNT_ATTR_RDONLY = 1
AT_FDCWD = -100


def open_inside(user_fd: int, net_fd: int, ports: list[int]) -> list[socket.socket]:
    """Enter both namespaces and listen on 127.0.0.1 at each port."""
    os.setns(user_fd, os.CLONE_NEWUSER)
    os.setns(net_fd, os.CLONE_NEWNET)
    listeners = []
    for port in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The loopback interface may not be up yet: bubblewrap sets it up while this runs.
        listener.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
        listeners.append(listener)
    return listeners


def close_mounts(user_fd: int, mount_fd: int, paths: list[str]) -> None:
    """Enter both namespaces and make each of these mounts read-only, its other flags untouched (mount_setattr(2))."""
    os.setns(user_fd, os.CLONE_NEWUSER)
    os.setns(mount_fd, os.CLONE_NEWNS)
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)
    for path in paths:
        if (
            libc.syscall(MOUNT_SETATTR, AT_FDCWD, path.encode(), 0, ctypes.byref(attributes), ctypes.sizeof(attributes))
            != 0
        ):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)


def answer(channel: socket.socket, request: bytes, descriptors: list[int]) -> None:
    """Do one request, in the fork. Whatever goes wrong is the answer."""
    try:
        user_fd, other_fd = descriptors
        wanted = json.loads(request)
        listeners = []
        if "ports" in wanted:
            listeners = open_inside(user_fd, other_fd, wanted["ports"])
        else:
            close_mounts(user_fd, other_fd, wanted["read_only"])
    except Exception as error:  # it is all told to the one who asked, and this process ends
        channel.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        return
    socket.send_fds(channel, [b'{"error": null}'], [listener.fileno() for listener in listeners])


def main() -> None:
    """Serve requests until the channel closes."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES, 2)
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
