"""The helper that opens listening sockets inside a sandbox's network namespace. Runs as `python -I -S port_opener.py FD`.

Entering a user namespace can't be undone and is refused to a process with threads, so the supervisor can't do it, nor
fork to do it. This process has one thread and imports little; it forks once per request, and the fork enters, opens,
passes the sockets back and is gone. It never runs anything, and ends when the supervisor's end of the channel closes.

Request, one packet: JSON `{"ports": [..]}` with two descriptors, the user and the network namespace.
Answer, one packet: JSON `{"error": null}` with one descriptor per port in the same order, or `{"error": "..."}`.
"""

import json
import os
import socket
import sys

BACKLOG = 512
REQUEST_BYTES = 4096
# linux/in.h; the socket module has no name for it.
IP_FREEBIND = 15


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


def answer(channel: socket.socket, request: bytes, descriptors: list[int]) -> None:
    """Do one request, in the fork. Whatever goes wrong is the answer."""
    try:
        user_fd, net_fd = descriptors
        listeners = open_inside(user_fd, net_fd, json.loads(request)["ports"])
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
