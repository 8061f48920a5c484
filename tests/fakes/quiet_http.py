"""What the fakes that speak HTTP have in common: a thread for each client, nothing on the test's
output, bodies read to their end."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class QuietServer(ThreadingHTTPServer):
    """Takes many clients at once."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that doesn't trust the certificate, or goes away in the middle, is part of
        what is tested."""


class QuietHandler(BaseHTTPRequestHandler):
    """HTTP/1.1; a connection that says nothing for a minute is closed."""

    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """The tests look at what the fake noted."""

    def body(self) -> bytes:
        """The request's body, by its length or in chunks."""
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def respond(self, status: int, kind: str, body: bytes) -> None:
        """Send a whole response; `kind` is its type."""
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
