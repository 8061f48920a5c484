"""A git server over HTTP on loopback, behind a password: git's own backend program."""

import base64
import os
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PASSWORD = "correct-horse-battery"
BACKEND = "/usr/lib/git-core/git-http-backend"
# Whom it takes: a person, and a token as forges name its user.
LOGINS = {
    "Basic " + base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
    for user in ("ada", "oauth2")
}


class GitServer(ThreadingHTTPServer):
    """Serves the bare repositories below `root`."""

    root = Path("/nowhere")


class GitBackend(BaseHTTPRequestHandler):
    """Git's own HTTP backend behind a password."""

    server: GitServer

    def _serve(self) -> None:
        given = self.headers.get("authorization", "")
        if given not in LOGINS:
            self.send_response(401)
            self.send_header("www-authenticate", 'Basic realm="git"')
            self.send_header("content-length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
        env = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("content-type", ""), "REMOTE_USER": "ada",
            "CONTENT_LENGTH": str(len(body)), "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }  # fmt: skip
        done = subprocess.run([BACKEND], input=body, env=env, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(lines.pop("Status", "200").split()[0]))
        for name, value in lines.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _serve  # noqa: N815 (the base class's names)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Quiet."""
