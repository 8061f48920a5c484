"""Ask Gatehouse whether a tool may run, by `POST /v1/tool-calls` at the agent's door.

An agent starts this before each call of a tool, so it imports next to nothing: `http.client` alone
takes as long to import as Python takes to start.

INVARIANT: only a complete answer that says yes is a yes; everything else is a no with its reason.
"""

import json
import os
import socket

DOOR = ("127.0.0.1", 3701)


def ask(tool):
    """Return whether the tool may run, and why. `tool` is the body of the call, as a dictionary:
    `{"tool": "command", "command": "make test"}`."""
    body = json.dumps(tool).encode()
    head = (
        "POST /v1/tool-calls HTTP/1.0\r\n"
        f"Host: {DOOR[0]}:{DOOR[1]}\r\n"
        f"Authorization: Bearer {os.environ.get('GATEHOUSE_TOKEN', '')}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    try:
        with socket.create_connection(DOOR) as door:
            door.sendall(head.encode() + body)
            # A person may be asked meanwhile; Gatehouse answers when the wait is over.
            answer = b"".join(iter(lambda: door.recv(65536), b""))
    except OSError as error:
        return False, f"Gatehouse can't be reached ({error.strerror}), so this is denied"
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        status, found = int(head.split(b" ", 2)[1]), json.loads(body)
        if status == 200:
            return found["allowed"] is True, str(found["why"])
        return False, f"{found['error']}; {found.get('remedy') or 'nothing was asked'}"
    except (ValueError, KeyError, IndexError, TypeError):
        return False, "Gatehouse gave no whole answer, so this is denied"
