"""A client that is as plain as can be: blocking sockets with no option set, and the `ssl` module
over them.

    python -m bench._egress_plain PORT ORIGIN CERTIFICATE COUNT      prints the seconds that each
                                                                     new connection took, as JSON

Each connection goes to 127.0.0.1:ORIGIN by a CONNECT to PORT, or to ORIGIN itself where PORT is
0, and asks for one small page. Unlike the client of `egress`, whose event loop sends without
delay, it has Nagle's algorithm on: its request waits until what it sent before is acknowledged,
and acknowledges in turn what a proxy with Nagle's algorithm on (sandbox-runtime's) waits for: 40
ms that such a proxy costs every other client are not seen by this one. It is a process of its
own so that it shares no lock with the origin.
"""

import json
import socket
import ssl
import sys
import time

from bench._egress_ours import HOST


def fetch(port: int, origin: int, context: ssl.SSLContext) -> None:
    """Fetch one page over one new connection."""
    with socket.create_connection((HOST, port or origin)) as sock:
        if port:
            sock.sendall(
                f"CONNECT {HOST}:{origin} HTTP/1.1\r\nHost: {HOST}:{origin}\r\n\r\n".encode()
            )
            assert b" 200 " in _head(sock)
        with context.wrap_socket(sock, server_hostname=HOST) as tls:
            tls.sendall(f"GET /small HTTP/1.1\r\nHost: {HOST}:{origin}\r\n\r\n".encode())
            head, _, body = _head(tls).partition(b"\r\n\r\n")
            assert b" 200 " in head, head
            left = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]) - len(body)
            while left > 0:
                left -= len(tls.recv(left))


def _head(sock: socket.socket) -> bytes:
    said = b""
    while b"\r\n\r\n" not in said:
        more = sock.recv(65536)
        assert more, said
        said += more
    return said


def main() -> None:
    """See the module's text."""
    port, origin, certificate, count = sys.argv[1:]
    context = ssl.create_default_context(cafile=certificate)
    taken = []
    for _ in range(int(count)):
        began = time.perf_counter()
        fetch(int(port), int(origin), context)
        taken.append(time.perf_counter() - began)
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
