"""Ask Gatehouse at the programs' door, which needs no token: the socket says which session.

INVARIANT: only a complete answer that says so is a success; everything else is one line on standard
error and exit code 1.
"""

import json
import socket
import sys

DOOR = ("127.0.0.1", 3702)
MOST_TOLD = 200


def ask(path, body):
    """Yield the answer's lines as dictionaries, as they come; `supervisor/server/agent/programs`
    says which there are. The last one always has `exit`, and `why` where it isn't 0. What waits for
    a person is told on standard error."""
    for line in _lines(path, body):
        if "waits" in line:
            how = f"(gatehouse approve {line['id'][:8]})"
            tell(f"waiting for an answer: {short(line['waits'])}  {how}")
        yield line
        if "exit" in line:
            return
    yield {"exit": 1, "why": "Gatehouse gave no whole answer", "remedy": "ask again"}


def tell(text):
    """Say something to whoever reads the program's errors."""
    print(f"gatehouse: {text}", file=sys.stderr, flush=True)


def short(text):
    """Return a text as one line that isn't long."""
    line = " ".join(str(text).split())
    return line if len(line) <= MOST_TOLD else f"{line[:MOST_TOLD]}..."


def _lines(path, body):
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.0\r\n"
        f"Host: {DOOR[0]}:{DOOR[1]}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    try:
        with socket.create_connection(DOOR) as door, door.makefile("rb") as answer:
            door.sendall(head.encode() + data)
            status = int(answer.readline().split(b" ", 2)[1])
            while answer.readline().strip():
                pass
            if status == 200:
                yield from map(json.loads, answer)
            else:
                error = json.loads(answer.read())
                yield {"exit": 1, "why": error["why"], "remedy": error.get("remedy", "")}
    except OSError as error:
        why = f"Gatehouse can't be reached ({error.strerror or error})"
        yield {"exit": 1, "why": why, "remedy": "ask again"}
    except (ValueError, KeyError, IndexError, TypeError):
        return
