"""Git over HTTP, by git's own `git http-backend` (git-http-backend(1)), as a CGI program."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class CgiAnswer(NamedTuple):
    """What the program answered."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def answer(
    root: Path, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes
) -> CgiAnswer:
    """Return the answer to a request about the repository at `path` below `root`."""
    env = {
        "PATH": os.defpath,
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "REMOTE_USER": "",
        "GIT_PROTOCOL": headers.get("git-protocol", ""),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
    }
    done = subprocess.run(
        ["git", "http-backend"], env=env, input=body, capture_output=True, check=False
    )
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    status, found = 200, []
    for line in head.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(": ")
        if name.lower() == "status":
            status = int(value.split()[0])
        elif name:
            found.append((name, value))
    return CgiAnswer(status, found, content)
